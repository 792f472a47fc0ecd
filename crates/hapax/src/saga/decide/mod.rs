//! Decides the next move of a saga from its rows and the time, as a pure function.
//!
//! Going forward, the move concerns the first step that is not done. Compensating, it concerns the
//! last step that has happened and is not compensated. A step with an unknown outcome blocks both
//! directions: it is called again under its key, then looked up, then waited for, and at the
//! deadline left to an operator. It is never treated as refused, and it is not compensated unless
//! its definition allows that (`compensate_unknown`).

use super::{Definition, Direction, Refusal, SagaRecord, Step, StepBody, StepRecord, StepState};
use crate::{
    clock::Timestamp,
    limits::{CLOCK_AHEAD, SAGA_UNDO_ATTEMPTS},
};

/// The next move of a saga.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Move {
    /// Run a local step, in one transaction.
    Run {
        /// The index of the step.
        step: usize,
        /// The direction.
        direction: Direction,
    },
    /// Commit the intent of a remote step, or another attempt at it, and call the remote system.
    Call {
        /// The index of the step.
        step: usize,
        /// The direction.
        direction: Direction,
    },
    /// Ask the remote system what it knows about the key of a step.
    LookUp {
        /// The index of the step.
        step: usize,
        /// The direction.
        direction: Direction,
    },
    /// Start to wait. The row of the step records since when.
    Await {
        /// The index of the step.
        step: usize,
    },
    /// Record that a step is done, because a signal has arrived or its time has passed.
    Settle {
        /// The index of the step.
        step: usize,
        /// The signal that settles the step; `None` if its time has passed.
        signal: Option<&'static str>,
    },
    /// Record that no signal arrived in time.
    TimeOut {
        /// The index of the step.
        step: usize,
    },
    /// Wait, because nothing is to be done before a point in time.
    Sleep {
        /// The point in time.
        until: Timestamp,
        /// The reason why the saga waits, for operators.
        waiting_for: String,
    },
    /// Start to compensate, for this reason.
    StartCompensation(Refusal),
    /// End the saga as completed: every step is done.
    Complete,
    /// End the saga as failed: all completed steps are compensated.
    Fail,
    /// Leave the saga to an operator, for this reason.
    Ask(Refusal),
}

/// Decides the next move of `saga` at `now`.
pub fn next<Tx>(definition: &Definition<Tx>, saga: &SagaRecord, now: Timestamp) -> Move {
    if saga.status.compensating {
        backward(definition, saga, now)
    } else {
        forward(definition, saga, now)
    }
}

fn forward<Tx>(definition: &Definition<Tx>, saga: &SagaRecord, now: Timestamp) -> Move {
    let is_late = now >= saga.status.deadline_at;
    let mut is_past_pivot = false;
    for (place, step) in definition.steps().iter().enumerate() {
        let row = saga.step(step.name, Direction::Forward);
        match row.map(|row| (row.state, row)) {
            Some((StepState::Done, _)) => is_past_pivot |= step.is_pivot,
            Some((StepState::Refused, row)) => {
                let why = row.error.clone().unwrap_or_else(|| refused(step.name));
                return if is_past_pivot {
                    ask(&why)
                } else {
                    Move::StartCompensation(why)
                };
            }
            Some((StepState::Open, row)) => {
                return open(step, place, row, saga, now, is_past_pivot);
            }
            None if is_late && is_past_pivot => {
                return Move::Ask(late(format!("{} had not started", step.name)));
            }
            None if is_late => {
                return Move::StartCompensation(late(format!("{} had not started", step.name)));
            }
            None => return begin(&step.act, place, Direction::Forward),
        }
    }
    Move::Complete
}

/// The move for a step that has started and whose end is not recorded.
fn open<Tx>(
    step: &Step<Tx>,
    place: usize,
    row: &StepRecord,
    saga: &SagaRecord,
    now: Timestamp,
    is_past_pivot: bool,
) -> Move {
    let is_signalled = |name: &str| saga.signals.iter().any(|signal| signal.name == name);
    let settle = |signal| Move::Settle {
        step: place,
        signal,
    };
    if let Some(signal) = step.settled_by.filter(|name| is_signalled(name)) {
        return settle(Some(signal));
    }
    let is_late = now >= saga.status.deadline_at;
    match &step.act {
        StepBody::Wait { signal, .. } if is_signalled(signal) => settle(Some(*signal)),
        // The wait started while the clock was ahead. It starts again now, with its full duration.
        StepBody::Wait { .. } | StepBody::Pause(_) if is_ahead(row.began_at, now) => {
            Move::Await { step: place }
        }
        StepBody::Wait { signal, timeout } => {
            let until = waits_since(row, now).after(*timeout);
            if now >= until {
                Move::TimeOut { step: place }
            } else {
                sleep(until, format!("{signal}, for {}", step.name))
            }
        }
        StepBody::Pause(pause) => {
            let until = waits_since(row, now).after(*pause);
            if now >= until {
                settle(None)
            } else {
                sleep(until, format!("the end of {}", step.name))
            }
        }
        // A failed local step was rolled back, so nothing of it has happened.
        StepBody::Local(_) if is_late && is_past_pivot => Move::Ask(late(last_words(row))),
        StepBody::Local(_) if is_late => Move::StartCompensation(late(last_words(row))),
        StepBody::Remote(_)
            if is_late && !is_past_pivot && (step.compensate_unknown || !was_sent(row)) =>
        {
            Move::StartCompensation(late(last_words(row)))
        }
        StepBody::Remote(_) if is_late => Move::Ask(late(last_words(row))),
        StepBody::Local(_) | StepBody::Remote(_) => {
            again(step, place, row, Direction::Forward, now)
        }
    }
}

