//! How far a destination has come: what is settled, and what may be repeated.
//!
//! Events are read in batches and settled in any order. The checkpoint's
//! frontier moves only over batches that are settled whole; what is settled
//! beyond it is remembered one by one, so that a restart repeats nothing that
//! is known to have arrived.

use std::collections::{HashMap, VecDeque};

use crate::{
    delivery::{Checkpoint, Frontier},
    limits::UNSETTLED_EVENTS,
};

#[derive(Debug)]
pub(super) struct Progress {
    /// What is behind us, as it will be written down.
    checkpoint: Checkpoint,
    /// Up to where we have read.
    head: Frontier,
    batches: VecDeque<Read>,
    /// The number of the batch at the front of `batches`.
    first_batch: u64,
    /// Positions in `batches`, settled or not.
    held: usize,
    /// In which batch each unsettled position was read.
    unsettled: HashMap<i64, u64>,
    moved: bool,
}

/// A batch that is not settled whole.
#[derive(Debug)]
struct Read {
    behind: Frontier,
    positions: Vec<i64>,
    unsettled: usize,
}

impl Progress {
    pub(super) fn new(checkpoint: Checkpoint) -> Self {
        Self {
            head: checkpoint.frontier.clone(),
            checkpoint,
            batches: VecDeque::new(),
            first_batch: 0,
            held: 0,
            unsettled: HashMap::new(),
            moved: false,
        }
    }

    /// Where to read on.
    pub(super) fn head(&self) -> &Frontier {
        &self.head
    }

    /// Whether so much is read and not passed that reading must wait.
    ///
    /// What was settled beyond the frontier before a restart does not count: it is passed by
    /// reading on.
    pub(super) fn is_full(&self) -> bool {
        self.held >= UNSETTLED_EVENTS
    }

    /// Whether a position was settled before the frontier reached it.
    pub(super) fn is_settled(&self, position: i64) -> bool {
        self.checkpoint.settled.contains(&position)
    }

    /// Notes a batch: `concerned` are the positions that are ours to deliver.
    pub(super) fn read(&mut self, concerned: Vec<i64>, behind: Frontier) {
        let number = self.first_batch + self.batches.len() as u64;
        let mut unsettled = 0;
        for position in &concerned {
            if !self.is_settled(*position) {
                unsettled += 1;
                self.unsettled.insert(*position, number);
            }
        }
        self.held += concerned.len();
        self.head = behind.clone();
        self.batches.push_back(Read {
            behind,
            positions: concerned,
            unsettled,
        });
        self.advance();
    }

    /// Notes that a position is about to be offered for the first time.
    pub(super) fn offer(&mut self, position: i64) {
        self.moved |= self.checkpoint.offered.insert(position);
    }

    /// Notes that a position is not offered after all.
    pub(super) fn withdraw(&mut self, position: i64) {
        self.moved |= self.checkpoint.offered.remove(&position);
    }

    /// Notes that a position is delivered or parked.
    pub(super) fn settle(&mut self, position: i64) {
        self.checkpoint.offered.remove(&position);
        let Some(number) = self.unsettled.remove(&position) else {
            return;
        };
        self.checkpoint.settled.insert(position);
        self.moved = true;
        let index = usize::try_from(number - self.first_batch).expect("a batch still held");
        self.batches[index].unsettled -= 1;
        self.advance();
    }

    /// Whether the checkpoint differs from the one last [`kept`](Self::kept).
    pub(super) fn has_moved(&self) -> bool {
        self.moved
    }

    /// The checkpoint, if it differs from the one last [`kept`](Self::kept).
    pub(super) fn changed(&self) -> Option<Checkpoint> {
        self.moved.then(|| self.checkpoint.clone())
    }

    /// Notes that the checkpoint as it stands is written down.
    pub(super) fn kept(&mut self) {
        self.moved = false;
    }

    fn advance(&mut self) {
        while let Some(batch) = self.batches.pop_front_if(|batch| batch.unsettled == 0) {
            self.first_batch += 1;
            self.held -= batch.positions.len();
            self.moved = true;
            self.checkpoint.frontier = batch.behind;
            for position in batch.positions {
                self.checkpoint.settled.remove(&position);
            }
        }
        self.forget_passed();
    }

