//! The interface of a store for endpoints: what a relay reads and records.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;

use super::record::EndpointChange;
use crate::{
    clock::Timestamp, delivery::AttemptOutcome, event::EventId, outbox::OutboxEvent,
    store::StoreError,
};

/// A store that has endpoints and the queue of their deliveries.
///
/// A delivery is identified by its endpoint and the id of its event. Each claim and each replay of a
/// delivery increments its attempt, and a settlement names the attempt that it settles, so a relay that
/// was slow cannot change a delivery that was claimed or replayed since.
#[async_trait]
pub trait EndpointStore: EndpointRecovery + Send + Sync + 'static {
    /// Reads the changes after a version, by version, at most `limit`. Every change that is committed
    /// after this call has a higher version than those that it returns.
    async fn endpoint_changes(
        &self,
        after: i64,
        limit: usize,
    ) -> Result<Vec<EndpointChange>, StoreError>;

    /// Records deliveries and attempts, in one transaction.
    ///
    /// A delivery that is queued although it has a row stays as it is. One whose endpoint does not
    /// exist is left out, and so is one whose event belongs to another tenant than its endpoint. The
    /// result names the events that are not in the outbox; nothing is queued for them.
    async fn record_deliveries(&self, record: &EndpointRecord) -> Result<Recorded, StoreError>;

    /// Claims waiting deliveries that are due, of enabled endpoints, in the order of their endpoints.
    /// A claimed delivery is due again when the lease is over. Concurrent callers never receive the
    /// same delivery. None is claimed of a slowed endpoint before its pause is over, and then one. Of an
    /// endpoint that catches up, the delivery with the oldest event is claimed alone, also if it is not
    /// due and was not tried since the endpoint was enabled.
    async fn claim_deliveries(
        &self,
        claim: &DeliveryClaim,
    ) -> Result<ClaimedDeliveries, StoreError>;

    /// Disables an endpoint that fails, with a reason, if it is still at the version that failed. It is
    /// probed after `probe_after`, or not at all. Returns false if it is at another version, disabled or
    /// deleted.
    async fn disable_endpoint(
        &self,
        endpoint: &str,
        version: i64,
        reason: &str,
        probe_after: Option<Duration>,
    ) -> Result<bool, StoreError>;

    /// Ends deliveries of endpoints for which more than `waiting_max` wait: the oldest ones of each, a
    /// batch in all. They have failed, with [`TOO_MANY_WAIT`] as their error, and each has a line in
    /// the log of attempts. Returns their number.
    async fn drop_deliveries(&self, waiting_max: u32) -> Result<u64, StoreError>;

    /// Counts what waits in the queue.
    async fn endpoint_backlog(&self) -> Result<EndpointBacklog, StoreError>;

    /// Deletes a batch of attempts and of ended deliveries that are older than `retention`, of
    /// deliveries that wait for an endpoint that was disabled longer ago, and of the rows of deleted
    /// endpoints. Returns the number of deleted rows.
    async fn purge_endpoints(&self, retention: Duration) -> Result<u64, StoreError>;
}

/// The recovery of endpoints that a relay has disabled because they failed: part of an
/// [`EndpointStore`].
#[async_trait]
pub trait EndpointRecovery: Send + Sync + 'static {
    /// Claims the probes that are due, of at most `limit` endpoints. A probe is one delivery: the one with
    /// the oldest event that waits, or else the last one that had failed when the endpoint was disabled or
    /// changed, which waits then. One that has failed since could not be sent by a probe. A probe and its
    /// delivery are due again when the lease is over. Concurrent callers never receive the same probe. An
    /// endpoint for which nothing waits or has failed is not probed any more.
    async fn claim_probes(
        &self,
        limit: usize,
        lease: Duration,
    ) -> Result<Vec<ClaimedDelivery>, StoreError>;

    /// Counts a probe that has failed, of an endpoint that is at this version. The next one is due after
    /// the first wait of `waits`, doubled for each failed probe and bounded by the second one; without
    /// waits, there is none.
    async fn postpone_probe(
        &self,
        endpoint: &str,
        version: i64,
        waits: Option<(Duration, Duration)>,
    ) -> Result<(), StoreError>;

    /// Makes the probe of an endpoint that is at this version due at once, because its event could not be
    /// sent. It is not counted, and the next probe has another delivery once that one has failed.
    async fn repeat_probe(&self, endpoint: &str, version: i64) -> Result<(), StoreError>;

    /// Enables an endpoint that is probed and at this version, and makes what waits for it due: in the
    /// order of the events until nothing waits, if `in_order` says so, and otherwise the oldest
    /// [`ENDPOINT_REPLAYED`](crate::limits::ENDPOINT_REPLAYED) at once. Returns false if the endpoint is at
    /// another version or not probed.
    async fn recover_endpoint(
        &self,
        endpoint: &str,
        version: i64,
        in_order: bool,
    ) -> Result<bool, StoreError>;

    /// Ends that an endpoint catches up, if nothing waits for it. Returns false if it does not catch up, or
    /// if something waits.
    async fn end_catch_up(&self, endpoint: &str) -> Result<bool, StoreError>;
}

