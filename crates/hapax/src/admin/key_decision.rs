//! Decision about a key in progress that cannot be resumed, because the outcome of its request is
//! unknown.

use std::fmt;

use serde_json::{Value, json};

use super::{
    AdminError, KeySummary, KeyVersion, NoKeyVersion, check_reason, unknown::record_version,
};
use crate::{
    idempotency::StoredResponse,
    key::{IdempotencyKey, Operation, Scope, Tenant},
    limits::RESPONSE_BYTES_MAX,
};

/// What an operator has found out about the request of a key.
#[derive(Clone, PartialEq, Eq)]
pub enum KeyOutcome {
    /// The request had its effect. This response is stored, and every retry receives it.
    Happened(StoredResponse),
    /// The request had no effect. The key is free, and a retry runs.
    DidNotHappen,
}

impl KeyOutcome {
    /// The name in the audit log.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Happened(_) => "happened",
            Self::DidNotHappen => "did_not_happen",
        }
    }
}

impl fmt::Debug for KeyOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A response does not belong into a log.
        f.write_str(self.as_str())
    }
}

/// A decision about a key in progress whose lease has expired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyDecision {
    /// The tenant of the key. It can be omitted as in [`KeyAdmin::key`](super::KeyAdmin::key).
    pub tenant: Option<String>,
    /// The operation.
    pub operation: String,
    /// The key.
    pub key: String,
    /// The version of the key that the operator has seen
    /// ([`KeyRecord::version`](super::KeyRecord::version)).
    pub version: String,
    /// What has happened.
    pub outcome: KeyOutcome,
    /// Why the operator knows.
    pub reason: String,
}

impl KeyDecision {
    /// Checks the decision, and returns the version of the key.
    ///
    /// # Errors
    /// `Invalid` if the reason, the version or the response is not valid.
    pub fn check(&self) -> Result<KeyVersion, AdminError> {
        check_reason(&self.reason)?;
        if let KeyOutcome::Happened(response) = &self.outcome {
            if !(200..=599).contains(&response.status) {
                return Err(AdminError::invalid("status", "must be 200 to 599"));
            }
            if response.body.len() > RESPONSE_BYTES_MAX {
                let problem = format!("must have at most {RESPONSE_BYTES_MAX} bytes");
                return Err(AdminError::invalid("body", problem));
            }
        }
        let version = self.version.parse();
        version.map_err(|error: NoKeyVersion| AdminError::invalid("version", error.to_string()))
    }

    /// The details in the audit log: the tenant, the version of the key and that of the gateway's record,
    /// if there is one. They do not contain the response.
    pub fn detail(&self, key: &KeySummary) -> Value {
        let status = match &self.outcome {
            KeyOutcome::Happened(response) => Some(response.status),
            KeyOutcome::DidNotHappen => None,
        };
        json!({
            "tenant": key.tenant,
            "version": self.version,
            "record": record_version(key),
            "reason": self.reason,
            "outcome": self.outcome.as_str(),
            "status": status,
        })
    }

    /// The scope of the key, for the encryption of the response.
    ///
    /// # Errors
    /// `NotFound` if no key can have this name.
    pub fn scope(&self, tenant: &str) -> Result<Scope, AdminError> {
        let missing = || AdminError::not_found("such key");
        Ok(Scope {
            tenant: Tenant::new(tenant).map_err(|_| missing())?,
            operation: Operation::new(self.operation.as_str()).map_err(|_| missing())?,
            key: IdempotencyKey::new(self.key.as_str()).map_err(|_| missing())?,
        })
    }
}
