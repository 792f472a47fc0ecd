//! Lookout: the reads of the store that a relay makes once for all of its partitions.
//!
//! A worker that has found nothing for a while *rests*: the lookout polls the outbox for all resting
//! workers (`outbox`), and wakes those for which there are events. It asks which partitions have a
//! parked delivery that is due (`parked`), which another process may have changed, and reads the
//! backlogs for the metrics (`backlogs`).
//!
//! The lookout polls from a frontier that no resting worker is behind. The first worker that rests
//! leaves the frontier of its last read. Another one may rest only if its own last read began after
//! the lookout had this frontier. When the lookout finds events, it wakes the workers of their
//! shards and continues from the frontier after them, which no other worker is behind either.

mod outbox;
mod parked;
mod backlogs;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::sync::{Notify, watch};

use crate::{
    delivery::{Frontier, Shards},
    notify::Notifier,
    store::{Source, Summaries},
};

use backlogs::Backlogs;
pub(super) use backlogs::Reporter;
use outbox::OutboxWatch;

/// State that the lookout, the workers and the metrics share.
#[derive(Debug)]
pub(super) struct Lookout {
    post: Mutex<Post>,
    /// The lookout has a frontier, or has none any more.
    post_changed: Notify,
    /// Whether the source wakes the relay.
    is_asleep: AtomicBool,
    /// The source has woken the relay.
    woken: Notify,
    /// The partitions with a worker.
    places: Mutex<BTreeMap<String, Arc<WorkerSignals>>>,
    /// The partitions whose backlog is reported.
    reported: Mutex<BTreeSet<String>>,
    /// A backlog is to be read now.
    asked: Notify,
    /// Whether something was committed or settled since the last report.
    is_active: AtomicBool,
    backlogs: watch::Sender<Arc<Backlogs>>,
}

/// Where the lookout polls the outbox.
#[derive(Debug, Default)]
struct Post {
    /// The frontier from which it polls; `None` if no worker relies on it.
    frontier: Option<Frontier>,
    /// The number of frontiers so far.
    generation: u64,
    /// The number of workers that rest.
    resting: usize,
}

/// The state that a worker and the lookout share.
#[derive(Debug)]
struct WorkerSignals {
    shards: Shards,
    /// There may be events.
    events: Notify,
    /// A parked delivery may be due.
    due: Notify,
}

impl Lookout {
    pub(super) fn new() -> Self {
        Self {
            post: Mutex::default(),
            post_changed: Notify::new(),
            is_asleep: AtomicBool::new(false),
            woken: Notify::new(),
            places: Mutex::default(),
            reported: Mutex::default(),
            asked: Notify::new(),
            is_active: AtomicBool::new(true),
            backlogs: watch::Sender::new(Arc::default()),
        }
    }

    /// Polls until it is dropped. `idle` is the longest poll interval of a relay that is awake.
    pub(super) async fn run<S: Source, D: Summaries>(
        self: Arc<Self>,
        source: S,
        store: D,
        notifier: Notifier,
        idle: Duration,
    ) {
        let outbox = OutboxWatch::new(&self, &source, notifier.subscribe(), idle);
        tokio::join!(
            outbox.run(),
            self.watch_parked(&store, notifier.subscribe(), idle),
            self.report(&store),
        );
    }

    /// Registers the worker of `partition`.
    pub(super) fn join(self: &Arc<Self>, partition: &str, shards: Shards) -> Seat {
        let place = Arc::new(WorkerSignals {
            shards,
            events: Notify::new(),
            due: Notify::new(),
        });
        locked(&self.places).insert(partition.to_owned(), Arc::clone(&place));
        Seat {
            lookout: Arc::clone(self),
            partition: partition.to_owned(),
            place,
            rests: false,
        }
    }

    /// Wakes all workers, and forgets from where the lookout polls, for example because the store
    /// may have lost the history in which that was read.
    pub(super) fn forget(&self) {
        locked(&self.post).frontier = None;
        self.post_changed.notify_one();
        self.wake(|_| true);
    }

    /// From where to poll, and the generation of this frontier.
    fn post(&self) -> Option<(Frontier, u64)> {
        let post = locked(&self.post);
        post.frontier.clone().zip(Some(post.generation))
    }

    /// Continues after events of these shards, which were found from the frontier of `generation`,
    /// and wakes their workers.
    fn advance(&self, shards: Shards, frontier: Frontier, generation: u64) {
        {
            let mut post = locked(&self.post);
            // Otherwise every worker was woken since, or none rested: they read for themselves.
            if post.frontier.is_none() || post.generation != generation {
                return;
            }
            post.frontier = Some(frontier);
            post.generation += 1;
        }
        self.wake(|place| place.shards.intersects(shards));
    }

    /// Wakes workers for events.
    fn wake(&self, whom: impl Fn(&WorkerSignals) -> bool) {
        let places = locked(&self.places);
        for place in places.values().filter(|place| whom(place)) {
            place.events.notify_one();
        }
    }
}

/// The place of a worker at the lookout, which it leaves when this is dropped.
#[derive(Debug)]
pub(super) struct Seat {
    lookout: Arc<Lookout>,
    partition: String,
    place: Arc<WorkerSignals>,
    rests: bool,
}

