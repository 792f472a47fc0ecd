//! Another payload under a key whose first request is running: who may say that it is a conflict?
//!
//! A claim takes its payload lock (shared), then the lock of its key, and then it reads the row. A
//! claim that does not get the key looks at the locks of the transaction that has it. Locks are
//! released one by one, in any order, after the transaction has ended. Another key may have the same
//! number of its lock, and two payloads may have the same number of theirs. A claim in the commit
//! takes the lock of its key only, and only for the commit.

use stateright::{Model, Property};

use crate::explore::Design;

/// Requests in hand at once.
const REQUESTS: usize = 3;
/// Keys whose locks have the same number.
const KEYS: usize = 2;

/// Claims of keys with one lock number.
#[derive(Debug)]
pub(crate) struct Conflict {
    bug: Bug,
    tries: u8,
}

/// The bugs of this model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// Nothing.
    None,
    /// If no other transaction has the payload lock of a claim, the key has another payload.
    AbsenceIsProof,
    /// The lock of the key is taken first, and the request runs even if its payload lock is not to
    /// be had.
    KeyLockFirst,
    /// The payload locks of claims that wait count as those of the transaction that has the key.
    WaiterCounts,
    /// A payload lock counts for every key with this lock number.
    EveryKeyCounts,
    /// A claim that does not get the key has read the row before.
    RowFirst,
}

/// A request and its payload, chosen when the model starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ClientRequest {
    key: usize,
    payload: u8,
    /// Whether its first attempt claims the key in its commit.
    is_optimistic: bool,
}

/// What happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    Begin(usize),
    /// The next statement.
    Step(usize),
    Commit(usize),
    /// By the handler, or because its process dies.
    RollBack(usize),
    ReleaseKey(usize),
    ReleasePayload(usize),
}

/// How a transaction holds its payload lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Hold {
    #[default]
    No,
    Shared,
    Alone,
}

/// What a claim found at the locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LockState {
    Mine,
    Busy,
    Other,
}

/// Where a request is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum At {
    #[default]
    Idle,
    /// The first lock is next.
    Begun,
    /// The second lock is next.
    Half,
    /// It did not get the key: does another transaction have its payload lock?
    Beaten,
    /// No other transaction has it: what does the one with the key have?
    Alone,
    /// The row is next.
    Locked(LockState),
    Running,
    /// It runs, and its commit will claim the key.
    Unclaimed,
    /// Its commit has claimed the key.
    Claimed,
    /// Its transaction has ended, and its locks are being released.
    Ending,
    Done,
}

/// What a client receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ClientOutcome {
    Response,
    Failure,
    Mismatch,
    InProgress,
}

/// A request under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Request {
    at: At,
    has_key: bool,
    payload: Hold,
    tries: u8,
    told: Option<ClientOutcome>,
    /// The row as it was when the attempt began, for a claim that reads it first.
    row_before: Option<u8>,
    /// Whether another payload has had the key since the attempt began: in a row, or in a
    /// transaction that has the lock while there is no row.
    is_conflict: bool,
    /// A request with another payload that has run since the attempt began, while no other one had
    /// the payload lock of this one.
    beside: Option<usize>,
}

/// All that there is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    asked: [ClientRequest; REQUESTS],
    /// Whether all payloads have the same number.
    are_alike: bool,
    requests: [Request; REQUESTS],
    /// The payload of the committed row.
    rows: [Option<u8>; KEYS],
    effects: [u8; KEYS],
}

const NO_FALSE_CONFLICT: &str = "a mismatch is reported only if another payload has the key";
const AT_ONCE: &str = "another payload of a running request is told so at once";
const IS_SHOWN: &str = "what runs holds its payload lock";
const ONE_EFFECT: &str = "one effect for each key";

impl Design for Conflict {
    type Bug = Bug;

