//! `/admin/v1/endpoints`: the endpoints of tenants.
//!
//! Every request names the tenant, unless the token belongs to one. An endpoint of another tenant is not
//! found.

use std::time::Duration;

use axum::{
    extract::State,
    http::StatusCode,
    response::{IntoResponse as _, Response},
    routing::{get, post},
};
use hapax::{
    Timestamp,
    admin::{
        Actor, AdminError, EndpointDelivery, EndpointDeliveryFilter, EndpointFilter,
        EndpointHealth, EndpointReplay, EndpointStatus, EndpointWithSecret, Page, ReplayEnded,
        TenantEndpoint, UnsentReplayed, check_endpoint_tenant, read_field, read_time,
        replay_unsent,
    },
    limits::ENDPOINT_TESTS,
};
use hapax_http::{Json, Path, Problem, Query, problem::RATE_LIMIT};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    AdminApi, Route,
    auth::Caller,
    tenant_endpoints::{EndpointCreate, EndpointReplayMissing, EndpointUpdate},
};
use crate::environment;

/// Number of items on a page without `limit`.
const PAGE: usize = 50;
/// How long the old secret signs, in seconds, unless the request says otherwise: a day.
const OVERLAP_SECONDS: u64 = 24 * 3_600;
/// How far back the health of an endpoint looks unless the request says otherwise: a day.
const HEALTH_MILLIS: i64 = 24 * 3_600 * 1_000;
/// The reason of a request without one.
const BY_HAND: &str = "disabled by an operator";

pub(super) fn routes() -> [Route; 10] {
    [
        ("/admin/v1/endpoints", get(list).post(create)),
        (
            "/admin/v1/endpoints/{id}",
            get(show).put(change).delete(delete),
        ),
        ("/admin/v1/endpoints/{id}/rotate", post(rotate)),
        ("/admin/v1/endpoints/{id}/enable", post(enable)),
        ("/admin/v1/endpoints/{id}/disable", post(disable)),
        ("/admin/v1/endpoints/{id}/deliveries", get(deliveries)),
        ("/admin/v1/endpoints/{id}/health", get(health)),
        ("/admin/v1/endpoints/{id}/replay", post(replay)),
        (
            "/admin/v1/endpoints/{id}/replay-missing",
            post(replay_missing),
        ),
        ("/admin/v1/endpoints/{id}/test", post(test)),
    ]
}

/// The tenant of an endpoint.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct OfTenant {
    /// The tenant; that of the token if absent.
    tenant: Option<String>,
}

/// The page of a list of endpoints.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct AskTenantEndpoints {
    /// The tenant; all tenants that the token may see if absent.
    tenant: Option<String>,
    /// Only endpoints in this state: `enabled`, `slowed` or `disabled`.
    state: Option<String>,
    /// Start of the page: `next` of the previous page.
    after: Option<String>,
    /// Maximum number of endpoints.
    limit: Option<usize>,
}

/// The page of a list of attempts.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(crate) struct AskDeliveries {
    /// The tenant; that of the token if absent.
    pub(crate) tenant: Option<String>,
    /// Only attempts that failed (`true`) or succeeded (`false`).
    pub(crate) failed: Option<bool>,
    /// Only attempts at this event.
    pub(crate) event_id: Option<String>,
    /// Only attempts that started at this time or later.
    pub(crate) since: Option<String>,
    /// Start of the page: `next` of the previous page.
    pub(crate) before: Option<String>,
    /// Maximum number of attempts.
    pub(crate) limit: Option<usize>,
}

/// The time from which the health of an endpoint is computed.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct AskHealth {
    /// The tenant; that of the token if absent.
    tenant: Option<String>,
    /// Only attempts that started at this time or later; a day ago if absent.
    since: Option<String>,
}

/// How to replace a secret.
#[derive(Clone, Copy, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct EndpointRotate {
    /// How long the old secret signs too, in seconds; a day if absent, at most 30 days. 0 ends all earlier
    /// secrets at once.
    overlap_seconds: Option<u64>,
}

