//! `/admin/v1/timeline`: what became of one request.

use axum::{Json, extract::State};
use hapax::mask::Mask;
use hapax_postgres::operate::timeline::{self, Emitted, Timeline};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    Admin, Refusal,
    ask::{read, wrong},
    door::Caller,
    inbox::MessageView,
    keys::KeyRecordView,
    problem::{Problem, Query},
    saga::SagaView,
    way::EventView,
};

/// The request that is meant: by an event of its, or by its key.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Which {
    /// The id of an event that it emitted
    #[serde(default)]
    event: Option<String>,
    /// Its idempotency key
    #[serde(default)]
    key: Option<String>,
    /// What the key is for; it may be left out as long as one key alone has this name
    #[serde(default)]
    operation: Option<String>,
    /// Whose the key is; likewise
    #[serde(default)]
    tenant: Option<String>,
}

/// What became of one request.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct TimelineView {
    /// Its key; absent when it had none, or the key is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<KeyRecordView>,
    /// Its events, in order.
    pub(crate) events: Vec<EmittedView>,
    /// The sagas that it began.
    pub(crate) sagas: Vec<SagaView>,
    /// Whether all that is there was found: a search that would have to look at too many events is
    /// ended, and then there may be more.
    pub(crate) is_whole: bool,
}

/// An event of the request.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct EmittedView {
    /// The event, and its way to every destination.
    #[serde(flatten)]
    pub(crate) event: EventView,
    /// The number of the transaction that wrote it.
    pub(crate) transaction: u64,
    /// Whether that is the one that stored the key's answer.
    pub(crate) is_of_answer: bool,
    /// Who took it in this database.
    pub(crate) taken: Vec<MessageView>,
}

/// Shows what became of one request: its key, its events, their way to every destination, and who
/// took them or which saga came of them in this database; masked.
#[utoipa::path(get, path = "/admin/v1/timeline", tag = "timeline", params(Which),
    responses((status = 200, body = TimelineView), (status = 400, body = Problem),
        (status = 404, body = Problem)))]
pub(super) async fn show(
    State(admin): State<Admin>,
    caller: Caller,
    Query(which): Query<Which>,
) -> Result<Json<TimelineView>, Problem> {
    let (store, actor) = (admin.store(), &caller.actor);
    let mut found = match (&which.event, &which.key) {
        (Some(event), None) => {
            for (field, given) in [("operation", &which.operation), ("tenant", &which.tenant)] {
                if given.is_some() {
                    let problem = "is of a key, and an event is asked for";
                    return Err(Refusal::from(wrong(field, problem)).into());
                }
            }
            let id = read("event", Some(event), |it| it.parse().ok(), "a UUID");
            let missing = || Refusal::from(wrong("event", "is missing"));
            let id = id.map_err(Refusal::from)?.ok_or_else(missing)?;
            timeline::of_event(store, actor, id).await?
        }
        (None, Some(key)) => {
            let (tenant, operation) = (which.tenant.as_deref(), which.operation.as_deref());
            timeline::of_key(store, actor, tenant, operation, key).await?
        }
        _ => {
            let problem = "or key is what is asked for: one of them";
            return Err(Refusal::from(wrong("event", problem)).into());
        }
    };
    for emitted in &mut found.events {
        let book = admin.0.declare.book();
        book.show(actor, &mut emitted.traces).await?;
    }
    Ok(Json(TimelineView::of(found, &admin.0.mask)))
}

impl TimelineView {
    fn of(it: Timeline, mask: &Mask) -> Self {
        let events = it.events.into_iter().map(|it| EmittedView::of(it, mask));
        let sagas = it.sagas.into_iter().map(|it| SagaView::whole(it, mask));
        Self {
            key: it.key.map(|key| KeyRecordView::of(key, mask)),
            events: events.collect(),
            sagas: sagas.collect(),
            is_whole: it.is_whole,
        }
    }
}

impl EmittedView {
    fn of(it: Emitted, mask: &Mask) -> Self {
        Self {
            event: EventView::of(&it.event, it.traces, Some(mask)),
            transaction: it.transaction,
            is_of_answer: it.is_of_answer,
            taken: it.taken.into_iter().map(MessageView::from).collect(),
        }
    }
}