    /// Forgets what was settled before a restart, is not ours any more, and is passed.
    fn forget_passed(&mut self) {
        if self.checkpoint.frontier.snapshot.is_some() {
            return;
        }
        let high = self.checkpoint.frontier.high;
        let settled = &mut self.checkpoint.settled;
        while settled.first().is_some_and(|first| *first <= high) {
            settled.pop_first();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_frontier_moves_only_over_batches_that_are_settled_whole() {
        let mut progress = Progress::new(Checkpoint::default());
        progress.read(vec![1, 2], frontier(2));
        progress.read(vec![3], frontier(4));
        progress.settle(3);
        progress.settle(1);
        check(&progress, 0, &[1, 3]);
        progress.settle(2);
        check(&progress, 4, &[]);
    }

    #[test]
    fn a_batch_that_concerns_nobody_moves_the_frontier_at_once() {
        let mut progress = Progress::new(Checkpoint::default());
        progress.read(vec![], frontier(9));
        check(&progress, 9, &[]);
    }

    #[test]
    fn what_was_settled_before_a_restart_is_not_waited_for() {
        let checkpoint = Checkpoint {
            settled: BTreeSet::from([2]),
            ..Checkpoint::default()
        };
        let mut progress = Progress::new(checkpoint);
        assert!(progress.is_settled(2));
        progress.read(vec![1, 2, 3], frontier(3));
        progress.settle(1);
        progress.settle(3);
        check(&progress, 3, &[]);
    }

    #[test]
    fn what_was_settled_before_a_restart_does_not_fill_the_window() {
        let many = i64::try_from(UNSETTLED_EVENTS).unwrap();
        let mut progress = Progress::new(Checkpoint {
            settled: (1..=many).collect(),
            ..Checkpoint::default()
        });
        assert!(!progress.is_full());
        progress.read((1..=many).collect(), frontier(many));
        check(&progress, many, &[]);
        assert!(!progress.is_full());
    }

    #[test]
    fn one_that_hangs_fills_the_window_in_the_end() {
        let many = i64::try_from(UNSETTLED_EVENTS).unwrap();
        let mut progress = Progress::new(Checkpoint::default());
        progress.read(vec![1], frontier(1));
        for position in 2..=many {
            assert!(!progress.is_full());
            progress.read(vec![position], frontier(position));
            progress.settle(position);
        }
        assert!(progress.is_full());
        progress.settle(1);
        assert!(!progress.is_full());
    }

    #[test]
    fn what_is_no_longer_ours_is_forgotten_once_it_is_passed() {
        let mut progress = Progress::new(Checkpoint {
            settled: [2, 9].into(),
            ..Checkpoint::default()
        });
        progress.read(vec![1], frontier(3));
        progress.read(vec![4], frontier(4));
        progress.settle(1);
        check(&progress, 3, &[9]);
    }

    #[test]
    fn an_offer_is_in_the_checkpoint_until_it_is_settled() {
        let mut progress = Progress::new(Checkpoint::default());
        progress.read(vec![1], frontier(1));
        progress.offer(1);
        assert_eq!(progress.changed().unwrap().offered, BTreeSet::from([1]));
        progress.settle(1);
        assert!(progress.changed().unwrap().offered.is_empty());
    }

    proptest! {
        /// Whatever the order, a restart from the checkpoint would read again exactly what is
        /// not settled.
        #[test]
        fn nothing_unsettled_is_ever_passed(
            sizes in prop::collection::vec(0_usize..5, 1..8),
            order in prop::collection::vec(any::<prop::sample::Index>(), 0..40),
        ) {
            let mut progress = Progress::new(Checkpoint::default());
            let mut unsettled = BTreeSet::new();
            let mut high = 0;
            for size in sizes {
                let positions: Vec<i64> = (0..size).map(|_| { high += 1; high }).collect();
                unsettled.extend(positions.iter().copied());
                progress.read(positions, frontier(high));
            }
            for pick in order {
                if unsettled.is_empty() { break }
                let position = *pick.get(&unsettled.iter().copied().collect::<Vec<_>>());
                unsettled.remove(&position);
                progress.settle(position);
                let kept = &progress.checkpoint;
                let repeated: BTreeSet<i64> = (kept.frontier.high + 1..=high)
                    .filter(|position| !kept.settled.contains(position))
                    .collect();
                prop_assert_eq!(&repeated, &unsettled);
            }
        }
    }

    fn frontier(high: i64) -> Frontier {
        Frontier {
            high,
            snapshot: None,
        }
    }

    #[track_caller]
    fn check(progress: &Progress, high: i64, settled: &[i64]) {
        let checkpoint = progress.changed().expect("a checkpoint that moved");
        assert_eq!(checkpoint.frontier, frontier(high));
        assert_eq!(checkpoint.settled, settled.iter().copied().collect());
    }
}
