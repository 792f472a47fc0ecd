//! One idempotency key: claimed or entered, leased, taken over, completed, purged.
//!
//! Two clients send requests repeatedly, the second one with the payload of the first or with
//! another. The network loses, repeats and reorders messages. A process dies at any step, and a
//! lease expires at any time, even while its owner is alive: no clock is trusted, and a lease that
//! is shorter than its handler needs no case. An owner that was paused takes its next step late.

mod state;
mod step;

use stateright::{Model, Property};

use self::state::{Budget, CLIENTS, ClientResponse, ERAS, Row, Stage, State, Worker};
use crate::explore::{Design, words};

/// Requests in hand at once.
const WORKERS: usize = 2;

/// One key in one of the modes.
#[derive(Debug)]
pub(crate) struct Key {
    mode: Mode,
    bug: Bug,
    large: bool,
}

/// How a request commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Once: key, effect, event and answer together.
    Atomic,
    /// The same, but a request may assume that the key is free, and claim it in its commit.
    Optimistic,
    /// The key, then after the call effect, event and recovery point, then the answer.
    Phased,
}

/// The bugs of this model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// Nothing.
    None,
    /// Whether there is a row is asked first, and one inserted then, without a lock.
    CheckThenInsert,
    /// The effect is committed before what says that it was: the answer, or the recovery point.
    AnswerApart,
    /// The event is committed after the effect.
    EventApart,
    /// A commit does not ask whose the key is.
    NoFence,
    /// The lease is looked at before the commit, not in it.
    LeaseForFence,
    /// A commit asks for the epoch and not for the time of entry.
    EpochAlone,
    /// A takeover asks for the epoch and not for the time of entry.
    ResumeByEpochAlone,
    /// The payload is not compared.
    NoFingerprint,
    /// The answer is sent before its commit.
    AnswerBeforeCommit,
    /// A key in progress is purged.
    PurgeOfLiveKey,
    /// A key is released after the provider was called.
    ReleaseAfterCall,
    /// An optimistic run commits although the key is not free.
    LoserCommits,
    /// An optimistic run that committed nothing sends its own answer.
    LoserAnswers,
    /// The failure of an optimistic run is sent before the key is claimed.
    FailsUnclaimed,
    /// A lost optimistic commit that has left no row is said not to have happened.
    DeniesLostCommit,
}

/// What happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    Send(usize),
    DuplicateRequest(usize),
    LoseRequest(usize),
    Receive(usize),
    Step(Worker),
    /// It claims the key first, where it might have made an optimistic claim.
    ClaimFirst(Worker),
    Crash(Worker),
    /// It commits, and dies or loses its connection before it hears of that.
    CommitUnheard(Worker),
    Release(Worker),
    Acknowledge(ClientResponse),
    LoseAnswer(ClientResponse),
    LapseLease,
    Expire,
    Purge,
}

const ONE_EFFECT: &str = "one effect for each key";
const ACKNOWLEDGED: &str = "what is acknowledged is stored";
const FINGERPRINT: &str = "another fingerprint never executes";
const EVENT: &str = "an effect has its event";
const FENCED: &str = "a fenced owner commits nothing";
const CHARGED: &str = "the provider charges once";
const NOT_DENIED: &str = "no failure is the answer to an effect";

impl Design for Key {
    type Bug = (Mode, Bug);

    const NAME: &'static str = "key";
    const BUGS: &'static [(Self::Bug, Option<&'static str>)] = &[
        ((Mode::Atomic, Bug::None), None),
        ((Mode::Optimistic, Bug::None), None),
        ((Mode::Phased, Bug::None), None),
        ((Mode::Atomic, Bug::CheckThenInsert), Some(ONE_EFFECT)),
        ((Mode::Phased, Bug::CheckThenInsert), Some(CHARGED)),
        ((Mode::Atomic, Bug::AnswerApart), Some(ONE_EFFECT)),
        ((Mode::Phased, Bug::AnswerApart), Some(ONE_EFFECT)),
        ((Mode::Atomic, Bug::EventApart), Some(EVENT)),
        ((Mode::Atomic, Bug::AnswerBeforeCommit), Some(ACKNOWLEDGED)),
        ((Mode::Atomic, Bug::NoFingerprint), Some(FINGERPRINT)),
        ((Mode::Phased, Bug::NoFingerprint), Some(FINGERPRINT)),
        ((Mode::Phased, Bug::NoFence), Some(FENCED)),
        ((Mode::Phased, Bug::NoFence), Some(ONE_EFFECT)),
        ((Mode::Phased, Bug::LeaseForFence), Some(ONE_EFFECT)),
        ((Mode::Phased, Bug::EpochAlone), Some(ACKNOWLEDGED)),
        ((Mode::Phased, Bug::ResumeByEpochAlone), Some(FINGERPRINT)),
        ((Mode::Phased, Bug::PurgeOfLiveKey), Some(ONE_EFFECT)),
        ((Mode::Phased, Bug::ReleaseAfterCall), Some(CHARGED)),
        ((Mode::Optimistic, Bug::LoserCommits), Some(ONE_EFFECT)),
        ((Mode::Optimistic, Bug::LoserAnswers), Some(ACKNOWLEDGED)),
        ((Mode::Optimistic, Bug::FailsUnclaimed), Some(NOT_DENIED)),
        ((Mode::Optimistic, Bug::DeniesLostCommit), Some(NOT_DENIED)),
    ];

    fn new((mode, bug): Self::Bug, large: bool) -> Self {
        Self { mode, bug, large }
    }

    fn name((mode, bug): Self::Bug) -> String {
        format!("{}, {}", words(mode), words(bug))
    }
}

