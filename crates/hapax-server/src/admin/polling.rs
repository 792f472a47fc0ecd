//! `/admin/v1/polling-endpoints`: creates, lists and removes polling endpoints, moves their positions and
//! replaces their tokens.
//!
//! A token is in the response of the request that makes it, and nowhere else. The command line uses
//! the same functions.

use std::time::Duration;

use axum::{
    extract::State,
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use hapax::{
    admin::{Actor, Admin, AdminError, NewPollingEndpoint, Page, PollingEndpoint},
    delivery::Start,
    poll::{CursorSecret, Token},
    store::StoreError,
};
use hapax_http::{Json, Path, Problem, Query};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{AdminApi, auth::Caller};
use crate::environment;

/// Number of endpoints on a page without `limit`.
const PAGE: usize = 50;
/// How long the old token stays valid, in seconds, unless the request says otherwise: a day.
const OVERLAP_SECONDS: u64 = 24 * 3_600;

/// A new polling endpoint.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CreateEndpoint {
    /// The name, which is part of the URL: 1 to 64 characters of A-Z a-z 0-9 _ - .
    pub(crate) name: String,
    /// The only tenant whose events it receives.
    #[serde(default)]
    pub(crate) tenant: Option<String>,
    /// Whether it receives the events of all tenants; required if there is no `tenant`.
    #[serde(default)]
    pub(crate) all_tenants: bool,
    /// Patterns of event types, such as `order.*`; all types if empty.
    #[serde(default)]
    pub(crate) types: Vec<String>,
    /// Where it starts: `now` (the default), `beginning`, or a time such as `2026-01-31T12:00:00Z`.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub(crate) start: Option<Start>,
}

/// How to replace a token.
#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RotateToken {
    /// How long the old token stays valid, in seconds; a day if absent, at most 30 days. 0 ends it and
    /// all earlier ones at once.
    #[serde(default)]
    overlap_seconds: Option<u64>,
}

/// The place that a position is moved to.
#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SeekEndpoint {
    /// `now`, `beginning` (the oldest event that is kept), or a time such as `2026-01-31T12:00:00Z`.
    #[schema(value_type = String)]
    to: Start,
}

/// A polling endpoint and its new token.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct WithToken {
    pub(crate) endpoint: PollingEndpoint,
    /// The token. It is not stored and cannot be shown again.
    pub(crate) token: String,
}

/// The page of a list.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct AskEndpoints {
    /// Start of the page: `next` of the previous page.
    after: Option<String>,
    /// Maximum number of endpoints.
    limit: Option<usize>,
}

/// Creates an endpoint with a new token.
pub(crate) async fn make(
    store: &dyn Admin,
    actor: &Actor,
    create: CreateEndpoint,
) -> Result<WithToken, AdminError> {
    let start = create.start.unwrap_or(Start::Now);
    check_past("start", start)?;
    let token = Token::mint(secret_bytes()?);
    let new = NewPollingEndpoint {
        name: create.name,
        tenant: create.tenant,
        all_tenants: create.all_tenants,
        types: create.types,
        start,
        token: token.hash(),
        secret: CursorSecret::from_bytes(secret_bytes()?),
    };
    let endpoint = store.create_polling_endpoint(actor, &new).await?;
    Ok(WithToken {
        endpoint,
        token: token.reveal().to_owned(),
    })
}

/// Gives an endpoint a new token.
pub(crate) async fn replace_token(
    store: &dyn Admin,
    actor: &Actor,
    name: &str,
    overlap: Duration,
) -> Result<WithToken, AdminError> {
    let token = Token::mint(secret_bytes()?);
    let hash = token.hash();
    let rotated = store.rotate_polling_token(actor, name, &hash, overlap);
    Ok(WithToken {
        endpoint: rotated.await?,
        token: token.reveal().to_owned(),
    })
}

/// Moves the committed position of an endpoint.
pub(crate) async fn seek_to(
    store: &dyn Admin,
    actor: &Actor,
    name: &str,
    to: Start,
) -> Result<PollingEndpoint, AdminError> {
    check_past("to", to)?;
    store.seek_polling_endpoint(actor, name, to).await
}

/// Refuses a time in the future, which would mean the same as `now`.
fn check_past(field: &'static str, start: Start) -> Result<(), AdminError> {
    if matches!(start, Start::At(time) if time > environment::clock().now()) {
        return Err(AdminError::invalid(field, "must not be in the future"));
    }
    Ok(())
}

