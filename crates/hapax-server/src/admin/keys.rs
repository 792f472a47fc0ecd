//! `/admin/v1/keys`: lists idempotency keys, shows one with its stored response, and purges one.

use axum::{extract::State, http::StatusCode};
use hapax::{
    admin::{AdminError, KeyFilter, KeyRecord, KeyState, KeySummary, Page, read_field, read_time},
    key::Tenant,
};
use hapax_http::{Json, Path, Problem, Query};
use serde::Deserialize;
use utoipa::ToSchema;

use super::{AdminApi, arguments, auth::Caller, list_query::PAGE};

/// Filter of idempotency keys, and the page.
#[derive(Clone, Debug, Default, Deserialize, utoipa::IntoParams, clap::Args)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(crate) struct AskKeys {
    /// Only keys of this operation, such as `POST /orders`
    #[arg(long)]
    pub(crate) operation: Option<String>,
    /// Only keys of this tenant
    #[arg(long)]
    pub(crate) tenant: Option<String>,
    /// Only keys that begin with this; with a leading #, only keys whose short hash, as in logs,
    /// begins with this
    #[arg(long, value_name = "PREFIX")]
    pub(crate) key: Option<String>,
    /// Only keys in this state: `in_progress`, completed, failed or tombstone
    #[arg(long)]
    pub(crate) state: Option<String>,
    /// Only keys claimed at or after this time (RFC 3339)
    #[arg(
        long,
        value_name = "TIME",
        value_parser = arguments::time,
        help = "Only keys claimed at or after this time: RFC 3339, or a duration before now such as 1h"
    )]
    pub(crate) since: Option<String>,
    /// Only keys claimed before this time (RFC 3339)
    #[arg(
        long,
        value_name = "TIME",
        value_parser = arguments::time,
        help = "Only keys claimed before this time: RFC 3339, or a duration before now such as 1h"
    )]
    pub(crate) until: Option<String>,
    /// Start of the page: `next` of the previous page
    #[arg(long, value_name = "CURSOR")]
    pub(crate) before: Option<String>,
    /// Maximum number of keys
    #[arg(long, value_name = "COUNT", value_parser = arguments::limit)]
    pub(crate) limit: Option<usize>,
}

/// The tenant of a key.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct Whose {
    /// Tenant of the key; required if several tenants have used the key for this operation
    tenant: Option<String>,
}

/// The version of the key to purge, and the reason.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PurgeReason {
    /// The `version` of the key that you have seen. If the key was used again since, it is kept.
    version: String,
    /// Up to 1024 bytes, kept in the audit log.
    reason: String,
}

/// Lists keys, latest claims first. A page may be empty and still have a next one.
#[utoipa::path(get, path = "/admin/v1/keys", tag = "keys", params(AskKeys),
    responses((status = 200, body = Page<KeySummary>), (status = 400, body = Problem)))]
pub(super) async fn list(
    State(admin): State<AdminApi>,
    caller: Caller,
    Query(ask): Query<AskKeys>,
) -> Result<Json<Page<KeySummary>>, Problem> {
    let (filter, before) = (ask.filter()?, ask.before.as_deref());
    let page = admin
        .store()
        .keys(&caller.actor, &filter, before, ask.limit());
    Ok(Json(page.await?))
}

/// Shows one key with its stored response, masked.
#[utoipa::path(get, path = "/admin/v1/keys/{operation}/{key}", tag = "keys",
    params(("operation" = String, Path), ("key" = String, Path), Whose),
    responses((status = 200, body = KeyRecord), (status = 400, body = Problem),
        (status = 404, body = Problem)))]
pub(super) async fn show(
    State(admin): State<AdminApi>,
    caller: Caller,
    Path((operation, key)): Path<(String, String)>,
    Query(whose): Query<Whose>,
) -> Result<Json<KeyRecord>, Problem> {
    let tenant = whose.tenant.as_deref();
    let found = admin.store().key(&caller.actor, tenant, &operation, &key);
    let mut found = found.await?;
    found.mask(&admin.0.mask);
    Ok(Json(found))
}

/// Deletes a key and its response if the key is still at the given version.
///
/// Within a second, the next request with this key runs again, on any node.
#[utoipa::path(post, path = "/admin/v1/keys/{operation}/{key}/purge", tag = "keys",
    params(("operation" = String, Path), ("key" = String, Path), Whose),
    request_body = PurgeReason,
    responses((status = 204), (status = 400, body = Problem), (status = 404, body = Problem),
        (status = 409, body = Problem)))]
pub(super) async fn purge(
    State(admin): State<AdminApi>,
    caller: Caller,
    Path((operation, key)): Path<(String, String)>,
    Query(whose): Query<Whose>,
    Json(body): Json<PurgeReason>,
) -> Result<StatusCode, Problem> {
    let (store, actor, tenant) = (admin.store(), &caller.actor, whose.tenant.as_deref());
    let PurgeReason { version, reason } = &body;
    let purged = store.purge_key(actor, tenant, &operation, &key, version, reason);
    purged.await?;
    Ok(StatusCode::NO_CONTENT)
}

impl AskKeys {
    /// The maximum number of items.
    pub(crate) fn limit(&self) -> usize {
        self.limit.unwrap_or(PAGE)
    }

    /// The filter, parsed.
    pub(crate) fn filter(&self) -> Result<KeyFilter, AdminError> {
        let states = format!("one of {}", KeyState::ALL.map(KeyState::as_str).join(", "));
        let (tenant, state) = (self.tenant.as_deref(), self.state.as_deref());
        Ok(KeyFilter {
            operation: self.operation.clone(),
            tenant: read_field("tenant", tenant, "a tenant", |it| Tenant::new(it).ok())?,
            key: self.key.clone(),
            state: read_field("state", state, &states, KeyState::named)?,
            since: read_time("since", self.since.as_deref())?,
            until: read_time("until", self.until.as_deref())?,
        })
    }
}