impl Model for Key {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let left = Budget {
            sends: if self.large { [2, 2] } else { [2, 1] },
            faults: if self.large { 2 } else { 1 },
            lapses: 2,
        };
        // The second client sends the same payload, or another one.
        let same = State::new([1, 1], left);
        let other = State::new([1, 2], left);
        vec![same, other]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for client in 0..CLIENTS {
            let is_told = state.acknowledged[client].is_some();
            let on_the_way = state.requests[client] > 0;
            let left = &state.left;
            let mut may = |is_so: bool, action| actions.extend(is_so.then_some(action));
            may(!is_told && left.sends[client] > 0, Action::Send(client));
            may(
                on_the_way && left.faults > 0,
                Action::DuplicateRequest(client),
            );
            may(on_the_way && left.faults > 0, Action::LoseRequest(client));
            may(
                on_the_way && in_hand(state) < WORKERS,
                Action::Receive(client),
            );
        }
        for worker in once_each(&state.workers) {
            let mut may = |is_so: bool, action| actions.extend(is_so.then_some(action));
            let can_step = self.can_step(state, worker);
            may(can_step, Action::Step(worker));
            let may_assume = self.mode == Mode::Optimistic && worker.next == Stage::Arrives;
            may(may_assume, Action::ClaimFirst(worker));
            may(state.left.faults > 0, Action::Crash(worker));
            let commits = matches!(worker.next, Stage::Commits(_) | Stage::Assumes);
            let commits = commits && !self.is_phased();
            may(
                commits && state.left.faults > 0,
                Action::CommitUnheard(worker),
            );
            may(self.may_release(worker.next), Action::Release(worker));
        }
        for outcome in once_each(&state.answers) {
            actions.push(Action::Acknowledge(outcome));
            actions.extend((state.left.faults > 0).then_some(Action::LoseAnswer(outcome)));
        }
        if let Some(row) = &state.row {
            let mut may = |is_so: bool, action| actions.extend(is_so.then_some(action));
            may(row.leased && state.left.lapses > 0, Action::LapseLease);
            let ends = row.answer.is_some() && !row.expired && usize::from(state.era) + 1 < ERAS;
            may(ends, Action::Expire);
            may(self.may_purge(*row), Action::Purge);
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut state = state.clone();
        match action {
            Action::Send(client) => {
                state.left.sends[client] -= 1;
                state.requests[client] += 1;
            }
            Action::DuplicateRequest(client) => {
                state.left.faults -= 1;
                state.requests[client] += 1;
            }
            Action::LoseRequest(client) => {
                state.left.faults -= 1;
                state.requests[client] -= 1;
            }
            Action::Receive(client) => {
                state.requests[client] -= 1;
                let client = u8::try_from(client).expect("a few clients");
                let next = Stage::Arrives;
                state.workers.push(Worker { client, next });
            }
            Action::Step(worker) => {
                remove(&mut state.workers, &worker);
                if let Some(next) = self.step(&mut state, worker) {
                    state.workers.push(Worker { next, ..worker });
                }
            }
            Action::ClaimFirst(worker) => {
                remove(&mut state.workers, &worker);
                let next = Stage::Claims;
                state.workers.push(Worker { next, ..worker });
            }
            Action::Crash(worker) => {
                state.left.faults -= 1;
                remove(&mut state.workers, &worker);
            }
            Action::CommitUnheard(worker) => {
                state.left.faults -= 1;
                remove(&mut state.workers, &worker);
                let next = self.lose_commit(&mut state, worker);
                state.workers.push(Worker { next, ..worker });
            }
            Action::Release(worker) => {
                remove(&mut state.workers, &worker);
                self.release(&mut state, worker.next);
            }
            Action::Acknowledge(outcome) => {
                remove(&mut state.answers, &outcome);
                state.acknowledged[usize::from(outcome.client)].get_or_insert(outcome);
            }
            Action::LoseAnswer(outcome) => {
                state.left.faults -= 1;
                remove(&mut state.answers, &outcome);
            }
            Action::LapseLease => {
                state.left.lapses -= 1;
                state.row.as_mut()?.leased = false;
            }
            Action::Expire => {
                state.era += 1;
                state.row.as_mut()?.expired = true;
            }
            Action::Purge => state.row = None,
        }
        Some(state.sorted())
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(ONE_EFFECT, |_, state: &State| {
                state.effects.iter().all(|effects| *effects <= 1)
            }),
            Property::always(ACKNOWLEDGED, |_, state: &State| is_kept(state)),
            Property::always(FINGERPRINT, |_, state: &State| !state.wrong.mixed),
            Property::always(EVENT, |_, state: &State| state.effects == state.events),
            Property::always(FENCED, |_, state: &State| !state.wrong.late),
            Property::always(CHARGED, |_, state: &State| {
                state
                    .charges
                    .iter()
                    .all(|charges| charges.count_ones() <= 1)
            }),
            Property::always(NOT_DENIED, |_, state: &State| !state.wrong.denied),
            Property::sometimes("a replay", |_, state: &State| {
                let is_replay = |it: &Worker| matches!(it.next, Stage::Answers(_, true));
                state.workers.iter().any(is_replay)
            }),
            Property::sometimes("a takeover, or none to be had", |model, state: &State| {
                let is_resumed = |it: &Worker| matches!(it.next, Stage::Calls(own) if own.resumed);
                !model.is_phased() || state.workers.iter().any(is_resumed)
            }),
            Property::sometimes(
                "a fenced owner, or none to be had",
                |model, state: &State| {
                    let is_fenced = |it: &Worker| it.next == Stage::Fenced;
                    !model.is_phased() || state.workers.iter().any(is_fenced)
                },
            ),
            Property::sometimes(
                "a commit that may still happen, or none to be had",
                |model, state: &State| {
                    let is_late = |it: &Worker| it.next == Stage::InFlight;
                    let has_row = state.row.is_some();
                    model.mode != Mode::Optimistic || has_row && state.workers.iter().any(is_late)
                },
            ),
            Property::sometimes("a commit that nobody heard of", |_, state: &State| {
                let is_stored = state.row.is_some_and(|row| row.answer.is_some());
                let is_nobodys = state.workers.is_empty() && state.answers.is_empty();
                is_stored && is_nobodys && state.acknowledged == [None; CLIENTS]
            }),
            Property::sometimes("a key used anew", |_, state: &State| {
                state.effects == [1; ERAS]
            }),
            Property::sometimes("two clients with one answer", |_, state: &State| {
                let [first, second] = state.acknowledged;
                first.zip(second).is_some_and(|(a, b)| a.answer == b.answer)
            }),
        ]
    }
}

