//! The steps of a relay: open, read, choose, settle, offer, conclude.

use super::{
    Bug, Outbox,
    state::{
        ATTEMPTS_MAX, At, EVENTS, Emitted, Hand, KEYS, Offer, Parked, Partition, Relay, State,
    },
};

impl Outbox {
    /// Takes the partition: raises its epoch, and makes due what its last owner had on the wire.
    pub(super) fn open(&self, state: &mut State) -> Relay {
        let State {
            partition, told, ..
        } = state;
        partition.epoch += 1;
        partition.held = true;
        let mut excused = |event: usize| told.excuses[event] += 1;
        for event in 0..EVENTS {
            if let Some(Parked::Retrying { begun, .. }) = &mut partition.parked[event] {
                if *begun {
                    excused(event);
                }
                *begun = false;
            }
            if std::mem::take(&mut partition.offered[event]) {
                excused(event);
                let (attempt, begun) = (1, false);
                partition.parked[event] = Some(Parked::Retrying { attempt, begun });
                partition.settled[event] = true;
            }
        }
        let holds_up = |key| partition.holds_up(key) && self.bug != Bug::InterruptedNotHeld;
        Relay {
            epoch: partition.epoch,
            head: partition.frontier,
            settled: partition.settled,
            hand: [Hand::Absent; EVENTS],
            blocked: [holds_up(0), holds_up(1)],
        }
    }

    /// Whether there is a next event for a relay to read.
    pub(super) fn can_read(&self, state: &State, relay: &Relay) -> bool {
        let next = state.emitted.get(relay.head);
        next.is_some_and(|it| *it != Emitted::Open || self.bug == Bug::PublishBeforeCommit)
    }

    /// Reads the next event into the lane, or parks it because its key is blocked.
    pub(super) fn read(relay: &mut Relay, emitted: [Emitted; EVENTS]) {
        let event = relay.head;
        relay.head += 1;
        if emitted[event] == Emitted::RolledBack {
            relay.settled[event] = true;
        } else if relay.settled[event] {
            // It was settled beyond the frontier before a restart.
        } else if relay.blocked[usize::from(KEYS[event])] {
            relay.hand[event] = Hand::Behind;
            relay.settled[event] = true;
        } else {
            relay.hand[event] = Hand::Waits;
        }
    }

    /// Chooses what is offered next: of each key the first, unless one of it is on the wire.
    pub(super) fn choose(relay: &Relay) -> Vec<usize> {
        let stands_before = |event: usize, other: usize| match relay.hand[other] {
            Hand::Waits => other < event,
            Hand::Chosen | Hand::OnTheWire => other != event,
            _ => false,
        };
        let is_first = |event: &usize| {
            let mut same = (0..EVENTS).filter(|other| KEYS[*other] == KEYS[*event]);
            relay.hand[*event] == Hand::Waits && !same.any(|other| stands_before(*event, other))
        };
        (0..EVENTS).filter(is_first).collect()
    }

    /// Whether a turn would write anything.
    pub(super) fn has_a_turn(relay: &Relay) -> bool {
        let is_unsaid = |it: &Hand| matches!(it, Hand::Arrived | Hand::Failed | Hand::Behind);
        relay.hand.iter().any(is_unsaid) || !Self::choose(relay).is_empty()
    }

    /// Records outcomes and what is about to be offered, in one transaction. Returns false if it is
    /// fenced.
    pub(super) fn settle(&self, partition: &mut Partition, relay: &mut Relay) -> bool {
        if partition.epoch != relay.epoch && self.bug != Bug::NoFence {
            return false;
        }
        let mut released = [false; 2];
        for (event, key) in KEYS.into_iter().enumerate() {
            let is_parked = partition.parked[event];
            let key = usize::from(key);
            match relay.hand[event] {
                Hand::Arrived => {
                    released[key] |= is_parked.is_some();
                    partition.parked[event] = None;
                }
                Hand::Failed => {
                    let attempt = match is_parked {
                        Some(Parked::Retrying { attempt, .. }) => attempt,
                        _ => 1,
                    };
                    let begun = false;
                    let retrying = Parked::Retrying { attempt, begun };
                    let is_spent = attempt >= ATTEMPTS_MAX;
                    partition.parked[event] = Some(if is_spent { Parked::Dead } else { retrying });
                }
                Hand::Behind => {
                    partition.parked[event].get_or_insert(Parked::Blocked);
                    released[key] = true;
                }
                _ => continue,
            }
            relay.hand[event] = Hand::Absent;
        }
        for event in Self::choose(relay) {
            self.begin(partition, relay, event);
        }
        for key in [0, 1] {
            let place = usize::from(key);
            if released[place] {
                partition.release(key);
                relay.blocked[place] &= partition.holds_up(key);
            }
        }
        self.checkpoint(partition, relay);
        true
    }

    /// Counts an attempt before it is made.
    fn begin(&self, partition: &mut Partition, relay: &mut Relay, event: usize) {
        let is_interrupted = |attempt: u8| attempt >= ATTEMPTS_MAX;
        match partition.parked[event] {
            // Its relay died in the last attempt: no outcome will ever come.
            Some(Parked::Retrying { attempt, .. }) if is_interrupted(attempt) => {
                partition.parked[event] = Some(Parked::Dead);
                relay.hand[event] = Hand::Absent;
                return;
            }
            Some(Parked::Retrying { attempt, .. }) => {
                let (attempt, begun) = (attempt + 1, true);
                partition.parked[event] = Some(Parked::Retrying { attempt, begun });
            }
            _ => {}
        }
        if self.bug == Bug::MarkSentBeforeSend {
            partition.parked[event] = None;
            relay.settled[event] = true;
        }
        relay.hand[event] = Hand::Chosen;
    }

    fn checkpoint(&self, partition: &mut Partition, relay: &Relay) {
        let is_gone = |event: &usize| relay.settled[*event];
        partition.frontier = (0..relay.head).take_while(is_gone).count();
        partition.settled = match self.bug {
            Bug::ForgetsSettled => [false; EVENTS],
            _ => relay.settled,
        };
        partition.offered = std::array::from_fn(|event| {
            let is_out = matches!(relay.hand[event], Hand::Chosen | Hand::OnTheWire);
            is_out && !relay.settled[event]
        });
    }

    /// Sends what was chosen.
    pub(super) fn offer(relay: &mut Relay, event: usize) -> Offer {
        relay.hand[event] = Hand::OnTheWire;
        Offer {
            event,
            epoch: relay.epoch,
            at: At::Sent,
        }
    }

    /// Records that an attempt had no response: the event blocks its key and the later events of
    /// the key.
    pub(super) fn fail(&self, relay: &mut Relay, event: usize) {
        relay.hand[event] = Hand::Failed;
        relay.settled[event] = true;
        if self.bug == Bug::KeyNotHeld {
            return;
        }
        relay.blocked[usize::from(KEYS[event])] = true;
        for behind in (0..EVENTS).filter(|it| KEYS[*it] == KEYS[event]) {
            if relay.hand[behind] == Hand::Waits {
                relay.hand[behind] = Hand::Behind;
                relay.settled[behind] = true;
            }
        }
    }

    /// Notes that an event arrived.
    pub(super) fn arrived(relay: &mut Relay, event: usize) {
        relay.hand[event] = Hand::Arrived;
        relay.settled[event] = true;
    }
}
