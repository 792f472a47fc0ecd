//! Keeping one part of a destination going: taking it, carrying, waiting where it may not carry.
//!
//! A part has one owner at a time. Whoever takes it later owns it, and the
//! one before is fenced. Whether it is this node's to take stands in the
//! keeper's orders; who lets a part go settles first what it has offered.

use std::{
    collections::HashMap,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures_util::FutureExt;
use metrics::counter;
use tokio::{
    sync::{Notify, watch},
    time::{sleep, timeout},
};

use crate::{
    delivery::{AttemptOutcome, Opened, Shards},
    limits,
    notify::Notifier,
    store::{Deliveries, Source, StoreError},
    telemetry,
};

use super::{Settings, destination::Destination, standing, tail_cache::TailCache, worker::Worker};

pub(super) const DISABLED: &str = "disabled";
const FENCED: &str = "fenced";
const PAUSED: &str = "paused";
const STANDBY: &str = "standby";

/// Why a worker stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stopped {
    /// The relay is draining, and everything on the wire is settled.
    Drained,
    /// The destination wants no more events.
    Disabled,
    /// Another relay has the destination now.
    Fenced,
    /// The store was set back: what is in our hands is of a history that it does not have.
    SetBack,
}

impl Stopped {
    /// Whether an error ends the carrying of `part`, and as what.
    pub(super) fn by(part: &str, error: &StoreError) -> Option<Self> {
        match error {
            StoreError::Fenced => Some(Self::Fenced),
            StoreError::SetBack { what } => {
                standing::set_back(part, what);
                Some(Self::SetBack)
            }
            _ => None,
        }
    }
}

/// What the handle and the keeper of a part share.
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

/// The places of all parts, by name.
pub(super) type Places = Arc<Mutex<HashMap<String, Place>>>;

pub(super) fn locked(places: &Places) -> MutexGuard<'_, HashMap<String, Place>> {
    places.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a keeper is to do.
#[derive(Clone, Debug)]
pub(super) struct Orders {
    pub(super) destination: Arc<Destination>,
    /// Whether the part is this node's to carry.
    pub(super) may_carry: bool,
    /// Whether the keeper is to end.
    pub(super) ends: bool,
    /// Whether that is because the process ends.
    pub(super) shuts: bool,
    /// Under which epoch the store says that this node holds the part: nobody may know of it here,
    /// where the answer to taking it was lost.
    pub(super) held: Option<i64>,
    /// How often it was looked who carries what.
    pub(super) look: u64,
}

/// Keeps one part going.
pub(super) struct PartitionTask<S, D> {
    pub(super) store: D,
    pub(super) tail: Arc<TailCache<S>>,
    pub(super) part: String,
    pub(super) number: u8,
    pub(super) settings: Settings,
    pub(super) notifier: Notifier,
    pub(super) orders: watch::Receiver<Orders>,
    pub(super) place: Place,
}

impl<S: Source, D: Deliveries> PartitionTask<S, D> {
    pub(super) async fn run(mut self) {
        let (mut wait, longest) = limits::STORE_BACKOFF;
        standing::store_failed(&self.part, 0);
        while let Some(destination) = self.called().await {
            let Some(opened) = self.open(&destination).await else {
                continue;
            };
            self.place.stopped.send_replace(None);
            let epoch = opened.epoch;
            // What was on the wire is counted as it would be after a crash, so that an event
            // which makes us panic runs out of attempts.
            let carried = self.carry(Arc::clone(&destination), opened);
            let carried = AssertUnwindSafe(carried).catch_unwind();
            let carried = carried.await;
            standing::stopped(&self.part);
            match carried {
                Ok(Stopped::Drained) => self.give_up(epoch).await,
                Ok(Stopped::Disabled) => self.disabled(&destination, epoch).await,
                Ok(Stopped::SetBack) => {
                    self.tail.forget().await;
                    // Where it is set back again at once, somebody has to mend it first.
                    sleep(wait).await;
                    wait = (wait * 2).min(longest);
                }
                Ok(Stopped::Fenced) if self.settings.node.is_none() => return self.fenced(),
                Ok(Stopped::Fenced) => {
                    // What was read may belong to a history that the store has lost.
                    self.tail.forget().await;
                    self.next_look().await;
                }
                Err(_) => {
                    let destination = &self.part;
                    tracing::error!(
                        destination,
                        "the relay panicked and takes the destination anew"
                    );
                    sleep(wait).await;
                    wait = (wait * 2).min(longest);
                }
            }
        }
        standing::ended(&self.part);
    }

