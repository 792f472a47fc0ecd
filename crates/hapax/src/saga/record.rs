//! Rows of a saga: one for the saga, and one for each step that has started.

use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;

use super::Refusal;
use crate::{
    clock::Timestamp,
    event::Headers,
    json,
    key::{KeyError, Tenant},
    limits::{SAGA_INPUT_BYTES_MAX, SAGA_NAME_BYTES_MAX},
};

/// A saga to be started. It exists if and only if the transaction that starts it commits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewSaga {
    /// The id, chosen by the service, such as `chk_0190...`; unique among all sagas.
    pub id: String,
    /// The name and the version of its definition.
    pub kind: Kind,
    /// The tenant that the saga belongs to.
    pub tenant: Option<Tenant>,
    /// The input of its steps.
    pub input: Bytes,
    /// The headers of its events and calls: the `traceparent` of the request that started it.
    pub headers: Headers,
    /// The time limit, from its start.
    pub deadline: Duration,
}

impl NewSaga {
    /// Checks the limits of its fields.
    ///
    /// # Errors
    /// Fails if the id or the name is empty or longer than 255 bytes, or if the input is longer
    /// than 64 KiB.
    pub fn check(&self) -> Result<(), KeyError> {
        check_name(&self.id)?;
        check_name(&self.kind.name)?;
        check_size(&self.input)
    }
}

/// The definition of a saga.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Kind {
    /// The name, such as `checkout`.
    pub name: String,
    /// The version. A worker that does not know it leaves the saga to one that does.
    pub version: u32,
}

/// A stored saga.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SagaRecord {
    /// The id.
    pub id: String,
    /// The name and the version of its definition.
    pub kind: Kind,
    /// The tenant that the saga belongs to.
    pub tenant: Option<Tenant>,
    /// The input of its steps.
    pub input: Bytes,
    /// The headers of its events and calls.
    pub headers: Headers,
    /// Its status.
    pub status: SagaStatus,
    /// The epoch of its last owner, which is incremented whenever the saga is taken.
    pub epoch: i64,
    /// When it is due; `None` if it has ended or needs attention.
    pub wake_at: Option<Timestamp>,
    /// The reason why it waits until then, for operators.
    pub waiting_for: Option<String>,
    /// When it was started.
    pub created_at: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// All steps and compensations that have started, in the order in which they did.
    pub steps: Vec<StepRecord>,
    /// The signals that it has received, in order.
    pub signals: Vec<Signal>,
}

impl SagaRecord {
    /// The row of a step or of its compensation.
    pub fn step(&self, name: &str, direction: Direction) -> Option<&StepRecord> {
        let mut steps = self.steps.iter();
        steps.find(|step| step.name == name && step.direction == direction)
    }

    /// The result of a step that is done.
    pub fn made(&self, name: &str) -> Option<&Bytes> {
        let step = self.step(name, Direction::Forward)?;
        (step.state == StepState::Done).then_some(&step.made)
    }

    /// The status of a saga that continues at `now`. Its deadline moves: it has as much time again
    /// as it had from its start to its deadline.
    pub(super) fn running_again(&self, now: Timestamp) -> SagaStatus {
        let had = self.status.deadline_at.since(self.created_at);
        SagaStatus {
            state: State::Running,
            deadline_at: now.after(had),
            ..self.status.clone()
        }
    }
}

/// The status of a saga.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SagaStatus {
    /// The state.
    pub state: State,
    /// Whether the saga compensates its steps.
    pub compensating: bool,
    /// Why it compensates, has failed, or needs attention.
    pub reason: Option<Refusal>,
    /// The deadline, after which nothing is attempted.
    pub deadline_at: Timestamp,
}

/// The state of a saga.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// It goes forward, or compensates its steps.
    Running,
    /// All steps are done.
    Completed,
    /// A step was refused, and all steps before it are compensated.
    Failed,
    /// An operator has to decide how it continues.
    NeedsAttention,
}

impl State {
    /// All states, in the order in which they are reached.
    pub const ALL: [Self; 4] = [
        Self::Running,
        Self::NeedsAttention,
        Self::Completed,
        Self::Failed,
    ];

    /// The name in tables, responses and labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::NeedsAttention => "needs_attention",
        }
    }

    /// The state with this name.
    pub fn named(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }

    /// Whether this state is final.
    pub fn is_end(self) -> bool {
        matches!(self, Self::Completed | Self::Failed)
    }
}

