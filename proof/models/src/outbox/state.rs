//! The state between the outbox and the effects of its events.

/// Events in the outbox, by position.
pub(crate) const EVENTS: usize = 3;
/// The key that each keeps order within.
pub(crate) const KEYS: [u8; EVENTS] = [0, 1, 0];
/// Attempts after which an event is a dead letter.
pub(crate) const ATTEMPTS_MAX: u8 = 2;

/// All of it: producer, store, relays, wire and receiver.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    /// The transaction that emits each event.
    pub(crate) emitted: [Emitted; EVENTS],
    pub(crate) partition: Partition,
    /// Two processes, in order: who is who makes no difference.
    pub(crate) relays: [Option<Relay>; 2],
    /// Offers and their answers on the way, in order.
    pub(crate) wire: Vec<Offer>,
    pub(crate) receiver: Receiver,
    pub(crate) told: Observed,
    /// How many faults may still happen: crashes, leases that lapse while their owner lives, losses, repeats, delays.
    pub(crate) faults: u8,
}

/// The state of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Emitted {
    Open,
    Committed,
    RolledBack,
}

/// The stored state of the only partition of the only destination.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Partition {
    pub(crate) epoch: u8,
    /// Whether the lease has not lapsed.
    pub(crate) held: bool,
    /// The checkpoint: all positions below are settled, these beyond too, and these are on the wire.
    pub(crate) frontier: usize,
    pub(crate) settled: [bool; EVENTS],
    pub(crate) offered: [bool; EVENTS],
    pub(crate) parked: [Option<Parked>; EVENTS],
}

/// A delivery that has a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Parked {
    /// It is due again after so many attempts, the last of which may have begun and not ended.
    Retrying { attempt: u8, begun: bool },
    /// It waits for an earlier one of its key.
    Blocked,
    /// It is given up.
    Dead,
}

/// The memory of a relay: its delivery queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Relay {
    pub(crate) epoch: u8,
    /// Up to where it has read.
    pub(crate) head: usize,
    pub(crate) settled: [bool; EVENTS],
    pub(crate) hand: [Hand; EVENTS],
    /// Keys that a parked delivery holds up.
    pub(crate) blocked: [bool; 2],
}

/// The state of an event in a relay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Hand {
    /// It is not there.
    #[default]
    Absent,
    /// It waits in the lane.
    Waits,
    /// It is on record as offered, and not sent yet.
    Chosen,
    OnTheWire,
    /// It arrived, which is to be written down.
    Arrived,
    /// Its attempt failed, which is to be written down.
    Failed,
    /// It is to be parked, because its key is blocked.
    Behind,
}

/// One offer on its way to the receiver, or its answer on the way back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Offer {
    pub(crate) event: usize,
    /// Whose it is.
    pub(crate) epoch: u8,
    pub(crate) at: At,
}

/// How far an offer has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum At {
    Sent,
    /// Its effect is committed, and its id is not.
    HasEffect,
    /// It was acknowledged, and nothing of it is committed.
    Uncommitted,
    /// It is accepted and committed, and not acknowledged.
    Accepted,
}

/// The messages that the receiver has committed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Receiver {
    pub(crate) inbox: [bool; EVENTS],
    pub(crate) effects: [u8; EVENTS],
}

/// Only the properties use it; no process of the model reads it.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is what a property is about"
)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Observed {
    /// How often each event came.
    pub(crate) arrivals: [u8; EVENTS],
    /// How often each may have come once more: an interruption, a lost answer, a network that repeats.
    pub(crate) excuses: [u8; EVENTS],
    /// Offers that left and are not on record.
    pub(crate) uncounted: bool,
    /// An event came before an earlier one of its key.
    pub(crate) inverted: bool,
    /// An event came whose transaction was not committed.
    pub(crate) unfounded: bool,
    /// A relay has written after another one took the partition.
    pub(crate) late: bool,
    /// A partition was taken from a relay whose lease had not lapsed.
    pub(crate) robbed: bool,
}

impl State {
    pub(crate) fn new(emitted: [Emitted; EVENTS], faults: u8) -> Self {
        Self {
            emitted,
            partition: Partition {
                epoch: 0,
                held: false,
                frontier: 0,
                settled: [false; EVENTS],
                offered: [false; EVENTS],
                parked: [None; EVENTS],
            },
            relays: [None, None],
            wire: Vec::new(),
            receiver: Receiver::default(),
            told: Observed::default(),
            faults,
        }
    }

    pub(crate) fn sorted(mut self) -> Self {
        self.wire.sort_unstable();
        self.relays.sort_unstable();
        self
    }

    /// Whether the relay that has the partition has nothing to do any more.
    pub(crate) fn is_at_rest(&self) -> bool {
        let is_due = |it: &Option<Parked>| matches!(it, Some(Parked::Retrying { .. }));
        let is_done = |it: &Relay| {
            let is_owner = it.epoch == self.partition.epoch;
            is_owner && it.head == EVENTS && it.hand == [Hand::Absent; EVENTS]
        };
        self.wire.is_empty()
            && self.relays.iter().flatten().any(is_done)
            && !self.partition.parked.iter().any(is_due)
    }
}

impl Partition {
    /// Whether an unfinished delivery blocks a key.
    pub(crate) fn holds_up(&self, key: u8) -> bool {
        (0..EVENTS).any(|event| KEYS[event] == key && self.parked[event].is_some())
    }

    /// Lets the lowest unfinished delivery of a key fall due if it is blocked.
    pub(crate) fn release(&mut self, key: u8) {
        let lowest = (0..EVENTS).find(|event| KEYS[*event] == key && self.parked[*event].is_some());
        if let Some(lowest) = lowest
            && self.parked[lowest] == Some(Parked::Blocked)
        {
            let (attempt, begun) = (0, false);
            self.parked[lowest] = Some(Parked::Retrying { attempt, begun });
        }
    }
}
