//! A checkout: authorize, ship, capture; and void, cancel, refund.
//!
//! Workers take the saga from one another, die, and lose it while they continue. Calls and
//! responses are lost, late, and repeated under one key. Providers accept or refuse the first call
//! that they see under a key, and keep that decision. Local steps are left out, because each is one
//! transaction. The model makes the assumption of the design: after the settle time no call arrives
//! any more, not even one of a worker that was paused before it.

mod state;
mod worker;

use stateright::{Model, Property};

use self::{
    state::{
        AUTHORIZE, Age, CAPTURE, Call, Direction, Entry, Outcome, ProviderCall, SHIP, STEPS,
        SagaStatus, Stage, State, StepState, Worker,
    },
    worker::outcome,
};
use crate::explore::Design;

/// Workers of one saga.
#[derive(Debug)]
pub(crate) struct Sagas {
    bug: Bug,
    large: bool,
}

/// The bugs of this model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// Nothing.
    None,
    /// A commit does not ask whose the saga is.
    NoFence,
    /// That a step is meant, and so to be undone, is written down after its call.
    IntentAfterCall,
    /// The provider's key is made of the attempt.
    ProviderKeyPerAttempt,
    /// No answer counts as a refusal.
    TimeoutAsFailure,
    /// A capture with an unknown outcome is refunded.
    RefundOnUnknown,
    /// A call that the provider has not seen counts as not happened, although it may still arrive.
    AbsentAtOnce,
    /// A call that the provider had not seen when it was asked counts as not happened if no call
    /// can arrive any more now.
    AbsentAsOfNow,
    /// The first completed step is compensated first.
    UndoneInOrder,
}

/// What happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    /// By a worker that is not running.
    Take(usize),
    Work(usize, Stage),
    CrashWorker(usize),
    LapseLease,
    /// The provider sees a call, and accepts it if it may.
    Arrive(Call, bool),
    Answer(Call),
    Lose(Call),
    /// Time goes by for an open step.
    Wait(ProviderCall),
    PassDeadline,
}

const MONEY: &str = "captured less refunded is shipped";
const ONE_CAPTURE: &str = "at most one net capture";
const ENDS: &str = "it ends as all or as nothing";
const ATTENTION: &str = "a person is asked only about what nobody can know";
const REVERSE: &str = "what was done last is undone first";
const FENCED: &str = "a fenced worker commits nothing";

impl Design for Sagas {
    type Bug = Bug;

    const NAME: &'static str = "saga";
    const BUGS: &'static [(Bug, Option<&'static str>)] = &[
        (Bug::None, None),
        (Bug::NoFence, Some(FENCED)),
        (Bug::IntentAfterCall, Some(ENDS)),
        (Bug::ProviderKeyPerAttempt, Some(ONE_CAPTURE)),
        (Bug::TimeoutAsFailure, Some(MONEY)),
        (Bug::RefundOnUnknown, Some(MONEY)),
        (Bug::AbsentAtOnce, Some(ENDS)),
        (Bug::AbsentAsOfNow, Some(ENDS)),
        (Bug::UndoneInOrder, Some(REVERSE)),
    ];

    fn new(bug: Bug, large: bool) -> Self {
        Self { bug, large }
    }
}