fn backward<Tx>(definition: &Definition<Tx>, saga: &SagaRecord, now: Timestamp) -> Move {
    for (place, step) in definition.steps().iter().enumerate().rev() {
        let Some(done) = saga.step(step.name, Direction::Forward) else {
            continue;
        };
        let Some(undo) = &step.undo else { continue };
        let may_have_happened = match done.state {
            StepState::Done => true,
            StepState::Refused => false,
            StepState::Open => {
                step.compensate_unknown && matches!(step.act, StepBody::Remote(_)) && was_sent(done)
            }
        };
        if !may_have_happened {
            continue;
        }
        let Some(row) = saga.step(step.name, Direction::Compensate) else {
            return begin(undo, place, Direction::Compensate);
        };
        match row.state {
            StepState::Done => {}
            StepState::Refused => {
                let why = row.error.clone().unwrap_or_else(|| refused(step.name));
                return ask(&Refusal::new("compensation_failed", why.to_string()));
            }
            StepState::Open if row.attempts >= SAGA_UNDO_ATTEMPTS && row.next_at <= now => {
                return Move::Ask(Refusal::new("compensation_failed", last_words(row)));
            }
            StepState::Open => return again(step, place, row, Direction::Compensate, now),
        }
    }
    Move::Fail
}

/// The first move of a step.
fn begin<Tx>(act: &StepBody<Tx>, step: usize, direction: Direction) -> Move {
    match act {
        StepBody::Local(_) => Move::Run { step, direction },
        StepBody::Remote(_) => Move::Call { step, direction },
        StepBody::Wait { .. } | StepBody::Pause(_) => Move::Await { step },
    }
}

/// The next attempt at a step that has not ended.
fn again<Tx>(
    step: &Step<Tx>,
    place: usize,
    row: &StepRecord,
    direction: Direction,
    now: Timestamp,
) -> Move {
    let longest = now.after(step.retry_policy.wait_max());
    // A wait that is longer than the longest possible one was recorded while the clock was ahead.
    if now < row.next_at && row.next_at <= longest {
        let waiting_for = format!(
            "the next attempt at {}; last error: {}",
            spoken(step.name, direction),
            last_words(row)
        );
        return sleep(row.next_at, waiting_for);
    }
    // If a call was made while the clock was ahead, its age is unknown.
    let is_in_window =
        !is_ahead(row.began_at, now) && now < row.began_at.after(step.retry_policy.window);
    match step.act(direction) {
        Some(StepBody::Remote(_)) if was_sent(row) && !is_in_window => Move::LookUp {
            step: place,
            direction,
        },
        Some(StepBody::Remote(_)) => Move::Call {
            step: place,
            direction,
        },
        _ => Move::Run {
            step: place,
            direction,
        },
    }
}

/// The start of a wait that was started again. If the clock lagged at that time and has been
/// corrected since, the original start counts.
fn waits_since(row: &StepRecord, now: Timestamp) -> Timestamp {
    if row.next_at <= now {
        row.began_at.max(row.next_at)
    } else {
        row.began_at
    }
}

/// Whether a time in the past was recorded while the clock was ahead of `now`.
pub(super) fn is_ahead(moment: Timestamp, now: Timestamp) -> bool {
    moment > now.after(CLOCK_AHEAD)
}

/// Whether a call may have been sent. If no key is recorded, nothing was sent, and there is nothing
/// to look up.
fn was_sent(row: &StepRecord) -> bool {
    row.provider_key.is_some()
}

fn sleep(until: Timestamp, waiting_for: String) -> Move {
    Move::Sleep { until, waiting_for }
}

fn ask(why: &Refusal) -> Move {
    Move::Ask(why.clone())
}

fn late(detail: String) -> Refusal {
    Refusal::new("deadline", detail)
}

fn refused(step: &str) -> Refusal {
    Refusal::new("refused", format!("{step} was refused"))
}

/// The last error of a step, or a note that its outcome is unknown.
fn last_words(row: &StepRecord) -> String {
    let name = spoken(&row.name, row.direction);
    match &row.error {
        Some(error) => format!("{name}: {error}"),
        None => format!("{name} has an unknown outcome"),
    }
}

fn spoken(name: &str, direction: Direction) -> String {
    match direction {
        Direction::Forward => name.to_owned(),
        Direction::Compensate => format!("compensation of {name}"),
    }
}

#[cfg(test)]
pub(crate) mod tests;
