//! `/admin/v1/events`: lists events, and shows one with its deliveries to all destinations.

use axum::extract::State;
use hapax::{
    admin::{Actor, Admin, AdminError, DestinationIndex, EventDetail, EventSummary, Page},
    mask::Mask,
};
use hapax_http::{Json, Path, Problem, Query};

use super::{AdminApi, auth::Caller, list_query::ListQuery};

/// Lists events, newest first, all of them or those that a destination has not read. A page may be
/// empty and still have a next one.
#[utoipa::path(get, path = "/admin/v1/events", tag = "events", params(ListQuery),
    responses((status = 200, body = Page<EventSummary>), (status = 400, body = Problem),
        (status = 404, body = Problem), (status = 409, body = Problem)))]
pub(super) async fn list(
    State(admin): State<AdminApi>,
    caller: Caller,
    Query(mut ask): Query<ListQuery>,
) -> Result<Json<Page<EventSummary>>, Problem> {
    let unread = ask.unread.take();
    let (filter, before) = (ask.of_events()?, ask.before.as_deref());
    let (actor, limit) = (&caller.actor, ask.limit());
    let page = if let Some(name) = unread {
        let index = admin.index();
        index.unread(actor, &name, &filter, before, limit).await?
    } else {
        let store = admin.store();
        store.events(actor, &filter, before, limit).await?
    };
    Ok(Json(page))
}

/// Shows one event, by id or by position.
#[utoipa::path(get, path = "/admin/v1/events/{id}", tag = "events",
    params(("id" = String, Path)),
    responses((status = 200, body = EventDetail), (status = 404, body = Problem)))]
pub(super) async fn show(
    State(admin): State<AdminApi>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<EventDetail>, Problem> {
    let (store, mask) = (admin.store(), Some(&admin.0.mask));
    Ok(Json(
        one(store, admin.index(), &caller.actor, &id, mask).await?,
    ))
}

/// One event by its id or position; masked if there is a mask.
pub(crate) async fn one(
    store: &dyn Admin,
    index: &DestinationIndex,
    actor: &Actor,
    id: &str,
    mask: Option<&Mask>,
) -> Result<EventDetail, AdminError> {
    let found = match (id.parse::<i64>(), id.parse()) {
        (Ok(position), _) => store.event_at(actor, position).await?,
        (_, Ok(id)) => store.find_event(actor, id).await?,
        _ => None,
    };
    let missing = || AdminError::not_found(format!("event {}", id.escape_debug()));
    let event = found.ok_or_else(missing)?;
    let mut traces = store.trace(event.position).await?;
    index.show(actor, &mut traces).await?;
    Ok(EventDetail::of(&event, traces, mask))
}