impl Model for Sagas {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::new(if self.large { 2 } else { 1 })]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let State { saga, workers, .. } = state;
        let may_fail = state.faults > 0;
        let runs = saga.status == SagaStatus::Running;
        let idle = workers.iter().position(Option::is_none);
        actions.extend(idle.filter(|_| runs && !saga.held).map(Action::Take));
        actions.extend((saga.held && (!is_owned(state) || may_fail)).then_some(Action::LapseLease));
        for (place, worker) in workers.iter().enumerate() {
            let Some(worker) = worker else { continue };
            // Waiting for what is on its way ends early by a fault alone.
            let is_patient =
                matches!(worker.next, Stage::Waits(act) if is_on_its_way(state, act, worker));
            actions.extend((!is_patient || may_fail).then_some(Action::Work(place, worker.next)));
            actions.extend(may_fail.then_some(Action::CrashWorker(place)));
        }
        for call in &state.wire {
            if call.answer.is_some() {
                actions.push(Action::Answer(*call));
            } else {
                actions.push(Action::Arrive(*call, true));
                let is_open = call.act.direction == Direction::Forward;
                actions.extend(is_open.then_some(Action::Arrive(*call, false)));
            }
            actions.extend(may_fail.then_some(Action::Lose(*call)));
        }
        for (direction, step) in [Direction::Forward, Direction::Compensate]
            .iter()
            .flat_map(|direction| (0..STEPS).map(move |step| (*direction, step)))
        {
            let act = ProviderCall { direction, step };
            actions.extend(can_wait(state, act).then_some(Action::Wait(act)));
        }
        actions.extend((runs && !saga.is_late).then_some(Action::PassDeadline));
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut state = state.clone();
        match action {
            Action::Take(place) => {
                state.saga.epoch += 1;
                state.saga.held = true;
                let (epoch, next) = (state.saga.epoch, Stage::Decides);
                state.workers[place] = Some(Worker { epoch, next });
            }
            Action::Work(place, next) => {
                let worker = state.workers[place].take()?;
                if let Stage::Waits(act) = next {
                    state.faults -= u8::from(is_on_its_way(&state, act, &worker));
                }
                let next = self.work(&mut state, worker);
                state.workers[place] = next.map(|next| Worker { next, ..worker });
            }
            Action::CrashWorker(place) => {
                state.faults -= 1;
                state.workers[place] = None;
            }
            Action::LapseLease => {
                state.faults -= u8::from(is_owned(&state));
                state.saga.held = false;
            }
            Action::Arrive(call, accepts) => {
                remove(&mut state.wire, call);
                let answer = Some(decide(&mut state, call, accepts));
                // A response that no worker waits for makes no difference.
                if state
                    .workers
                    .iter()
                    .flatten()
                    .any(|it| waits_for(it, &call))
                {
                    state.wire.push(Call { answer, ..call });
                }
            }
            Action::Answer(call) => {
                remove(&mut state.wire, call);
                let mut workers = state.workers.iter_mut().flatten();
                if let (Some(worker), Some(answer)) =
                    (workers.find(|it| waits_for(it, &call)), call.answer)
                {
                    worker.next = Stage::Concludes(call.act, answer);
                }
            }
            Action::Lose(call) => {
                state.faults -= 1;
                remove(&mut state.wire, call);
            }
            Action::Wait(act) => {
                let mut row = state.saga.row(act)?;
                row.age = if row.age == Age::InWindow {
                    Age::BehindWindow
                } else {
                    Age::Quiet
                };
                state.saga.write(act, row);
            }
            Action::PassDeadline => state.saga.is_late = true,
        }
        Some(state.sorted())
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(MONEY, |_, state: &State| is_paid(state)),
            Property::always(ONE_CAPTURE, |_, state: &State| {
                state.done(Direction::Forward, CAPTURE)
                    <= 1 + state.done(Direction::Compensate, CAPTURE)
            }),
            Property::always(ENDS, |_, state: &State| {
                let stands = [AUTHORIZE, SHIP, CAPTURE].map(|step| state.stands(step));
                match state.saga.status {
                    SagaStatus::Completed => stands == [true; STEPS],
                    SagaStatus::Failed => stands == [false; STEPS],
                    SagaStatus::Running | SagaStatus::NeedsAttention => true,
                }
            }),
            Property::always(ATTENTION, |_, state: &State| {
                let of = |direction, wanted| {
                    (0..STEPS).any(|step| state.saga.state(direction, step) == Some(wanted))
                };
                let is_unknown = state.saga.is_late && of(Direction::Forward, StepState::Open);
                let is_asked = state.saga.status == SagaStatus::NeedsAttention;
                !is_asked || is_unknown || of(Direction::Compensate, StepState::Refused)
            }),
            Property::always(REVERSE, |_, state: &State| is_undone_in_reverse(state)),
            Property::always(FENCED, |_, state: &State| !state.late),
            Property::sometimes("shipped and captured", |_, state: &State| {
                state.saga.status == SagaStatus::Completed
            }),
            Property::sometimes("nothing, and all of it undone", |_, state: &State| {
                state.saga.status == SagaStatus::Failed
                    && state.done(Direction::Compensate, SHIP) > 0
            }),
            Property::sometimes("a person is asked", |_, state: &State| {
                state.saga.status == SagaStatus::NeedsAttention
            }),
            Property::sometimes("a call that the provider knows", |_, state: &State| {
                let is_known = |call: &Call| call.answer.is_none() && known(state, call).is_some();
                state.wire.iter().any(is_known)
            }),
            Property::sometimes(
                "a call of a worker that was replaced",
                |_, state: &State| state.wire.iter().any(|call| call.epoch < state.saga.epoch),
            ),
            Property::sometimes(
                "a step that the provider has never seen",
                |_, state: &State| {
                    let is_refused =
                        state.saga.state(Direction::Forward, SHIP) == Some(StepState::Refused);
                    is_refused && !state.ledger.iter().any(|it| it.act.step == SHIP)
                },
            ),
        ]
    }
}

