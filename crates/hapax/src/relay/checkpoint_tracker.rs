//! Checkpoint tracker: how far a partition is settled, and which events may be delivered again
//! after a restart.
//!
//! Events are read in batches and settled in any order. The frontier of the checkpoint moves only
//! past batches that are settled completely. Events that are settled beyond the frontier are
//! recorded one by one, so that a restart does not repeat a delivery that is known to have
//! succeeded.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    mem::take,
};

use crate::{
    delivery::{Checkpoint, Frontier},
    event::EventId,
    limits::{PAST_EVENTS, UNSETTLED_EVENTS},
};

/// Number of reads after which a checkpoint is written only to clear `seen`.
const SEEN_READS: usize = 1_000;

#[derive(Debug)]
pub(super) struct CheckpointTracker {
    /// Everything up to this frontier is settled.
    frontier: Frontier,
    /// Everything up to this frontier is read.
    head: Frontier,
    /// The `head` at which the oldest position in `ahead` or `early` was admitted.
    head_then: Option<Frontier>,
    batches: VecDeque<Read>,
    /// The number of the batch at the front of `batches`.
    first_batch: u64,
    /// The number of positions in `batches`, settled or not.
    held: usize,
    /// The place of each unsettled position in `batches`: the number of its batch, and its index
    /// there.
    unsettled: HashMap<i64, (u64, usize)>,
    /// Positions after `head` that were admitted already, and their states.
    ahead: HashMap<i64, State>,
    /// Positions that were settled before they were read.
    early: BTreeSet<i64>,
    /// The last event of each read since the checkpoint was last written.
    seen: Vec<(i64, EventId)>,
    moved: bool,
}

/// A batch that is not settled completely.
#[derive(Debug)]
struct Read {
    behind: Frontier,
    positions: Vec<(i64, State)>,
    unsettled: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waits,
    Offered,
    Settled,
}

impl CheckpointTracker {
    pub(super) fn new(checkpoint: Checkpoint) -> Self {
        Self {
            head: checkpoint.frontier.clone(),
            frontier: checkpoint.frontier,
            head_then: None,
            batches: VecDeque::new(),
            first_batch: 0,
            held: 0,
            unsettled: HashMap::new(),
            ahead: HashMap::new(),
            early: checkpoint.settled,
            seen: Vec::new(),
            moved: false,
        }
    }

    /// Where the next read starts.
    pub(super) fn head(&self) -> &Frontier {
        &self.head
    }

    /// The frontiers up to which the events in memory were read.
    pub(super) fn read_to(&self) -> Vec<Frontier> {
        let then = self.head_then.iter().filter(|then| **then != self.head);
        then.chain([&self.head]).cloned().collect()
    }

    /// Records the last event of a read. A settlement passes it to the store, which checks that it
    /// still exists.
    ///
    /// After many reads that did not move the frontier, an unchanged checkpoint is written, so that
    /// the list can be cleared.
    pub(super) fn saw(&mut self, position: i64, id: EventId) {
        self.seen.push((position, id));
        self.moved |= self.seen.len() >= SEEN_READS;
    }

    /// The last events of all reads since the last checkpoint. If `is_kept`, they are removed,
    /// because the next settlement writes a checkpoint.
    pub(super) fn seen(&mut self, is_kept: bool) -> Vec<(i64, EventId)> {
        if is_kept {
            take(&mut self.seen)
        } else {
            self.seen.clone()
        }
    }

    /// Whether so many events are read and not settled that reading has to wait.
    ///
    /// Events beyond the frontier that were settled before a restart do not count, because the
    /// frontier passes them only by further reads.
    pub(super) fn is_full(&self) -> bool {
        self.held >= UNSETTLED_EVENTS
    }

    /// How many more positions after `head` may be admitted.
    pub(super) fn room_ahead(&self) -> usize {
        PAST_EVENTS.saturating_sub(self.ahead.len() + self.early.len())
    }

    /// Whether a position after the frontier is settled, or admitted after `head`.
    pub(super) fn is_known(&self, position: i64) -> bool {
        // Both are empty most of the time.
        (!self.early.is_empty() && self.early.contains(&position))
            || (!self.ahead.is_empty() && self.ahead.contains_key(&position))
    }

    /// Admits a position after `head`.
    pub(super) fn take_ahead(&mut self, position: i64) {
        self.head_then.get_or_insert_with(|| self.head.clone());
        self.ahead.insert(position, State::Waits);
    }

    /// Removes a position that was settled before a restart and does not belong to this destination
    /// any more.
    pub(super) fn forget(&mut self, position: i64) {
        if !self.early.is_empty() {
            self.early.remove(&position);
        }
    }

    /// Adds a batch. `concerned` contains the positions that this destination has to deliver.
    pub(super) fn read(&mut self, concerned: Vec<i64>, behind: Frontier) {
        let number = self.first_batch + self.batches.len() as u64;
        let mut unsettled = 0;
        let mut positions = Vec::with_capacity(concerned.len());
        for position in concerned {
            let state = if !self.early.is_empty() && self.early.contains(&position) {
                State::Settled
            } else {
                unsettled += 1;
                self.unsettled.insert(position, (number, positions.len()));
                self.ahead.remove(&position).unwrap_or(State::Waits)
            };
            positions.push((position, state));
        }
        self.held += positions.len();
        self.head = behind.clone();
        self.batches.push_back(Read {
            behind,
            positions,
            unsettled,
        });
        self.advance();
    }

