//! The task of one partition: takes the partition, runs the worker, and waits while another node
//! owns it.
//!
//! A partition has one owner at a time. A later owner fences the earlier one. The supervisor's
//! orders say whether this node may take the partition. Before it releases a partition, the task
//! settles what it has offered.

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
    delivery::{AttemptOutcome, Opened, Shards, Start},
    limits,
    notify::Notifier,
    retry::Delays,
    store::{Deliveries, Source, StoreError},
    telemetry,
};

use super::{
    Settings, destination::Destination, gauges, lookout::Lookout, tail_cache::TailCache,
    worker::Worker,
};

pub(super) const DISABLED: &str = "disabled";
const FENCED: &str = "fenced";
const PAUSED: &str = "paused";
const STANDBY: &str = "standby";

/// Why a worker stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stopped {
    /// The relay is draining, and everything in flight is settled.
    Drained,
    /// The receiver does not want any more events.
    Disabled,
    /// Another relay owns the partition now.
    Fenced,
    /// The store was set back: the events in memory belong to a history that it does not contain.
    SetBack,
}

impl Stopped {
    /// The reason if this error ends the worker of `partition`.
    pub(super) fn by(partition: &str, error: &StoreError) -> Option<Self> {
        match error {
            StoreError::Fenced => Some(Self::Fenced),
            StoreError::SetBack { what } => {
                gauges::set_back(partition, what);
                Some(Self::SetBack)
            }
            _ => None,
        }
    }
}

/// State that the relay handle and the task of a partition share.
#[derive(Clone, Debug)]
pub(super) struct PartitionState {
    pub(super) enable: Arc<Notify>,
    pub(super) stopped: watch::Sender<Option<&'static str>>,
}

impl Default for PartitionState {
    fn default() -> Self {
        Self {
            enable: Arc::default(),
            stopped: watch::Sender::new(None),
        }
    }
}

/// The shared state of all partitions, by name.
pub(super) type PartitionStates = Arc<Mutex<HashMap<String, PartitionState>>>;

pub(super) fn locked(states: &PartitionStates) -> MutexGuard<'_, HashMap<String, PartitionState>> {
    states.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Orders of the supervisor.
#[derive(Clone, Debug)]
pub(super) struct Orders {
    pub(super) destination: Arc<Destination>,
    /// Whether this node may own the partition.
    pub(super) may_own: bool,
    /// Whether the task must end.
    pub(super) ends: bool,
    /// Whether it ends because the process stops.
    pub(super) process_stops: bool,
    /// The epoch under which this node owns the partition according to the store. The task may not
    /// know it, if the response to its request was lost.
    pub(super) owned_epoch: Option<i64>,
    /// The number of the membership poll.
    pub(super) poll: u64,
}

/// The task of one partition.
pub(super) struct PartitionTask<S, D> {
    pub(super) store: D,
    pub(super) tail: Arc<TailCache<S>>,
    pub(super) lookout: Arc<Lookout>,
    pub(super) partition: String,
    pub(super) number: u8,
    pub(super) settings: Settings,
    pub(super) notifier: Notifier,
    pub(super) orders: watch::Receiver<Orders>,
    pub(super) state: PartitionState,
}

impl<S: Source, D: Deliveries> PartitionTask<S, D> {
    pub(super) async fn run(mut self) {
        let mut delays = Delays::new(limits::STORE_BACKOFF);
        gauges::store_failed(&self.partition, 0);
        if !self.record_start().await {
            return gauges::ended(&self.partition);
        }
        while let Some(destination) = self.wait_until_allowed().await {
            let Some(opened) = self.open(&destination).await else {
                continue;
            };
            self.state.stopped.send_replace(None);
            let epoch = opened.epoch;
            // Attempts in flight are counted as after a crash, so that an event that causes a panic
            // runs out of attempts.
            let stopped = self.run_worker(Arc::clone(&destination), opened);
            let stopped = AssertUnwindSafe(stopped).catch_unwind();
            let stopped = stopped.await;
            gauges::stopped(&self.partition);
            match stopped {
                Ok(Stopped::Drained) => self.give_up(epoch).await,
                Ok(Stopped::Disabled) => self.disabled(&destination, epoch).await,
                Ok(Stopped::SetBack) => {
                    self.tail.forget().await;
                    self.lookout.forget();
                    // If the store is set back again at once, an operator has to fix the cause
                    // first.
                    sleep(delays.advance()).await;
                }
                Ok(Stopped::Fenced) if self.settings.node.is_none() => return self.fenced(),
                Ok(Stopped::Fenced) => {
                    // The batches in the cache may belong to a history that the store has lost.
                    self.tail.forget().await;
                    self.lookout.forget();
                    self.next_poll().await;
                }
                Err(_) => {
                    let destination = &self.partition;
                    tracing::error!(
                        destination,
                        "the relay panicked and takes the destination again"
                    );
                    sleep(delays.advance()).await;
                }
            }
        }
        gauges::ended(&self.partition);
    }

