//! Lookout: the reads of the store that a relay makes once for all of its partitions.
//!
//! A worker that has found nothing for a while *rests*, and the lookout polls the outbox for all
//! resting workers, from a frontier that none of them is behind. If it finds an event, or cannot
//! read, it wakes all of them. After a second of silence it asks the source for a [`Sleep`], and
//! then polls rarely, because the source wakes it. If a wake-up is lost, the next poll finds what
//! is there. The lookout also asks when the next parked delivery of each partition is due, which
//! another process may have changed, and reads the backlogs for the metrics.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep, timeout},
};

use crate::{
    clock::Clock,
    delivery::{Backlog, Frontier, Shards},
    limits::{
        POLL_ASLEEP, POLL_PARKED, POLL_PARKED_ASLEEP, REPORT, REPORT_IDLE, SLEEP_FAILED,
        SLEEP_RETRY,
    },
    notify::{Notifier, Sleep, Subscription},
    store::{Source, Summaries},
};

use super::Settings;

/// The backlogs of one round, by partition.
type Backlogs = BTreeMap<String, Backlog>;

/// State that the lookout, the workers and the metrics share.
#[derive(Debug)]
pub(super) struct Lookout {
    outbox: Mutex<Outbox>,
    /// A worker has begun to rest while none did.
    rests: Notify,
    /// Wakes the workers.
    stirred: Notifier,
    /// The partitions with a worker, each with what wakes it when a delivery is due.
    partitions: Mutex<BTreeMap<String, Arc<Notify>>>,
    /// The partitions whose backlog is reported.
    reported: Mutex<BTreeSet<String>>,
    /// A backlog is to be read now.
    asked: Notify,
    /// Whether something was settled since the last report.
    is_active: AtomicBool,
    backlogs: watch::Sender<Arc<Backlogs>>,
}

#[derive(Debug, Default)]
struct Outbox {
    /// The frontier from which the lookout polls; `None` while no worker rests.
    position: Option<Frontier>,
    /// The number of positions so far.
    generation: u64,
    is_asleep: bool,
}

impl Lookout {
    pub(super) fn new() -> Self {
        Self {
            outbox: Mutex::default(),
            rests: Notify::new(),
            stirred: Notifier::new(),
            partitions: Mutex::default(),
            reported: Mutex::default(),
            asked: Notify::new(),
            is_active: AtomicBool::new(true),
            backlogs: watch::Sender::new(Arc::default()),
        }
    }

    /// Polls until it is dropped.
    pub(super) async fn run<S: Source, D: Summaries>(
        self: Arc<Self>,
        source: S,
        store: D,
        settings: Settings,
    ) {
        let idle = settings.poll_idle;
        tokio::join!(
            self.watch_outbox(&source, idle),
            self.watch_parked(&store, &settings.clock, idle),
            self.report(&store),
        );
    }

    /// Registers the worker of `partition`.
    pub(super) fn join(self: &Arc<Self>, partition: &str) -> Seat {
        let due = Arc::new(Notify::new());
        locked(&self.partitions).insert(partition.to_owned(), Arc::clone(&due));
        Seat {
            lookout: Arc::clone(self),
            partition: partition.to_owned(),
            due,
        }
    }

    /// Reports the backlog of `partition` while the reporter exists.
    pub(super) fn reporter<'a>(&'a self, partition: &'a str) -> Reporter<'a> {
        let found = self.backlogs.subscribe();
        locked(&self.reported).insert(partition.to_owned());
        self.asked.notify_one();
        Reporter {
            lookout: self,
            partition,
            found,
        }
    }

    /// Polls the outbox while workers rest.
    async fn watch_outbox<S: Source>(&self, source: &S, idle: Duration) {
        loop {
            let (from, generation) = self.position().await;
            self.silence(source, &from, generation, idle).await;
            self.stir();
        }
    }

