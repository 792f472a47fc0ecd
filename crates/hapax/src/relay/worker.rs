//! The delivery loop of one partition.
//!
//! An iteration reads events, selects those to deliver, records them, and offers them, in this
//! order: an attempt is recorded before it is made. Then the worker waits for an outcome, a
//! notification, a due time, or the end. A worker that has found nothing for a while leaves the
//! polling to the `lookout`.

mod reading;
mod offering;

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep, sleep_until},
};

use crate::{
    clock::Timestamp,
    delivery::{Opened, Shards},
    limits::{
        DRAIN, PAST_LOOK, POLL_BUSY, POLL_RESTING, READ_EVENTS, SETTLE_LINGER, STORE_BACKOFF,
    },
    notify::Subscription,
    retry::Delays,
    store::{Batch, Deliveries, Past, Source, StoreError},
};

use super::{
    Settings,
    breaker::{Allowed, Breaker},
    delivery_queue::DeliveryQueue,
    destination::{Destination, Order},
    gauges::{self, KnownCheckpoint},
    lookout::{Lookout, Seat},
    partition_task::Stopped,
    rate::Rate,
    settle::Tried,
    tail_cache::TailCache,
};

#[derive(Debug)]
pub(super) struct Worker<S, D> {
    store: D,
    tail: Arc<TailCache<S>>,
    shards: Shards,
    settings: Settings,
    subscription: Subscription,
    seat: Seat,
    /// The generation of the lookout when the current read began.
    generation: u64,
    /// When set, nothing more is offered, and the attempts in flight are awaited for this long.
    draining: watch::Receiver<Option<Duration>>,
    queue: DeliveryQueue,
    breaker: Breaker,
    rate: Option<Rate>,
    in_flight: JoinSet<Vec<Tried>>,
    /// Pauses after the store has refused a settlement.
    backoff: Option<Delays>,
    /// Pauses after a read has failed, and the end of the current one.
    read_backoff: Option<(Delays, Instant)>,
    /// Whether the outbox may contain more events.
    may_have_more: bool,
    /// Whether this is known from a notification.
    notified: bool,
    /// The read that is running in the background.
    reading: JoinSet<Result<ReadResult, StoreError>>,
    /// A batch that is admitted after the store has been asked which of its keys are blocked.
    unchecked_batch: Option<Batch>,
    /// The error of the last read.
    read_error: Option<StoreError>,
    /// Since when outcomes are waiting to be recorded.
    dirty_since: Option<Instant>,
    /// When a read last found events.
    found_at: Option<Instant>,
    /// When to poll the outbox, if there is no notification.
    poll_at: Instant,
    /// When to poll the parked rows, if there is no notification.
    poll_parked_at: Instant,
    /// When events of other tenants were last read ahead.
    read_past_at: Instant,
    /// The type of the event that failed last.
    failed_kind: Option<String>,
    /// Position after which parked deliveries may be blocked although the destination keeps no
    /// order.
    keyed_after: Option<i64>,
}

/// The result of a read.
#[derive(Debug)]
enum ReadResult {
    Next(Batch),
    Past(Past),
}

