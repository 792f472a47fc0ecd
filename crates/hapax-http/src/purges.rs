//! When this node last read which keys were purged.
//!
//! A purge on another node, or by an operator, must not be answered from this node's memory for
//! longer than [`PURGES_FRESH`]. So an answer is replayed from memory only within that time after
//! the last reading of purges *began*, by a clock that nobody sets. Replays have it read anew: in the
//! background while it is fresh, and before they are answered when it is not. A node that nobody asks
//! for replays reads nothing. Where nothing can be read, because the database is away, memory is
//! passed over and the store is asked; a process that was stopped reads first.

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

/// How far this node has read purges, and when.
#[derive(Debug)]
pub(crate) struct Purges {
    /// What moments are counted from.
    made_at: Instant,
    /// When the last reading began that came to its end; [`NEVER`] before the first.
    read_at: AtomicU64,
    /// When the last one began.
    tried_at: AtomicU64,
    /// Whether the last one failed.
    has_failed: AtomicBool,
    /// Up to where they were read; whoever holds it reads.
    mark: Arc<Mutex<Option<PurgeMark>>>,
}

/// The right to read, of one at a time.
pub(crate) type Turn = OwnedMutexGuard<Option<PurgeMark>>;

/// A moment, in microseconds since this was made.
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

    /// Whether what was read last still holds.
    pub(crate) fn is_fresh(&self) -> bool {
        self.is_younger_than(PURGES_FRESH)
    }

    /// Whether it is time to read again.
    pub(crate) fn is_due(&self) -> bool {
        !self.is_younger_than(PURGES_DUE)
    }

    /// Whether nothing was ever read.
    pub(crate) fn is_new(&self) -> bool {
        self.read_at.load(Ordering::SeqCst) == NEVER
    }

    /// Whether somebody has begun to read since, with or without success.
    pub(crate) fn was_tried_since(&self, moment: SinceStart) -> bool {
        let tried_at = self.tried_at.load(Ordering::SeqCst);
        tried_at != NEVER && SinceStart(tried_at) >= moment
    }

    /// Waits for the right to read.
    pub(crate) async fn turn(&self) -> Turn {
        Arc::clone(&self.mark).lock_owned().await
    }

    /// Takes the right to read, unless somebody has it.
    pub(crate) fn try_turn(&self) -> Option<Turn> {
        Arc::clone(&self.mark).try_lock_owned().ok()
    }

    /// Says that a reading begins.
    pub(crate) fn begin(&self) -> SinceStart {
        let now = self.now();
        self.tried_at.store(now.0, Ordering::SeqCst);
        now
    }

    /// What was purged before `began` is forgotten, up to `mark`: memory holds again, from then on.
    pub(crate) fn end(&self, mut turn: Turn, mark: PurgeMark, began: SinceStart) {
        *turn = Some(mark);
        self.has_failed.store(false, Ordering::SeqCst);
        self.read_at.store(began.0, Ordering::SeqCst);
    }

    /// Says that a reading failed; whether it is the first since one that did not.
    pub(crate) fn fail(&self) -> bool {
        !self.has_failed.swap(true, Ordering::SeqCst)
    }

    pub(crate) fn now(&self) -> SinceStart {
        SinceStart(u64::try_from(self.made_at.elapsed().as_micros()).unwrap_or(NEVER - 1))
    }

    fn is_younger_than(&self, age: Duration) -> bool {
        // Read before the clock is: a reading that ends meanwhile would only make it younger.
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
        assert!(purges.try_turn().is_none(), "one reads at a time");
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
        assert!(purges.fail() && !purges.fail(), "it is said once");
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
