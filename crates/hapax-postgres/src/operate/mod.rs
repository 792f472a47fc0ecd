//! What operators do: destinations at run time, keys, events, deliveries and messages looked at,
//! dead letters replayed or discarded, jobs, sagas decided about, and the log of all that; and what
//! they ask first: how it stands ([`overview`]), what stands still and why ([`stalled`]), and what
//! became of one request ([`timeline`]).
//!
//! Every act is one transaction with its line in the audit log: both or neither. An act that names
//! an [`Actor`] of a tenant sees and touches that tenant's events alone. Lists have keyset pages,
//! and a page looks at a bounded number of rows, so that a filter that fits nothing costs no more
//! than one that fits everything: such a page may be empty and still have a next one.
//!
//! The relay has no part in it but two: it asks what has changed
//! ([`Postgres::changes`](crate::Postgres::changes)), and works on jobs on a timer
//! ([`run_one`](jobs::run_one)).

mod act;
pub mod audit;
mod declared;
pub mod destinations;
pub mod events;
mod find;
mod place;
mod patch;
mod now;
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

/// Rows of one page at most.
pub const PAGE_MAX: usize = 1_000;

/// Who acts, and whose events that may touch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actor {
    /// The name that stands in the audit log.
    pub name: String,
    /// The one tenant whose events it sees; all when absent.
    pub tenant: Option<Tenant>,
    /// Why it acts: it stands in the audit log beside whatever else is said of an act.
    pub reason: Option<String>,
}

impl Actor {
    /// Somebody who may touch the events of every tenant.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            tenant: None,
            reason: None,
        }
    }

    /// The same for one tenant alone.
    #[must_use]
    pub fn of(mut self, tenant: Tenant) -> Self {
        self.tenant = Some(tenant);
        self
    }

    /// The same, with a reason for what it does.
    #[must_use]
    pub fn because(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }

    pub(crate) fn tenant(&self) -> Option<&str> {
        self.tenant.as_ref().map(Tenant::as_str)
    }
}

/// Which events are meant; what is absent fits every one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// A pattern over event types, such as `order.*`.
    pub kind: Option<String>,
    /// Whose they are.
    pub tenant: Option<Tenant>,
    /// What kind of thing they are about.
    pub aggregate_type: Option<String>,
    /// Which one.
    pub aggregate_id: Option<String>,
    /// The event's own id.
    pub event_id: Option<EventId>,
    /// Created at or after this moment.
    pub since: Option<Timestamp>,
    /// Created before this moment.
    pub until: Option<Timestamp>,
    /// At least so many attempts were made; of deliveries alone.
    pub attempts_min: u32,
    /// Words in the last error, in whatever case; of deliveries alone.
    pub error: Option<String>,
}

/// A page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T, C> {
    /// What is on it.
    pub items: Vec<T>,
    /// Where the next one begins; `None` when this is the last.
    pub next: Option<C>,
}

/// Why an operator's act did not happen.
///
/// The variant answers: is it gone, was somebody else first, or does it make no sense?
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OperateError {
    /// There is no such thing, or it is another tenant's.
    #[error("there is no {what}")]
    NotFound {
        /// What was looked for.
        what: String,
    },
    /// Somebody else was first, or it is not the time for it.
    #[error("{what}")]
    Conflict {
        /// What is in the way.
        what: String,
    },
    /// It makes no sense.
    #[error("{field} {problem}")]
    Invalid {
        /// Which part of it.
        field: &'static str,
        /// What is wrong with that.
        problem: String,
    },
    /// The store did not do what it was asked.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl OperateError {
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

/// The destination that a part belongs to.
pub fn destination_of(part: &str) -> &str {
    part.split('/').next().unwrap_or(part)
}
