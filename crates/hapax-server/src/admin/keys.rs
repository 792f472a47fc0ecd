//! `/admin/v1/keys`: lists idempotency keys, shows one with its stored response, and purges one.

use axum::{Json, extract::State, http::StatusCode};
use hapax::{
    key::Tenant,
    mask::{MASKED, Mask},
};
use hapax_postgres::{
    Postgres,
    admin::{
        Actor,
        keys::{self, Keys, Record, State as Stands, Summary},
    },
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    Admin, Refusal,
    auth::Caller,
    list_query::{MOMENT, PAGE, read, when},
    masked::ContentView,
    problem::{Body, Path, Problem, Query},
    view::{PageView, moment},
};
use crate::destination::SpecError;

/// Filter of idempotency keys, and the page.
#[derive(Clone, Debug, Default, Deserialize, utoipa::IntoParams, clap::Args)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct AskKeys {
    /// Only keys of this operation, such as `POST /orders`
    #[arg(long)]
    #[serde(default)]
    pub(crate) operation: Option<String>,
    /// Only keys of this tenant
    #[arg(long)]
    #[serde(default)]
    pub(crate) tenant: Option<String>,
    /// Only keys that begin with this; with a leading #, only keys whose short hash, as in logs,
    /// begins with this
    #[arg(long, value_name = "PREFIX")]
    #[serde(default)]
    pub(crate) key: Option<String>,
    /// Only keys in this state: `in_progress`, completed, failed or tombstone
    #[arg(long)]
    #[serde(default)]
    pub(crate) state: Option<String>,
    /// Only keys claimed at or after this time (RFC 3339)
    #[arg(long, value_name = "MOMENT")]
    #[serde(default)]
    pub(crate) since: Option<String>,
    /// Only keys claimed before this time (RFC 3339)
    #[arg(long, value_name = "MOMENT")]
    #[serde(default)]
    pub(crate) until: Option<String>,
    /// Start of the page: `next` of the previous page
    #[arg(long, value_name = "CURSOR")]
    #[serde(default)]
    pub(crate) before: Option<String>,
    /// Maximum number of keys
    #[arg(long, value_name = "COUNT")]
    #[serde(default)]
    pub(crate) limit: Option<usize>,
}

/// The tenant of a key.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Whose {
    /// Tenant of the key; required if several tenants have used the key for this operation
    #[serde(default)]
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

/// An idempotency key.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct KeyView {
    /// The tenant.
    pub(crate) tenant: String,
    /// The operation, such as `POST /orders`.
    pub(crate) operation: String,
    /// The key.
    pub(crate) key: String,
    /// The short hash of the key, as in logs, spans and events.
    pub(crate) short_hash: String,
    /// `in_progress`, `completed`, `failed` or `tombstone`.
    pub(crate) state: &'static str,
    /// The number of owners that the key has had.
    pub(crate) epoch: i64,
    /// When the lease of its owner expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lease_until: Option<String>,
    /// The recovery point from which the request continues.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) recovery_point: Option<String>,
    /// The status of the stored response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<u16>,
    /// The size of the stored response's body, in bytes.
    pub(crate) body_bytes: u64,
    /// When the key was claimed.
    pub(crate) created_at: String,
    /// When the response was stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) completed_at: Option<String>,
    /// When the key expires.
    pub(crate) expires_at: String,
}

/// An idempotency key with its stored response.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct KeyRecordView {
    /// The fields of the list.
    #[serde(flatten)]
    pub(crate) key: KeyView,
    /// Whether the key is in progress and its lease has expired: the next retry takes it over.
    pub(crate) is_lapsed: bool,
    /// The fingerprint of the request, in hex.
    pub(crate) fingerprint: String,
    /// How a request with this key is handled after the key has expired: `new` or `gone`.
    pub(crate) on_expired: String,
    /// The version of the key. It changes whenever the key is used again or finished.
    pub(crate) version: String,
    /// The size of the request that is kept for a takeover, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) request_bytes: Option<u64>,
    /// The headers of the stored response as pairs of name and value, in order.
    pub(crate) headers: Vec<[String; 2]>,
    /// The body of the stored response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) body: Option<ContentView>,
}

/// Lists keys, latest claims first. A page may be empty and still have a next one.
#[utoipa::path(get, path = "/admin/v1/keys", tag = "keys", params(AskKeys),
    responses((status = 200, body = PageView<KeyView>), (status = 400, body = Problem)))]
pub(super) async fn list(
    State(admin): State<Admin>,
    caller: Caller,
    Query(ask): Query<AskKeys>,
) -> Result<Json<PageView<KeyView>>, Problem> {
    Ok(Json(page(admin.store(), &caller.actor, &ask).await?))
}

