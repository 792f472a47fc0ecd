//! The view of a checkout in responses: its state, and the state of each step.

use hapax::saga::{Direction, Refusal, SagaRecord, State, StepRecord, StepState};
use serde::Serialize;

use super::{STEPS, made};

/// The code of a checkout that an operator has closed after handling it outside the shop.
pub(crate) const CLOSED: &str = "closed";
/// The codes of an operator's decisions.
const DECIDED: [&str; 3] = [CLOSED, "decided", "retried"];

/// Formats a reason for the customer, without the comment that an operator wrote on a decision.
pub(crate) fn public_reason(reason: &Refusal) -> String {
    if DECIDED.contains(&reason.code.as_str()) {
        reason.code.clone()
    } else {
        reason.to_string()
    }
}

/// A checkout in a response.
#[derive(Debug, Serialize)]
pub(crate) struct View {
    id: String,
    state: &'static str,
    reason: Option<String>,
    steps: Vec<Step>,
    waiting_for: Option<String>,
}

#[derive(Debug, Serialize)]
struct Step {
    name: &'static str,
    state: &'static str,
    attempts: u32,
    provider_key: Option<String>,
    provider_ref: Option<String>,
    error: Option<String>,
}

impl View {
    /// Builds the view from the current state of a saga.
    pub(crate) fn of(saga: &SagaRecord) -> Self {
        let waiting_for = match saga.status.state {
            State::NeedsAttention => Some("a person".to_owned()),
            State::Running => saga.waiting_for.clone(),
            State::Completed | State::Failed => None,
        };
        let reason = saga.status.reason.as_ref();
        Self {
            id: saga.id.clone(),
            state: saga.status.state.as_str(),
            reason: reason.map(public_reason),
            steps: STEPS.into_iter().map(|name| step(saga, name)).collect(),
            waiting_for,
        }
    }
}

fn step(saga: &SagaRecord, name: &'static str) -> Step {
    let (did, undid) = (
        saga.step(name, Direction::Forward),
        saga.step(name, Direction::Compensate),
    );
    let last = undid.or(did);
    let attempts = [did, undid].into_iter().flatten().map(|row| row.attempts);
    let error = last.and_then(|row| row.error.as_ref());
    Step {
        name,
        state: word(did, undid),
        attempts: attempts.sum(),
        provider_key: did.and_then(|row| row.provider_key.clone()),
        provider_ref: made(saga, name).ok().map(|made| made.id),
        error: error.map(public_reason),
    }
}

fn word(did: Option<&StepRecord>, undid: Option<&StepRecord>) -> &'static str {
    match (did.map(|row| row.state), undid.map(|row| row.state)) {
        (_, Some(StepState::Done)) => "undone",
        (_, Some(StepState::Open)) => "undoing",
        (_, Some(StepState::Refused)) => "not_undone",
        (Some(StepState::Done), None) => "done",
        (Some(StepState::Refused), None) => "refused",
        (Some(StepState::Open), None) => "unknown",
        (None, None) => "pending",
    }
}
