//! Destinations that are declared at run time and stored in the database.
//!
//! A change succeeds only if its author has seen the last change. The specification describes the
//! destination in JSON, of which this crate reads few members. The caller encrypts the secrets, so a
//! store never has the key. Destinations that are declared in a configuration file can also be
//! paused and removed here.

use std::fmt;

use async_trait::async_trait;
use serde::Serialize;
use serde_json::Value;

use super::{Actor, AdminError, Job, Page};
use crate::clock::Timestamp;

/// Operations on destinations.
#[async_trait]
pub trait DestinationAdmin: Send + Sync {
    /// Lists the declared destinations after a name, by name.
    async fn declarations(
        &self,
        actor: &Actor,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<Declared>, AdminError>;

    /// Reads the declaration of a destination, unless its rows were already deleted.
    ///
    /// `NotFound` if there is none.
    async fn declaration(&self, actor: &Actor, name: &str) -> Result<Declared, AdminError>;

    /// Lists the partitions that a relay has opened, of one destination or of all.
    async fn partitions(&self, name: Option<&str>) -> Result<Vec<Partition>, AdminError>;

    /// Declares a destination under a free name, and records where it
    /// [starts](crate::admin::start_of) in the same transaction. The events that are committed after
    /// this call are delivered to it, whenever a relay opens it.
    ///
    /// `Conflict` if the name is taken, or if the job that removes a destination of this name has
    /// not ended.
    async fn create_destination(
        &self,
        actor: &Actor,
        name: &str,
        spec: &str,
        sealed: Option<&[u8]>,
    ) -> Result<Declared, AdminError>;

    /// Changes a destination, if `version` is still its last change.
    ///
    /// `Conflict` if it was changed since; `Invalid` if the number of its partitions or where it
    /// started would change.
    async fn change_destination(
        &self,
        actor: &Actor,
        name: &str,
        version: i64,
        spec: &str,
        sealed: Option<&[u8]>,
    ) -> Result<Declared, AdminError>;

    /// Pauses a destination, so that nothing is offered to it. Returns false if it is already
    /// paused.
    ///
    /// `NotFound` if it is not declared and no relay has opened it.
    async fn pause_destination(&self, actor: &Actor, name: &str) -> Result<bool, AdminError>;

    /// Resumes a paused or disabled destination. Returns false if it is neither.
    ///
    /// `NotFound` if it is not declared and no relay has opened it.
    async fn resume_destination(&self, actor: &Actor, name: &str) -> Result<bool, AdminError>;

    /// Removes a destination: relays stop delivering to it, and a job deletes its parked deliveries,
    /// its dead letters and its checkpoints. The purge of the outbox no longer waits for it.
    ///
    /// If the destination is already being removed, this returns the same job, and starts it again
    /// if it was given up.
    ///
    /// `NotFound` if it is not declared and no relay has opened it.
    async fn remove_destination(&self, actor: &Actor, name: &str) -> Result<Job, AdminError>;
}

/// What operators have changed, for the relays that deliver to the destinations.
#[async_trait]
pub trait DestinationChanges: Send + Sync {
    /// Lists the destinations that were declared, changed, paused, resumed or removed since a
    /// version, in the order of their changes. All of them are listed since version 0, including
    /// those that were removed.
    ///
    /// A caller that continues with the highest version that it has received misses no change.
    async fn changes(&self, since: i64) -> Result<Vec<Declared>, AdminError>;
}

/// A declared destination. `Debug` prints neither the specification nor the secrets.
#[derive(Clone, PartialEq, Eq)]
pub struct Declared {
    /// The name.
    pub name: String,
    /// The specification, as JSON without secrets; `None` if a configuration file declares it.
    pub spec: Option<String>,
    /// The encrypted secrets.
    pub sealed: Option<Vec<u8>>,
    /// The number of the last change, which is higher than the numbers of all earlier changes.
    pub version: i64,
    /// When it was declared.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub changed_at: Timestamp,
    /// The operator who last changed it.
    pub changed_by: String,
    /// When it was paused, if it is paused.
    pub paused_at: Option<Timestamp>,
    /// The operator who paused it.
    pub paused_by: Option<String>,
    /// When it was removed: relays stop delivering to it.
    pub removed_at: Option<Timestamp>,
    /// When its rows were deleted and its name became free again.
    pub purged_at: Option<Timestamp>,
}

impl fmt::Debug for Declared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Neither the specification nor the secrets belong into a log.
        f.debug_struct("Declared")
            .field("name", &self.name)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

/// A partition of a destination that a relay has opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// The name, under which its deliveries are stored.
    pub name: String,
    /// When it was disabled, if it is disabled.
    pub disabled_at: Option<Timestamp>,
    /// Why it is disabled.
    pub disabled_reason: Option<String>,
}

