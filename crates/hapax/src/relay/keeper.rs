//! Keeping one destination going: taking it, carrying, waiting where it may not carry.
//!
//! A destination has one owner at a time. Whoever opens it later owns it, and
//! the one before is fenced; that one stands by, if it may, and takes the
//! destination over when the owner shows no sign of life any more.

use std::{panic::AssertUnwindSafe, sync::Arc};

use futures_util::FutureExt;
use metrics::counter;
use tokio::{
    sync::{Notify, watch},
    time::sleep,
};

use crate::{
    delivery::{AttemptOutcome, Opened},
    limits,
    store::{Deliveries, Outbox, StoreError},
    telemetry,
};

use super::{
    Settings,
    carrier::{Carrier, Stopped},
    destination::Destination,
    frontier::Tail,
    ownership, standing,
    wake::Wake,
};

pub(super) const DISABLED: &str = "disabled";
const FENCED: &str = "fenced";
const STANDBY: &str = "standby";

/// What the handle and the keeper of a destination share.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) enable: Arc<Notify>,
    pub(super) stopped: watch::Sender<Option<&'static str>>,
}

impl Default for Place {
    fn default() -> Self {
        Self {
            enable: Arc::default(),
            stopped: watch::Sender::new(None),
        }
    }
}

/// Keeps one destination going.
pub(super) struct Keeper<S> {
    pub(super) store: S,
    pub(super) tail: Arc<Tail<S>>,
    pub(super) destination: Arc<Destination>,
    pub(super) settings: Settings,
    pub(super) wake: Wake,
    pub(super) draining: watch::Receiver<bool>,
    pub(super) place: Place,
}

impl<S: Outbox + Deliveries> Keeper<S> {
    pub(super) async fn run(mut self) {
        let (mut wait, longest) = limits::STORE_BACKOFF;
        while let Some(opened) = self.open().await {
            self.place.stopped.send_replace(None);
            let epoch = opened.epoch;
            // What was on the wire is counted as it would be after a crash, so that an event
            // which makes us panic runs out of attempts.
            let Ok(mut stopped) = AssertUnwindSafe(self.carry(opened)).catch_unwind().await else {
                let destination = &self.destination.name;
                tracing::error!(
                    destination,
                    "the relay panicked and takes the destination anew"
                );
                sleep(wait).await;
                wait = (wait * 2).min(longest);
                continue;
            };
            if stopped == Stopped::Disabled {
                let Some(otherwise) = self.disabled(epoch).await else {
                    continue;
                };
                stopped = otherwise;
            }
            if stopped != Stopped::Fenced || !self.stand_by().await {
                return;
            }
        }
    }

    /// Carries until something stops it; meanwhile it shows that it lives, and reports how far
    /// behind the destination is.
    async fn carry(&self, opened: Opened) -> Stopped {
        let epoch = opened.epoch;
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
            () = self.fenced(epoch) => Stopped::Fenced,
            () = self.report() => unreachable!("reporting never ends"),
        }
    }

    /// Shows signs of life until the destination is another's.
    async fn fenced(&self, epoch: i64) {
        ownership::beat(
            &self.store,
            &self.destination.name,
            epoch,
            self.settings.take_over,
        )
        .await;
    }

    /// Reports how far behind the destination is, for as long as it is polled.
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

    /// Waits until the destination is enabled, as its owner still; otherwise says what came first.
    async fn disabled(&self, epoch: i64) -> Option<Stopped> {
        self.place.stopped.send_replace(Some(DISABLED));
        let destination = &self.destination.name;
        tracing::error!(
            destination,
            from_state = "enabled",
            to_state = "disabled",
            "the destination wants no more events; they are kept until it is enabled"
        );
        tokio::select! {
            () = self.place.enable.notified() => None,
            () = self.drained() => Some(Stopped::Drained),
            () = self.fenced(epoch) => Some(Stopped::Fenced),
            () = self.report() => unreachable!("reporting never ends"),
        }
    }

    /// Waits until the new owner shows no sign of life any more; false when it is not for us to
    /// wait, or when the relay drains first.
    async fn stand_by(&self) -> bool {
        let destination = &self.destination.name;
        let Some(patience) = self.settings.take_over else {
            self.place.stopped.send_replace(Some(FENCED));
            tracing::error!(destination, "another relay took the destination over");
            return false;
        };
        self.place.stopped.send_replace(Some(STANDBY));
        tracing::info!(
            destination,
            from_state = "owner",
            to_state = "standby",
            "another relay has the destination; this one waits to take it over"
        );
        // Of several that wait, one is first, and the others see it live.
        let patience = patience + patience.mul_f64(self.settings.random.unit() / 4.0);
        tokio::select! {
            () = ownership::is_gone(&self.store, destination, patience) => {}
            () = self.drained() => return false,
            () = self.report() => unreachable!("reporting never ends"),
        }
        tracing::warn!(
            destination,
            from_state = "standby",
            to_state = "owner",
            "the owner of the destination shows no sign of life; this relay takes it over"
        );
        true
    }

    async fn drained(&self) {
        let mut draining = self.draining.clone();
        let _told = draining.wait_for(|draining| *draining).await;
    }
}