/// Why an endpoint is disabled.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct EndpointDisable {
    /// The reason, which the tenant sees.
    reason: Option<String>,
}

/// Which deliveries are sent again: that of one event, or those that have failed since a time.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct EndpointReplayed {
    /// The event whose delivery is sent again, in any state.
    pub(crate) event_id: Option<String>,
    /// Deliveries that have failed at this time or later. The name may also be `failed_since`.
    #[serde(alias = "failed_since")]
    pub(crate) since: Option<String>,
    /// Deliveries that have failed before this time.
    pub(crate) until: Option<String>,
    /// Only those that were dropped because too many waited (`true`), or only those whose attempts have
    /// failed (`false`).
    pub(crate) dropped: Option<bool>,
}

/// The number of deliveries that are sent again.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub(crate) struct EndpointReplayCount {
    /// The number of deliveries; a further request replays those beyond 10,000.
    pub(crate) replayed: u64,
}

/// The tenant of a request: the one that it names, or that of the token.
pub(super) fn tenant_of(actor: &Actor, asked: Option<String>) -> Result<String, AdminError> {
    let own = || actor.tenant().map(str::to_owned);
    asked
        .or_else(own)
        .ok_or_else(|| AdminError::invalid("tenant", "is missing: expected the id of a tenant"))
}

impl AskDeliveries {
    /// The filter.
    pub(crate) fn filter(&self) -> Result<EndpointDeliveryFilter, AdminError> {
        let event = self.event_id.as_deref();
        Ok(EndpointDeliveryFilter {
            failed: self.failed,
            event_id: read_field("event_id", event, "a UUID", |text| text.parse().ok())?,
            since: read_time("since", self.since.as_deref())?,
        })
    }
}

impl EndpointReplayed {
    /// What to replay.
    pub(crate) fn read(&self) -> Result<EndpointReplay, AdminError> {
        let event = self.event_id.as_deref();
        let event = read_field("event_id", event, "a UUID", |text| text.parse().ok())?;
        let since = read_time("since", self.since.as_deref())?;
        let until = read_time("until", self.until.as_deref())?;
        let is_limited = until.is_some() || self.dropped.is_some();
        match (event, since) {
            (Some(event), None) if !is_limited => Ok(EndpointReplay::Event(event)),
            (None, Some(since)) => Ok(EndpointReplay::Ended(ReplayEnded {
                since,
                until,
                dropped: self.dropped,
            })),
            _ => {
                let problem =
                    "or since has to be given, and not both; until and dropped need since";
                Err(AdminError::invalid("event_id", problem))
            }
        }
    }
}

/// Lists endpoints by id.
#[utoipa::path(get, path = "/admin/v1/endpoints", tag = "endpoints", params(AskTenantEndpoints),
    responses((status = 200, body = Page<TenantEndpoint>), (status = 400, body = Problem)))]
pub(super) async fn list(
    State(admin): State<AdminApi>,
    caller: Caller,
    Query(ask): Query<AskTenantEndpoints>,
) -> Result<Json<Page<TenantEndpoint>>, Problem> {
    let what = "enabled, slowed or disabled";
    let state = read_field("state", ask.state.as_deref(), what, EndpointStatus::parse)?;
    let filter = EndpointFilter {
        tenant: ask.tenant,
        state,
        text: None,
    };
    let (after, limit) = (ask.after.as_deref(), ask.limit.unwrap_or(PAGE));
    let page = admin
        .store()
        .endpoints(&caller.actor, &filter, after, limit);
    Ok(Json(page.await?))
}

/// Creates an endpoint. The response has its signing secret, which is not shown again.
#[utoipa::path(post, path = "/admin/v1/endpoints", tag = "endpoints",
    request_body = EndpointCreate,
    responses((status = 201, body = EndpointWithSecret), (status = 400, body = Problem),
        (status = 404, body = Problem), (status = 409, body = Problem)))]
