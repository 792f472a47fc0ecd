//! The relay carries events from the outbox to their destinations.
//!
//! One turn of the loop is four steps, each in a file of its own: `frontier`
//! reads, `route` chooses, `lane` says whose turn it is, `settle` writes down
//! what happened. `carrier` is the loop itself, one for each part of each
//! destination, so that a destination which is down harms nobody else. Around
//! it the `keeper` takes the part, and waits where it may not carry. The
//! `steward` has a keeper for every part, and looks which are ours: several
//! nodes share the parts by `lease`.
//!
//! A crash between offer and settle delivers the event again. That is the
//! contract, not a bug: the relay is at-least-once, and the inbox on the
//! other side makes the effect happen once.

mod steward;
mod lease;
mod namesake;
mod keeper;
mod carrier;
pub mod destination;
mod frontier;
pub mod route;
mod flow;
mod blocked;
mod lane;
mod breaker;
mod rate;
mod offer;
mod settle;
mod progress;
mod standing;
pub mod wake;
#[cfg(test)]
mod tests;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{sync::watch, task::JoinSet};

use crate::{
    clock::{Clock, Random},
    delivery::part,
    failpoint::Failpoints,
    limits,
    seeded::{self, Bug},
    store::{Deliveries, Source},
    trace::Traces,
};

pub use destination::{Destination, Order};
use keeper::{DISABLED, Place, Places, locked};
use namesake::Namesakes;
pub use route::Pattern;
use steward::Steward;
use wake::Wake;

/// What a relay is given besides its store and its destinations.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where the time comes from.
    pub clock: Clock,
    /// Where jitter comes from.
    pub random: Random,
    /// Whom to tell of each commit and each send.
    pub failpoints: Failpoints,
    /// The longest that a destination waits before it looks by itself.
    pub poll_idle: Duration,
    /// Who this relay is to others that share its store.
    ///
    /// `None` where no other process can have the store: then every destination is carried here,
    /// and a relay that was fenced stops. Either all relays of a store have one, or there is one
    /// relay.
    pub node: Option<Node>,
    /// Whether attempts are traced; what an event carries travels on in any case.
    pub traces: Traces,
}

/// A relay among others on one store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its name, for people: in lists and logs. The store knows a process by its name and a number
    /// that it draws when it starts, so that two processes of one name are two nodes.
    ///
    /// No other living relay should have it: whoever finds one says so, as an error. A process that
    /// was killed and comes again waits as anybody does until the lease of the one before is over.
    pub name: String,
    /// How long it may show no sign of life before the others take what it carries;
    /// [`limits::NODE_LEASE`] is a good choice. All relays of a store have the same.
    pub lease: Duration,
}

impl Node {
    /// A node of this name, with the default lease.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            lease: limits::NODE_LEASE,
        }
    }
}

impl Node {
    /// For how long the others take it for alive, and what it takes for its own.
    fn counts_for(&self) -> Duration {
        if seeded::has(Bug::ShortLease) {
            return self.lease / 20;
        }
        self.lease
    }
}

impl Settings {
    /// Settings with the default poll and no failpoints.
    pub fn new(clock: Clock, random: Random) -> Self {
        Self {
            clock,
            random,
            failpoints: Failpoints::none(),
            poll_idle: limits::POLL_IDLE,
            node: None,
            traces: Traces::off(),
        }
    }
}

/// The relay of one process.
#[derive(Debug)]
pub struct Relay;

impl Relay {
    /// Starts to carry the events of `store` to `destinations`, on the runtime it is called in.
    ///
    /// A destination named here is enabled, even if its far side had wanted no more events. A
    /// name is one destination: of two that share it, the first is carried.
    pub fn spawn<S>(
        store: &S,
        destinations: Vec<Destination>,
        settings: &Settings,
        wake: &Wake,
    ) -> RelayHandle
    where
        S: Source + Deliveries,
    {
        Self::spawn_from(store, store, destinations, settings, wake)
    }