    /// Returns when there may be events after `from`, when the source cannot be read, or when the
    /// position is not the one of `generation` any more.
    async fn silence<S: Source>(
        &self,
        source: &S,
        from: &Frontier,
        generation: u64,
        idle: Duration,
    ) {
        let mut asleep: Option<Sleep> = None;
        // Sleep only ever lengthens the poll interval.
        let sleeps = idle < POLL_ASLEEP;
        let mut sleeps_at = Instant::now() + POLL_ASLEEP;
        loop {
            let pause = if asleep.is_some() { POLL_ASLEEP } else { idle };
            let is_woken = tokio::select! {
                () = sleep(pause) => false,
                () = woken(&mut asleep) => true,
            };
            if is_woken || !self.is_at(generation) {
                return;
            }
            let renews = asleep.as_ref().is_none_or(Sleep::is_shared);
            if sleeps && renews && Instant::now() >= sleeps_at {
                asleep = None;
                match source.sleep().await {
                    Ok(slept) => {
                        asleep = slept;
                        sleeps_at = Instant::now() + SLEEP_RETRY;
                    }
                    Err(error) => {
                        let error = error.error_chain();
                        tracing::debug!(error, "the relay cannot be woken and polls");
                        sleeps_at = Instant::now() + SLEEP_FAILED;
                    }
                }
                locked(&self.outbox).is_asleep = asleep.is_some();
            }
            // This read comes after the sleep has begun: what was committed before is found here,
            // and the source wakes the relay for everything else.
            match source.read(from, Shards::ALL, 1).await {
                Ok(batch) if batch.events.is_empty() && batch.frontier.high <= from.high => {}
                _ => return,
            }
        }
    }

    /// Waits until a worker rests. Returns the frontier from which to poll, and its generation.
    async fn position(&self) -> (Frontier, u64) {
        loop {
            let position = {
                let outbox = locked(&self.outbox);
                outbox.position.clone().zip(Some(outbox.generation))
            };
            if let Some(position) = position {
                return position;
            }
            self.rests.notified().await;
        }
    }

    fn is_at(&self, generation: u64) -> bool {
        let outbox = locked(&self.outbox);
        outbox.position.is_some() && outbox.generation == generation
    }

    /// Wakes all workers and forgets the position, for example because the store may have lost the
    /// history in which it was read.
    pub(super) fn stir(&self) {
        {
            let mut outbox = locked(&self.outbox);
            (outbox.position, outbox.is_asleep) = (None, false);
        }
        self.stirred.notify();
    }

    /// Wakes the workers whose next parked delivery is due before the next poll.
    async fn watch_parked<D: Summaries>(&self, store: &D, clock: &Clock, idle: Duration) {
        loop {
            let is_asleep = locked(&self.outbox).is_asleep;
            let pause = if is_asleep {
                POLL_PARKED_ASLEEP
            } else {
                POLL_PARKED
            };
            let pause = pause.max(idle);
            sleep(pause).await;
            let partitions: Vec<String> = locked(&self.partitions).keys().cloned().collect();
            if partitions.is_empty() {
                continue;
            }
            let due = match store.next_due_of(&partitions).await {
                Ok(due) => due,
                Err(error) => {
                    let error = error.error_chain();
                    tracing::debug!(error, "parked deliveries cannot be read");
                    continue;
                }
            };
            let until = clock.now().after(pause);
            let partitions = locked(&self.partitions);
            for (partition, _) in due.iter().filter(|(_, at)| *at <= until) {
                if let Some(due) = partitions.get(partition) {
                    due.notify_one();
                }
            }
        }
    }

    /// Reads the backlogs for the metrics, rarely while nothing happens.
    async fn report<D: Summaries>(&self, store: &D) {
        let mut reported_at: Option<Instant> = None;
        loop {
            let is_asked = timeout(REPORT, self.asked.notified()).await.is_ok();
            let was_active = self.is_active.swap(false, Ordering::Relaxed);
            let is_resting = locked(&self.outbox).position.is_some();
            let is_recent = reported_at.is_some_and(|at| at.elapsed() < REPORT_IDLE);
            if !is_asked && !was_active && is_resting && is_recent {
                continue;
            }
            reported_at = Some(Instant::now());
            let partitions: Vec<String> = locked(&self.reported).iter().cloned().collect();
            if partitions.is_empty() {
                continue;
            }
            match store.backlogs(&partitions).await {
                Ok(found) => {
                    let found: Backlogs = found.into_iter().collect();
                    self.backlogs.send_replace(Arc::new(found));
                }
                Err(error) => {
                    let error = error.error_chain();
                    tracing::debug!(error, "the backlogs could not be read");
                }
            }
        }
    }
}

/// The place of a worker at the lookout, which it leaves when this is dropped.
#[derive(Debug)]
pub(super) struct Seat {
    lookout: Arc<Lookout>,
    partition: String,
    due: Arc<Notify>,
}

impl Seat {
    /// Receives every wake-up from now on.
    pub(super) fn subscribe(&self) -> Subscription {
        self.lookout.stirred.subscribe()
    }

