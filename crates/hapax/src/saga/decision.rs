//! Decisions of an operator about a saga that needs attention.
//!
//! Only an operator may decide that a step with an unknown outcome has happened or has not. A
//! decision is checked against the rows: if it would ignore an effect that may have happened, it is
//! refused.

use std::time::Duration;

use bytes::Bytes;

use super::{Direction, Refusal, SagaRecord, SagaStatus, State, StepRecord, StepState};
use crate::clock::Timestamp;

/// A decision of an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The step has happened and has this result.
    Done {
        /// The step.
        step: String,
        /// The result, as the following steps expect it.
        made: Bytes,
    },
    /// The step has not happened and never will.
    Refused {
        /// The step.
        step: String,
    },
    /// Try again, for this long.
    Retry {
        /// The time limit from now.
        within: Duration,
    },
    /// Compensate the completed steps.
    Compensate {
        /// The time limit from now.
        within: Duration,
    },
    /// End the saga as failed without further steps: the rest was done manually.
    Close,
}

/// Why a decision cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecisionError {
    /// The saga does not need attention, or has ended.
    #[error("saga is {}, and does not need attention", .0.as_str())]
    NotAsked(State),
    /// There is no such step, or its outcome is known.
    #[error("step {0} has not begun, or its outcome is known")]
    Settled(String),
    /// A step may have happened. Decide first whether it has.
    #[error("the outcome of step {0} is unknown: decide first whether it happened")]
    Unknown(String),
}

impl Decision {
    /// The name of the decision in the audit log.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Done { .. } => "done",
            Self::Refused { .. } => "refused",
            Self::Retry { .. } => "retry",
            Self::Compensate { .. } => "undo",
            Self::Close => "close",
        }
    }

    /// The consequence of the decision, as a sentence for the operator. If the compensation of a
    /// step is in question, the sentence does not claim that the step has happened.
    pub fn says(&self, saga: &SagaRecord) -> String {
        let id = &saga.id;
        let direction = |step: &str| {
            saga.asked_about(step)
                .map_or(Direction::Forward, |row| row.direction)
        };
        match self {
            Self::Done { step, .. } => match direction(step) {
                Direction::Forward => {
                    format!("Saga {id} continues as if step {step} had happened, with its result.")
                }
                Direction::Compensate => format!(
                    "Saga {id} continues as if step {step} were undone; it is not undone again."
                ),
            },
            Self::Refused { step } => match direction(step) {
                Direction::Forward => {
                    format!(
                        "Saga {id} continues as if step {step} had not happened and never will."
                    )
                }
                Direction::Compensate => format!(
                    "Step {step} of saga {id} cannot be undone; an operator has to decide again."
                ),
            },
            Self::Retry { .. } => format!("Saga {id} tries its unfinished steps again."),
            Self::Compensate { .. } => {
                format!("Saga {id} compensates the steps that it has completed.")
            }
            Self::Close => {
                format!(
                    "Saga {id} ends as failed, without further steps: the rest was done manually."
                )
            }
        }
    }

    /// Evaluates the decision: the rows that change, and the new status of the saga.
    ///
    /// # Errors
    /// Fails if the saga does not need attention, or if the decision does not fit its rows.
    pub fn evaluate(
        &self,
        saga: &SagaRecord,
        reason: &str,
        now: Timestamp,
    ) -> Result<(Vec<StepRecord>, SagaStatus), DecisionError> {
        let status = &saga.status;
        if status.state != State::NeedsAttention {
            return Err(DecisionError::NotAsked(status.state));
        }
        let going_on = |within: Duration| SagaStatus {
            state: State::Running,
            deadline_at: now.after(within),
            ..status.clone()
        };
        match self {
            Self::Done { step, made } => {
                let row = StepRecord {
                    state: StepState::Done,
                    made: made.clone(),
                    error: None,
                    ended_at: Some(now),
                    ..open(saga, step)?.clone()
                };
                Ok((vec![row], saga.running_again(now)))
            }
            Self::Refused { step } => {
                let row = StepRecord {
                    state: StepState::Refused,
                    error: Some(Refusal::new("decided", reason)),
                    ended_at: Some(now),
                    ..open(saga, step)?.clone()
                };
                Ok((vec![row], saga.running_again(now)))
            }
            Self::Retry { within } => Ok((again(saga, reason, now), going_on(*within))),
            Self::Compensate { within } => {
                if let Some(step) = unknown(saga) {
                    return Err(DecisionError::Unknown(step.name.clone()));
                }
                let compensating = SagaStatus {
                    compensating: true,
                    reason: Some(Refusal::new("decided", reason)),
                    ..going_on(*within)
                };
                // A refusal in this direction has not happened, and remains.
                let mut rows = again(saga, reason, now);
                rows.retain(|row| row.direction == Direction::Compensate);
                Ok((rows, compensating))
            }
            Self::Close => {
                let closed = SagaStatus {
                    state: State::Failed,
                    reason: Some(Refusal::new("closed", reason)),
                    ..status.clone()
                };
                Ok((Vec::new(), closed))
            }
        }
    }
}