impl Seat {
    /// Waits until there may be events. A wake-up before the wait ends it at once.
    pub(super) async fn events(&self) {
        self.place.events.notified().await;
    }

    /// Waits until a parked delivery may be due.
    pub(super) async fn due(&self) {
        self.place.due.notified().await;
    }

    /// The number to pass to [`rest`](Self::rest) with the result of a read that begins now.
    pub(super) fn generation(&self) -> u64 {
        locked(&self.lookout.post).generation
    }

    /// Whether the worker leaves the polling to the lookout.
    pub(super) fn rests(&self) -> bool {
        self.rests
    }

    /// Leaves the polling to the lookout, after a read that has found nothing and has returned
    /// `frontier`. Returns false if the read may have seen less than the lookout takes for granted:
    /// then the worker has to read again first.
    pub(super) fn rest(&mut self, frontier: &Frontier, generation: u64) -> bool {
        let mut post = locked(&self.lookout.post);
        if post.frontier.is_none() {
            post.frontier = Some(frontier.clone());
            post.generation += 1;
            self.lookout.post_changed.notify_one();
        } else if post.generation != generation {
            return false;
        }
        if !self.rests {
            self.rests = true;
            post.resting += 1;
        }
        true
    }

    /// Polls for itself again.
    pub(super) fn rise(&mut self) {
        if !std::mem::take(&mut self.rests) {
            return;
        }
        let mut post = locked(&self.lookout.post);
        post.resting -= 1;
        if post.resting == 0 {
            post.frontier = None;
            self.lookout.post_changed.notify_one();
        }
    }

    /// Records that something was settled, so that the backlog is read soon.
    pub(super) fn settled(&self) {
        self.lookout.is_active.store(true, Ordering::Relaxed);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.rise();
        let mut places = locked(&self.lookout.places);
        let is_ours = |place: &Arc<WorkerSignals>| Arc::ptr_eq(place, &self.place);
        if places.get(&self.partition).is_some_and(is_ours) {
            places.remove(&self.partition);
        }
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

    fn shard(number: u8) -> Shards {
        Shards::NONE.with(number)
    }

    fn high(lookout: &Lookout) -> Option<i64> {
        lookout.post().map(|(frontier, _)| frontier.high)
    }

    fn is_woken(seat: &Seat) -> bool {
        seat.events().now_or_never().is_some()
    }

    /// A worker that read before the lookout's frontier was read may have seen less.
    #[test]
    fn a_worker_rests_only_after_a_read_that_began_behind_the_frontier_of_the_lookout() {
        let lookout = Arc::new(Lookout::new());
        let mut first = lookout.join("a", Shards::ALL);
        let mut second = lookout.join("b", Shards::ALL);
        let before = second.generation();
        assert!(first.rest(&at(7), first.generation()));
        assert!(!second.rest(&at(5), before) && !second.rests());
        assert!(second.rest(&at(5), second.generation()) && second.rests());
        assert_eq!(high(&lookout), Some(7));
    }

    #[test]
    fn an_event_wakes_the_workers_of_its_shard_and_no_other_rests_by_an_earlier_read() {
        let lookout = Arc::new(Lookout::new());
        let mut first = lookout.join("a/0", shard(0));
        let mut second = lookout.join("a/1", shard(1));
        assert!(first.rest(&at(7), first.generation()));
        let generation = second.generation();
        lookout.advance(shard(0).with(5), at(9), generation);
        assert!(is_woken(&first) && !is_woken(&second));
        assert_eq!(high(&lookout), Some(9));
        assert!(first.rests());
        assert!(!second.rest(&at(7), generation));
        assert!(second.rest(&at(7), second.generation()));
    }

    /// What was found from an earlier frontier says nothing about workers that rest since.
    #[test]
    fn a_frontier_that_was_left_is_not_continued() {
        let lookout = Arc::new(Lookout::new());
        let mut seat = lookout.join("a", Shards::ALL);
        assert!(seat.rest(&at(7), 0));
        let (_, generation) = lookout.post().unwrap();
        lookout.forget();
        assert!(is_woken(&seat));
        lookout.advance(Shards::ALL, at(9), generation);
        assert_eq!(high(&lookout), None);
        assert!(seat.rest(&at(8), seat.generation()));
        lookout.advance(Shards::ALL, at(9), generation);
        assert_eq!(high(&lookout), Some(8));
        assert!(!is_woken(&seat));
    }

    #[test]
    fn the_lookout_polls_while_a_worker_rests() {
        let lookout = Arc::new(Lookout::new());
        let mut first = lookout.join("a", Shards::ALL);
        let mut second = lookout.join("b", Shards::ALL);
        assert!(first.rest(&at(7), 0));
        assert!(first.rest(&at(7), first.generation()));
        assert!(second.rest(&at(7), second.generation()));
        first.rise();
        first.rise();
        assert_eq!(high(&lookout), Some(7));
        drop(second);
        assert_eq!(high(&lookout), None);
    }

    #[test]
    fn a_worker_that_ends_does_not_unregister_its_successor() {
        let lookout = Arc::new(Lookout::new());
        let before = lookout.join("a", Shards::ALL);
        let after = lookout.join("a", Shards::ALL);
        drop(before);
        assert!(locked(&lookout.places).contains_key("a"));
        drop(after);
        assert!(locked(&lookout.places).is_empty());
    }
}