pub(super) async fn create(
    State(admin): State<AdminApi>,
    caller: Caller,
    Json(mut body): Json<EndpointCreate>,
) -> Result<Response, Problem> {
    let tenant = tenant_of(&caller.actor, body.tenant.take())?;
    let endpoints = &admin.0.endpoints;
    let created = endpoints.create(&caller.actor, &tenant, body.into());
    Ok((StatusCode::CREATED, Json(created.await?)).into_response())
}

/// Shows one endpoint.
#[utoipa::path(get, path = "/admin/v1/endpoints/{id}", tag = "endpoints",
    params(("id" = String, Path), OfTenant),
    responses((status = 200, body = TenantEndpoint), (status = 404, body = Problem)))]
pub(super) async fn show(
    State(admin): State<AdminApi>,
    caller: Caller,
    Path(id): Path<String>,
    Query(ask): Query<OfTenant>,
) -> Result<Json<TenantEndpoint>, Problem> {
    let tenant = tenant_of(&caller.actor, ask.tenant)?;
    let found = admin.store().endpoint(&caller.actor, &tenant, &id);
    Ok(Json(found.await?.endpoint))
}

/// Changes an endpoint if it is still at the given version.
#[utoipa::path(put, path = "/admin/v1/endpoints/{id}", tag = "endpoints",
    params(("id" = String, Path), OfTenant), request_body = EndpointUpdate,
    responses((status = 200, body = TenantEndpoint), (status = 400, body = Problem),
        (status = 404, body = Problem), (status = 409, body = Problem)))]
pub(super) async fn change(
    State(admin): State<AdminApi>,
    caller: Caller,
    Path(id): Path<String>,
    Query(ask): Query<OfTenant>,
    Json(body): Json<EndpointUpdate>,
) -> Result<Json<TenantEndpoint>, Problem> {
    let tenant = tenant_of(&caller.actor, ask.tenant)?;
    let endpoints = &admin.0.endpoints;
    let changed = endpoints.update(&caller.actor, &tenant, &id, body.into());
    Ok(Json(changed.await?))
}

/// Deletes an endpoint with its secrets and its queue.
#[utoipa::path(delete, path = "/admin/v1/endpoints/{id}", tag = "endpoints",
    params(("id" = String, Path), OfTenant),
    responses((status = 204), (status = 404, body = Problem)))]
pub(super) async fn delete(
    State(admin): State<AdminApi>,
    caller: Caller,
    Path(id): Path<String>,
    Query(ask): Query<OfTenant>,
) -> Result<StatusCode, Problem> {
    let tenant = tenant_of(&caller.actor, ask.tenant)?;
    let deleted = admin.store().delete_endpoint(&caller.actor, &tenant, &id);
    deleted.await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Replaces the signing secret of an endpoint. The response has the new one, which is not shown again.
/// Earlier ones sign until their own ends; while four of them do, 409 says when the first one ends.
#[utoipa::path(post, path = "/admin/v1/endpoints/{id}/rotate", tag = "endpoints",
    params(("id" = String, Path), OfTenant), request_body = EndpointRotate,
    responses((status = 200, body = EndpointWithSecret), (status = 400, body = Problem),
        (status = 404, body = Problem), (status = 409, body = Problem)))]
pub(super) async fn rotate(
    State(admin): State<AdminApi>,
    caller: Caller,
    Path(id): Path<String>,
    Query(ask): Query<OfTenant>,
    Json(body): Json<EndpointRotate>,
) -> Result<Json<EndpointWithSecret>, Problem> {
    let tenant = tenant_of(&caller.actor, ask.tenant)?;
    let overlap = Duration::from_secs(body.overlap_seconds.unwrap_or(OVERLAP_SECONDS));
    let endpoints = &admin.0.endpoints;
    let rotated = endpoints.rotate(&caller.actor, &tenant, &id, None, overlap);
    Ok(Json(rotated.await?))
}