impl Key {
    pub(super) fn is_phased(&self) -> bool {
        self.mode == Mode::Phased
    }

    /// Whether a worker may release its key: no other worker owned it before, and the provider was
    /// not called.
    fn may_release(&self, next: Stage) -> bool {
        match next {
            Stage::Calls(own) => self.mode == Mode::Phased && !own.resumed,
            Stage::Commits(own) => self.bug == Bug::ReleaseAfterCall && !own.resumed,
            _ => false,
        }
    }

    fn release(&self, state: &mut State, next: Stage) {
        let (Stage::Calls(own) | Stage::Commits(own)) = next else {
            return;
        };
        if self.may_commit(state, own) {
            state.row = None;
        }
    }

    /// Whether the purge takes a row: never an unfinished one.
    fn may_purge(&self, row: Row) -> bool {
        row.expired || self.bug == Bug::PurgeOfLiveKey && row.answer.is_none()
    }
}

/// Whether every response that was sent is stored with its effect for its retention, and no other
/// one was sent.
fn is_kept(state: &State) -> bool {
    state.told().all(|outcome| {
        let is_stored = state
            .row
            .is_some_and(|row| row.answer == Some(outcome.answer));
        let has_effect = state.effects[usize::from(outcome.era)] > 0;
        let agrees =
            |other: &ClientResponse| other.era != outcome.era || other.answer == outcome.answer;
        has_effect && (outcome.era < state.era || is_stored) && state.told().all(agrees)
    })
}

/// Requests in hand: a commit that is on its way is in no process any more.
fn in_hand(state: &State) -> usize {
    let workers = state.workers.iter();
    workers.filter(|it| it.next != Stage::InFlight).count()
}

fn once_each<T: Copy + PartialEq>(sorted: &[T]) -> Vec<T> {
    let mut once = sorted.to_vec();
    once.dedup();
    once
}

fn remove<T: PartialEq>(from: &mut Vec<T>, one: &T) {
    let place = from.iter().position(|it| it == one);
    from.swap_remove(place.expect("what is acted on is there"));
}

#[cfg(test)]
mod tests {
    use super::Key;
    use crate::explore::check;

    #[test]
    fn a_key_has_one_effect_and_every_bug_is_found() {
        check::<Key>();
    }
}
