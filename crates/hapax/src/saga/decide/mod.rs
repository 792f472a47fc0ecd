//! What a saga does next: its rows and the time in, one move out.
//!
//! Forward, the first step that is not done is at stake. Backward, the last one that has happened
//! and is not undone. A step whose outcome nobody knows stands in the way of both: it is asked
//! again under its key, looked up, waited for, and at the deadline left to a person. It is never
//! taken for refused, and never undone, unless what undoes it is declared to bear that.

use super::{Act, Definition, Refusal, SagaRecord, Step, StepRecord, StepState, Way};
use crate::{
    clock::Timestamp,
    limits::{CLOCK_AHEAD, SAGA_UNDO_ATTEMPTS},
    seeded::{self, Bug},
};

/// What a saga does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Move {
    /// Runs a local step: one transaction.
    Run {
        /// Which step.
        step: usize,
        /// Which way.
        way: Way,
    },
    /// Commits that a foreign step is meant, or tried once more, and calls.
    Call {
        /// Which step.
        step: usize,
        /// Which way.
        way: Way,
    },
    /// Asks the foreign system what it knows.
    LookUp {
        /// Which step.
        step: usize,
        /// Which way.
        way: Way,
    },
    /// Begins to wait: the step's row says since when.
    Await {
        /// Which step.
        step: usize,
    },
    /// Writes down that a step is done, by a word from outside or because its time went by.
    Settle {
        /// Which step.
        step: usize,
        /// Which signal settles it; none where a time went by.
        signal: Option<&'static str>,
    },
    /// Writes down that a wait was in vain.
    TimeOut {
        /// Which step.
        step: usize,
    },
    /// Has nothing to do before this moment.
    Sleep {
        /// Until when.
        until: Timestamp,
        /// What it waits for.
        waiting_for: String,
    },
    /// Turns round: what was done is undone.
    Turn(Refusal),
    /// Has done every step.
    Complete,
    /// Has undone what was done.
    Fail,
    /// Leaves it to a person.
    Ask(Refusal),
}

/// Decides what `saga` does next at `now`.
pub fn next<Tx>(definition: &Definition<Tx>, saga: &SagaRecord, now: Timestamp) -> Move {
    if saga.standing.undoing {
        backward(definition, saga, now)
    } else {
        forward(definition, saga, now)
    }
}

fn forward<Tx>(definition: &Definition<Tx>, saga: &SagaRecord, now: Timestamp) -> Move {
    let is_late = now >= saga.standing.deadline_at;
    let mut is_past_pivot = false;
    for (place, step) in definition.steps().iter().enumerate() {
        let row = saga.step(step.name, Way::Do);
        match row.map(|row| (row.state, row)) {
            Some((StepState::Done, _)) => is_past_pivot |= step.is_pivot,
            Some((StepState::Refused, row)) => {
                let why = row.error.clone().unwrap_or_else(|| refused(step.name));
                return if is_past_pivot {
                    ask(&why)
                } else {
                    Move::Turn(why)
                };
            }
            Some((StepState::Open, row)) => {
                return open(step, place, row, saga, now, is_past_pivot);
            }
            None if is_late && is_past_pivot => {
                return Move::Ask(late(format!("{} was not begun", step.name)));
            }
            None if is_late => {
                return Move::Turn(late(format!("{} was not begun", step.name)));
            }
            None => return begin(&step.act, place, Way::Do),
        }
    }
    Move::Complete
}