    const NAME: &'static str = "conflict";
    const BUGS: &'static [(Bug, Option<&'static str>)] = &[
        (Bug::None, None),
        (Bug::AbsenceIsProof, Some(NO_FALSE_CONFLICT)),
        (Bug::KeyLockFirst, Some(IS_SHOWN)),
        (Bug::WaiterCounts, Some(NO_FALSE_CONFLICT)),
        (Bug::EveryKeyCounts, Some(NO_FALSE_CONFLICT)),
        (Bug::RowFirst, Some(NO_FALSE_CONFLICT)),
    ];

    fn new(bug: Bug, large: bool) -> Self {
        let tries = if large { 3 } else { 2 };
        Self { bug, tries }
    }
}

impl Model for Conflict {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let asked = |key, payload| ClientRequest {
            key,
            payload,
            is_optimistic: false,
        };
        let optimistic = |payload| ClientRequest {
            is_optimistic: true,
            ..asked(0, payload)
        };
        let all = [
            [asked(0, 1), asked(0, 1), asked(0, 2)],
            [asked(0, 1), asked(0, 2), asked(0, 3)],
            // Another key, whose lock has the same number.
            [asked(0, 1), asked(0, 1), asked(1, 2)],
            [asked(0, 1), asked(0, 2), asked(1, 2)],
            [optimistic(1), asked(0, 1), asked(0, 2)],
            [optimistic(1), optimistic(2), asked(0, 2)],
        ];
        let state = |asked, are_alike| State {
            asked,
            are_alike,
            requests: [Request::default(); REQUESTS],
            rows: [None; KEYS],
            effects: [0; KEYS],
        };
        let both = |asked| [state(asked, false), state(asked, true)];
        all.into_iter().flat_map(both).collect()
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (one, request) in state.requests.iter().enumerate() {
            match request.at {
                At::Idle if request.tries < self.tries => actions.push(Action::Begin(one)),
                At::Running | At::Claimed => {
                    actions.extend([Action::Commit(one), Action::RollBack(one)]);
                }
                At::Ending => {
                    let key = request.has_key.then_some(Action::ReleaseKey(one));
                    let is_held = request.payload != Hold::No;
                    actions.extend(key);
                    actions.extend(is_held.then_some(Action::ReleasePayload(one)));
                }
                At::Idle | At::Done => {}
                _ => actions.extend([Action::Step(one), Action::RollBack(one)]),
            }
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut state = state.clone();
        match action {
            Action::Begin(one) => state.begin(one, self.bug == Bug::RowFirst),
            Action::Step(one) => self.step(&mut state, one),
            Action::Commit(one) => {
                let ClientRequest { key, payload, .. } = state.asked[one];
                state.rows[key] = Some(payload);
                state.effects[key] += 1;
                state.end(one, ClientOutcome::Response);
            }
            Action::RollBack(one) => state.end(one, ClientOutcome::Failure),
            Action::ReleaseKey(one) => state.requests[one].has_key = false,
            Action::ReleasePayload(one) => state.requests[one].payload = Hold::No,
        }
        for one in 0..REQUESTS {
            self.let_go(&mut state, one);
            state.watch(one);
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(NO_FALSE_CONFLICT, |_, state: &State| {
                let is_false =
                    |it: &Request| it.told == Some(ClientOutcome::Mismatch) && !it.is_conflict;
                !state.requests.iter().any(is_false)
            }),
            Property::always(AT_ONCE, |_, state: &State| {
                let is_late = |it: &Request| {
                    it.told == Some(ClientOutcome::InProgress) && it.beside.is_some()
                };
                !state.requests.iter().any(is_late)
            }),
            Property::always(IS_SHOWN, |_, state: &State| {
                let is_hidden = |it: &Request| it.at == At::Running && it.payload != Hold::Shared;
                !state.requests.iter().any(is_hidden)
            }),
            Property::always(ONE_EFFECT, |_, state: &State| {
                state.effects.iter().all(|effects| *effects <= 1)
            }),
            Property::sometimes(
                "a conflict is told before there is a row",
                |_, state: &State| {
                    let is_told = |it: &Request| it.told == Some(ClientOutcome::Mismatch);
                    state.rows == [None; KEYS] && state.requests.iter().any(is_told)
                },
            ),
            Property::sometimes("the same payload is in progress", |_, state: &State| {
                let at = |one: usize| state.requests[one];
                state.asked[0].payload == state.asked[1].payload
                    && at(0).at == At::Running
                    && at(1).told == Some(ClientOutcome::InProgress)
            }),
            Property::sometimes(
                "another key's lock makes a claim wait",
                |_, state: &State| {
                    state.asked[2].key == 1
                        && state.requests[2].at == At::Running
                        && state.requests[0].told == Some(ClientOutcome::InProgress)
                },
            ),
            Property::sometimes(
                "another payload runs after a rollback",
                |_, state: &State| {
                    state.requests[0].told == Some(ClientOutcome::Failure)
                        && state.requests[2].told == Some(ClientOutcome::Response)
                        && state.requests[2].tries == 2
                },
            ),
            Property::sometimes("a claim in the commit loses", |_, state: &State| {
                let is_late = |(asked, it): (&ClientRequest, &Request)| {
                    asked.is_optimistic && it.tries == 2 && it.told == Some(ClientOutcome::Mismatch)
                };
                state.asked.iter().zip(&state.requests).any(is_late)
            }),
        ]
    }
}