    /// Waits until the part is ours to carry; `None` when the keeper is to end.
    async fn called(&mut self) -> Option<Arc<Destination>> {
        loop {
            let orders = self.orders.borrow_and_update().clone();
            let is_over = !orders.may_carry || orders.ends;
            if let Some(epoch) = orders.held.filter(|_| is_over && !orders.shuts) {
                // Held by a name that lives, nobody else would ever take it.
                self.let_go(epoch).await;
            }
            if orders.ends {
                return None;
            }
            if orders.may_carry && !orders.destination.paused {
                return Some(orders.destination);
            }
            let waits = if orders.may_carry { PAUSED } else { STANDBY };
            if orders.look > 0 || orders.may_carry {
                self.wait_as(waits);
            }
            if waits == STANDBY {
                self.orders.changed().await.ok()?;
                continue;
            }
            let goes_on =
                |orders: &Orders| orders.ends || !orders.may_carry || !orders.destination.paused;
            tokio::select! {
                told = self.orders.wait_for(goes_on) => drop(told.ok()?),
                // What waits behind a pause is late all the same.
                () = standing::report(&self.store, &self.part, &self.settings.clock) => {
                    unreachable!("reporting never ends")
                }
            }
        }
    }

    fn wait_as(&self, state: &'static str) {
        if self.place.stopped.send_replace(Some(state)) != Some(state) {
            if state == STANDBY {
                standing::handed_over(&self.part);
            } else {
                standing::stopped(&self.part);
            }
            tracing::info!(
                destination = self.part,
                to_state = state,
                "the destination is not carried here"
            );
        }
    }

    /// Takes the part, however long the store or somebody who has hold of it makes us wait; `None`
    /// when it is not ours to carry after all.
    async fn open(&mut self, destination: &Arc<Destination>) -> Option<Opened> {
        let (mut wait, longest) = limits::STORE_BACKOFF;
        loop {
            if is_called_off(&self.orders.borrow(), destination) {
                return None;
            }
            match self.take().await {
                Ok(Some(opened)) => {
                    self.say_opened(&opened);
                    return Some(opened);
                }
                // Another node was quicker, or a purge or an operator has hold of the part for a
                // moment: the next look may be a minute away, and tells us if it is the former.
                Ok(None) => self.wait_as(STANDBY),
                Err(error) => {
                    standing::store_failed(&self.part, 1);
                    let (destination, error) = (&self.part, error.error_chain());
                    tracing::error!(destination, error, "the destination cannot be taken");
                }
            }
            tokio::select! {
                () = sleep(wait) => {}
                () = called_off(&mut self.orders, destination) => {}
            }
            wait = (wait * 2).min(longest);
        }
    }

    async fn take(&self) -> Result<Option<Opened>, StoreError> {
        match &self.settings.node {
            Some(node) => {
                let lease = node.counts_for();
                self.store.take(&self.part, &node.name, lease).await
            }
            None => self.store.open(&self.part).await.map(Some),
        }
    }

    fn say_opened(&self, opened: &Opened) {
        // The attempts that the last owner did not see the end of are ours to count.
        if opened.interrupted > 0 {
            counter!(
                telemetry::RELAY_ATTEMPTS,
                "destination" => self.part.clone(),
                "outcome" => AttemptOutcome::Interrupted.as_str(),
                "error_type" => ""
            )
            .increment(opened.interrupted);
        }
        tracing::info!(
            destination = self.part,
            epoch = opened.epoch,
            interrupted = opened.interrupted,
            to_state = "owner",
            "the destination is taken"
        );
        if let Some(reason) = &opened.was_disabled {
            tracing::warn!(
                destination = self.part,
                reason,
                from_state = "disabled",
                to_state = "enabled",
                "the destination is enabled"
            );
        }
    }

