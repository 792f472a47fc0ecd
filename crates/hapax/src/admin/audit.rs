//! The audit log: which operator did what and when, and the outcome.
//!
//! Entries are only appended and never changed.

use async_trait::async_trait;
use serde::Serialize;
use serde_json::Value;

use super::{Actor, AdminError, Page};
use crate::clock::Timestamp;

/// The audit log.
#[async_trait]
pub trait AuditAdmin: Send + Sync {
    /// Appends the entry of an operation that changes nothing in the store, such as a test event.
    async fn record(
        &self,
        actor: &Actor,
        action: &str,
        object: &str,
        detail: &Value,
    ) -> Result<(), AdminError>;

    /// Lists the entries that match a filter, the newest first.
    async fn audit_log(
        &self,
        actor: &Actor,
        filter: &AuditFilter,
        before: Option<&str>,
        limit: usize,
    ) -> Result<Page<AuditEntry>, AdminError>;
}

/// A filter for entries of the audit log. A field that is absent matches every entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// The operator.
    pub actor: Option<String>,
    /// The operation.
    pub action: Option<String>,
    /// The object of the operation.
    pub object: Option<String>,
}

/// An entry of the audit log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AuditEntry {
    /// The number of the entry. Later entries have higher numbers.
    pub id: i64,
    /// The time.
    pub at: Timestamp,
    /// The actor.
    pub actor: String,
    /// The tenant to which the actor was limited.
    #[serde(skip)]
    pub tenant: Option<String>,
    /// The action, such as `pause`.
    pub action: String,
    /// The object of the action, such as `destination orders`.
    pub object: String,
    /// Details of the action.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub detail: Value,
    /// `done`, `nothing` or `refused`.
    pub outcome: String,
}

impl AuditEntry {
    /// The details that a line contains: those of the operation, and the reason that the actor gave,
    /// unless the operation has a separate one.
    pub fn detail(actor: &Actor, detail: &Value) -> Value {
        let mut detail = detail.clone();
        if let (Some(reason), Value::Object(said)) = (&actor.reason, &mut detail) {
            let reason = reason.as_str();
            said.entry("reason").or_insert_with(|| reason.into());
        }
        detail
    }
}
