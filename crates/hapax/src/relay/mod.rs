//! The relay carries events from the outbox to their destinations.
//!
//! One turn of the loop is four steps, each in a file of its own: `frontier`
//! reads, `route` chooses, `lane` says whose turn it is, `settle` writes down
//! what happened. `carrier` is the loop itself, one for each destination, so
//! that a destination which is down harms nobody else.
//!
//! A crash between offer and settle delivers the event again. That is the
//! contract, not a bug: the relay is at-least-once, and the inbox on the
//! other side makes the effect happen once.

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

use std::{collections::HashMap, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures_util::FutureExt;
use metrics::counter;
use tokio::{
    sync::{Notify, watch},
    task::JoinSet,
    time::sleep,
};

use crate::{
    clock::{Clock, Random},
    delivery::{AttemptOutcome, Opened},
    failpoint::Failpoints,
    limits,
    store::{Deliveries, Outbox, StoreError},
    telemetry,
};

use carrier::{Carrier, Stopped};
pub use destination::{Destination, Order};
use frontier::Tail;
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
}

impl Settings {
    /// Settings with the default poll and no failpoints.
    pub fn new(clock: Clock, random: Random) -> Self {
        Self {
            clock,
            random,
            failpoints: Failpoints::none(),
            poll_idle: limits::POLL_IDLE,
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

const DISABLED: &str = "disabled";

/// What the handle and the keeper of a destination share.
#[derive(Clone, Debug)]
struct Place {
    enable: Arc<Notify>,
    stopped: watch::Sender<Option<&'static str>>,
}

impl Default for Place {
    fn default() -> Self {
        Self {
            enable: Arc::default(),
            stopped: watch::Sender::new(None),
        }
    }
}

/// Keeps one destination going: opens it, carries, and waits where it may not.
struct Keeper<S> {
    store: S,
    tail: Arc<Tail<S>>,
    destination: Arc<Destination>,
    settings: Settings,
    wake: Wake,
    draining: watch::Receiver<bool>,
    place: Place,
}

impl<S: Outbox + Deliveries> Keeper<S> {
    async fn run(mut self) {
        let (mut wait, longest) = limits::STORE_BACKOFF;
        while let Some(opened) = self.open().await {
            self.place.stopped.send_replace(None);
            // What was on the wire is counted as it would be after a crash, so that an event
            // which makes us panic runs out of attempts.
            let Ok(stopped) = AssertUnwindSafe(self.carry(opened)).catch_unwind().await else {
                let destination = &self.destination.name;
                tracing::error!(
                    destination,
                    "the relay panicked and takes the destination anew"
                );
                sleep(wait).await;
                wait = (wait * 2).min(longest);
                continue;
            };
            match stopped {
                Stopped::Drained => return,
                Stopped::Fenced => {
                    self.place.stopped.send_replace(Some("fenced"));
                    let destination = &self.destination.name;
                    tracing::error!(destination, "another relay took the destination over");
                    return;
                }
                Stopped::Disabled => {
                    self.place.stopped.send_replace(Some(DISABLED));
                    let destination = &self.destination.name;
                    tracing::error!(
                        destination,
                        from_state = "enabled",
                        to_state = "disabled",
                        "the destination wants no more events; they are kept until it is enabled"
                    );
                    if !self.enabled().await {
                        return;
                    }
                }
            }
        }
    }

    /// Carries until something stops it, and reports how far behind it is meanwhile.
    async fn carry(&self, opened: Opened) -> Stopped {
        let carrier = Carrier::new(
            Arc::clone(&self.tail),
            self.store.clone(),
            Arc::clone(&self.destination),
            opened,
            self.settings.clone(),
            self.wake.listen(),
            self.draining.clone(),
        );
        tokio::select! {
            stopped = carrier.run() => stopped,
            () = self.report() => unreachable!("reporting never ends"),
        }
    }

    /// Reports how far behind the destination is, for as long as it is ours.
    async fn report(&self) {
        loop {
            standing::report(&self.store, &self.destination.name, &self.settings.clock).await;
            sleep(limits::REPORT).await;
        }
    }

    /// Takes the destination, however long the store makes us wait; `None` when draining.
    async fn open(&mut self) -> Option<Opened> {
        let (mut wait, longest) = limits::STORE_BACKOFF;
        loop {
            if *self.draining.borrow() {
                return None;
            }
            let name = &self.destination.name;
            match self.store.open(name).await {
                Ok(opened) => {
                    self.count_interrupted(opened.interrupted);
                    if let Some(reason) = &opened.was_disabled {
                        tracing::warn!(
                            destination = name,
                            reason,
                            from_state = "disabled",
                            to_state = "enabled",
                            "the destination is enabled"
                        );
                    }
                    return Some(opened);
                }
                Err(error) => Self::complain(name, &error),
            }
            tokio::select! {
                () = sleep(wait) => {}
                _ = self.draining.changed() => {}
            }
            wait = (wait * 2).min(longest);
        }
    }

    /// The attempts that the last owner did not see the end of are ours to count.
    fn count_interrupted(&self, attempts: u64) {
        if attempts > 0 {
            counter!(
                telemetry::RELAY_ATTEMPTS,
                "destination" => self.destination.name.clone(),
                "outcome" => AttemptOutcome::Interrupted.as_str(),
                "error_type" => ""
            )
            .increment(attempts);
        }
    }

    fn complain(destination: &str, error: &StoreError) {
        tracing::error!(
            destination,
            error = error.story(),
            "the destination cannot be taken"
        );
    }

    /// Waits until the destination is enabled, and reports what gathers meanwhile; false when the
    /// relay drains instead.
    async fn enabled(&self) -> bool {
        let mut draining = self.draining.clone();
        tokio::select! {
            () = self.place.enable.notified() => true,
            _ = draining.wait_for(|draining| *draining) => false,
            () = self.report() => unreachable!("reporting never ends"),
        }
    }
}