    /// Records where the destination starts, even while it is paused or another node opens the
    /// partition, because no later event may be skipped. Returns false if the task must end first.
    async fn record_start(&mut self) -> bool {
        let destination = Arc::clone(&self.orders.borrow().destination);
        if destination.start == Start::Beginning {
            // The store starts there if nothing is recorded.
            return true;
        }
        let mut delays = Delays::new(limits::STORE_BACKOFF);
        loop {
            let (name, start) = (&destination.name, destination.start);
            match self.store.record_start(name, start).await {
                Ok(is_recorded) => {
                    if is_recorded {
                        tracing::info!(
                            destination = name,
                            start = %start,
                            "the start of the destination is recorded"
                        );
                    }
                    return true;
                }
                Err(error) => {
                    gauges::store_failed(&self.partition, 1);
                    let (destination, error) = (&self.partition, error.error_chain());
                    tracing::error!(destination, error, "the destination cannot be started");
                }
            }
            tokio::select! {
                () = sleep(delays.advance()) => {}
                outcome = self.orders.wait_for(|orders| orders.ends) => {
                    drop(outcome);
                    return false;
                }
            }
        }
    }

    /// Waits until this node may own the partition and the destination is not paused; `None` if the
    /// task must end.
    async fn wait_until_allowed(&mut self) -> Option<Arc<Destination>> {
        loop {
            let orders = self.orders.borrow_and_update().clone();
            let is_over = !orders.may_own || orders.ends;
            if let Some(epoch) = orders
                .owned_epoch
                .filter(|_| is_over && !orders.process_stops)
            {
                // While the store names this live node as the owner, no other node would take the
                // partition.
                self.release(epoch).await;
            }
            if orders.ends {
                return None;
            }
            if orders.may_own && !orders.destination.paused {
                return Some(orders.destination);
            }
            let state = if orders.may_own { PAUSED } else { STANDBY };
            if orders.poll > 0 || orders.may_own {
                self.wait_as(state);
            }
            if state == STANDBY {
                self.orders.changed().await.ok()?;
                continue;
            }
            let ends_wait =
                |orders: &Orders| orders.ends || !orders.may_own || !orders.destination.paused;
            tokio::select! {
                outcome = self.orders.wait_for(ends_wait) => drop(outcome.ok()?),
                // Events of a paused destination are late too.
                () = gauges::report(
                    self.lookout.reporter(&self.partition),
                    &self.settings.clock,
                ) => unreachable!("reporting never ends"),
            }
        }
    }

    fn wait_as(&self, state: &'static str) {
        if self.state.stopped.send_replace(Some(state)) != Some(state) {
            if state == STANDBY {
                gauges::handed_over(&self.partition);
            } else {
                gauges::stopped(&self.partition);
            }
            tracing::info!(
                destination = self.partition,
                to_state = state,
                "the destination is not served here"
            );
        }
    }

    /// Takes the partition, however long the store or another owner delays it; `None` if this node
    /// may no longer own it.
    async fn open(&mut self, destination: &Arc<Destination>) -> Option<Opened> {
        let mut delays = Delays::new(limits::STORE_BACKOFF);
        loop {
            if is_revoked(&self.orders.borrow(), destination) {
                return None;
            }
            match self.take().await {
                Ok(Some(opened)) => {
                    self.log_opened(&opened);
                    return Some(opened);
                }
                // Another node was faster, or a purge or an operator has locked the partition for a
                // moment. The next membership poll may be a minute away and shows which of the two
                // it was.
                Ok(None) => self.wait_as(STANDBY),
                Err(error) => {
                    gauges::store_failed(&self.partition, 1);
                    let (destination, error) = (&self.partition, error.error_chain());
                    tracing::error!(destination, error, "the destination cannot be taken");
                }
            }
            tokio::select! {
                () = sleep(delays.advance()) => {}
                () = revoked(&mut self.orders, destination) => {}
            }
        }
    }

    async fn take(&self) -> Result<Option<Opened>, StoreError> {
        match &self.settings.node {
            Some(node) => {
                self.store
                    .take(&self.partition, &node.name, node.lease)
                    .await
            }
            None => self.store.open(&self.partition).await.map(Some),
        }
    }

