//! Operations for operators: destinations at run time; lists of keys, events, deliveries and
//! messages; dead letters, jobs and sagas; and the audit log. For a first look there are an
//! [`overview`], a list of what is [`stalled`] and why, and the [`timeline`] of one request.
//!
//! Every operation is one transaction that also writes a line to the audit log. An operation by an
//! [`Actor`] of a tenant can read and change only that tenant's events. Lists are paginated by key,
//! and a page reads a bounded number of rows, so that a filter without matches costs no more than
//! one that matches everything. Such a page may be empty and still have a next page.
//!
//! The relay uses only two of these functions: it polls for changed destinations
//! ([`Postgres::changes`](crate::Postgres::changes)), and runs jobs on a timer
//! ([`run_one`](jobs::run_one)).

mod audited;
pub mod audit;
mod declared;
pub mod destinations;
pub mod events;
mod filters;
mod pagination;
mod patch;
mod partitions;
pub mod deliveries;
pub mod dead_letters;
pub mod jobs;
mod run;
mod seen;
mod batch;
pub mod sagas;
pub mod keys;
mod purge;
pub mod inbox;
pub mod timeline;
pub mod stalled;
pub mod overview;

use std::fmt;

use hapax::{Timestamp, event::EventId, key::Tenant, store::StoreError};

/// Maximum number of rows on a page.
pub const PAGE_MAX: usize = 1_000;

/// An operator, and the tenant to which the operator is limited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actor {
    /// The name in the audit log.
    pub name: String,
    /// The only tenant whose events the operator may see; `None` for all tenants.
    pub tenant: Option<Tenant>,
    /// The reason for the operation, which is added to the details in the audit log.
    pub reason: Option<String>,
}

impl Actor {
    /// Creates an operator who may see and change the events of all tenants.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            tenant: None,
            reason: None,
        }
    }

    /// Limits the operator to one tenant.
    #[must_use]
    pub fn of(mut self, tenant: Tenant) -> Self {
        self.tenant = Some(tenant);
        self
    }

    /// Sets the reason for the operator's operations.
    #[must_use]
    pub fn because(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }

    pub(crate) fn tenant(&self) -> Option<&str> {
        self.tenant.as_ref().map(Tenant::as_str)
    }
}

/// A filter for events. A field that is absent matches every event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// A pattern over event types, such as `order.*`.
    pub kind: Option<String>,
    /// The tenant.
    pub tenant: Option<Tenant>,
    /// The type of the aggregate.
    pub aggregate_type: Option<String>,
    /// The id of the aggregate.
    pub aggregate_id: Option<String>,
    /// The id of the event.
    pub event_id: Option<EventId>,
    /// Created at or after this time.
    pub since: Option<Timestamp>,
    /// Created before this time.
    pub until: Option<Timestamp>,
    /// Minimum number of attempts. For deliveries only.
    pub attempts_min: u32,
    /// Text that the last error contains, ignoring case. For deliveries only.
    pub error: Option<String>,
}

/// A page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T, C> {
    /// The items.
    pub items: Vec<T>,
    /// The start of the next page; `None` if this is the last one.
    pub next: Option<C>,
}

/// The error of an operation.
///
/// The variant says whether the object does not exist, its state does not allow the operation, or
/// the request is not valid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdminError {
    /// The object does not exist, or belongs to another tenant.
    #[error("there is no {what}")]
    NotFound {
        /// The object.
        what: String,
    },
    /// The object was changed in the meantime, or its state does not allow the operation.
    #[error("{what}")]
    Conflict {
        /// The conflict.
        what: String,
    },
    /// The request is not valid.
    #[error("{field} {problem}")]
    Invalid {
        /// The field that is not valid.
        field: &'static str,
        /// What is wrong with the field.
        problem: String,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl AdminError {
    fn not_found(what: impl fmt::Display) -> Self {
        let what = what.to_string();
        Self::NotFound { what }
    }

    fn conflict(what: impl Into<String>) -> Self {
        Self::Conflict { what: what.into() }
    }

    fn invalid(field: &'static str, problem: impl Into<String>) -> Self {
        let problem = problem.into();
        Self::Invalid { field, problem }
    }
}

/// The destination of a partition.
pub fn destination_of(partition: &str) -> &str {
    partition.split('/').next().unwrap_or(partition)
}
