//! The steps of a worker: decide, write, call, look up, conclude, like `decide` and `turn` of the
//! library.

use super::{
    Bug, Sagas,
    state::{
        Age, CAPTURE, Call, Direction, Outcome, ProviderCall, Row, STEPS, Saga, SagaStatus, Stage,
        State, StepState, Worker,
    },
};

/// The next move of a saga.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Move {
    Call(ProviderCall),
    LookUp(ProviderCall),
    Turn,
    Complete,
    Fail,
    Ask,
}

impl Sagas {
    fn next(&self, saga: &Saga) -> Move {
        if saga.undoing {
            self.backward(saga)
        } else {
            self.forward(saga)
        }
    }

    fn forward(&self, saga: &Saga) -> Move {
        for step in 0..STEPS {
            let act = ProviderCall {
                direction: Direction::Forward,
                step,
            };
            match saga.row(act) {
                Some(row) if row.state == StepState::Done => {}
                // No step comes after the pivot, which is the last one.
                Some(row) if row.state == StepState::Refused => return Move::Turn,
                Some(_) if self.bug == Bug::RefundOnUnknown && step == CAPTURE => {
                    return Move::Turn;
                }
                Some(_) if saga.is_late => return Move::Ask,
                Some(row) => return again(act, row),
                None if saga.is_late => return Move::Turn,
                None => return Move::Call(act),
            }
        }
        Move::Complete
    }

    fn backward(&self, saga: &Saga) -> Move {
        let mut steps: Vec<usize> = (0..STEPS).rev().collect();
        if self.bug == Bug::UndoneInOrder {
            steps.reverse();
        }
        for step in steps {
            let may_have_happened = match saga.state(Direction::Forward, step) {
                Some(StepState::Done) => true,
                Some(StepState::Open) => self.bug == Bug::RefundOnUnknown,
                Some(StepState::Refused) | None => false,
            };
            if !may_have_happened {
                continue;
            }
            let act = ProviderCall {
                direction: Direction::Compensate,
                step,
            };
            match saga.row(act) {
                None => return Move::Call(act),
                Some(row) if row.state == StepState::Done => {}
                Some(row) if row.state == StepState::Refused => return Move::Ask,
                Some(row) => return again(act, row),
            }
        }
        Move::Fail
    }

    /// Takes the next step of a worker. Returns `None` if the worker has ended or was fenced.
    pub(super) fn work(&self, state: &mut State, worker: Worker) -> Option<Stage> {
        match worker.next {
            Stage::Decides => self.carry_out(state, worker),
            Stage::Calls(act, key) => {
                let (epoch, answer) = (worker.epoch, None);
                state.wire.push(Call {
                    act,
                    key,
                    epoch,
                    answer,
                });
                Some(Stage::Waits(act))
            }
            Stage::Waits(act) => Some(Stage::Concludes(act, Outcome::Unknown)),
            Stage::Concludes(act, outcome) => {
                let row = self.concluded(&state.saga, act, outcome);
                self.may_commit(state, worker)?;
                if let Some(row) = row {
                    state.saga.write(act, row);
                }
                Some(Stage::Decides)
            }
        }
    }

    fn carry_out(&self, state: &mut State, worker: Worker) -> Option<Stage> {
        let next = self.next(&state.saga);
        if let Move::LookUp(act) = next {
            return Some(Stage::Concludes(act, self.look_up(state, act)));
        }
        self.may_commit(state, worker)?;
        let saga = &mut state.saga;
        let end = match next {
            Move::Call(act) => {
                let row = tried(saga.row(act));
                let key = if self.bug == Bug::ProviderKeyPerAttempt {
                    row.attempts
                } else {
                    0
                };
                if self.bug != Bug::IntentAfterCall {
                    let attempts = key;
                    saga.write(act, Row { attempts, ..row });
                }
                return Some(Stage::Calls(act, key));
            }
            Move::Turn | Move::LookUp(_) => {
                saga.undoing = true;
                return Some(Stage::Decides);
            }
            Move::Complete => SagaStatus::Completed,
            Move::Fail => SagaStatus::Failed,
            Move::Ask => SagaStatus::NeedsAttention,
        };
        saga.status = end;
        saga.held = false;
        None
    }

    /// Asks the provider what it knows. That it knows nothing counts if no call could arrive any more when it was asked.
    fn look_up(&self, state: &State, act: ProviderCall) -> Outcome {
        if let Some(known) = state.ledger.iter().find(|it| it.act == act) {
            return outcome(known.is_done);
        }
        let is_quiet = state.saga.row(act).is_some_and(|row| row.age == Age::Quiet);
        let is_believed = matches!(self.bug, Bug::AbsentAtOnce | Bug::AbsentAsOfNow);
        if is_quiet || is_believed {
            Outcome::Absent
        } else {
            Outcome::Unknown
        }
    }

    /// The row of a step after what came of it; none where it stays as it is.
    fn concluded(&self, saga: &Saga, act: ProviderCall, outcome: Outcome) -> Option<Row> {
        let row = saga.row(act).unwrap_or_else(|| tried(None));
        let is_quiet = row.age == Age::Quiet || self.bug != Bug::AbsentAsOfNow;
        let ended = |state| Some(Row { state, ..row });
        match outcome {
            Outcome::Done => ended(StepState::Done),
            Outcome::Unknown if self.bug == Bug::TimeoutAsFailure => ended(StepState::Refused),
            Outcome::Unknown => saga.row(act).is_none().then_some(row),
            // A call that was given up may still arrive.
            Outcome::Absent if !is_quiet => None,
            // It has to happen, and has not: it is asked for as if for the first time.
            Outcome::Absent if act.direction == Direction::Compensate => Some(Row {
                age: Age::InWindow,
                ..row
            }),
            Outcome::Refused | Outcome::Absent => ended(StepState::Refused),
        }
    }

    /// Holds the saga's row under the worker's epoch; none where another owner has come since.
    fn may_commit(&self, state: &mut State, worker: Worker) -> Option<()> {
        let is_owner = worker.epoch == state.saga.epoch && state.saga.status == SagaStatus::Running;
        state.late |= !is_owner && self.bug == Bug::NoFence;
        (is_owner || self.bug == Bug::NoFence).then_some(())
    }
}

/// The next attempt of an open step: a call within the window, a look-up after it.
fn again(act: ProviderCall, row: Row) -> Move {
    if row.age == Age::InWindow {
        Move::Call(act)
    } else {
        Move::LookUp(act)
    }
}

fn tried(row: Option<Row>) -> Row {
    Row {
        state: StepState::Open,
        age: row.map_or(Age::InWindow, |row| row.age),
        attempts: row.map_or(0, |row| row.attempts) + 1,
    }
}

pub(super) fn outcome(is_done: bool) -> Outcome {
    if is_done {
        Outcome::Done
    } else {
        Outcome::Refused
    }
}