    /// Records that a position is about to be offered for the first time.
    pub(super) fn offer(&mut self, position: i64) {
        self.mark(position, State::Offered);
    }

    /// Records that a position is not offered after all.
    pub(super) fn withdraw(&mut self, position: i64) {
        self.mark(position, State::Waits);
    }

    fn mark(&mut self, position: i64, state: State) {
        let place = match self.unsettled.get(&position) {
            Some(place) => {
                Some(&mut self.batches[index(self.first_batch, place.0)].positions[place.1].1)
            }
            None => self.ahead.get_mut(&position),
        };
        if let Some(place) = place {
            *place = state;
            self.moved = true;
        }
    }

    /// Records that a position is delivered or parked.
    pub(super) fn settle(&mut self, position: i64) {
        let Some((number, place)) = self.unsettled.remove(&position) else {
            if self.ahead.remove(&position).is_some() {
                self.early.insert(position);
                self.moved = true;
            }
            return;
        };
        let batch = &mut self.batches[index(self.first_batch, number)];
        batch.positions[place].1 = State::Settled;
        batch.unsettled -= 1;
        self.moved = true;
        self.advance();
    }

    /// Whether the checkpoint differs from the one last [`kept`](Self::kept).
    pub(super) fn has_moved(&self) -> bool {
        self.moved
    }

    /// The checkpoint, if it differs from the one last [`kept`](Self::kept).
    pub(super) fn changed(&self) -> Option<Checkpoint> {
        self.moved.then(|| self.checkpoint())
    }

    /// The current checkpoint.
    pub(super) fn checkpoint(&self) -> Checkpoint {
        let read = || self.batches.iter().flat_map(|batch| &batch.positions);
        let ahead = self
            .ahead
            .iter()
            .map(|(position, state)| (*position, *state));
        let all = || read().copied().chain(ahead.clone());
        let of = |wanted: State| {
            all()
                .filter(move |(_, state)| *state == wanted)
                .map(|(position, _)| position)
        };
        Checkpoint {
            frontier: self.frontier.clone(),
            settled: of(State::Settled)
                .chain(self.early.iter().copied())
                .collect(),
            offered: of(State::Offered).collect(),
        }
    }

    /// Records that the current checkpoint is written.
    pub(super) fn kept(&mut self) {
        self.moved = false;
    }

    fn advance(&mut self) {
        while let Some(batch) = self.batches.pop_front_if(|batch| batch.unsettled == 0) {
            self.first_batch += 1;
            self.held -= batch.positions.len();
            self.moved = true;
            self.frontier = batch.behind;
            if !self.early.is_empty() {
                for (position, _) in batch.positions {
                    self.early.remove(&position);
                }
            }
        }
        self.forget_passed();
        if self.ahead.is_empty() && self.early.is_empty() {
            self.head_then = None;
        }
    }

    /// Removes positions that the frontier has passed: they were settled before a restart and do
    /// not belong to this destination any more.
    fn forget_passed(&mut self) {
        if self.frontier.snapshot.is_some() {
            return;
        }
        let high = self.frontier.high;
        while self.early.first().is_some_and(|first| *first <= high) {
            self.early.pop_first();
        }
    }
}