/// What becomes of a step that has begun and is not known to have ended.
fn open<Tx>(
    step: &Step<Tx>,
    place: usize,
    row: &StepRecord,
    saga: &SagaRecord,
    now: Timestamp,
    is_past_pivot: bool,
) -> Move {
    let told = |name: &str| saga.signals.iter().any(|signal| signal.name == name);
    let settle = |signal| Move::Settle {
        step: place,
        signal,
    };
    if let Some(signal) = step.settled_by.filter(|name| told(name)) {
        return settle(Some(signal));
    }
    let is_late = now >= saga.standing.deadline_at;
    match &step.act {
        Act::Wait { signal, .. } if told(signal) => settle(Some(*signal)),
        // It is waited for as long as it was to be, from now.
        Act::Wait { .. } | Act::Pause(_) if is_ahead(row.began_at, now) => {
            Move::Await { step: place }
        }
        Act::Wait { signal, timeout } => {
            let until = waits_since(row, now).after(*timeout);
            if now >= until {
                Move::TimeOut { step: place }
            } else {
                sleep(until, format!("{signal}, for {}", step.name))
            }
        }
        Act::Pause(pause) => {
            let until = waits_since(row, now).after(*pause);
            if now >= until {
                settle(None)
            } else {
                sleep(until, format!("{} to go by", step.name))
            }
        }
        // What failed was rolled back: nothing of it has happened.
        Act::Local(_) if is_late && is_past_pivot => Move::Ask(late(last_words(row))),
        Act::Local(_) if is_late => Move::Turn(late(last_words(row))),
        Act::Foreign(_) if seeded::has(Bug::RefundOnUnknown) && row.attempts > 0 => {
            Move::Turn(Refusal::new("unknown", last_words(row)))
        }
        Act::Foreign(_) if is_late && !is_past_pivot && (step.undo_unknown || !was_sent(row)) => {
            Move::Turn(late(last_words(row)))
        }
        Act::Foreign(_) if is_late => Move::Ask(late(last_words(row))),
        Act::Local(_) | Act::Foreign(_) => again(step, place, row, Way::Do, now),
    }
}

fn backward<Tx>(definition: &Definition<Tx>, saga: &SagaRecord, now: Timestamp) -> Move {
    for (place, step) in definition.steps().iter().enumerate().rev() {
        let Some(done) = saga.step(step.name, Way::Do) else {
            continue;
        };
        let Some(undo) = &step.undo else { continue };
        let may_have_happened = match done.state {
            StepState::Done => true,
            StepState::Refused => false,
            StepState::Open => {
                step.undo_unknown && matches!(step.act, Act::Foreign(_)) && was_sent(done)
            }
        };
        if !may_have_happened {
            continue;
        }
        let Some(row) = saga.step(step.name, Way::Undo) else {
            return begin(undo, place, Way::Undo);
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
            StepState::Open => return again(step, place, row, Way::Undo, now),
        }
    }
    Move::Fail
}

/// The first move of a step.
fn begin<Tx>(act: &Act<Tx>, step: usize, way: Way) -> Move {
    match act {
        Act::Local(_) => Move::Run { step, way },
        Act::Foreign(_) => Move::Call { step, way },
        Act::Wait { .. } | Act::Pause(_) => Move::Await { step },
    }
}

/// The next try of what has not ended.
fn again<Tx>(step: &Step<Tx>, place: usize, row: &StepRecord, way: Way, now: Timestamp) -> Move {
    let longest = now.after(step.patience.wait_max());
    // A longer wait than there is was begun while the clock was ahead.
    if now < row.next_at && row.next_at <= longest {
        let waiting_for = format!("{} again: {}", spoken(step.name, way), last_words(row));
        return sleep(row.next_at, waiting_for);
    }
    // Nobody knows how old a call is that was made while the clock was ahead.
    let is_in_window =
        !is_ahead(row.began_at, now) && now < row.began_at.after(step.patience.window);
    match step.act(way) {
        Some(Act::Foreign(_)) if was_sent(row) && !is_in_window => {
            Move::LookUp { step: place, way }
        }
        Some(Act::Foreign(_)) => Move::Call { step: place, way },
        _ => Move::Run { step: place, way },
    }
}

/// Since when a wait goes on that is counted anew: a clock that was behind meanwhile, and is put right,
/// has it count from when it began.
fn waits_since(row: &StepRecord, now: Timestamp) -> Timestamp {
    if row.next_at <= now {
        row.began_at.max(row.next_at)
    } else {
        row.began_at
    }
}

/// Whether what is past was written down while the clock was ahead of `now`.
pub(super) fn is_ahead(moment: Timestamp, now: Timestamp) -> bool {
    moment > now.after(CLOCK_AHEAD)
}

/// Whether a call may have gone out: without a key on record nothing was sent, and nobody can be asked
/// about it.
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

/// What went wrong with a step the last time, or what is not known of it.
fn last_words(row: &StepRecord) -> String {
    let name = spoken(&row.name, row.way);
    match &row.error {
        Some(error) => format!("{name}: {error}"),
        None => format!("{name} has no known outcome"),
    }
}

fn spoken(name: &str, way: Way) -> String {
    match way {
        Way::Do => name.to_owned(),
        Way::Undo => format!("undoing {name}"),
    }
}

#[cfg(test)]
pub(crate) mod tests;
