//! Idempotency keys: lists by a filter, single keys, and purges.

use std::fmt;

use async_trait::async_trait;
use serde::Serialize;

use super::{Actor, AdminError, Content, KeyDecision, Page};
use crate::{
    clock::Timestamp,
    key::Tenant,
    mask::{MASKED, Mask},
};

/// Operations on idempotency keys.
#[async_trait]
pub trait KeyAdmin: Send + Sync {
    /// Lists the keys that match a filter, the newest claim first.
    async fn keys(
        &self,
        actor: &Actor,
        filter: &KeyFilter,
        before: Option<&str>,
        limit: usize,
    ) -> Result<Page<KeySummary>, AdminError>;

    /// Reads one key. The tenant can be omitted by an actor of a tenant, and by any actor if only
    /// one tenant has used the key for this operation.
    ///
    /// `NotFound` if the key does not exist or belongs to another tenant; `Invalid` if the tenant is
    /// required.
    async fn key(
        &self,
        actor: &Actor,
        tenant: Option<&str>,
        operation: &str,
        key: &str,
    ) -> Result<KeyRecord, AdminError>;

    /// Deletes a key with its response if it still has this version ([`KeyRecord::version`]). The
    /// next request with the key runs again, on every node within
    /// [`PURGES_FRESH`](crate::limits::PURGES_FRESH).
    ///
    /// Fails like [`key`](Self::key); `Conflict` if the key is in progress, if a saga that was
    /// started under it has not ended, or if it has another version by now; `Invalid` without a
    /// reason.
    async fn purge_key(
        &self,
        actor: &Actor,
        tenant: Option<&str>,
        operation: &str,
        key: &str,
        version: &str,
        reason: &str,
    ) -> Result<(), AdminError>;

    /// Decides about a key in progress that has no owner: stores a response under it, or frees it.
    /// This is for requests whose outcome no program can find out.
    ///
    /// Fails like [`key`](Self::key); `Conflict` if the key is not in progress, if its lease has not
    /// expired, or if it has another version by now; `Invalid` without a reason, or if the response
    /// is not valid.
    async fn decide_key(&self, actor: &Actor, decision: &KeyDecision) -> Result<(), AdminError>;
}

/// A filter for keys. A field that is absent matches every key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyFilter {
    /// The operation, such as `POST /orders`.
    pub operation: Option<String>,
    /// The tenant.
    pub tenant: Option<Tenant>,
    /// The beginning of the key; or, after a `#`, the beginning of its short hash, which logs and
    /// spans contain.
    pub key: Option<String>,
    /// The state.
    pub state: Option<KeyState>,
    /// Claimed at or after this time.
    pub since: Option<Timestamp>,
    /// Claimed before this time.
    pub until: Option<Timestamp>,
}

impl KeyFilter {
    /// The tenant whose keys match, for an actor: `Some(None)` for the keys of all tenants, and
    /// `None` if the filter asks for the keys of another tenant, which the actor may not see.
    pub fn tenant_of<'a>(&'a self, actor: &'a Actor) -> Option<Option<&'a Tenant>> {
        match (&actor.tenant, &self.tenant) {
            (Some(own), Some(other)) if own != other => None,
            (own, other) => Some(own.as_ref().or(other.as_ref())),
        }
    }

    /// The beginning of the keys that match.
    pub fn prefix(&self) -> Option<&str> {
        let asked = self.key.as_deref().filter(|key| !key.is_empty());
        asked.filter(|key| !key.starts_with('#'))
    }

    /// The beginning of the short hashes of the keys that match.
    pub fn hash(&self) -> Option<String> {
        let asked = self.key.as_deref()?.strip_prefix('#')?;
        Some(asked.to_ascii_lowercase())
    }
}

/// The state of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum KeyState {
    /// The request has started and not ended (phased mode only).
    InProgress,
    /// The response is stored.
    Completed,
    /// The response is stored and says that the request has failed permanently.
    Failed,
    /// The response was purged. Only the fact that the key was used is kept.
    Tombstone,
}

impl KeyState {
    /// All states.
    pub const ALL: [Self; 4] = [
        Self::InProgress,
        Self::Completed,
        Self::Failed,
        Self::Tombstone,
    ];

    /// The name in rows and responses.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InProgress => "in_progress",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Tombstone => "tombstone",
        }
    }

    /// The state with this name.
    pub fn named(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }
}

/// An idempotency key without its response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct KeySummary {
    /// The tenant.
    pub tenant: String,
    /// The operation, such as `POST /orders`.
    pub operation: String,
    /// The key.
    pub key: String,
    /// The short hash of the key, as in logs, spans and events.
    pub short_hash: String,
    /// The fingerprint of the request, in hex.
    pub fingerprint: String,
    /// The state.
    pub state: KeyState,
    /// The number of owners that the key has had.
    pub epoch: i64,
    /// When the lease of its owner expires, while the key is in progress.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_until: Option<Timestamp>,
    /// The recovery point from which a phased request continues.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recovery_point: Option<String>,
    /// The id of the resource that the stored response names in its `Location`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_id: Option<String>,
    /// The status of the stored response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The size of the stored response's body, in bytes.
    pub body_bytes: u64,
    /// When the key was claimed.
    pub created_at: Timestamp,
    /// When the response was stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Timestamp>,
    /// When the key expires. A key in progress does not expire.
    pub expires_at: Timestamp,
}

/// An idempotency key with its stored response, which is not masked until [`KeyRecord::mask`] is
/// called.
#[derive(Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct KeyRecord {
    /// The key as in a list.
    #[serde(flatten)]
    pub summary: KeySummary,
    /// Whether the key is in progress and its lease has expired: the next retry takes it over.
    pub is_lapsed: bool,
    /// How a request with this key is handled after the key has expired: `new` or `gone`.
    pub on_expired: String,
    /// The version of the key. It changes whenever the key is used again or finished.
    pub version: String,
    /// The name of the owner, while the key is in progress: the one that a caller of the SQL contract
    /// has given, or the identity of the attempt with which a service in Rust has entered the key on
    /// PostgreSQL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// What the last phase has recorded for the next owner, while the key is in progress. Only
    /// callers of the SQL contract record anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recovery_data: Option<Content>,
    /// The size of the request that is kept for a takeover, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_bytes: Option<u64>,
    /// The headers of the stored response as pairs of name and value, in order.
    pub headers: Vec<(String, String)>,
    /// The body of the stored response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<Content>,
}

impl KeyRecord {
    /// Masks the headers and the body of the response, and what a phase has recorded.
    pub fn mask(&mut self, mask: &Mask) {
        for (name, value) in &mut self.headers {
            if mask.hides(name) {
                MASKED.clone_into(value);
            }
        }
        let contents = [&mut self.body, &mut self.recovery_data];
        for content in contents.into_iter().flatten() {
            content.mask(mask);
        }
    }
}

impl fmt::Debug for KeyRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Neither a key nor its response belongs into a log.
        f.debug_struct("KeyRecord")
            .field("operation", &self.summary.operation)
            .field("short_hash", &self.summary.short_hash)
            .field("state", &self.summary.state)
            .finish_non_exhaustive()
    }
}