impl SagaRecord {
    /// The row that a decision about the outcome of `step` applies to: the row of the compensation
    /// once that has started. `None` if there is nothing to decide about the step.
    pub fn asked_about(&self, step: &str) -> Option<&StepRecord> {
        let of_step = self.steps.iter().rev().filter(|row| row.name == step);
        let mut undecided = of_step.filter(|row| is_asked(self, row));
        let asks = self.status.state == State::NeedsAttention;
        undecided.next().filter(|_| asks)
    }

    /// All such rows, in the order in which they started.
    pub fn asked(&self) -> impl Iterator<Item = &StepRecord> {
        let one = move |row: &&StepRecord| {
            self.asked_about(&row.name)
                .is_some_and(|it| it.direction == row.direction)
        };
        self.steps.iter().filter(one)
    }
}

fn open<'a>(saga: &'a SagaRecord, step: &str) -> Result<&'a StepRecord, DecisionError> {
    let settled = || DecisionError::Settled(step.to_owned());
    saga.asked_about(step).ok_or_else(settled)
}

/// Whether an operator may decide about the outcome of a row: it is open, or its refusal has
/// stopped the saga, after the pivot or during compensation.
fn is_asked(saga: &SagaRecord, row: &StepRecord) -> bool {
    match row.state {
        StepState::Open => true,
        StepState::Done => false,
        StepState::Refused => (row.direction == Direction::Compensate) == saga.status.compensating,
    }
}

/// The step whose outcome is unknown.
fn unknown(saga: &SagaRecord) -> Option<&StepRecord> {
    let mut forward = saga
        .steps
        .iter()
        .filter(|row| row.direction == Direction::Forward);
    forward.find(|row| row.state == StepState::Open && row.provider_key.is_some())
}

/// The code of a step that an operator wants to be attempted again, until its outcome is known.
pub(super) const RETRIED: &str = "retried";

/// All rows that have not ended, with their attempts reset.
///
/// A row keeps the time of its first call: the remote system may have deleted the key since, so the
/// outcome is looked up before it is called again.
fn again(saga: &SagaRecord, reason: &str, now: Timestamp) -> Vec<StepRecord> {
    let asked = saga.steps.iter().filter(|row| is_asked(saga, row));
    let anew = |row: &StepRecord| {
        let may_have_happened = row.state == StepState::Open && row.provider_key.is_some();
        StepRecord {
            state: StepState::Open,
            error: Some(Refusal::new(RETRIED, reason)),
            attempts: 0,
            began_at: if may_have_happened { row.began_at } else { now },
            next_at: now,
            ended_at: None,
            ..row.clone()
        }
    };
    asked.map(anew).collect()
}

#[cfg(test)]
mod tests {
    use super::{
        super::decide::tests::{done, open as open_row, record},
        *,
    };

    #[test]
    fn only_a_saga_that_asks_is_decided_about() {
        let saga = record();
        let refused = Decision::Close.evaluate(&saga, "why", Timestamp::default());
        assert_eq!(refused, Err(DecisionError::NotAsked(State::Running)));
    }

    #[test]
    fn a_person_says_whether_an_unknown_step_happened() {
        let saga = asking(vec![done("reserve"), open_row("authorize")]);
        let happened = Decision::Done {
            step: "authorize".to_owned(),
            made: Bytes::from_static(b"{}"),
        };
        let (rows, status) = evaluate(&happened, &saga);
        assert_eq!(rows[0].state, StepState::Done);
        assert_eq!(rows[0].made, &b"{}"[..]);
        assert_eq!(status.state, State::Running);
        assert_eq!(status.deadline_at, Timestamp::from_millis(105_000));
        let did_not = Decision::Refused {
            step: "authorize".to_owned(),
        };
        let (rows, _) = evaluate(&did_not, &saga);
        assert_eq!(rows[0].state, StepState::Refused);
        for step in ["reserve", "ship"] {
            let settled = Decision::Refused {
                step: step.to_owned(),
            };
            let refused = settled.evaluate(&saga, "why", Timestamp::default());
            assert_eq!(refused, Err(DecisionError::Settled(step.to_owned())));
        }
    }

    #[test]
    fn nothing_is_undone_while_a_step_may_have_happened() {
        let saga = asking(vec![done("reserve"), open_row("authorize")]);
        let undo = Decision::Compensate {
            within: Duration::from_secs(1),
        };
        let refused = undo.evaluate(&saga, "why", Timestamp::default());
        assert_eq!(refused, Err(DecisionError::Unknown("authorize".to_owned())));
        let (_, status) = evaluate(&undo, &asking(vec![done("reserve")]));
        assert!(status.compensating);
    }

    #[test]
    fn another_try_begins_again_and_forgets_no_key() {
        let failed = StepRecord {
            direction: Direction::Compensate,
            state: StepState::Refused,
            attempts: 100,
            ..open_row("authorize")
        };
        let mut saga = asking(vec![done("authorize"), failed]);
        saga.status.compensating = true;
        let retry = Decision::Retry {
            within: Duration::from_mins(1),
        };
        let (rows, status) = evaluate(&retry, &saga);
        assert_eq!(rows.len(), 1);
        assert_eq!((rows[0].state, rows[0].attempts), (StepState::Open, 0));
        assert_eq!(rows[0].provider_key.as_deref(), Some("key"));
        assert_eq!(status.deadline_at, Timestamp::from_millis(65_000));
    }

