//! Sagas as operators see them, and decisions about those that need attention.

use async_trait::async_trait;
use bytes::Bytes;
use serde::Serialize;

use super::{Actor, AdminError, Page, content};
use crate::{
    clock::Timestamp,
    event::Headers,
    json,
    mask::Mask,
    saga::{Decision, Filter, Refusal, SagaRecord, Signal, State, StepRecord},
};

/// Operations on sagas.
#[async_trait]
pub trait SagaAdmin: Send + Sync {
    /// Lists sagas by id, without their steps, input and signals.
    async fn list_sagas(
        &self,
        actor: &Actor,
        filter: &Filter,
        limit: usize,
    ) -> Result<Page<SagaLook>, AdminError>;

    /// Reads a saga with its steps.
    ///
    /// `NotFound` if the saga does not exist or belongs to another tenant.
    async fn look_at_saga(&self, actor: &Actor, id: &str) -> Result<SagaLook, AdminError>;

    /// Applies a decision to a saga that has not changed since the operator read it. The saga then
    /// continues at once.
    ///
    /// `epoch` is the epoch of the saga when the operator read it. It is incremented whenever a
    /// worker takes the saga or another operator decides about it.
    ///
    /// `NotFound` if the saga does not exist; `Conflict` if the decision does not fit its rows, or
    /// if it has another epoch by now; `Invalid` without a reason.
    async fn decide(
        &self,
        actor: &Actor,
        id: &str,
        epoch: i64,
        decision: &Decision,
        reason: &str,
    ) -> Result<(), AdminError>;
}

/// A saga as a reader sees it that does not own it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SagaLook {
    /// The saga.
    pub saga: SagaRecord,
    /// The end of its owner's lease, which may have passed without a new owner; `None` if it has no
    /// owner.
    pub held_until: Option<Timestamp>,
    /// When it was read, by the database's clock.
    pub at: Timestamp,
}

impl SagaLook {
    /// The end of the lease of a worker that holds the saga now.
    pub fn held(&self) -> Option<Timestamp> {
        self.held_until.filter(|until| *until > self.at)
    }

    /// When a running saga that no worker holds is due; `None` if it never is.
    pub fn due_at(&self) -> Option<Timestamp> {
        let wake_at = self.saga.wake_at?;
        Some(
            self.held_until
                .map_or(wake_at, |lapsed| lapsed.max(wake_at)),
        )
    }

    /// Why the saga compensates, has failed, or needs attention.
    pub fn reason(&self) -> String {
        let reason = self.saga.status.reason.as_ref();
        reason.map_or_else(|| "no reason was recorded".to_owned(), Refusal::to_string)
    }

    /// The reason why a saga is not due.
    pub fn waits_for(&self) -> &str {
        self.saga.waiting_for.as_deref().unwrap_or("its next step")
    }

    /// The present state of the saga, or why it does not move.
    fn why(&self) -> String {
        let kind = &self.saga.kind;
        match (self.saga.status.state, self.held(), self.due_at()) {
            (State::Completed, ..) => "every step is done".to_owned(),
            (State::Failed, ..) => self.reason(),
            (State::NeedsAttention, ..) => format!("needs attention: {}", self.reason()),
            (State::Running, Some(until), _) => format!("held by a worker until {until}"),
            (State::Running, None, None) => "is never due".to_owned(),
            (State::Running, None, Some(due)) if due <= self.at => format!(
                "due since {due}, and no worker that knows {} version {} takes it",
                kind.name, kind.version
            ),
            (State::Running, None, Some(due)) => {
                format!("waits until {due} for {}", self.waits_for())
            }
        }
    }
}

/// A saga in a response: masked, and with the reason why it does not move.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SagaView {
    /// The id.
    pub id: String,
    /// The name of the saga's definition.
    pub name: String,
    /// The version of the saga's definition.
    pub version: u32,
    /// The tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// `running`, `needs_attention`, `completed` or `failed`.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub state: &'static str,
    /// Whether the saga compensates, or has compensated, its completed steps.
    pub compensating: bool,
    /// Why the saga compensates, has failed, or needs attention.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Refusal>,
    /// Why the saga does not move, in words.
    pub why: String,
    /// The reason why the saga waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<String>,
    /// When the saga is due.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wake_at: Option<Timestamp>,
    /// When the lease of its worker expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_until: Option<Timestamp>,
    /// How often workers have claimed the saga.
    pub epoch: i64,
    /// The deadline, after which nothing is attempted.
    pub deadline_at: Timestamp,
    /// When the saga was started.
    pub created_at: Timestamp,
    /// When the saga ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// The headers of its events and calls.
    #[serde(skip_serializing_if = "Headers::is_empty")]
    pub headers: Headers,
    /// The input of the saga, masked. Absent in a list, like the headers, steps and signals.
    #[serde(
        skip_serializing_if = "Bytes::is_empty",
        serialize_with = "json::value"
    )]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub input: Bytes,
    /// The steps, in the order in which they were started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<Vec<StepRecord>>,
    /// The signals that the saga has received.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signals: Option<Vec<Signal>>,
}

impl SagaView {
    /// The complete view.
    pub fn whole(mut look: SagaLook, mask: &Mask) -> Self {
        let saga = &mut look.saga;
        let mut headers = std::mem::take(&mut saga.headers);
        content::mask_headers(mask, &mut headers);
        let mut steps = std::mem::take(&mut saga.steps);
        for step in &mut steps {
            step.request = content::masked_value(mask, &step.request);
            step.made = content::masked_value(mask, &step.made);
        }
        let mut signals = std::mem::take(&mut saga.signals);
        for signal in &mut signals {
            signal.payload = content::masked_value(mask, &signal.payload);
        }
        Self {
            input: content::masked_value(mask, &saga.input),
            headers,
            steps: Some(steps),
            signals: Some(signals),
            ..Self::brief(look)
        }
    }

    /// The view in a list.
    pub fn brief(look: SagaLook) -> Self {
        let (why, held_until) = (look.why(), look.held());
        let saga = look.saga;
        let status = saga.status;
        Self {
            id: saga.id,
            name: saga.kind.name,
            version: saga.kind.version,
            tenant: saga.tenant.map(|tenant| tenant.as_str().to_owned()),
            state: status.state.as_str(),
            compensating: status.compensating,
            reason: status.reason,
            why,
            waiting_for: saga.waiting_for,
            wake_at: saga.wake_at,
            held_until,
            epoch: saga.epoch,
            deadline_at: status.deadline_at,
            created_at: saga.created_at,
            ended_at: saga.ended_at,
            headers: Headers::new(),
            input: Bytes::new(),
            steps: None,
            signals: None,
        }
    }
}
