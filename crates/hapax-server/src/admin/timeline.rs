//! `/admin/v1/timeline`: the timeline of one request.

use axum::extract::State;
use hapax::{
    admin::{AdminError, Emitted, EventDetail, KeyRecord, Message, SagaView, Timeline, read_field},
    mask::Mask,
};
use hapax_http::{Json, Problem, Query};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{AdminApi, auth::Caller};

/// Identifies a request by its key or by one of its events.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct Which {
    /// Id of an event that the request emitted
    event: Option<String>,
    /// Idempotency key of the request
    key: Option<String>,
    /// Operation of the key; required if the key was used for several operations
    operation: Option<String>,
    /// Tenant of the key; required if several tenants have used the key
    tenant: Option<String>,
}

/// The timeline of one request.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct TimelineView {
    /// The key; absent if the request had none or the key was deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<KeyRecord>,
    /// The events of the request, in order.
    pub(crate) events: Vec<EmittedView>,
    /// The sagas that the request started.
    pub(crate) sagas: Vec<SagaView>,
    /// Whether everything was found. The search stops after a limited number of events; in that
    /// case there may be more.
    pub(crate) is_whole: bool,
}

/// An event of the request.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct EmittedView {
    /// The event with its deliveries to all destinations.
    #[serde(flatten)]
    pub(crate) event: EventDetail,
    /// The id of the transaction that wrote the event.
    pub(crate) transaction: u64,
    /// Whether the same transaction stored the response of the key.
    pub(crate) is_of_answer: bool,
    /// The consumers in this database that accepted the event.
    pub(crate) taken: Vec<Message>,
}

/// Shows the timeline of one request, masked.
///
/// It contains the key, the events, their deliveries to all destinations, and, in this database,
/// the consumers that accepted them and the sagas that they started.
#[utoipa::path(get, path = "/admin/v1/timeline", tag = "timeline", params(Which),
    responses((status = 200, body = TimelineView), (status = 400, body = Problem),
        (status = 404, body = Problem)))]
pub(super) async fn show(
    State(admin): State<AdminApi>,
    caller: Caller,
    Query(which): Query<Which>,
) -> Result<Json<TimelineView>, Problem> {
    let (store, actor) = (admin.store(), &caller.actor);
    let mut found = match (&which.event, &which.key) {
        (Some(event), None) => {
            for (field, given) in [("operation", &which.operation), ("tenant", &which.tenant)] {
                if given.is_some() {
                    let problem = "applies to a key, not to an event";
                    return Err(AdminError::invalid(field, problem).into());
                }
            }
            let id = read_field("event", Some(event), "a UUID", |it| it.parse().ok())?;
            let missing = || AdminError::not_found(format!("event {event}"));
            let found = match id {
                Some(id) => store.find_event(actor, id).await?,
                None => None,
            };
            let event = found.ok_or_else(missing)?;
            store.timeline_of_event(actor, event).await?
        }
        (None, Some(key)) => {
            let (tenant, operation) = (which.tenant.as_deref(), which.operation.as_deref());
            store.timeline_of_key(actor, tenant, operation, key).await?
        }
        _ => {
            let problem = "or key is required, but not both";
            return Err(AdminError::invalid("event", problem).into());
        }
    };
    for emitted in &mut found.events {
        admin.index().show(actor, &mut emitted.traces).await?;
    }
    Ok(Json(TimelineView::of(found, &admin.0.mask)))
}

impl TimelineView {
    fn of(it: Timeline, mask: &Mask) -> Self {
        let events = it.events.into_iter().map(|it| EmittedView::of(it, mask));
        let sagas = it.sagas.into_iter().map(|it| SagaView::whole(it, mask));
        let masked = |mut key: KeyRecord| {
            key.mask(mask);
            key
        };
        Self {
            key: it.key.map(masked),
            events: events.collect(),
            sagas: sagas.collect(),
            is_whole: it.is_whole,
        }
    }
}

impl EmittedView {
    fn of(it: Emitted, mask: &Mask) -> Self {
        Self {
            event: EventDetail::of(&it.event, it.traces, Some(mask)),
            transaction: it.transaction,
            is_of_answer: it.is_of_answer,
            taken: it.taken,
        }
    }
}
