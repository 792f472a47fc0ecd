//! The relay carries events from the outbox to their destinations.
//!
//! One turn of the loop is four steps, each in a file of its own: `frontier`
//! reads, `route` chooses, `lane` says whose turn it is, `settle` writes down
//! what happened. `carrier` is the loop itself, one for each destination, so
//! that a destination which is down harms nobody else. Around it the `keeper`
//! takes the destination, and waits where it may not carry.
//!
//! A crash between offer and settle delivers the event again. That is the
//! contract, not a bug: the relay is at-least-once, and the inbox on the
//! other side makes the effect happen once.

mod keeper;
mod ownership;
mod carrier;
pub mod destination;
mod frontier;
pub mod route;
mod flow;
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

use std::{collections::HashMap, sync::Arc, time::Duration};

use tokio::{sync::watch, task::JoinSet};

use crate::{
    clock::{Clock, Random},
    failpoint::Failpoints,
    limits,
    store::{Deliveries, Outbox},
};

pub use destination::{Destination, Order};
use frontier::Tail;
use keeper::{DISABLED, Keeper, Place};
pub use route::Pattern;
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
    /// How long the owner of a destination may show no sign of life before this relay takes it
    /// over; [`limits::TAKE_OVER`] is a good choice.
    ///
    /// `None` where no other process can have the store: then nobody gives signs of life, and a
    /// relay that was fenced stops. All relays of a store are given the same.
    pub take_over: Option<Duration>,
}

impl Settings {
    /// Settings with the default poll and no failpoints.
    pub fn new(clock: Clock, random: Random) -> Self {
        Self {
            clock,
            random,
            failpoints: Failpoints::none(),
            poll_idle: limits::POLL_IDLE,
            take_over: None,
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
        S: Outbox + Deliveries,
    {
        let draining = watch::Sender::new(false);
        let tail = Arc::new(Tail::new(store.clone()));
        let mut tasks = JoinSet::new();
        let mut places = HashMap::new();
        for destination in destinations {
            if places.contains_key(&destination.name) {
                let destination = &destination.name;
                tracing::error!(destination, "a second destination of this name is left out");
                continue;
            }
            let place = Place::default();
            places.insert(destination.name.clone(), place.clone());
            let keeper = Keeper {
                store: store.clone(),
                tail: Arc::clone(&tail),
                destination: Arc::new(destination),
                settings: settings.clone(),
                wake: wake.clone(),
                draining: draining.subscribe(),
                place,
            };
            tasks.spawn(keeper.run());
        }
        RelayHandle {
            draining,
            tasks,
            places,
        }
    }
}

/// A running relay; dropping it stops it at once, as a crash would.
#[derive(Debug)]
pub struct RelayHandle {
    draining: watch::Sender<bool>,
    tasks: JoinSet<()>,
    places: HashMap<String, Place>,
}

impl RelayHandle {
    /// Offers nothing new, lets what is on the wire come home and writes it down.
    pub async fn drain(mut self) {
        self.draining.send_replace(true);
        while self.tasks.join_next().await.is_some() {}
    }

    /// Enables a destination that was disabled; false when there is none of that name.
    pub fn enable(&self, destination: &str) -> bool {
        let place = self.places.get(destination);
        // A notice to one that carries would be remembered, and enable it when it is disabled.
        if let Some(place) = place.filter(|place| *place.stopped.borrow() == Some(DISABLED)) {
            place.enable.notify_one();
        }
        place.is_some()
    }

    /// Why a destination carries nothing; `None` while it does, or when there is none.
    pub fn stopped(&self, destination: &str) -> Option<&'static str> {
        self.places
            .get(destination)
            .and_then(|place| *place.stopped.borrow())
    }
}