    /// As [`spawn`](Self::spawn), with the events of another source than the store's own.
    pub fn spawn_from<S, D>(
        source: &S,
        store: &D,
        destinations: Vec<Destination>,
        settings: &Settings,
        wake: &Wake,
    ) -> RelayHandle
    where
        S: Source,
        D: Deliveries,
    {
        let mut settings = settings.clone();
        if let Some(node) = &mut settings.node {
            node.name = namesake::identity(&node.name, &settings.random);
        }
        let identity = settings.node.as_ref().map(|node| node.name.clone());
        let namesakes = Arc::new(AtomicUsize::new(0));
        let places = Places::default();
        for destination in &destinations {
            let mut places = locked(&places);
            for number in 0..destination.parts.get() {
                let part = part(&destination.name, number, destination.parts);
                places.entry(part).or_default();
            }
        }
        let draining = watch::Sender::new(false);
        let destinations = watch::Sender::new(destinations.into());
        let steward = Steward::new(
            source.clone(),
            store.clone(),
            settings,
            wake.clone(),
            Arc::clone(&places),
            Namesakes::counted_by(Arc::clone(&namesakes)),
        );
        let mut tasks = JoinSet::new();
        tasks.spawn(steward.run(destinations.subscribe(), draining.subscribe()));
        RelayHandle {
            draining,
            destinations,
            tasks,
            places,
            identity,
            namesakes,
        }
    }
}

/// A running relay; dropping it stops it at once, as a crash would.
#[derive(Debug)]
pub struct RelayHandle {
    draining: watch::Sender<bool>,
    destinations: watch::Sender<Arc<[Destination]>>,
    tasks: JoinSet<()>,
    places: Places,
    identity: Option<String>,
    namesakes: Arc<AtomicUsize>,
}

impl RelayHandle {
    /// Offers nothing new, lets what is on the wire come home, writes it down and gives up what
    /// it carried.
    pub async fn drain(mut self) {
        self.draining.send_replace(true);
        while self.tasks.join_next().await.is_some() {}
    }

    /// Carries these destinations from now on: new ones start, those that are missing end, those
    /// that differ are drained and go on as they are now.
    ///
    /// One that is the same, down to the same `Arc` of its sink, is not disturbed.
    pub fn set(&self, destinations: Vec<Destination>) {
        self.destinations.send_replace(destinations.into());
    }

    /// What the store knows this relay by: its node's name and a number of its own; `None` where it
    /// shares its store with nobody.
    pub fn identity(&self) -> Option<&str> {
        self.identity.as_deref()
    }

    /// How many other processes live under the name of this relay's node.
    ///
    /// Neither takes what another carries; it is a mistake all the same, as nobody can tell them apart
    /// by name.
    pub fn namesakes(&self) -> usize {
        self.namesakes.load(Ordering::Relaxed)
    }

    /// Enables a destination that was disabled; false when there is none of that name.
    pub fn enable(&self, destination: &str) -> bool {
        let places = self.places_of(destination);
        for place in &places {
            // A notice to one that carries would be remembered, and enable it when it is disabled.
            if *place.stopped.borrow() == Some(DISABLED) {
                place.enable.notify_one();
            }
        }
        !places.is_empty()
    }

    /// Why a destination carries nothing; `None` while a part of it does, or when there is none.
    ///
    /// One of `disabled`, `paused`, `standby` (another node carries it, or will) and `fenced`.
    pub fn stopped(&self, destination: &str) -> Option<&'static str> {
        let places = self.places_of(destination);
        let mut reasons = places.iter().map(|place| *place.stopped.borrow());
        let first = reasons.next()??;
        reasons.all(|reason| reason.is_some()).then_some(first)
    }

    fn places_of(&self, destination: &str) -> Vec<Place> {
        locked(&self.places)
            .iter()
            .filter(|(part, _)| part.split('/').next() == Some(destination))
            .map(|(_, place)| place.clone())
            .collect()
    }
}
