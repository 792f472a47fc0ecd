//! `/admin/v1/events`: lists events, and shows one with its deliveries to all destinations.

use axum::{Json, extract::State};
use hapax::mask::Mask;
use hapax_postgres::{
    Postgres,
    admin::{Actor, AdminError, events},
};

use super::{
    Admin, Declare, Refusal,
    auth::Caller,
    event_trace::EventView,
    list_query::ListQuery,
    problem::{Path, Problem, Query},
    view::{PageView, SummaryView},
};

/// Lists events, newest first. A page may be empty and still have a next one.
#[utoipa::path(get, path = "/admin/v1/events", tag = "events", params(ListQuery),
    responses((status = 200, body = PageView<SummaryView>), (status = 400, body = Problem)))]
pub(super) async fn list(
    State(admin): State<Admin>,
    caller: Caller,
    Query(ask): Query<ListQuery>,
) -> Result<Json<PageView<SummaryView>>, Problem> {
    Ok(Json(page(admin.store(), &caller.actor, &ask).await?))
}

/// Shows one event, by id or by position.
#[utoipa::path(get, path = "/admin/v1/events/{id}", tag = "events",
    params(("id" = String, Path)),
    responses((status = 200, body = EventView), (status = 404, body = Problem)))]
pub(super) async fn show(
    State(admin): State<Admin>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<EventView>, Problem> {
    Ok(Json(
        one(
            admin.store(),
            &admin.0.declare,
            &caller.actor,
            &id,
            Some(&admin.0.mask),
        )
        .await?,
    ))
}

/// Reads a page of events.
pub(crate) async fn page(
    store: &Postgres,
    actor: &Actor,
    ask: &ListQuery,
) -> Result<PageView<SummaryView>, Refusal> {
    ask.check_of_events()?;
    let (filter, before) = (ask.filter()?, ask.before_number()?);
    let found = events::list(store, actor, &filter, before, ask.limit()).await?;
    Ok(PageView::of(found, SummaryView::from, |next| {
        next.to_string()
    }))
}

/// One event by its id or position; masked if there is a mask.
pub(crate) async fn one(
    store: &Postgres,
    declare: &Declare,
    actor: &Actor,
    id: &str,
    mask: Option<&Mask>,
) -> Result<EventView, AdminError> {
    let found = match (id.parse::<i64>(), id.parse()) {
        (Ok(position), _) => events::at(store, actor, position).await?,
        (_, Ok(id)) => events::find(store, actor, id).await?,
        _ => None,
    };
    let event = found.ok_or_else(|| AdminError::NotFound {
        what: format!("event {}", id.escape_debug()),
    })?;
    let mut traces = events::trace(store, event.position).await?;
    declare.book().show(actor, &mut traces).await?;
    Ok(EventView::of(&event, traces, mask))
}