    fn log_opened(&self, opened: &Opened) {
        // This node counts the attempts whose outcome the last owner did not record.
        if opened.interrupted > 0 {
            counter!(
                telemetry::RELAY_ATTEMPTS,
                "destination" => self.partition.clone(),
                "outcome" => AttemptOutcome::Interrupted.as_str(),
                "error_type" => ""
            )
            .increment(opened.interrupted);
        }
        tracing::info!(
            destination = self.partition,
            epoch = opened.epoch,
            interrupted = opened.interrupted,
            to_state = "owner",
            "the destination is taken"
        );
        if let Some(reason) = &opened.was_disabled {
            tracing::warn!(
                destination = self.partition,
                reason,
                from_state = "disabled",
                to_state = "enabled",
                "the destination is enabled"
            );
        }
    }

    /// Runs the worker until something stops it, and reports the backlog.
    async fn run_worker(&mut self, destination: Arc<Destination>, opened: Opened) -> Stopped {
        let draining = watch::Sender::new(None);
        let patience = limits::DRAIN.max(destination.timeout);
        let worker = Worker::new(
            Arc::clone(&self.tail),
            &self.lookout,
            self.store.clone(),
            self.partition.clone(),
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
            loop {
                revoked(orders, &destination).await;
                // A process that stops does not wait as long as an attempt may take; a partition
                // that is released does.
                let process_stops = orders.borrow().process_stops;
                draining.send_replace(Some(if process_stops {
                    limits::DRAIN
                } else {
                    patience
                }));
                let changes = |orders: &Orders| {
                    orders.process_stops != process_stops || !is_revoked(orders, &destination)
                };
                if orders.wait_for(changes).await.is_err() {
                    std::future::pending::<()>().await;
                }
                if !is_revoked(&orders.borrow(), &destination) {
                    draining.send_replace(None);
                }
            }
        };
        tokio::select! {
            stopped = worker.run() => stopped,
            () = drain => unreachable!("it waits for the worker"),
            what = gauges::watch(
                self.lookout.reporter(&self.partition),
                &self.settings.clock,
                &known,
            ) => {
                gauges::set_back(&self.partition, &what);
                Stopped::SetBack
            }
        }
    }

    fn shards(&self, destination: &Destination) -> Shards {
        // The constructor of a destination refuses an invalid number of partitions.
        Shards::of_partition(self.number, destination.partitions).unwrap_or(Shards::ALL)
    }

    /// Releases the partition to other nodes, unless it has another owner already.
    async fn give_up(&self, epoch: i64) {
        let keeps_partition = {
            let orders = self.orders.borrow();
            orders.may_own && !orders.ends
        };
        if keeps_partition || self.settings.node.is_none() {
            return;
        }
        self.release(epoch).await;
    }

    async fn release(&self, epoch: i64) {
        let released = timeout(
            limits::STORE_BACKOFF.1,
            self.store.give_up(&self.partition, epoch),
        );
        // Otherwise the lease expires.
        if !matches!(released.await, Ok(Ok(()) | Err(StoreError::Fenced))) {
            let destination = &self.partition;
            tracing::warn!(destination, "the destination could not be released");
        }
    }

    /// Waits until the destination is enabled, changes, or no longer belongs to this node: an
    /// operator may have resumed it while the last outcomes arrived.
    async fn disabled(&mut self, served: &Arc<Destination>, epoch: i64) {
        self.state.stopped.send_replace(Some(DISABLED));
        let destination = &self.partition;
        tracing::error!(
            destination,
            from_state = "enabled",
            to_state = "disabled",
            "the destination is disabled; its events are kept until it is enabled"
        );
        let enabled = self.state.enable.notified();
        tokio::select! {
            () = enabled => return,
            () = revoked(&mut self.orders, served) => {}
            () = gauges::report(
                self.lookout.reporter(&self.partition),
                &self.settings.clock,
            ) => unreachable!("reporting never ends"),
        }
        self.give_up(epoch).await;
    }

    fn fenced(&self) {
        self.state.stopped.send_replace(Some(FENCED));
        gauges::handed_over(&self.partition);
        let destination = &self.partition;
        tracing::error!(destination, "another relay has taken the destination over");
    }

    /// Waits for the next membership poll.
    async fn next_poll(&mut self) {
        let last_poll = self.orders.borrow().poll;
        let is_newer = |orders: &Orders| orders.ends || orders.poll > last_poll;
        let _changed = self.orders.wait_for(is_newer).await;
    }
}

/// Waits until this node may no longer own the partition, or until `destination` has changed.
async fn revoked(orders: &mut watch::Receiver<Orders>, destination: &Arc<Destination>) {
    let _changed = orders
        .wait_for(|orders| is_revoked(orders, destination))
        .await;
}

fn is_revoked(orders: &Orders, destination: &Arc<Destination>) -> bool {
    orders.ends
        || !orders.may_own
        || orders.destination.paused
        || !Arc::ptr_eq(&orders.destination, destination)
}