impl Conflict {
    /// The next statement of a request.
    fn step(&self, state: &mut State, one: usize) {
        let request = state.requests[one];
        let key_first = self.bug == Bug::KeyLockFirst;
        let next = match request.at {
            At::Begun if key_first && state.try_key(one) => At::Half,
            At::Begun if key_first => At::Beaten,
            At::Half if key_first => {
                state.try_payload(one, Hold::Shared);
                At::Locked(LockState::Mine)
            }
            At::Begun if state.try_payload(one, Hold::Shared) => At::Half,
            At::Half if state.try_key(one) => At::Locked(LockState::Mine),
            At::Half => At::Beaten,
            At::Beaten if state.try_payload(one, Hold::Alone) => At::Alone,
            At::Alone if self.runs_other_payload(state, one) => At::Locked(LockState::Other),
            At::Begun | At::Beaten | At::Alone => At::Locked(LockState::Busy),
            At::Locked(found) => return self.read(state, one, found),
            At::Unclaimed if state.claims_at_the_end(one) => At::Claimed,
            // It has no locks, and claims the key first in its next attempt.
            At::Unclaimed => At::Idle,
            at => at,
        };
        state.requests[one].at = next;
    }

    /// Whether the transaction with the key's lock has the payload lock of another payload.
    fn runs_other_payload(&self, state: &State, one: usize) -> bool {
        let others = || (0..REQUESTS).filter(|other| *other != one);
        let is_other = |other: usize| {
            let is_of_key = state.asked[other].key == state.asked[one].key;
            state.requests[other].payload != Hold::No
                && !state.has_same_number(one, other)
                && (is_of_key || self.bug == Bug::EveryKeyCounts)
        };
        let mut holders = others().filter(|other| state.requests[*other].has_key);
        match self.bug {
            Bug::AbsenceIsProof => holders.next().is_some(),
            Bug::WaiterCounts => holders.next().is_some() && others().any(is_other),
            _ => holders.any(is_other),
        }
    }

    /// Reads the row, and decides.
    fn read(&self, state: &mut State, one: usize, found: LockState) {
        let ClientRequest { key, payload, .. } = state.asked[one];
        let row = match found {
            LockState::Busy | LockState::Other if self.bug == Bug::RowFirst => {
                state.requests[one].row_before
            }
            _ => state.rows[key],
        };
        match (row, found) {
            (Some(row), _) if row == payload => state.end(one, ClientOutcome::Response),
            (Some(_), _) | (None, LockState::Other) => state.end(one, ClientOutcome::Mismatch),
            (None, LockState::Mine) => state.requests[one].at = At::Running,
            (None, LockState::Busy) => state.end(one, ClientOutcome::InProgress),
        }
    }

    /// Ends an attempt that has no locks any more.
    fn let_go(&self, state: &mut State, one: usize) {
        let request = &mut state.requests[one];
        if request.at != At::Ending || request.has_key || request.payload != Hold::No {
            return;
        }
        let is_over = matches!(
            request.told,
            Some(ClientOutcome::Response | ClientOutcome::Mismatch)
        );
        request.at = if is_over || request.tries == self.tries {
            At::Done
        } else {
            At::Idle
        };
    }
}

