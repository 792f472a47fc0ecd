//! Freshness of the replay cache: when this node last read which keys were purged.
//!
//! If another node or an operator purges a key, this node must not replay its response from memory
//! for longer than [`PURGES_FRESH`]. So a response is replayed from memory only within that time
//! after the last read of purges *began*, measured by a monotonic clock. Replays cause the next
//! read: in the background while the last read is fresh, and before the replay otherwise. A node
//! without replays reads nothing. If purges cannot be read because the database is unavailable, the
//! cache is skipped and the store is asked. After a process was suspended, it reads purges before
//! it replays.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use hapax::{
    limits::{PURGES_DUE, PURGES_FRESH},
    purges::PurgeMark,
};
use tokio::{
    sync::{Mutex, OwnedMutexGuard},
    time::Instant,
};

/// The progress of this node in reading purges.
#[derive(Debug)]
pub(crate) struct Purges {
    /// The origin of [`SinceStart`].
    made_at: Instant,
    /// When the last successful read began; [`NEVER`] before the first one.
    read_at: AtomicU64,
    /// When the last read began.
    tried_at: AtomicU64,
    /// Whether the last read failed.
    has_failed: AtomicBool,
    /// Up to where purges were read. A request locks it to read.
    mark: Arc<Mutex<Option<PurgeMark>>>,
}

/// The right to read purges, which one request has at a time.
pub(crate) type PurgeReadGuard = OwnedMutexGuard<Option<PurgeMark>>;

/// A point in time, in microseconds since [`Purges`] was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SinceStart(u64);

const NEVER: u64 = u64::MAX;

impl Purges {
    pub(crate) fn new() -> Self {
        Self {
            made_at: Instant::now(),
            read_at: AtomicU64::new(NEVER),
            tried_at: AtomicU64::new(NEVER),
            has_failed: AtomicBool::new(false),
            mark: Arc::default(),
        }
    }

    /// Whether the last successful read is recent enough to replay from memory.
    pub(crate) fn is_fresh(&self) -> bool {
        self.is_younger_than(PURGES_FRESH)
    }

    /// Whether it is time to read again.
    pub(crate) fn is_due(&self) -> bool {
        !self.is_younger_than(PURGES_DUE)
    }

    /// Whether no read has ever succeeded.
    pub(crate) fn is_new(&self) -> bool {
        self.read_at.load(Ordering::SeqCst) == NEVER
    }

    /// Whether a read has begun since `moment`, successful or not.
    pub(crate) fn was_tried_since(&self, moment: SinceStart) -> bool {
        let tried_at = self.tried_at.load(Ordering::SeqCst);
        tried_at != NEVER && SinceStart(tried_at) >= moment
    }

    /// Waits for the right to read.
    pub(crate) async fn turn(&self) -> PurgeReadGuard {
        Arc::clone(&self.mark).lock_owned().await
    }

    /// Takes the right to read. Returns `None` if another request has it.
    pub(crate) fn try_turn(&self) -> Option<PurgeReadGuard> {
        Arc::clone(&self.mark).try_lock_owned().ok()
    }

    /// Records the start of a read.
    pub(crate) fn begin(&self) -> SinceStart {
        let now = self.now();
        self.tried_at.store(now.0, Ordering::SeqCst);
        now
    }

    /// Records a successful read, which began at `began` and read up to `mark`. The keys that it
    /// returned must already be removed from the cache.
    pub(crate) fn end(&self, mut turn: PurgeReadGuard, mark: PurgeMark, began: SinceStart) {
        *turn = Some(mark);
        self.has_failed.store(false, Ordering::SeqCst);
        self.read_at.store(began.0, Ordering::SeqCst);
    }

    /// Records a failed read. Returns true if the read before it did not fail.
    pub(crate) fn fail(&self) -> bool {
        !self.has_failed.swap(true, Ordering::SeqCst)
    }

    pub(crate) fn now(&self) -> SinceStart {
        SinceStart(u64::try_from(self.made_at.elapsed().as_micros()).unwrap_or(NEVER - 1))
    }

    fn is_younger_than(&self, age: Duration) -> bool {
        // Loaded before the clock is read: a read that ends in between only makes the age smaller.
        let read_at = self.read_at.load(Ordering::SeqCst);
        read_at != NEVER && u128::from(self.now().0.saturating_sub(read_at)) <= age.as_micros()
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_was_read_holds_from_when_the_reading_began() {
        let purges = Purges::new();
        assert!(purges.is_new() && purges.is_due() && !purges.is_fresh());
        let (turn, began) = (purges.turn().await, purges.begin());
        assert!(purges.try_turn().is_none(), "two reads at the same time");
        advance(PURGES_FRESH / 2).await;
        purges.end(turn, mark(), began);
        assert!(purges.is_fresh() && !purges.is_new());
        advance(PURGES_FRESH / 2).await;
        assert!(purges.is_fresh() && purges.is_due());
        advance(Duration::from_millis(1)).await;
        assert!(!purges.is_fresh());
        assert_eq!(*purges.try_turn().unwrap(), Some(mark()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_reading_that_fails_confirms_nothing_and_whoever_waited_for_it_knows() {
        let purges = Purges::new();
        let arrived = purges.now();
        assert!(!purges.was_tried_since(arrived));
        let turn = purges.turn().await;
        purges.begin();
        assert!(
            purges.fail() && !purges.fail(),
            "only the first failure is logged"
        );
        drop(turn);
        assert!(purges.was_tried_since(arrived) && !purges.is_fresh());
        advance(Duration::from_millis(1)).await;
        assert!(!purges.was_tried_since(purges.now()));
    }

    fn mark() -> PurgeMark {
        PurgeMark {
            history: "a".to_owned(),
            number: 3,
        }
    }
}