fn secret_bytes() -> Result<[u8; 32], AdminError> {
    environment::secret_bytes().map_err(|error| StoreError::unavailable(error).into())
}

/// Lists polling endpoints by name.
#[utoipa::path(get, path = "/admin/v1/polling-endpoints", tag = "polling endpoints",
    params(AskEndpoints),
    responses((status = 200, body = Page<PollingEndpoint>), (status = 400, body = Problem)))]
pub(super) async fn list(
    State(admin): State<AdminApi>,
    caller: Caller,
    Query(ask): Query<AskEndpoints>,
) -> Result<Json<Page<PollingEndpoint>>, Problem> {
    let (after, limit) = (ask.after.as_deref(), ask.limit.unwrap_or(PAGE));
    let page = admin.store().polling_endpoints(&caller.actor, after, limit);
    Ok(Json(page.await?))
}

/// Shows one polling endpoint.
#[utoipa::path(get, path = "/admin/v1/polling-endpoints/{name}", tag = "polling endpoints",
    params(("name" = String, Path)),
    responses((status = 200, body = PollingEndpoint), (status = 404, body = Problem)))]
pub(super) async fn show(
    State(admin): State<AdminApi>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Json<PollingEndpoint>, Problem> {
    let found = admin.store().polling_endpoint(&caller.actor, &name);
    Ok(Json(found.await?))
}

/// Creates a polling endpoint. The response has its token, which is not shown again.
#[utoipa::path(post, path = "/admin/v1/polling-endpoints", tag = "polling endpoints",
    request_body = CreateEndpoint,
    responses((status = 201, body = WithToken), (status = 400, body = Problem),
        (status = 409, body = Problem)))]
pub(super) async fn create(
    State(admin): State<AdminApi>,
    caller: Caller,
    Json(body): Json<CreateEndpoint>,
) -> Result<Response, Problem> {
    let made = make(admin.store(), &caller.actor, body).await?;
    Ok((StatusCode::CREATED, Json(made)).into_response())
}

/// Replaces the token of a polling endpoint. The response has the new token, which is not shown
/// again. Earlier ones are valid until their own ends; while four of them are, 409 says when the first
/// one ends.
#[utoipa::path(post, path = "/admin/v1/polling-endpoints/{name}/rotate", tag = "polling endpoints",
    params(("name" = String, Path)), request_body = RotateToken,
    responses((status = 200, body = WithToken), (status = 400, body = Problem),
        (status = 404, body = Problem), (status = 409, body = Problem)))]
pub(super) async fn rotate(
    State(admin): State<AdminApi>,
    caller: Caller,
    Path(name): Path<String>,
    Json(body): Json<RotateToken>,
) -> Result<Json<WithToken>, Problem> {
    let overlap = Duration::from_secs(body.overlap_seconds.unwrap_or(OVERLAP_SECONDS));
    let rotated = replace_token(admin.store(), &caller.actor, &name, overlap);
    Ok(Json(rotated.await?))
}

/// Moves the committed position of a polling endpoint: events between the two positions are returned
/// again, or skipped. A consumer that commits a later cursor afterwards moves it on.
#[utoipa::path(post, path = "/admin/v1/polling-endpoints/{name}/seek", tag = "polling endpoints",
    params(("name" = String, Path)), request_body = SeekEndpoint,
    responses((status = 200, body = PollingEndpoint), (status = 400, body = Problem),
        (status = 404, body = Problem)))]
pub(super) async fn seek(
    State(admin): State<AdminApi>,
    caller: Caller,
    Path(name): Path<String>,
    Json(body): Json<SeekEndpoint>,
) -> Result<Json<PollingEndpoint>, Problem> {
    let moved = seek_to(admin.store(), &caller.actor, &name, body.to);
    Ok(Json(moved.await?))
}

/// Removes a polling endpoint with its tokens and its position.
#[utoipa::path(delete, path = "/admin/v1/polling-endpoints/{name}", tag = "polling endpoints",
    params(("name" = String, Path)),
    responses((status = 204), (status = 404, body = Problem)))]
pub(super) async fn remove(
    State(admin): State<AdminApi>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    let removed = admin.store().remove_polling_endpoint(&caller.actor, &name);
    removed.await?;
    Ok(StatusCode::NO_CONTENT)
}