/// The error of a delivery that ended because too many waited for its endpoint.
pub const TOO_MANY_WAIT: &str = "dropped: too many newer deliveries waited for the endpoint";

/// The changes that a round records.
#[derive(Clone, Debug, Default)]
pub struct EndpointRecord {
    /// Deliveries that become rows.
    pub queue: Vec<QueuedDelivery>,
    /// The outcomes of claimed deliveries.
    pub settle: Vec<SettledDelivery>,
    /// Attempts for the log. They also count the consecutive failures of their endpoints, except for events
    /// that could not be sent.
    pub attempts: Vec<EndpointAttempt>,
    /// The time between two failures of an endpoint that count as spread over time.
    pub failing_span: Duration,
}

impl EndpointRecord {
    /// Whether there is nothing to record.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.settle.is_empty() && self.attempts.is_empty()
    }
}

/// A delivery that becomes a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedDelivery {
    /// The endpoint.
    pub endpoint: String,
    /// The position of the event in the outbox.
    pub position: i64,
    /// The id of the event.
    pub event_id: EventId,
    /// The number of attempts so far, including one that has not ended.
    pub attempt: u32,
    /// What happens next.
    pub next: NextStep,
    /// The error of the last attempt, in one line.
    pub error: Option<String>,
}

/// Next step of a delivery, after an attempt or before the first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextStep {
    /// The delivery is due after this wait.
    Retry(Duration),
    /// The delivery is due after this wait, and the attempt does not count for the schedule: the
    /// relay could not make it, or it was a probe.
    Postpone(Duration),
    /// The endpoint has the event.
    Delivered,
    /// The delivery is not sent again unless it is replayed.
    Failed,
}

impl NextStep {
    /// The state of the row.
    pub const fn state(self) -> &'static str {
        match self {
            Self::Retry(_) | Self::Postpone(_) => "waiting",
            Self::Delivered => "delivered",
            Self::Failed => "failed",
        }
    }

    /// Whether the attempt does not count for the schedule.
    pub const fn is_postponed(self) -> bool {
        matches!(self, Self::Postpone(_))
    }

    /// The wait until it is due.
    pub const fn wait(self) -> Duration {
        match self {
            Self::Retry(wait) | Self::Postpone(wait) => wait,
            Self::Delivered | Self::Failed => Duration::ZERO,
        }
    }
}

/// The outcome of a claimed delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettledDelivery {
    /// The endpoint.
    pub endpoint: String,
    /// The id of the event.
    pub event_id: EventId,
    /// The attempt that is settled. If the row is at another one by now, nothing changes.
    pub attempt: u32,
    /// What happens next.
    pub next: NextStep,
    /// The error, in one line.
    pub error: Option<String>,
}

/// An attempt for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointAttempt {
    /// The endpoint.
    pub endpoint: String,
    /// The position of the event in the outbox.
    pub position: i64,
    /// The id of the event.
    pub event_id: EventId,
    /// The type of the event.
    pub kind: String,
    /// The number of the attempt, starting at 1.
    pub number: u32,
    /// When the attempt started.
    pub started_at: Timestamp,
    /// How long the attempt took.
    pub duration: Duration,
    /// The outcome.
    pub outcome: AttemptOutcome,
    /// The status code of the response.
    pub status: Option<u16>,
    /// The error, in one line.
    pub error: Option<String>,
    /// The request, encoded by [`RequestExcerpt::encode`](super::RequestExcerpt::encode).
    pub request: Bytes,
    /// The beginning of the response.
    pub response: Bytes,
}