/// Enables an endpoint. Events that wait for it are sent, and its failures count from the beginning.
#[utoipa::path(post, path = "/admin/v1/endpoints/{id}/enable", tag = "endpoints",
    params(("id" = String, Path), OfTenant),
    responses((status = 200, body = TenantEndpoint), (status = 404, body = Problem),
        (status = 409, body = Problem)))]
pub(super) async fn enable(
    State(admin): State<AdminApi>,
    caller: Caller,
    Path(id): Path<String>,
    Query(ask): Query<OfTenant>,
) -> Result<Json<TenantEndpoint>, Problem> {
    let tenant = tenant_of(&caller.actor, ask.tenant)?;
    let endpoints = &admin.0.endpoints;
    let enabled = endpoints.set_disabled(&caller.actor, &tenant, &id, None);
    Ok(Json(enabled.await?))
}

/// Disables an endpoint: it receives nothing until it is enabled.
#[utoipa::path(post, path = "/admin/v1/endpoints/{id}/disable", tag = "endpoints",
    params(("id" = String, Path), OfTenant), request_body = EndpointDisable,
    responses((status = 200, body = TenantEndpoint), (status = 404, body = Problem),
        (status = 409, body = Problem)))]
pub(super) async fn disable(
    State(admin): State<AdminApi>,
    caller: Caller,
    Path(id): Path<String>,
    Query(ask): Query<OfTenant>,
    Json(body): Json<EndpointDisable>,
) -> Result<Json<TenantEndpoint>, Problem> {
    let tenant = tenant_of(&caller.actor, ask.tenant)?;
    let reason = body.reason.unwrap_or_else(|| BY_HAND.to_owned());
    let endpoints = &admin.0.endpoints;
    let disabled = endpoints.set_disabled(&caller.actor, &tenant, &id, Some(reason));
    Ok(Json(disabled.await?))
}

/// Lists the attempts at an endpoint with request and response, the newest first.
#[utoipa::path(get, path = "/admin/v1/endpoints/{id}/deliveries", tag = "endpoints",
    params(("id" = String, Path), AskDeliveries),
    responses((status = 200, body = Page<EndpointDelivery>), (status = 400, body = Problem),
        (status = 404, body = Problem)))]
pub(super) async fn deliveries(
    State(admin): State<AdminApi>,
    caller: Caller,
    Path(id): Path<String>,
    Query(mut ask): Query<AskDeliveries>,
) -> Result<Json<Page<EndpointDelivery>>, Problem> {
    let tenant = tenant_of(&caller.actor, ask.tenant.take())?;
    let (filter, before) = (ask.filter()?, ask.before.as_deref());
    let limit = ask.limit.unwrap_or(PAGE);
    let (store, actor) = (admin.store(), &caller.actor);
    let page = store.endpoint_deliveries(actor, &tenant, &id, &filter, before, limit);
    let mut page = page.await?;
    for delivery in &mut page.items {
        delivery.mask(&admin.0.mask);
    }
    Ok(Json(page))
}

/// Returns the health of an endpoint: success rate, p95, and what waits for it.
#[utoipa::path(get, path = "/admin/v1/endpoints/{id}/health", tag = "endpoints",
    params(("id" = String, Path), AskHealth),
    responses((status = 200, body = EndpointHealth), (status = 400, body = Problem),
        (status = 404, body = Problem)))]
pub(super) async fn health(
    State(admin): State<AdminApi>,
    caller: Caller,
    Path(id): Path<String>,
    Query(ask): Query<AskHealth>,
) -> Result<Json<EndpointHealth>, Problem> {
    let tenant = tenant_of(&caller.actor, ask.tenant)?;
    let since = read_time("since", ask.since.as_deref())?;
    let since = since.unwrap_or_else(a_day_ago);
    let (store, actor) = (admin.store(), &caller.actor);
    let health = store.endpoint_health(actor, &tenant, &id, since);
    Ok(Json(health.await?))
}