/// Shows one key with its stored response, masked.
#[utoipa::path(get, path = "/admin/v1/keys/{operation}/{key}", tag = "keys",
    params(("operation" = String, Path), ("key" = String, Path), Whose),
    responses((status = 200, body = KeyRecordView), (status = 400, body = Problem),
        (status = 404, body = Problem)))]
pub(super) async fn show(
    State(admin): State<Admin>,
    caller: Caller,
    Path((operation, key)): Path<(String, String)>,
    Query(whose): Query<Whose>,
) -> Result<Json<KeyRecordView>, Problem> {
    let tenant = whose.tenant.as_deref();
    let found = keys::get(admin.store(), &caller.actor, tenant, &operation, &key).await?;
    Ok(Json(KeyRecordView::of(found, &admin.0.mask)))
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
    State(admin): State<Admin>,
    caller: Caller,
    Path((operation, key)): Path<(String, String)>,
    Query(whose): Query<Whose>,
    Body(body): Body<PurgeReason>,
) -> Result<StatusCode, Problem> {
    let (store, actor, tenant) = (admin.store(), &caller.actor, whose.tenant.as_deref());
    let version = body.version.parse();
    let version =
        version.map_err(|_| Problem::member("version", "must be the `version` of a key"))?;
    let purged = keys::purge(
        store,
        actor,
        tenant,
        &operation,
        &key,
        version,
        &body.reason,
    );
    purged.await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Reads a page of keys.
pub(crate) async fn page(
    store: &Postgres,
    actor: &Actor,
    ask: &AskKeys,
) -> Result<PageView<KeyView>, Refusal> {
    let (filter, before) = (ask.filter()?, ask.cursor()?);
    let found = keys::list(store, actor, &filter, before.as_ref(), ask.limit()).await?;
    Ok(PageView::of(found, KeyView::from, |next| next.to_string()))
}

impl AskKeys {
    /// The maximum number of items.
    pub(crate) fn limit(&self) -> usize {
        self.limit.unwrap_or(PAGE)
    }

    fn cursor(&self) -> Result<Option<keys::Cursor>, SpecError> {
        let what = "`next` of the previous page";
        read("before", self.before.as_ref(), |it| it.parse().ok(), what)
    }

    fn filter(&self) -> Result<Keys, SpecError> {
        let states = Stands::ALL.map(Stands::as_str).join(", ");
        let tenant = |it: &str| Tenant::new(it).ok();
        Ok(Keys {
            operation: self.operation.clone(),
            tenant: read("tenant", self.tenant.as_ref(), tenant, "a tenant")?,
            key: self.key.clone(),
            state: read(
                "state",
                self.state.as_ref(),
                Stands::named,
                &format!("one of {states}"),
            )?,
            since: read("since", self.since.as_ref(), when, MOMENT)?,
            until: read("until", self.until.as_ref(), when, MOMENT)?,
        })
    }
}

impl From<Summary> for KeyView {
    fn from(it: Summary) -> Self {
        Self {
            tenant: it.tenant,
            operation: it.operation,
            key: it.key,
            short_hash: it.short_hash,
            state: it.state.as_str(),
            epoch: it.epoch,
            lease_until: it.lease_until.map(moment),
            recovery_point: it.recovery_point,
            status: it.status,
            body_bytes: it.body_bytes,
            created_at: moment(it.created_at),
            completed_at: it.completed_at.map(moment),
            expires_at: moment(it.expires_at),
        }
    }
}

impl KeyRecordView {
    /// A key with its response, masked.
    pub(crate) fn of(it: Record, mask: &Mask) -> Self {
        let held = it.summary.lease_until.unwrap_or(it.summary.created_at);
        let kind = it.headers.iter().find(|(name, _)| name == "content-type");
        let kind = kind.map(|(_, value)| value.as_str());
        // A body without a media type is not treated as JSON.
        let kind_of = kind.or(Some("application/octet-stream"));
        let body = it.summary.status.map(|_| ContentView {
            content_type: kind.map(str::to_owned),
            ..ContentView::of(mask, kind_of, &it.body)
        });
        let masked = |(name, value): (String, String)| {
            let value = if mask.hides(&name) {
                MASKED.to_owned()
            } else {
                value
            };
            [name, value]
        };
        let version = it.version().to_string();
        Self {
            version,
            is_lapsed: it.summary.state == Stands::InProgress && held <= it.at,
            key: it.summary.into(),
            fingerprint: it.fingerprint,
            on_expired: it.on_expired,
            request_bytes: it.request_bytes,
            headers: it.headers.into_iter().map(masked).collect(),
            body,
        }
    }
}