/// Consecutive failures of an endpoint in a list of attempts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CountedFailures<'a> {
    /// Whether there was a success.
    pub has_succeeded: bool,
    /// The number of failures after the last success.
    pub failures: u32,
    /// The error of the last failure.
    pub last_error: Option<&'a str>,
}

/// Consecutive failures of each endpoint in a list of attempts, by endpoint. An attempt with the outcome
/// [`Rejected`](AttemptOutcome::Rejected) concerns its event alone: it neither is a failure nor ends them.
pub fn failures_of(attempts: &[EndpointAttempt]) -> BTreeMap<&str, CountedFailures<'_>> {
    let mut all: BTreeMap<&str, CountedFailures<'_>> = BTreeMap::new();
    let about_endpoints = attempts
        .iter()
        .filter(|it| it.outcome != AttemptOutcome::Rejected);
    for attempt in about_endpoints {
        let counted = all.entry(&attempt.endpoint).or_default();
        if attempt.outcome == AttemptOutcome::Delivered {
            *counted = CountedFailures {
                has_succeeded: true,
                ..CountedFailures::default()
            };
        } else {
            counted.failures = counted.failures.saturating_add(1);
            counted.last_error = attempt.error.as_deref();
        }
    }
    all
}

/// The result of a record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// Positions of queued deliveries whose event is not in the outbox.
    pub missing: Vec<i64>,
    /// The endpoints whose last attempt failed.
    pub failing: Vec<FailingEndpoint>,
}

/// An endpoint whose last attempts have failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailingEndpoint {
    /// The endpoint.
    pub id: String,
    /// The version that it has.
    pub version: i64,
    /// The number of consecutive failures.
    pub failures: u32,
    /// How long ago the first of them was recorded.
    pub failing_for: Duration,
    /// The number of failures that are at least the span of the record apart.
    pub spans: u32,
}

/// Selection of the deliveries to claim.
#[derive(Clone, Debug)]
pub struct DeliveryClaim {
    /// The search begins with the first endpoint whose id is higher.
    pub after: String,
    /// Maximum number of deliveries.
    pub limit: usize,
    /// Maximum number of deliveries of one endpoint.
    pub each: usize,
    /// Endpoints of which at most one delivery is claimed.
    pub single: Vec<String>,
    /// Endpoints of which none is claimed.
    pub busy: Vec<String>,
    /// How long the deliveries belong to the caller.
    pub lease: Duration,
}

/// The result of a claim.
#[derive(Clone, Debug, Default)]
pub struct ClaimedDeliveries {
    /// The deliveries.
    pub deliveries: Vec<ClaimedDelivery>,
    /// The last endpoint of the search; `None` if it has reached the last endpoint that waits.
    pub until: Option<String>,
}

/// A claimed delivery.
#[derive(Clone, Debug)]
pub struct ClaimedDelivery {
    /// The endpoint.
    pub endpoint: String,
    /// The id of the event.
    pub event_id: EventId,
    /// The number of the attempt that begins now.
    pub attempt: u32,
    /// The number of attempts since the delivery was queued or replayed, including this one.
    pub counted: u32,
    /// The event, or why it cannot be read.
    pub event: Result<Arc<OutboxEvent>, String>,
}

/// The figures of the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndpointBacklog {
    /// Deliveries that wait, up to [`ENDPOINT_BACKLOG_COUNTED`](crate::limits::ENDPOINT_BACKLOG_COUNTED).
    pub waiting: u64,
    /// How long the longest waiting delivery has been due to an endpoint that is enabled and did not
    /// fail last; zero if none is due.
    pub overdue: Duration,
    /// Endpoints that are not deleted.
    pub endpoints: u64,
    /// Those of them that are disabled.
    pub disabled: u64,
    /// Those that are slowed.
    pub slowed: u64,
}