/// Sends deliveries of an endpoint again.
#[utoipa::path(post, path = "/admin/v1/endpoints/{id}/replay", tag = "endpoints",
    params(("id" = String, Path), OfTenant), request_body = EndpointReplayed,
    responses((status = 200, body = EndpointReplayCount), (status = 400, body = Problem),
        (status = 404, body = Problem)))]
pub(super) async fn replay(
    State(admin): State<AdminApi>,
    caller: Caller,
    Path(id): Path<String>,
    Query(ask): Query<OfTenant>,
    Json(body): Json<EndpointReplayed>,
) -> Result<Json<EndpointReplayCount>, Problem> {
    let tenant = tenant_of(&caller.actor, ask.tenant)?;
    let replay = body.read()?;
    let (store, actor) = (admin.store(), &caller.actor);
    let replayed = store.replay_endpoint(actor, &tenant, &id, &replay).await?;
    Ok(Json(EndpointReplayCount { replayed }))
}

/// Sends an endpoint the events that it never got, from a time on. A request ends after some seconds or when
/// the queue is full, and is continued with `after`.
#[utoipa::path(post, path = "/admin/v1/endpoints/{id}/replay-missing", tag = "endpoints",
    params(("id" = String, Path), OfTenant), request_body = EndpointReplayMissing,
    responses((status = 200, body = UnsentReplayed), (status = 400, body = Problem),
        (status = 404, body = Problem), (status = 409, body = Problem)))]
pub(super) async fn replay_missing(
    State(admin): State<AdminApi>,
    caller: Caller,
    Path(id): Path<String>,
    Query(ask): Query<OfTenant>,
    Json(body): Json<EndpointReplayMissing>,
) -> Result<Json<UnsentReplayed>, Problem> {
    let tenant = tenant_of(&caller.actor, ask.tenant)?;
    let ask = body.ask(admin.0.waiting_max, environment::clock().now())?;
    let replayed = replay_unsent(admin.store(), &caller.actor, &tenant, &id, &ask);
    Ok(Json(replayed.await?))
}

/// Sends a test event of the type `hapax.test` to an endpoint, once. A process sends two at the same time for
/// one tenant, and 32 in all.
#[utoipa::path(post, path = "/admin/v1/endpoints/{id}/test", tag = "endpoints",
    params(("id" = String, Path), OfTenant),
    responses((status = 200, body = EndpointDelivery), (status = 404, body = Problem),
        (status = 409, body = Problem), (status = 429, body = Problem)))]
pub(super) async fn test(
    State(admin): State<AdminApi>,
    caller: Caller,
    Path(id): Path<String>,
    Query(ask): Query<OfTenant>,
) -> Result<Json<EndpointDelivery>, Problem> {
    let tenant = tenant_of(&caller.actor, ask.tenant)?;
    // A caller takes no place of another tenant.
    check_endpoint_tenant(&caller.actor, &tenant)?;
    let Some(_place) = admin.0.endpoint_tests.take(&tenant) else {
        let (of_tenant, all) = ENDPOINT_TESTS;
        let busy = format!(
            "{of_tenant} test events are being sent to endpoints of the tenant, or {all} in all: wait \
             until one has ended"
        );
        return Err(Problem::new(RATE_LIMIT)
            .detail(busy)
            .retry_after(Duration::from_secs(1)));
    };
    let endpoints = &admin.0.endpoints;
    let mut tested = endpoints.test(&caller.actor, &tenant, &id).await?;
    tested.mask(&admin.0.mask);
    Ok(Json(tested))
}

/// A day ago.
pub(crate) fn a_day_ago() -> Timestamp {
    let now = environment::clock().now().as_millis();
    Timestamp::from_millis(now.saturating_sub(HEALTH_MILLIS))
}