    /// Carries until something stops it, and reports how far behind the destination is.
    async fn carry(&mut self, destination: Arc<Destination>, opened: Opened) -> Stopped {
        let draining = watch::Sender::new(None);
        let patience = limits::DRAIN.max(destination.timeout);
        let worker = Worker::new(
            Arc::clone(&self.tail),
            self.store.clone(),
            self.part.clone(),
            self.shards(&destination),
            Arc::clone(&destination),
            opened,
            self.settings.clone(),
            self.notifier.subscribe(),
            draining.subscribe(),
        );
        let known = worker.known();
        let orders = &mut self.orders;
        let drain = async {
            called_off(orders, &destination).await;
            // A process that ends does not wait as long as an offer may take; others do.
            let ends = orders.borrow().shuts;
            draining.send_replace(Some(if ends { limits::DRAIN } else { patience }));
            std::future::pending::<()>().await;
        };
        tokio::select! {
            stopped = worker.run() => stopped,
            () = drain => unreachable!("it waits for the worker"),
            what = standing::watch(&self.store, &self.part, &self.settings.clock, &known) => {
                standing::set_back(&self.part, &what);
                Stopped::SetBack
            }
        }
    }

    fn shards(&self, destination: &Destination) -> Shards {
        // A number of parts that cannot be is refused where destinations are made.
        Shards::of_part(self.number, destination.parts).unwrap_or(Shards::ALL)
    }

    /// Lets another node have the part, unless it is still ours.
    async fn give_up(&self, epoch: i64) {
        let keeps = {
            let orders = self.orders.borrow();
            orders.may_carry && !orders.ends
        };
        if keeps || self.settings.node.is_none() {
            return;
        }
        self.let_go(epoch).await;
    }

    async fn let_go(&self, epoch: i64) {
        let given = timeout(
            limits::STORE_BACKOFF.1,
            self.store.give_up(&self.part, epoch),
        );
        // Otherwise its lease runs out.
        if !matches!(given.await, Ok(Ok(()) | Err(StoreError::Fenced))) {
            let destination = &self.part;
            tracing::warn!(destination, "the destination could not be given up");
        }
    }

    /// Waits until the destination is enabled, or is no longer ours, or no longer as it was carried:
    /// somebody may have had it go on while the last answers came home.
    async fn disabled(&mut self, carried: &Arc<Destination>, epoch: i64) {
        self.place.stopped.send_replace(Some(DISABLED));
        let destination = &self.part;
        tracing::error!(
            destination,
            from_state = "enabled",
            to_state = "disabled",
            "the destination wants no more events; they are kept until it is enabled"
        );
        let enabled = self.place.enable.notified();
        tokio::select! {
            () = enabled => return,
            () = called_off(&mut self.orders, carried) => {}
            () = standing::report(&self.store, &self.part, &self.settings.clock) => {
                unreachable!("reporting never ends")
            }
        }
        self.give_up(epoch).await;
    }

    fn fenced(&self) {
        self.place.stopped.send_replace(Some(FENCED));
        standing::handed_over(&self.part);
        let destination = &self.part;
        tracing::error!(destination, "another relay took the destination over");
    }

    /// Waits until it was looked again who carries what.
    async fn next_look(&mut self) {
        let seen = self.orders.borrow().look;
        let looked = |orders: &Orders| orders.ends || orders.look > seen;
        let _told = self.orders.wait_for(looked).await;
    }
}

/// Waits until a part is no longer to be carried as `destination` says.
async fn called_off(orders: &mut watch::Receiver<Orders>, destination: &Arc<Destination>) {
    let _told = orders
        .wait_for(|orders| is_called_off(orders, destination))
        .await;
}

fn is_called_off(orders: &Orders, destination: &Arc<Destination>) -> bool {
    orders.ends
        || !orders.may_carry
        || orders.destination.paused
        || !Arc::ptr_eq(&orders.destination, destination)
}