    #[test]
    fn what_may_have_happened_keeps_the_time_of_its_first_call() {
        let saga = asking(vec![done("reserve"), open_row("authorize")]);
        let retry = Decision::Retry {
            within: Duration::from_mins(1),
        };
        let (rows, _) = evaluate(&retry, &saga);
        assert_eq!(rows[0].began_at, open_row("authorize").began_at);
        assert_eq!(rows[0].next_at, Timestamp::from_millis(5_000));
        assert_eq!(rows[0].error, Some(Refusal::new(RETRIED, "why")));
    }

    #[test]
    fn what_was_refused_behind_the_pivot_is_tried_again_and_what_turned_the_saga_is_not() {
        let refused = StepRecord {
            state: StepState::Refused,
            ..open_row("notify")
        };
        let retry = Decision::Retry {
            within: Duration::from_mins(1),
        };
        let mut saga = asking(vec![done("capture"), refused]);
        assert_eq!(evaluate(&retry, &saga).0.len(), 1);
        saga.status.compensating = true;
        assert_eq!(evaluate(&retry, &saga).0.len(), 0);
    }

    #[test]
    fn what_was_refused_stays_refused_when_the_rest_is_undone() {
        let refused = StepRecord {
            state: StepState::Refused,
            ..open_row("notify")
        };
        let undo = Decision::Compensate {
            within: Duration::from_mins(1),
        };
        let mut saga = asking(vec![done("capture"), refused.clone()]);
        assert_eq!(evaluate(&undo, &saga).0, []);
        // A compensation that failed is attempted again.
        let not_undone = StepRecord {
            direction: Direction::Compensate,
            ..refused.clone()
        };
        saga.steps = vec![done("authorize"), refused, not_undone];
        saga.status.compensating = true;
        let (rows, _) = evaluate(&undo, &saga);
        assert_eq!(rows.len(), 1);
        assert_eq!(
            (rows[0].direction, rows[0].state),
            (Direction::Compensate, StepState::Open)
        );
    }

    #[test]
    fn each_decision_gives_as_much_time_again_as_there_was_up_to_the_deadline() {
        let mut saga = asking(vec![done("reserve"), open_row("authorize")]);
        let happened = Decision::Done {
            step: "authorize".to_owned(),
            made: Bytes::new(),
        };
        saga.status = evaluate(&happened, &saga).1;
        saga.status.state = State::NeedsAttention;
        let (_, status) = evaluate(&happened, &saga);
        assert_eq!(status.deadline_at, Timestamp::from_millis(110_000));
    }

    #[test]
    fn what_is_asked_about_a_step_that_is_being_undone_is_whether_it_is_undone() {
        let voided = StepRecord {
            direction: Direction::Compensate,
            ..open_row("authorize")
        };
        let mut saga = asking(vec![done("reserve"), done("authorize"), voided]);
        saga.status.compensating = true;
        let asked = |saga: &SagaRecord| {
            let asked = saga.asked();
            asked
                .map(|row| (row.name.clone(), row.direction))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            asked(&saga),
            [("authorize".to_owned(), Direction::Compensate)]
        );
        let step = || "authorize".to_owned();
        let (happened, never) = (
            Decision::Done {
                step: step(),
                made: Bytes::new(),
            },
            Decision::Refused { step: step() },
        );
        assert!(happened.says(&saga).contains("step authorize were undone"));
        assert!(never.says(&saga).contains("cannot be undone"));
        assert_eq!(
            evaluate(&happened, &saga).0[0].direction,
            Direction::Compensate
        );
        saga.steps.pop();
        saga.steps[1].state = StepState::Open;
        assert_eq!(asked(&saga), [("authorize".to_owned(), Direction::Forward)]);
        assert!(happened.says(&saga).contains("step authorize had happened"));
        assert!(never.says(&saga).contains("had not happened"));
        saga.status.state = State::Running;
        assert_eq!(asked(&saga), []);
    }

    #[test]
    fn what_stopped_a_saga_behind_its_pivot_is_asked_about_and_what_turned_it_is_not() {
        let refused = StepRecord {
            state: StepState::Refused,
            ..open_row("notify")
        };
        let mut saga = asking(vec![done("capture"), refused]);
        assert_eq!(saga.asked().count(), 1);
        assert!(saga.asked_about("capture").is_none());
        saga.status.compensating = true;
        assert_eq!(saga.asked().count(), 0);
    }

    fn evaluate(decision: &Decision, saga: &SagaRecord) -> (Vec<StepRecord>, SagaStatus) {
        let now = Timestamp::from_millis(5_000);
        decision.evaluate(saga, "why", now).unwrap()
    }

    fn asking(steps: Vec<StepRecord>) -> SagaRecord {
        let mut saga = record();
        saga.status.state = State::NeedsAttention;
        SagaRecord { steps, ..saga }
    }
}