impl State {
    fn begin(&mut self, one: usize, reads_row: bool) {
        let ClientRequest {
            key, is_optimistic, ..
        } = self.asked[one];
        let tries = self.requests[one].tries;
        self.requests[one] = Request {
            at: if is_optimistic && tries == 0 {
                At::Unclaimed
            } else {
                At::Begun
            },
            tries: tries + 1,
            row_before: self.rows[key].filter(|_| reads_row),
            ..Request::default()
        };
        self.requests[one].beside = (0..REQUESTS).find(|other| self.runs_beside(one, *other));
    }

    /// Ends a transaction. Its locks are still there. What the outcome does not depend on is
    /// forgotten, so that there are fewer states.
    fn end(&mut self, one: usize, told: ClientOutcome) {
        let request = &mut self.requests[one];
        request.at = At::Ending;
        request.told = Some(told);
        request.row_before = None;
        request.is_conflict &= told == ClientOutcome::Mismatch;
        request.beside = request.beside.filter(|_| told == ClientOutcome::InProgress);
    }

    /// Whether the payload locks of two requests have the same number.
    fn has_same_number(&self, one: usize, other: usize) -> bool {
        let (one, other) = (self.asked[one], self.asked[other]);
        one.key == other.key && (self.are_alike || one.payload == other.payload)
    }

    /// The lock of the key: all keys have the same number.
    fn try_key(&mut self, one: usize) -> bool {
        let mut others = (0..REQUESTS).filter(|other| *other != one);
        let is_free = !others.any(|other| self.requests[other].has_key);
        self.requests[one].has_key |= is_free;
        is_free
    }

    /// The statement that stores the response of a run that has not claimed its key.
    fn claims_at_the_end(&mut self, one: usize) -> bool {
        self.rows[self.asked[one].key].is_none() && self.try_key(one)
    }

    fn try_payload(&mut self, one: usize, wanted: Hold) -> bool {
        let is_in_the_way = |other: usize| {
            let held = self.requests[other].payload;
            let excludes = held == Hold::Alone || held == Hold::Shared && wanted == Hold::Alone;
            other != one && self.has_same_number(one, other) && excludes
        };
        let is_free = !(0..REQUESTS).any(is_in_the_way);
        if is_free {
            self.requests[one].payload = wanted;
        }
        is_free
    }

    /// Whether `other` runs with another payload under the key, and has claimed it first.
    fn runs_beside(&self, one: usize, other: usize) -> bool {
        let (mine, its) = (self.asked[one], self.asked[other]);
        self.requests[other].at == At::Running
            && mine.key == its.key
            && !self.has_same_number(one, other)
    }

    /// Notes what has happened during an attempt.
    fn watch(&mut self, one: usize) {
        if matches!(self.requests[one].at, At::Idle | At::Ending | At::Done) {
            return;
        }
        let ClientRequest { key, payload, .. } = self.asked[one];
        let is_another = |asked: &ClientRequest| asked.key == key && asked.payload != payload;
        let has_key = |(asked, it): (&ClientRequest, &Request)| is_another(asked) && it.has_key;
        let is_conflict = match self.rows[key] {
            Some(row) => row != payload,
            None => self.asked.iter().zip(&self.requests).any(has_key),
        };
        let in_the_way = |other: usize| {
            other != one
                && self.has_same_number(one, other)
                && self.requests[other].payload != Hold::No
        };
        let is_disturbed = (0..REQUESTS).any(in_the_way);
        let beside = self.requests[one].beside;
        let beside = beside.filter(|other| self.runs_beside(one, *other) && !is_disturbed);
        let request = &mut self.requests[one];
        request.is_conflict |= is_conflict;
        request.beside = beside;
    }
}

#[cfg(test)]
mod tests {
    use super::Conflict;
    use crate::explore::check;

    #[test]
    fn a_conflict_is_told_at_once_and_never_falsely_and_every_bug_is_found() {
        check::<Conflict>();
    }
}
