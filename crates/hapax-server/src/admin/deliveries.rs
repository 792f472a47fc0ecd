//! `/admin/v1/deliveries` and `/admin/v1/dead-letters`: lists deliveries; replays, edits and
//! discards dead letters.

use axum::{Json, extract::State, http::StatusCode};
use hapax_postgres::{
    Postgres,
    admin::{Actor, dead_letters, deliveries, events::DeliveryStatus},
};
use serde::Deserialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::{
    Admin, Refusal,
    auth::Caller,
    list_query::{ListQuery, wrong},
    problem::{Body, Path, Problem, Query},
    view::{DeliveryView, PageView, cursor_of, cursor_word},
};

/// The reason to discard a dead letter.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Reason {
    /// Up to 1024 bytes, kept in the audit log.
    reason: String,
}

/// A change of the payload of a dead letter.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Edit {
    /// A JSON merge patch (RFC 7396), applied to the payload: its members replace those of the
    /// payload, and null removes a member.
    #[schema(value_type = Object)]
    patch: Box<RawValue>,
}

/// Lists deliveries that have a row: parked, dead, or finished after they were parked.
#[utoipa::path(get, path = "/admin/v1/deliveries", tag = "deliveries", params(ListQuery),
    responses((status = 200, body = PageView<DeliveryView>), (status = 400, body = Problem)))]
pub(super) async fn list(
    State(admin): State<Admin>,
    caller: Caller,
    Query(ask): Query<ListQuery>,
) -> Result<Json<PageView<DeliveryView>>, Problem> {
    let states = ask.states().map_err(Refusal::from)?;
    Ok(Json(
        page(admin.store(), &caller.actor, &ask, &states).await?,
    ))
}

/// Lists dead letters.
#[utoipa::path(get, path = "/admin/v1/dead-letters", tag = "dead letters", params(ListQuery),
    responses((status = 200, body = PageView<DeliveryView>), (status = 400, body = Problem)))]
pub(super) async fn dead(
    State(admin): State<Admin>,
    caller: Caller,
    Query(ask): Query<ListQuery>,
) -> Result<Json<PageView<DeliveryView>>, Problem> {
    ask.check_of_dead().map_err(Refusal::from)?;
    Ok(Json(
        page(admin.store(), &caller.actor, &ask, &[DeliveryStatus::Dead]).await?,
    ))
}

/// Makes one dead letter due again, as if it had never been tried.
#[utoipa::path(post, path = "/admin/v1/dead-letters/{partition}/{position}/replay",
    tag = "dead letters",
    params(("partition" = String, Path), ("position" = i64, Path)),
    responses((status = 204), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub(super) async fn replay(
    State(admin): State<Admin>,
    caller: Caller,
    Path((partition, position)): Path<(String, i64)>,
) -> Result<StatusCode, Problem> {
    dead_letters::replay(admin.store(), &caller.actor, &partition, position).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Applies a patch to a dead letter's payload for this destination, and makes it due again.
#[utoipa::path(post, path = "/admin/v1/dead-letters/{partition}/{position}/edit",
    tag = "dead letters", request_body = Edit,
    params(("partition" = String, Path), ("position" = i64, Path)),
    responses((status = 204), (status = 400, body = Problem), (status = 404, body = Problem),
        (status = 409, body = Problem)))]
pub(super) async fn edit(
    State(admin): State<Admin>,
    caller: Caller,
    Path((partition, position)): Path<(String, i64)>,
    Body(body): Body<Edit>,
) -> Result<StatusCode, Problem> {
    let (store, actor) = (admin.store(), &caller.actor);
    let patch = body.patch.to_string();
    dead_letters::edit_and_replay(store, actor, &partition, position, &patch).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Discards one dead letter permanently.
#[utoipa::path(post, path = "/admin/v1/dead-letters/{partition}/{position}/discard",
    tag = "dead letters", request_body = Reason,
    params(("partition" = String, Path), ("position" = i64, Path)),
    responses((status = 204), (status = 400, body = Problem), (status = 404, body = Problem),
        (status = 409, body = Problem)))]
pub(super) async fn discard(
    State(admin): State<Admin>,
    caller: Caller,
    Path((partition, position)): Path<(String, i64)>,
    Body(body): Body<Reason>,
) -> Result<StatusCode, Problem> {
    let discarded = dead_letters::discard(
        admin.store(),
        &caller.actor,
        &partition,
        position,
        &body.reason,
    );
    discarded.await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Reads a page of deliveries.
pub(crate) async fn page(
    store: &Postgres,
    actor: &Actor,
    ask: &ListQuery,
    states: &[DeliveryStatus],
) -> Result<PageView<DeliveryView>, Refusal> {
    let filter = ask.filter()?;
    let before = match &ask.before {
        None => None,
        Some(word) => {
            let bad = || wrong("before", "must be `next` of the previous page");
            Some(cursor_of(word).ok_or_else(bad)?)
        }
    };
    let destination = ask.destination.as_deref();
    let (before, limit) = (before.as_ref(), ask.limit());
    let found = deliveries::list(store, actor, &filter, destination, states, before, limit).await?;
    Ok(PageView::of(found, DeliveryView::from, |next| {
        cursor_word(&next)
    }))
}