    /// Waits until a parked delivery may be due.
    pub(super) async fn due(&self) {
        self.due.notified().await;
    }

    /// The number to pass to [`rest`](Self::rest) with the result of a read that begins now.
    pub(super) fn generation(&self) -> u64 {
        locked(&self.lookout.outbox).generation
    }

    /// Leaves the polling to the lookout, after a read that has found nothing and has returned
    /// `frontier`. Returns false if the read may have seen less than the lookout takes for granted:
    /// then the worker has to read again first.
    pub(super) fn rest(&self, frontier: &Frontier, generation: u64) -> bool {
        let mut outbox = locked(&self.lookout.outbox);
        if outbox.position.is_some() {
            return outbox.generation == generation;
        }
        outbox.position = Some(frontier.clone());
        outbox.generation += 1;
        self.lookout.rests.notify_one();
        true
    }

    /// Records that something was settled, so that the backlog is read soon.
    pub(super) fn settled(&self) {
        self.lookout.is_active.store(true, Ordering::Relaxed);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut partitions = locked(&self.lookout.partitions);
        let is_ours = |due: &Arc<Notify>| Arc::ptr_eq(due, &self.due);
        if partitions.get(&self.partition).is_some_and(is_ours) {
            partitions.remove(&self.partition);
        }
    }
}

/// Receives the backlogs of one partition.
#[derive(Debug)]
pub(super) struct Reporter<'a> {
    lookout: &'a Lookout,
    partition: &'a str,
    found: watch::Receiver<Arc<Backlogs>>,
}

impl Reporter<'_> {
    /// The partition.
    pub(super) fn partition(&self) -> &str {
        self.partition
    }

    /// Waits for the next time that the backlog is read; `None` if the store did not return it.
    pub(super) async fn next(&mut self) -> Option<Backlog> {
        if self.found.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        self.found.borrow_and_update().get(self.partition).copied()
    }

    /// Has the backlog read at the normal interval, even if nothing happens.
    pub(super) fn look_again(&self) {
        self.lookout.is_active.store(true, Ordering::Relaxed);
    }
}

impl Drop for Reporter<'_> {
    fn drop(&mut self) {
        locked(&self.lookout.reported).remove(self.partition);
    }
}

/// Waits until the source wakes the relay; forever without a sleep.
async fn woken(asleep: &mut Option<Sleep>) {
    match asleep {
        Some(sleep) => sleep.woken().await,
        None => std::future::pending().await,
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn at(high: i64) -> Frontier {
        Frontier {
            high,
            snapshot: None,
        }
    }

    fn position(lookout: &Lookout) -> Option<i64> {
        let outbox = locked(&lookout.outbox);
        outbox.position.as_ref().map(|position| position.high)
    }

    /// A worker that read before the lookout's frontier was read may have seen less.
    #[test]
    fn a_worker_rests_only_after_a_read_that_began_behind_the_position_of_the_lookout() {
        let lookout = Arc::new(Lookout::new());
        let (first, second) = (lookout.join("a"), lookout.join("b"));
        let before = second.generation();
        assert!(first.rest(&at(7), first.generation()));
        assert!(!second.rest(&at(5), before));
        assert!(second.rest(&at(5), second.generation()));
        assert_eq!(position(&lookout), Some(7));
    }

    #[test]
    fn every_worker_is_woken_and_reads_before_it_rests_again() {
        let lookout = Arc::new(Lookout::new());
        let (first, second) = (lookout.join("a"), lookout.join("b"));
        assert!(first.rest(&at(7), first.generation()));
        let resting = second.generation();
        assert!(second.rest(&at(7), resting));
        let (mut wakes_first, mut wakes_second) = (first.subscribe(), second.subscribe());
        lookout.stir();
        assert!(wakes_first.notified().now_or_never().is_some());
        assert!(wakes_second.notified().now_or_never().is_some());
        assert_eq!(position(&lookout), None);
        assert!(first.rest(&at(9), first.generation()));
        assert!(!second.rest(&at(9), resting));
    }

    #[test]
    fn a_worker_that_ends_does_not_unregister_its_successor() {
        let lookout = Arc::new(Lookout::new());
        let before = lookout.join("a");
        let after = lookout.join("a");
        drop(before);
        assert!(locked(&lookout.partitions).contains_key("a"));
        drop(after);
        assert!(locked(&lookout.partitions).is_empty());
    }
}