/// The index of a batch in `batches`.
fn index(first_batch: u64, number: u64) -> usize {
    usize::try_from(number - first_batch).expect("the number belongs to a batch in memory")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_frontier_moves_only_over_batches_that_are_settled_whole() {
        let mut checkpoints = CheckpointTracker::new(Checkpoint::default());
        checkpoints.read(vec![1, 2], frontier(2));
        checkpoints.read(vec![3], frontier(4));
        checkpoints.settle(3);
        checkpoints.settle(1);
        check(&checkpoints, 0, &[1, 3]);
        checkpoints.settle(2);
        check(&checkpoints, 4, &[]);
    }

    #[test]
    fn a_batch_that_concerns_nobody_moves_the_frontier_at_once() {
        let mut checkpoints = CheckpointTracker::new(Checkpoint::default());
        checkpoints.read(vec![], frontier(9));
        check(&checkpoints, 9, &[]);
    }

    #[test]
    fn what_was_settled_before_a_restart_is_not_waited_for() {
        let checkpoint = Checkpoint {
            settled: BTreeSet::from([2]),
            ..Checkpoint::default()
        };
        let mut checkpoints = CheckpointTracker::new(checkpoint);
        assert!(checkpoints.is_known(2));
        checkpoints.read(vec![1, 2, 3], frontier(3));
        checkpoints.settle(1);
        checkpoints.settle(3);
        check(&checkpoints, 3, &[]);
    }

    #[test]
    fn what_was_settled_before_a_restart_does_not_fill_the_window() {
        let many = i64::try_from(UNSETTLED_EVENTS).unwrap();
        let mut checkpoints = CheckpointTracker::new(Checkpoint {
            settled: (1..=many).collect(),
            ..Checkpoint::default()
        });
        assert!(!checkpoints.is_full());
        checkpoints.read((1..=many).collect(), frontier(many));
        check(&checkpoints, many, &[]);
        assert!(!checkpoints.is_full());
    }

    #[test]
    fn one_that_hangs_fills_the_window_in_the_end() {
        let many = i64::try_from(UNSETTLED_EVENTS).unwrap();
        let mut checkpoints = CheckpointTracker::new(Checkpoint::default());
        checkpoints.read(vec![1], frontier(1));
        for position in 2..=many {
            assert!(!checkpoints.is_full());
            checkpoints.read(vec![position], frontier(position));
            checkpoints.settle(position);
        }
        assert!(checkpoints.is_full());
        checkpoints.settle(1);
        assert!(!checkpoints.is_full());
    }

    #[test]
    fn what_is_no_longer_ours_is_forgotten_once_it_is_passed() {
        let mut checkpoints = CheckpointTracker::new(Checkpoint {
            settled: [2, 9].into(),
            ..Checkpoint::default()
        });
        checkpoints.read(vec![1], frontier(3));
        checkpoints.read(vec![4], frontier(4));
        checkpoints.settle(1);
        check(&checkpoints, 3, &[9]);
    }

    #[test]
    fn an_offer_is_in_the_checkpoint_until_it_is_settled() {
        let mut checkpoints = CheckpointTracker::new(Checkpoint::default());
        checkpoints.read(vec![1], frontier(1));
        checkpoints.offer(1);
        assert_eq!(checkpoints.changed().unwrap().offered, BTreeSet::from([1]));
        checkpoints.settle(1);
        assert!(checkpoints.changed().unwrap().offered.is_empty());
    }

    #[test]
    fn what_is_taken_ahead_is_not_read_twice_and_not_forgotten() {
        let mut checkpoints = CheckpointTracker::new(Checkpoint::default());
        checkpoints.take_ahead(7);
        checkpoints.take_ahead(9);
        checkpoints.offer(7);
        checkpoints.settle(9);
        let checkpoint = checkpoints.changed().unwrap();
        assert_eq!(checkpoint.offered, [7].into());
        assert_eq!(checkpoint.settled, [9].into());
        assert!(checkpoints.is_known(7) && checkpoints.is_known(9));
        checkpoints.read(vec![6, 7, 9], frontier(9));
        checkpoints.settle(6);
        check(&checkpoints, 0, &[6, 9]);
        checkpoints.settle(7);
        check(&checkpoints, 9, &[]);
        assert_eq!(checkpoints.room_ahead(), PAST_EVENTS);
    }

    #[test]
    fn what_was_taken_ahead_remembers_how_far_was_read_then() {
        let mut checkpoints = CheckpointTracker::new(Checkpoint::default());
        assert_eq!(checkpoints.read_to(), [frontier(0)]);
        checkpoints.read(vec![1], frontier(1));
        assert_eq!(checkpoints.read_to(), [frontier(1)]);
        checkpoints.take_ahead(7);
        checkpoints.read(vec![2], frontier(2));
        checkpoints.take_ahead(8);
        assert_eq!(checkpoints.read_to(), [frontier(1), frontier(2)]);
        checkpoints.settle(7);
        for position in [1, 2] {
            checkpoints.settle(position);
            assert_eq!(checkpoints.read_to(), [frontier(1), frontier(2)]);
        }
        checkpoints.read(vec![7, 8], frontier(8));
        checkpoints.settle(8);
        assert_eq!(checkpoints.read_to(), [frontier(8)]);
    }

    proptest! {
        /// In any order of operations, a restart from the checkpoint reads exactly the events again
        /// that are not settled.
        #[test]
        fn nothing_unsettled_is_ever_passed(
            sizes in prop::collection::vec(0_usize..5, 1..8),
            order in prop::collection::vec(any::<prop::sample::Index>(), 0..40),
        ) {
            let mut checkpoints = CheckpointTracker::new(Checkpoint::default());
            let mut unsettled = BTreeSet::new();
            let mut high = 0;
            for size in sizes {
                let positions: Vec<i64> = (0..size).map(|_| { high += 1; high }).collect();
                unsettled.extend(positions.iter().copied());
                checkpoints.read(positions, frontier(high));
            }
            for pick in order {
                if unsettled.is_empty() { break }
                let position = *pick.get(&unsettled.iter().copied().collect::<Vec<_>>());
                unsettled.remove(&position);
                checkpoints.settle(position);
                let kept = checkpoints.checkpoint();
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
    fn check(checkpoints: &CheckpointTracker, high: i64, settled: &[i64]) {
        let checkpoint = checkpoints.changed().expect("the checkpoint has moved");
        assert_eq!(checkpoint.frontier, frontier(high));
        assert_eq!(checkpoint.settled, settled.iter().copied().collect());
    }
}