/// A step that has started, or its compensation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StepRecord {
    /// The name of the step.
    pub name: String,
    /// Whether this is the step or its compensation.
    pub direction: Direction,
    /// The state.
    pub state: StepState,
    /// The key that the remote system received, the same for every attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider_key: Option<String>,
    /// The request, fixed when the step started.
    #[serde(
        skip_serializing_if = "Bytes::is_empty",
        serialize_with = "json::value"
    )]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub request: Bytes,
    /// The result.
    #[serde(
        skip_serializing_if = "Bytes::is_empty",
        serialize_with = "json::value"
    )]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub made: Bytes,
    /// Why it was refused, or the error of the last attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Refusal>,
    /// The number of attempts. It is incremented before each attempt.
    pub attempts: u32,
    /// The time before which it is not attempted again.
    pub next_at: Timestamp,
    /// When it started; of a remote step, when it was first called under its key.
    pub began_at: Timestamp,
    /// When its outcome became known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
}

/// The direction of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Direction {
    /// The step is executed.
    Forward,
    /// The step is compensated.
    Compensate,
}

impl Direction {
    /// The name in tables and responses.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Compensate => "compensate",
        }
    }

    /// The direction with this name.
    pub fn named(word: &str) -> Option<Self> {
        [Self::Forward, Self::Compensate]
            .into_iter()
            .find(|direction| direction.as_str() == word)
    }
}

/// The state of a step that has started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum StepState {
    /// It was intended. Whether a remote step has happened is not known.
    Open,
    /// It has happened.
    Done,
    /// It has not happened and never will.
    Refused,
}

impl StepState {
    /// The name in tables and responses.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Done => "done",
            Self::Refused => "refused",
        }
    }

    /// The state with this name.
    pub fn named(word: &str) -> Option<Self> {
        [Self::Open, Self::Done, Self::Refused]
            .into_iter()
            .find(|state| state.as_str() == word)
    }
}

/// A signal that a saga has received once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Signal {
    /// The name, such as `payment.succeeded`.
    pub name: String,
    /// The payload.
    #[serde(
        skip_serializing_if = "Bytes::is_empty",
        serialize_with = "json::value"
    )]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub payload: Bytes,
    /// When it was received.
    pub received_at: Timestamp,
}

impl Signal {
    /// Checks the limits of a signal.
    ///
    /// # Errors
    /// Fails if the name is empty or longer than 255 bytes, or if the payload is longer than 64
    /// KiB.
    pub fn check(name: &str, payload: &[u8]) -> Result<(), KeyError> {
        check_name(name)?;
        check_size(payload)
    }
}

/// The ownership of a saga. The next owner increments the epoch, which fences this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owned {
    /// The id of the saga.
    pub id: String,
    /// The epoch of the ownership.
    pub epoch: i64,
    /// The tenant of its events.
    pub tenant: Option<Tenant>,
    /// The headers of its events.
    pub headers: Headers,
}

impl Owned {
    /// The ownership under which `saga` was read.
    pub fn of(saga: &SagaRecord) -> Self {
        Self {
            id: saga.id.clone(),
            epoch: saga.epoch,
            tenant: saga.tenant.clone(),
            headers: saga.headers.clone(),
        }
    }
}

/// A filter for a list of sagas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Only sagas with this name.
    pub name: Option<String>,
    /// Only sagas with this version of their definition.
    pub version: Option<u32>,
    /// Only sagas in this state.
    pub state: Option<State>,
    /// Only sagas after this id.
    pub after: Option<String>,
}

fn check_name(name: &str) -> Result<(), KeyError> {
    match name.len() {
        0 => Err(KeyError::Empty),
        bytes if bytes > SAGA_NAME_BYTES_MAX => {
            let max = SAGA_NAME_BYTES_MAX;
            Err(KeyError::TooLong { bytes, max })
        }
        _ => Ok(()),
    }
}

fn check_size(said: &[u8]) -> Result<(), KeyError> {
    let (bytes, max) = (said.len(), SAGA_INPUT_BYTES_MAX);
    if bytes > max {
        return Err(KeyError::TooLong { bytes, max });
    }
    Ok(())
}