/// Whether all that was taken was shipped for, and nothing was given that was not taken.
fn is_paid(state: &State) -> bool {
    let captured = state.done(Direction::Forward, CAPTURE);
    let refunded = state.done(Direction::Compensate, CAPTURE);
    let has_ended = matches!(
        state.saga.status,
        SagaStatus::Completed | SagaStatus::Failed
    );
    let is_even = captured.checked_sub(refunded) == Some(usize::from(state.stands(SHIP)));
    refunded <= captured && (is_even || !has_ended)
}

fn is_undone_in_reverse(state: &State) -> bool {
    let begun = |step: usize| state.saga.state(Direction::Compensate, step).is_some();
    let stands = |step: usize| {
        let is_done = state.saga.state(Direction::Forward, step) == Some(StepState::Done);
        is_done && state.saga.state(Direction::Compensate, step) != Some(StepState::Done)
    };
    (0..STEPS).all(|step| !begun(step) || !(step + 1..STEPS).any(stands))
}

/// A provider's response to a call: its earlier decision about the key, or a new one.
fn decide(state: &mut State, call: Call, accepts: bool) -> Outcome {
    if let Some(entry) = known(state, &call) {
        return outcome(entry.is_done);
    }
    let Call { act, key, .. } = call;
    let is_held = state.stands(AUTHORIZE);
    let is_possible = match (act.direction, act.step) {
        (Direction::Forward, CAPTURE) => is_held,
        (Direction::Compensate, AUTHORIZE | SHIP) => state.stands(act.step),
        // A new authorization or parcel; and a refund pays out what was paid in.
        _ => true,
    };
    let is_done = accepts && is_possible;
    state.ledger.push(Entry { act, key, is_done });
    outcome(is_done)
}

fn known(state: &State, call: &Call) -> Option<Entry> {
    let is_this = |it: &&Entry| it.act == call.act && it.key == call.key;
    state.ledger.iter().find(is_this).copied()
}

fn waits_for(worker: &Worker, call: &Call) -> bool {
    worker.epoch == call.epoch && worker.next == Stage::Waits(call.act)
}

fn is_owned(state: &State) -> bool {
    let mut workers = state.workers.iter().flatten();
    workers.any(|worker| worker.epoch == state.saga.epoch)
}

fn is_on_its_way(state: &State, act: ProviderCall, worker: &Worker) -> bool {
    let is_this = |call: &Call| call.act == act && call.epoch == worker.epoch;
    state.wire.iter().any(is_this)
}

/// Whether the next stretch of time can go by for a step: it is quiet only once no call can arrive any more.
fn can_wait(state: &State, act: ProviderCall) -> bool {
    let Some(row) = state.saga.row(act) else {
        return false;
    };
    let may_arrive = |call: &Call| call.act == act && call.answer.is_none();
    let may_call = |worker: &Worker| matches!(worker.next, Stage::Calls(its, _) if its == act);
    let is_open = row.state == StepState::Open && state.saga.status == SagaStatus::Running;
    is_open
        && match row.age {
            Age::InWindow => true,
            Age::BehindWindow => {
                let is_called = state.workers.iter().flatten().any(may_call);
                !is_called && !state.wire.iter().any(may_arrive)
            }
            Age::Quiet => false,
        }
}

fn remove(wire: &mut Vec<Call>, call: Call) {
    let place = wire.iter().position(|it| *it == call);
    wire.remove(place.expect("what is acted on is there"));
}

#[cfg(test)]
mod tests {
    use super::Sagas;
    use crate::explore::check;

    #[test]
    fn a_saga_ends_as_all_or_nothing_and_every_bug_is_found() {
        check::<Sagas>();
    }
}
