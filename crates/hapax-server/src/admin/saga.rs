//! The view of a saga.

use hapax::{
    Timestamp,
    event::Headers,
    mask::Mask,
    saga::{Refusal, SagaRecord, Signal, State, StepRecord},
};
use hapax_postgres::admin::sagas::Look;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::{masked, view::moment};

/// A saga.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct SagaView {
    pub(crate) id: String,
    /// The name of the saga's definition.
    pub(crate) name: String,
    pub(crate) version: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tenant: Option<String>,
    /// `running`, `needs_attention`, `completed` or `failed`.
    pub(crate) state: &'static str,
    /// Whether the saga compensates, or has compensated, its completed steps.
    pub(crate) compensating: bool,
    /// Why the saga compensates, has failed, or needs attention.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<ReasonView>,
    /// Why the saga does not move, in words.
    pub(crate) why: String,
    /// What the saga waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) waiting_for: Option<String>,
    /// When the saga is due.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) wake_at: Option<String>,
    /// When the lease of its worker expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) held_until: Option<String>,
    /// How often workers have claimed the saga.
    pub(crate) epoch: i64,
    pub(crate) deadline_at: String,
    pub(crate) created_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ended_at: Option<String>,
    #[serde(skip_serializing_if = "Headers::is_empty")]
    pub(crate) headers: Headers,
    /// The input of the saga, masked. Absent in a list, like the headers, steps and signals.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) input: Option<Value>,
    /// The steps, in the order in which they were started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) steps: Option<Vec<StepView>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) signals: Option<Vec<SignalView>>,
}

/// A reason: a code and a text.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct ReasonView {
    pub(crate) code: String,
    pub(crate) detail: String,
}

/// A step that was started, or its compensation.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct StepView {
    pub(crate) name: String,
    /// `do` for the step, `undo` for its compensation.
    pub(crate) direction: &'static str,
    /// `open`, `done` or `refused`.
    pub(crate) state: &'static str,
    /// The number of attempts. It is reset when an operator has the step retried.
    pub(crate) attempts: u32,
    /// The idempotency key that was sent to the remote system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) provider_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<ReasonView>,
    pub(crate) began_at: String,
    /// The step is not tried again before this time.
    pub(crate) next_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ended_at: Option<String>,
    /// The request of the step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) request: Option<Value>,
    /// The result of the step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) made: Option<Value>,
}

/// A signal that the saga has received.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct SignalView {
    pub(crate) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) payload: Option<Value>,
    pub(crate) received_at: String,
}

impl SagaView {
    /// The complete view.
    pub(crate) fn whole(look: Look, mask: &Mask) -> Self {
        let saga = &look.saga;
        let input = masked::kept(mask, &saga.input);
        let steps = saga.steps.iter().map(|it| StepView::of(it, mask)).collect();
        let signals = saga
            .signals
            .iter()
            .map(|it| SignalView::of(it, mask))
            .collect();
        let headers = masked::headers(Some(mask), saga.headers.clone());
        Self {
            input,
            headers,
            steps: Some(steps),
            signals: Some(signals),
            ..Self::brief(look)
        }
    }

    /// The view in a list.
    pub(crate) fn brief(look: Look) -> Self {
        let why = why(&look);
        let Look {
            saga,
            held_until,
            at,
        } = look;
        let held_until = held_until.filter(|until| *until > at);
        let status = saga.status;
        Self {
            id: saga.id,
            name: saga.kind.name,
            version: saga.kind.version,
            tenant: saga.tenant.map(|tenant| tenant.as_str().to_owned()),
            state: status.state.as_str(),
            compensating: status.compensating,
            reason: status.reason.map(ReasonView::of),
            why,
            waiting_for: saga.waiting_for,
            wake_at: saga.wake_at.map(moment),
            held_until: held_until.map(moment),
            epoch: saga.epoch,
            deadline_at: moment(status.deadline_at),
            created_at: moment(saga.created_at),
            ended_at: saga.ended_at.map(moment),
            headers: Headers::new(),
            input: None,
            steps: None,
            signals: None,
        }
    }
}

impl ReasonView {
    fn of(refusal: Refusal) -> Self {
        let Refusal { code, detail } = refusal;
        Self { code, detail }
    }
}

impl StepView {
    fn of(step: &StepRecord, mask: &Mask) -> Self {
        Self {
            name: step.name.clone(),
            direction: step.direction.as_str(),
            state: step.state.as_str(),
            attempts: step.attempts,
            provider_key: step.provider_key.clone(),
            error: step.error.clone().map(ReasonView::of),
            began_at: moment(step.began_at),
            next_at: moment(step.next_at),
            ended_at: step.ended_at.map(moment),
            request: masked::kept(mask, &step.request),
            made: masked::kept(mask, &step.made),
        }
    }
}

impl SignalView {
    fn of(signal: &Signal, mask: &Mask) -> Self {
        Self {
            name: signal.name.clone(),
            payload: masked::kept(mask, &signal.payload),
            received_at: moment(signal.received_at),
        }
    }
}

/// What the saga is doing, or why it does not move.
fn why(look: &Look) -> String {
    let Look {
        saga,
        held_until,
        at,
    } = look;
    let held = held_until.filter(|until| until > at);
    let reason = saga.status.reason.as_ref();
    let reason = reason.map_or_else(|| "no reason was recorded".to_owned(), Refusal::to_string);
    match (saga.status.state, held) {
        (State::Completed, _) => "every step is done".to_owned(),
        (State::Failed, _) => reason,
        (State::NeedsAttention, _) => format!("needs attention: {reason}"),
        (State::Running, Some(until)) => format!("held by a worker until {}", moment(until)),
        (State::Running, None) => waits(saga, *held_until, *at),
    }
}

fn waits(saga: &SagaRecord, lapsed: Option<Timestamp>, at: Timestamp) -> String {
    let Some(wake_at) = saga.wake_at else {
        return "is never due".to_owned();
    };
    let due = lapsed.map_or(wake_at, |lapsed| lapsed.max(wake_at));
    let kind = format!("{} version {}", saga.kind.name, saga.kind.version);
    if due <= at {
        let since = moment(due);
        return format!("due since {since}, and no worker that knows {kind} takes it");
    }
    let what = saga.waiting_for.as_deref().unwrap_or("its next step");
    format!("waits until {} for {what}", moment(due))
}
