//! `/admin/v1/deliveries` and `/admin/v1/dead-letters`: lists deliveries; replays, edits and
//! discards dead letters.

use axum::{extract::State, http::StatusCode};
use hapax::admin::{Delivery, Page};
use hapax_http::{Json, Path, Problem, Query};
use serde::Deserialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::{AdminApi, auth::Caller, list_query::ListQuery};

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
    responses((status = 200, body = Page<Delivery>), (status = 400, body = Problem)))]
pub(super) async fn list(
    State(admin): State<AdminApi>,
    caller: Caller,
    Query(ask): Query<ListQuery>,
) -> Result<Json<Page<Delivery>>, Problem> {
    let (filter, before) = (ask.of_deliveries()?, ask.before.as_deref());
    let page = admin
        .store()
        .deliveries(&caller.actor, &filter, before, ask.limit());
    Ok(Json(page.await?))
}

/// Lists dead letters.
#[utoipa::path(get, path = "/admin/v1/dead-letters", tag = "dead letters", params(ListQuery),
    responses((status = 200, body = Page<Delivery>), (status = 400, body = Problem)))]
pub(super) async fn dead(
    State(admin): State<AdminApi>,
    caller: Caller,
    Query(ask): Query<ListQuery>,
) -> Result<Json<Page<Delivery>>, Problem> {
    let (filter, before) = (ask.of_dead_letters()?, ask.before.as_deref());
    let page = admin
        .store()
        .deliveries(&caller.actor, &filter, before, ask.limit());
    Ok(Json(page.await?))
}

/// Makes one dead letter due again, as if it had never been tried.
#[utoipa::path(post, path = "/admin/v1/dead-letters/{partition}/{position}/replay",
    tag = "dead letters",
    params(("partition" = String, Path), ("position" = i64, Path)),
    responses((status = 204), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub(super) async fn replay(
    State(admin): State<AdminApi>,
    caller: Caller,
    Path((partition, position)): Path<(String, i64)>,
) -> Result<StatusCode, Problem> {
    let replayed = admin
        .store()
        .replay_dead_letter(&caller.actor, &partition, position);
    replayed.await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Applies a patch to a dead letter's payload for this destination, and makes it due again.
#[utoipa::path(post, path = "/admin/v1/dead-letters/{partition}/{position}/edit",
    tag = "dead letters", request_body = Edit,
    params(("partition" = String, Path), ("position" = i64, Path)),
    responses((status = 204), (status = 400, body = Problem), (status = 404, body = Problem),
        (status = 409, body = Problem)))]
pub(super) async fn edit(
    State(admin): State<AdminApi>,
    caller: Caller,
    Path((partition, position)): Path<(String, i64)>,
    Json(body): Json<Edit>,
) -> Result<StatusCode, Problem> {
    let (store, patch) = (admin.store(), body.patch.to_string());
    let edited = store.edit_dead_letter(&caller.actor, &partition, position, &patch);
    edited.await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Discards one dead letter permanently.
#[utoipa::path(post, path = "/admin/v1/dead-letters/{partition}/{position}/discard",
    tag = "dead letters", request_body = Reason,
    params(("partition" = String, Path), ("position" = i64, Path)),
    responses((status = 204), (status = 400, body = Problem), (status = 404, body = Problem),
        (status = 409, body = Problem)))]
pub(super) async fn discard(
    State(admin): State<AdminApi>,
    caller: Caller,
    Path((partition, position)): Path<(String, i64)>,
    Json(body): Json<Reason>,
) -> Result<StatusCode, Problem> {
    let (store, reason) = (admin.store(), &body.reason);
    let discarded = store.discard_dead_letter(&caller.actor, &partition, position, reason);
    discarded.await?;
    Ok(StatusCode::NO_CONTENT)
}