/// A destination that is declared, opened by a relay, or both.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Destination {
    /// The name.
    pub name: String,
    /// Where it is declared: `database`, `configuration`, or `unknown` if a relay has opened it and
    /// it is declared in neither of them.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub declared_in: &'static str,
    /// The declaration. Secrets are shown as `***`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub spec: Option<Value>,
    /// The number of the last change. Send it as `version` to change the destination.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<i64>,
    /// `active`, `paused`, `disabled` or `removing`.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub state: &'static str,
    /// Why the destination is disabled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The actor that paused the destination.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused_by: Option<String>,
    /// The time of the last change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changed_at: Option<Timestamp>,
    /// The actor of the last change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changed_by: Option<String>,
    /// The progress; absent in a list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counts: Option<Counts>,
    /// The partitions that a relay has opened.
    #[serde(skip)]
    pub partitions: Vec<String>,
}

/// The progress of a destination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Counts {
    /// Events that are not settled.
    pub backlog: u64,
    /// Parked deliveries.
    pub parked: u64,
    /// Dead letters.
    pub dead: u64,
}

impl Destination {
    /// Combines a declaration in the database, the partitions that a relay has opened, and whether
    /// the configuration declares the destination (and pauses it).
    pub(super) fn of(
        name: String,
        declared: Option<&Declared>,
        partitions: &[&Partition],
        paused_in_configuration: Option<bool>,
    ) -> Self {
        let disabled = partitions.iter().find(|it| it.disabled_at.is_some());
        let spec = declared.and_then(|it| it.spec.as_deref());
        let spec: Option<Value> = spec.and_then(|text| serde_json::from_str(text).ok());
        // Paused by its own setting, unless an operator has paused it.
        let is_paused = match &spec {
            Some(spec) => spec["paused"] == true,
            None => paused_in_configuration == Some(true),
        };
        let state = match declared {
            Some(it) if it.removed_at.is_some() => "removing",
            Some(it) if it.paused_at.is_some() => "paused",
            _ if is_paused => "paused",
            _ if disabled.is_some() => "disabled",
            _ => "active",
        };
        Self {
            name,
            declared_in: match (&spec, paused_in_configuration) {
                (Some(_), _) => "database",
                (None, Some(_)) => "configuration",
                (None, None) => "unknown",
            },
            spec,
            version: declared.map(|it| it.version),
            state,
            reason: disabled.and_then(|it| it.disabled_reason.clone()),
            paused_by: declared.and_then(|it| it.paused_by.clone()),
            changed_at: declared.map(|it| it.changed_at),
            changed_by: declared.map(|it| it.changed_by.clone()),
            counts: None,
            partitions: partitions.iter().map(|it| it.name.clone()).collect(),
        }
    }
}

/// The destination of a partition.
pub fn destination_of(partition: &str) -> &str {
    partition.split('/').next().unwrap_or(partition)
}

/// The number of partitions in a specification.
pub fn partitions_of(spec: &Value) -> u64 {
    spec["partitions"].as_u64().unwrap_or(1)
}
