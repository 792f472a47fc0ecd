//! Keys as a store finds them, before they are shown.

use std::fmt;

use bytes::Bytes;

use super::{Actor, AdminError, Content, KeyRecord, KeyState, KeySummary};
use crate::{
    clock::Timestamp,
    idempotency::StoredResponse,
    key::{IdempotencyKey, Operation, Scope, Tenant},
    keyring::Keyring,
};

/// The media type of what a phase has recorded.
const JSON: &str = "application/json";

/// A key as it is stored: its response may be encrypted.
#[derive(Clone)]
pub struct StoredKey {
    /// The key as in a list.
    pub summary: KeySummary,
    /// How a request with this key is handled after the key has expired: `new` or `gone`.
    pub on_expired: String,
    /// The version of the key.
    pub version: String,
    /// The name of the owner, if it has one: see [`KeyRecord::owner`].
    pub owner: Option<String>,
    /// What the last phase has recorded for the next owner, as JSON.
    pub recovery_data: Option<Bytes>,
    /// The size of the request that is kept for a takeover, in bytes.
    pub request_bytes: Option<u64>,
    /// The headers of the stored response.
    pub headers: Vec<(String, Bytes)>,
    /// The body of the stored response.
    pub body: Bytes,
}

impl StoredKey {
    /// The key as it is shown at a time of the database's clock. A response that cannot be decrypted
    /// is shown as it is stored; a header names the key that encrypted it.
    pub fn record(self, keyring: &Keyring, at: Timestamp) -> KeyRecord {
        let Self { summary, .. } = self;
        let kept = StoredResponse {
            status: summary.status.unwrap_or_default(),
            headers: self.headers,
            body: self.body,
        };
        let response = scope(&summary)
            .and_then(|scope| keyring.decrypt_response(&scope, kept.clone()).ok())
            .unwrap_or(kept);
        // Header values are Latin-1, as in HTTP.
        let latin = |value: &[u8]| value.iter().map(|byte| char::from(*byte)).collect();
        let headers: Vec<(String, String)> = response
            .headers
            .iter()
            .map(|(name, value)| (name.clone(), latin(value)))
            .collect();
        let kind = headers.iter().find(|(name, _)| name == "content-type");
        let kind = kind.map(|(_, value)| value.clone());
        let held = summary.lease_until.unwrap_or(summary.created_at);
        KeyRecord {
            is_lapsed: summary.state == KeyState::InProgress && held <= at,
            on_expired: self.on_expired,
            version: self.version,
            owner: self.owner,
            recovery_data: self
                .recovery_data
                .map(|data| Content::new(Some(JSON.to_owned()), data)),
            request_bytes: self.request_bytes,
            body: summary.status.map(|_| Content::new(kind, response.body)),
            headers,
            summary,
        }
    }
}

impl fmt::Debug for StoredKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Neither a key nor its response belongs into a log.
        f.debug_struct("StoredKey")
            .field("operation", &self.summary.operation)
            .field("short_hash", &self.summary.short_hash)
            .finish_non_exhaustive()
    }
}

/// The tenant whose key is looked up.
///
/// # Errors
/// `NotFound` if it is not the actor's.
pub fn key_tenant<'a>(
    actor: &'a Actor,
    tenant: Option<&'a str>,
    operation: Option<&str>,
) -> Result<Option<&'a str>, AdminError> {
    match (actor.tenant(), tenant) {
        (Some(own), Some(other)) if own != other => Err(missing(operation)),
        (own, other) => Ok(own.or(other)),
    }
}

/// The only key among those that were found. `operation_of` returns the operation of one.
///
/// # Errors
/// `NotFound` if there is none; `Invalid` if there are several, with the field that tells them apart.
pub fn only_key<T>(
    found: Vec<T>,
    operation: Option<&str>,
    operation_of: impl Fn(&T) -> String,
) -> Result<T, AdminError> {
    let mut found = found.into_iter();
    match (found.next(), found.next()) {
        (None, _) => Err(missing(operation)),
        (Some(only), None) => Ok(only),
        (Some(one), Some(other)) => {
            let field = if operation_of(&one) == operation_of(&other) {
                "tenant"
            } else {
                "operation"
            };
            let problem = "is required: several keys have this name";
            Err(AdminError::invalid(field, problem))
        }
    }
}

/// The name of a key in the audit log and in errors.
pub fn key_object(key: &KeySummary) -> String {
    format!("key {} #{}", key.operation, key.short_hash)
}

fn missing(operation: Option<&str>) -> AdminError {
    let what = operation.map(|it| format!(" for {}", it.escape_debug()));
    AdminError::not_found(format!("such key{}", what.unwrap_or_default()))
}

fn scope(key: &KeySummary) -> Option<Scope> {
    Some(Scope {
        tenant: Tenant::new(key.tenant.as_str()).ok()?,
        operation: Operation::new(key.operation.as_str()).ok()?,
        key: IdempotencyKey::new(key.key.as_str()).ok()?,
    })
}