impl<S: Source, D: Deliveries> Worker<S, D> {
    #[expect(
        clippy::too_many_arguments,
        reason = "the only caller has these values separately"
    )]
    pub(super) fn new(
        tail: Arc<TailCache<S>>,
        lookout: &Arc<Lookout>,
        store: D,
        partition: String,
        shards: Shards,
        destination: Arc<Destination>,
        opened: Opened,
        settings: Settings,
        subscription: Subscription,
        draining: watch::Receiver<Option<Duration>>,
    ) -> Self {
        let now = settings.clock.now();
        let rate = destination
            .per_second
            .map(|per_second| Rate::new(per_second, now));
        let first = first_number(settings.random.bits());
        gauges::opened(&partition, opened.epoch);
        let keyed_after = (destination.order == Order::None).then_some(i64::MIN);
        let seat = lookout.join(&partition, shards);
        Self {
            store,
            tail,
            shards,
            found_at: None,
            settings,
            subscription,
            generation: seat.generation(),
            seat,
            draining,
            queue: DeliveryQueue::new(partition, destination, opened, first),
            breaker: Breaker::default(),
            rate,
            in_flight: JoinSet::new(),
            backoff: None,
            read_backoff: None,
            may_have_more: true,
            notified: false,
            reading: JoinSet::new(),
            unchecked_batch: None,
            read_error: None,
            dirty_since: None,
            poll_at: Instant::now(),
            poll_parked_at: Instant::now(),
            read_past_at: Instant::now(),
            failed_kind: None,
            keyed_after,
        }
    }

    /// The checkpoint that the store is known to contain.
    pub(super) fn known(&self) -> KnownCheckpoint {
        self.queue.known.clone()
    }

    pub(super) async fn run(mut self) -> Stopped {
        loop {
            match self.iterate().await {
                Ok(None) => self.backoff = None,
                // Other attempts in flight may still succeed.
                Ok(Some(Stopped::Disabled)) => {
                    return loop {
                        match self.drain().await {
                            Some(Stopped::Drained) => break Stopped::Disabled,
                            Some(stopped) => break stopped,
                            None => {}
                        }
                    };
                }
                Ok(Some(stopped)) => return stopped,
                Err(error) => match Stopped::by(&self.queue.partition, &error) {
                    Some(stopped) => return stopped,
                    None => self.back_off(&error).await,
                },
            }
            if self.draining.borrow().is_some() {
                match self.drain().await {
                    Some(stopped) => return stopped,
                    // The partition is to be kept after all.
                    None => continue,
                }
            }
            self.wait().await;
        }
    }

    async fn iterate(&mut self) -> Result<Option<Stopped>, StoreError> {
        let disabled = self.queue.is_disabling();
        let read = if disabled { Ok(()) } else { self.read().await };
        if let Err(error @ (StoreError::Fenced | StoreError::SetBack { .. })) = read {
            // The history was lost: nothing that was read can be settled, and the partition is
            // taken again.
            return Err(error);
        }
        // A failed read does not delay the events in memory.
        let chosen = if disabled { Vec::new() } else { self.choose() };
        if let Err(error) = self.settle(!chosen.is_empty() || disabled).await {
            // It is unknown whether their attempts are recorded. They are not offered until they
            // are.
            self.queue.put_back(chosen);
            return Err(error);
        }
        if disabled {
            return Ok(Some(Stopped::Disabled));
        }
        self.offer(chosen);
        if let Err(error) = read {
            self.pause_reading(&error);
        }
        Ok(None)
    }

    /// Fills the lane from parked rows that are due, and starts a read of the outbox.
    async fn read(&mut self) -> Result<(), StoreError> {
        let now = self.settings.clock.now();
        let moment = Instant::now();
        if self.cannot_read_until() > Some(moment) {
            return Ok(());
        }
        if self.poll_at <= moment {
            self.poll_at = moment + self.settings.poll_idle;
            self.may_have_more = true;
        }
        self.admit_checked().await?;
        self.start_read(moment);
        let polls_parked = self.poll_parked_at <= moment;
        if polls_parked {
            // The lookout polls from now on.
            self.poll_parked_at = moment + POLL_RESTING.max(self.settings.poll_idle);
        }
        let is_due = self.queue.reads_parked_at().is_some_and(|at| at <= now);
        if self.keyed_after.is_some() {
            self.ignore_keys(moment).await?;
        }
        if polls_parked || is_due {
            self.read_due().await?;
        }
        self.read_error.take().map_or(Ok(()), Err)
    }

    /// Unblocks deliveries of a destination that keeps no order: the store parks in bulk by key,
    /// and the destination may have kept an order earlier.
    async fn ignore_keys(&mut self, moment: Instant) -> Result<(), StoreError> {
        let Some(after) = self.keyed_after else {
            return Ok(());
        };
        let (partition, epoch) = (&self.queue.partition, self.queue.pending.epoch);
        let ignored = self.store.ignore_keys(partition, epoch, after, READ_EVENTS);
        self.keyed_after = ignored.await?;
        if self.keyed_after.is_some() {
            // The next iteration continues, and reads what is due.
            self.poll_parked_at = moment;
            self.queue.due_at = Some(self.settings.clock.now());
        }
        Ok(())
    }

    async fn read_due(&mut self) -> Result<(), StoreError> {
        let room = self.queue.parked_room();
        if room == 0 {
            return Ok(());
        }
        let name = &self.queue.partition;
        let in_memory: Vec<i64> = self.queue.revived.iter().copied().collect();
        let behind = self.queue.reads_behind();
        // A delivery that becomes due between the two reads is read again at once.
        let now = self.settings.clock.now();
        let due = self.store.due(name, &in_memory, room, behind).await?;
        let nearly_spent = self.queue.nearly_spent(&due);
        if !nearly_spent.is_empty() {
            let outlived = self.store.outlived(name, &nearly_spent).await?;
            self.queue.spare(outlived);
        }
        let name = &self.queue.partition;
        let next_due = self.store.next_due(name).await?;
        // Deliveries in memory are overdue according to their rows. There is nothing to wait for.
        self.queue.due_at = next_due.filter(|at| *at > now || !due.is_empty());
        // An operator has asked for these, perhaps because the receiver works again.
        if due.iter().any(|it| it.manual) {
            self.breaker.probe_now(now);
        }
        self.queue.admit_parked(due);
        Ok(())
    }

    /// Records outcomes and attempts. If there are only outcomes, it may wait a moment, so that
    /// more of them share the commit.
    async fn settle(&mut self, now: bool) -> Result<(), StoreError> {
        if !self.queue.is_dirty() {
            self.dirty_since = None;
            return Ok(());
        }
        let since = *self.dirty_since.get_or_insert_with(Instant::now);
        if !now && since.elapsed() < SETTLE_LINGER {
            return Ok(());
        }
        while let Some(settlement) = self.queue.settlement() {
            self.settings.failpoints.hit("relay.settle.before");
            let freed = self.store.settle(settlement).await?;
            self.settings.failpoints.hit("relay.settle.after");
            self.queue.settled(freed, self.settings.clock.now());
            self.seat.settled();
        }
        self.dirty_since = None;
        Ok(())
    }

    /// Waits until an iteration has something to do.
    async fn wait(&mut self) {
        let reads = self.reading.is_empty() && self.read_error.is_none();
        let reads = reads && self.cannot_read_until() <= Some(Instant::now());
        if self.may_have_more && self.queue.wants_more() && reads {
            return self.collect_finished();
        }
        let wake_at = self.wake_at();
        tokio::select! {
            Some(finished) = self.in_flight.join_next() => self.conclude(finished),
            Some(read) = self.reading.join_next() => self.admit(read),
            // The lookout reads for a worker that rests.
            () = self.subscription.notified(), if !self.seat.rests() => {
                (self.may_have_more, self.notified) = (true, true);
            }
            () = self.seat.events() => (self.may_have_more, self.notified) = (true, true),
            () = self.seat.due() => self.poll_parked_at = Instant::now(),
            _ = self.draining.changed() => {}
            () = sleep_until(wake_at) => {}
        }
        self.collect_finished();
    }

    /// The next time at which there may be something to do without a notification.
    fn wake_at(&self) -> Instant {
        let now = self.settings.clock.now();
        let moment = |at: Timestamp| Instant::now() + at.since(now);
        let mut wake_at = self.reads_at(moment);
        if let Some(until) = self.cannot_read_until() {
            wake_at = wake_at.max(until);
        }
        if let Some(since) = self.dirty_since {
            wake_at = wake_at.min(since + SETTLE_LINGER);
        }
        if self.queue.lane.is_ready() {
            // The clock may be set while the breaker is open.
            wake_at = wake_at.min(Instant::now() + self.settings.poll_idle);
        }
        let has_room = self.in_flight.len() < self.queue.destination.concurrency;
        if self.queue.lane.is_ready() && has_room {
            let patience = match (self.breaker.allows(now), &self.rate) {
                (Allowed::NothingUntil(until), _) => until.since(now),
                (Allowed::Probe, _) if !self.in_flight.is_empty() => self.settings.poll_idle,
                (_, Some(rate)) => rate.next(),
                _ => Duration::ZERO,
            };
            wake_at = wake_at.min(Instant::now() + patience);
        }
        wake_at
    }

    /// The next time at which something may be read.
    fn reads_at(&self, moment: impl Fn(Timestamp) -> Instant) -> Instant {
        let mut reads_at = self.poll_parked_at;
        if self.reading.is_empty() {
            // While the window is full, the only reason to wake up is to read ahead for other
            // tenants.
            reads_at = reads_at.min(if self.queue.wants_more() {
                // After a failed read, the next one starts as soon as its pause is over.
                if self.may_have_more {
                    Instant::now()
                } else {
                    self.poll_at
                }
            } else {
                (self.read_past_at + PAST_LOOK).max(Instant::now() + POLL_BUSY)
            });
        }
        match self.queue.reads_parked_at() {
            Some(due_at) => reads_at.min(moment(due_at)),
            None => reads_at,
        }
    }

    /// Until when nothing is read, after a failed read.
    fn cannot_read_until(&self) -> Option<Instant> {
        self.read_backoff.as_ref().map(|(_, until)| *until)
    }

    fn collect_finished(&mut self) {
        if let Some(read) = self.reading.try_join_next() {
            self.admit(read);
        }
        while let Some(finished) = self.in_flight.try_join_next() {
            self.conclude(finished);
        }
    }

    /// Waits for the attempts in flight and records their outcomes. Returns `None` if the partition
    /// is to be kept after all, which costs nothing while an attempt is in flight: another node may
    /// have left, and a slow receiver must not stop the events of all others.
    async fn drain(&mut self) -> Option<Stopped> {
        let began = Instant::now();
        let mut deadline = began + self.draining.borrow_and_update().unwrap_or(DRAIN);
        loop {
            let settle_at = self.dirty_since.map(|since| since + SETTLE_LINGER);
            let until = settle_at.map_or(deadline, |settle_at| settle_at.min(deadline));
            tokio::select! {
                finished = self.in_flight.join_next() => match finished {
                    None => break,
                    Some(finished) => self.conclude(finished),
                },
                Ok(()) = self.draining.changed() => match *self.draining.borrow_and_update() {
                    None => return None,
                    Some(patience) => deadline = deadline.min(began + patience),
                },
                () = sleep_until(until) => if Instant::now() >= deadline { break },
            }
            // Outcomes are recorded without waiting for the last one, because a crash would repeat
            // the attempts.
            match self.settle(false).await {
                Ok(()) => {}
                Err(error) => match Stopped::by(&self.queue.partition, &error) {
                    Some(stopped) => return Some(stopped),
                    None => self.dirty_since = Some(Instant::now() + STORE_BACKOFF.1),
                },
            }
        }
        self.in_flight.abort_all();
        let deadline = deadline.max(Instant::now() + STORE_BACKOFF.1);
        Some(self.settle_last(deadline).await)
    }

    /// Records the last outcomes, with retries until `deadline`.
    async fn settle_last(&mut self, deadline: Instant) -> Stopped {
        let mut delays = Delays::new(STORE_BACKOFF);
        loop {
            let error = match self.settle(true).await {
                Ok(()) => return Stopped::Drained,
                Err(error) => error,
            };
            if let Some(stopped) = Stopped::by(&self.queue.partition, &error) {
                return stopped;
            }
            if Instant::now() + delays.next_delay() >= deadline {
                tracing::error!(
                    destination = self.queue.partition,
                    error = error.error_chain(),
                    "the last outcomes could not be recorded; their events will be offered \
                     again"
                );
                return Stopped::Drained;
            }
            sleep(delays.advance()).await;
        }
    }

    /// Pauses reading. Recording continues: an outcome that waited for a successful read would be
    /// repeated after a crash.
    fn pause_reading(&mut self, error: &StoreError) {
        gauges::store_failed(&self.queue.partition, 1);
        // A read of the outbox ends the pause, even if another read has failed.
        self.may_have_more = true;
        let (is_first, now) = (self.read_backoff.is_none(), Instant::now());
        let pauses = || (Delays::new(STORE_BACKOFF), now);
        let (delays, until) = self.read_backoff.get_or_insert_with(pauses);
        *until = now + delays.advance();
        if is_first {
            tracing::error!(
                destination = self.queue.partition,
                error = error.error_chain(),
                "the relay cannot read its store and will retry"
            );
        }
    }

    async fn back_off(&mut self, error: &StoreError) {
        gauges::store_failed(&self.queue.partition, 1);
        let is_first = self.backoff.is_none();
        let pauses = || Delays::new(STORE_BACKOFF);
        let wait = self.backoff.get_or_insert_with(pauses).advance();
        if is_first {
            tracing::error!(
                destination = self.queue.partition,
                error = error.error_chain(),
                "the relay cannot use its store and will retry"
            );
        }
        tokio::select! {
            () = sleep(wait) => {}
            _ = self.draining.changed() => {}
        }
    }
}

/// The number of the first settlement of an ownership. The upper half is random.
fn first_number(random: u64) -> i64 {
    ((random >> 33 << 32) | 1).cast_signed()
}
