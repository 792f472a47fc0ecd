//! Events that an endpoint never got: those from before it was created, or from while it was disabled or took
//! other events.
//!
//! An event counts as never sent if it has neither a delivery nor an attempt. The events are visited in the
//! order of the outbox and queued in batches, each in one transaction, so a process that dies has queued some
//! batches completely. A call that begins again finds what is left, because what is queued has a delivery.

use std::sync::Arc;

use async_trait::async_trait;
use serde::Serialize;
use tokio::time::Instant;

use super::{Actor, Admin, AdminError, read_field};
use crate::{
    clock::Timestamp,
    endpoint::Endpoint,
    event::Event,
    filter::Applied,
    limits::{ENDPOINT_UNSENT_AGE, ENDPOINT_UNSENT_BATCH, ENDPOINT_UNSENT_CALL},
    outbox::OutboxEvent,
};

/// Finds events that endpoints never got, and queues them.
#[async_trait]
pub trait UnsentEvents: Send + Sync {
    /// Lists events of a tenant that its endpoint has neither a delivery nor an attempt of, in the order of
    /// the outbox, at most [`ENDPOINT_UNSENT_BATCH`] of at most
    /// [`ENDPOINT_UNSENT_VISITED`](crate::limits::ENDPOINT_UNSENT_VISITED) events. The types and the filter
    /// of the endpoint are not applied.
    async fn unsent_events(
        &self,
        actor: &Actor,
        tenant: &str,
        id: &str,
        window: &UnsentWindow,
    ) -> Result<UnsentPage, AdminError>;

    /// Queues events for an endpoint of a tenant, in one transaction with a line in the audit log. Those that
    /// were sent or queued meanwhile are left out. Returns the number of queued events.
    async fn queue_unsent(
        &self,
        actor: &Actor,
        tenant: &str,
        id: &str,
        events: &[Arc<OutboxEvent>],
    ) -> Result<u64, AdminError>;
}

/// Which events are visited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnsentWindow {
    /// Created at this time or later.
    pub since: Timestamp,
    /// Created before this time.
    pub until: Timestamp,
    /// Only events after this position.
    pub after: Option<i64>,
}

/// Some events that an endpoint never got.
#[derive(Clone, Debug, Default)]
pub struct UnsentPage {
    /// The events.
    pub events: Vec<Arc<OutboxEvent>>,
    /// The position after which the next page begins; `None` after the last one.
    pub next: Option<i64>,
}

/// What is replayed of the events that an endpoint never got.
#[derive(Clone, Debug)]
pub struct ReplayUnsent {
    /// Events that were created at this time or later.
    pub since: Timestamp,
    /// Events that were created before this time; the time at which the endpoint was created if absent.
    pub until: Option<Timestamp>,
    /// Where an earlier call has ended.
    pub after: Option<String>,
    /// Whether events are only counted.
    pub is_dry_run: bool,
    /// Maximum number of deliveries that may wait for the endpoint.
    pub waiting_max: u32,
    /// The time now.
    pub now: Timestamp,
}

/// The events that an endpoint never got.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UnsentReplayed {
    /// Events that the endpoint takes and never got.
    pub missing: u64,
    /// Those of them that were queued. None is queued if they are only counted.
    pub queued: u64,
    /// Events whose payload the filter of the endpoint could not read. They are not queued.
    pub unreadable: u64,
    /// Whether the call has ended because the queue of the endpoint is full. It can be continued when
    /// deliveries have ended.
    pub is_full: bool,
    /// The value of `after` with which the next call continues; absent if there are no more events.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// What `after` is.
const NEXT: &str = "`next` of the previous call";

/// Queues the events that an endpoint never got, or counts them. A call ends after some seconds, and can be
/// continued.
///
/// # Errors
/// `NotFound` if the tenant has no such endpoint, `Invalid` if `after` is not a position, and otherwise if
/// events cannot be read or queued.
pub async fn replay_unsent(
    store: &dyn Admin,
    actor: &Actor,
    tenant: &str,
    id: &str,
    ask: &ReplayUnsent,
) -> Result<UnsentReplayed, AdminError> {
    let stored = store.endpoint(actor, tenant, id).await?;
    let endpoint = stored.readable()?;
    let mut window = UnsentWindow {
        since: ask.since,
        until: ask.until(stored.endpoint.created_at),
        after: read_field("after", ask.after.as_deref(), NEXT, |text| {
            text.parse().ok()
        })?,
    };
    let ends_at = Instant::now() + ENDPOINT_UNSENT_CALL;
    let mut replayed = UnsentReplayed::default();
    loop {
        if !ask.is_dry_run && is_full(store, actor, tenant, id, ask).await? {
            replayed.is_full = true;
            replayed.next = window.after.map(|it| it.to_string());
            return Ok(replayed);
        }
        let page = store.unsent_events(actor, tenant, id, &window).await?;
        let events = replayed.select(&endpoint, page.events);
        if !ask.is_dry_run && !events.is_empty() {
            replayed.queued += store.queue_unsent(actor, tenant, id, &events).await?;
        }
        window.after = page.next.or(window.after);
        replayed.next = page.next.map(|it| it.to_string());
        if page.next.is_none() || Instant::now() >= ends_at {
            return Ok(replayed);
        }
    }
}

/// Whether another batch could exceed the maximum number of deliveries that wait.
async fn is_full(
    store: &dyn Admin,
    actor: &Actor,
    tenant: &str,
    id: &str,
    ask: &ReplayUnsent,
) -> Result<bool, AdminError> {
    let health = store.endpoint_health(actor, tenant, id, ask.now).await?;
    let room = u64::from(ask.waiting_max).saturating_sub(health.waiting);
    Ok(room < ENDPOINT_UNSENT_BATCH as u64 && health.waiting > 0)
}

impl ReplayUnsent {
    /// The end of the window: what is asked for, but not what may be in flight to an endpoint that existed.
    fn until(&self, created_at: Timestamp) -> Timestamp {
        let age = i64::try_from(ENDPOINT_UNSENT_AGE.as_millis()).unwrap_or(i64::MAX);
        let settled = Timestamp::from_millis(self.now.as_millis().saturating_sub(age));
        let until = self.until.unwrap_or(created_at);
        until.min(settled.max(created_at))
    }
}

impl UnsentReplayed {
    /// The events that an endpoint takes, whether it is enabled or not.
    fn select(
        &mut self,
        endpoint: &Endpoint,
        events: Vec<Arc<OutboxEvent>>,
    ) -> Vec<Arc<OutboxEvent>> {
        let mut selected = Vec::new();
        for event in events {
            match applied(endpoint, &event.event) {
                Applied::Matches => selected.push(event),
                Applied::Unreadable => self.unreadable += 1,
                Applied::Fails(_) => {}
            }
        }
        self.missing += selected.len() as u64;
        selected
    }
}

fn applied<'a>(endpoint: &'a Endpoint, event: &Event) -> Applied<'a> {
    if !endpoint.patterns.iter().any(|it| it.matches(&event.kind)) {
        return Applied::Fails("types");
    }
    let filter = endpoint.filter.as_ref();
    filter.map_or(Applied::Matches, |filter| filter.apply(event))
}
