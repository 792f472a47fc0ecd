//! Administration: one set of filters, views and traits for the CLI, the admin API and
//! the console.
//!
//! There is one trait for each noun, and a store implements all of them ([`Admin`]). The views are
//! serialized as they are: their JSON is the response of the admin API and the output of the CLI.
//! What they contain of payloads and responses is not masked until [`mask`](Trace::mask) or a
//! constructor with a mask is called.
//!
//! An [`Actor`] of a tenant can read and change only that tenant's rows. Operations that change
//! something write a line to the audit log in the same transaction. Lists are read in pages. A page
//! reads a bounded number of rows, so it may be empty and still have a next page.

mod content;
mod text;
mod pagination;
mod event;
mod delivery;
mod delivery_page;
mod edit;
mod patch;
mod job;
mod job_arguments;
mod key;
mod stored_key;
mod key_version;
mod key_decision;
mod unknown_record;
mod unknown;
mod unknown_decision;
mod inbox;
mod saga;
mod decision;
mod destination;
mod declaration;
mod destination_index;
mod job_worker;
mod partition;
mod stalled;
mod overview;
mod timeline;
mod timeline_source;
mod timeline_assembly;
mod polling;
mod endpoint_status;
mod endpoint;
mod endpoint_delivery;
mod endpoint_operations;
mod endpoint_overview;
mod endpoint_unsent;
mod audit;
mod test_event;
mod trying;
mod filter_trial;
mod mapping_trial;
mod endpoint_trial;

use std::fmt;

use serde::Serialize;

use crate::{key::Tenant, store::StoreError};

pub use audit::{AuditAdmin, AuditEntry, AuditFilter};
pub use content::Content;
pub use decision::{check_decision, decision_detail, saga_has_changed, saga_object};
pub use declaration::{
    check_destination_name, check_spec_change, check_spec_tenant, destination_object,
    read_new_spec, read_spec, start_of,
};
pub use delivery::{Delivery, DeliveryAdmin, DeliveryFilter, check_reason};
pub use delivery_page::{
    DeliveryCursor, DeliveryIndex, DeliveryStates, NoDeliveryCursor, delivery_object,
};
pub use destination::{
    Counts, Declared, Destination, DestinationAdmin, DestinationChanges, Partition, destination_of,
    partitions_of,
};
pub use destination_index::{Configured, DestinationIndex, configured};
pub use edit::edited;
pub use endpoint::{
    EndpointAction, EndpointAdmin, EndpointEdit, NewEndpoint, StoredEndpoint, TenantEndpoint,
    check_endpoint_tenant, check_secret_overlap, check_tenant_name, endpoint_has_changed,
    endpoint_object, listed_tenant, too_many_endpoints,
};
pub use endpoint_delivery::{
    EndpointDelivery, EndpointDeliveryFilter, EndpointHealth, EndpointReplay, ReplayEnded,
};
pub use endpoint_operations::{
    EndpointDraft, EndpointOperations, EndpointPatch, EndpointWithSecret,
};
pub use endpoint_overview::{
    DisabledEndpoint, EndpointAttention, EndpointFilter, EndpointOverview, EndpointTrace,
    ListedEndpoint, WaitingDelivery, WaitingEndpoint,
};
pub use endpoint_status::{EndpointStatus, slowed_reason};
pub use endpoint_trial::{EndpointTrial, TriedDelivery, TryEndpoint, try_endpoint};
pub use endpoint_unsent::{
    ReplayUnsent, UnsentEvents, UnsentPage, UnsentReplayed, UnsentWindow, replay_unsent,
};
pub use event::{DeliveryStatus, EventAdmin, EventDetail, EventFilter, EventSummary, Trace};
pub use filter_trial::{FilterTrial, TriedEvent, try_filter};
pub use inbox::{InboxAdmin, Message, MessageFilter};
pub use job::{Job, JobAdmin, JobFilter, JobKind, JobOptions, JobStep};
pub use job_arguments::{are_same_arguments, check_job_options, count_partitions, job_object};
pub use job_worker::JobWorker;
pub use key::{KeyAdmin, KeyFilter, KeyRecord, KeyState, KeySummary};
pub use key_decision::{KeyDecision, KeyOutcome};
pub use key_version::{KeyVersion, NoKeyVersion};
pub use mapping_trial::{MappedEvent, MappingTrial, TryMapping, try_mapping};
pub use overview::{
    Activity, Count, CountKind, DestinationFigures, Overview, OverviewAdmin, StateCount,
};
pub use pagination::{Cursor, NoCursor};
pub use partition::{NextRetry, PATIENCE, PartitionStatus};
pub use patch::patched_members;
pub use polling::{
    EventsOfType, NewPollingEndpoint, PollAdmin, PollingEndpoint, PollingLag, check_overlap,
    polling_object, too_many_tokens,
};
pub use saga::{SagaAdmin, SagaLook, SagaView};
pub use stalled::{Cause, Stalled, StalledItem};
pub use stored_key::{StoredKey, key_object, key_tenant, only_key};
pub use test_event::{TEST_EVENT, offer_test_event};
pub use text::{read_cursor, read_field, read_time};
pub use timeline::{Emitted, Timeline, TimelineAdmin};
pub use timeline_source::{FoundKey, MatchingEvents, RequestSeek, TimelineSource};
pub use unknown::{
    UnknownFilter, UnknownOutcome, UnknownWaiting, unknown_outcome, unknown_outcomes,
    waiting_unknown,
};
pub use unknown_decision::{
    GIVEN_HEADER_BYTES_MAX, GIVEN_HEADERS_MAX, check_given, decide_unknown, given_response,
};
pub use unknown_record::{NoUnknownRecord, UnknownReason, UnknownRecord};

/// Maximum number of rows on a page.
pub const PAGE_MAX: usize = 1_000;
/// Maximum length of the reason for an operation, in bytes.
pub const REASON_BYTES_MAX: usize = 1024;

/// Everything that operators see and do.
pub trait Admin:
    EventAdmin
    + DeliveryAdmin
    + JobAdmin
    + KeyAdmin
    + InboxAdmin
    + SagaAdmin
    + DestinationAdmin
    + DestinationChanges
    + PollAdmin
    + EndpointAdmin
    + EndpointOverview
    + UnsentEvents
    + OverviewAdmin
    + TimelineAdmin
    + AuditAdmin
    + fmt::Debug
{
}

impl<S> Admin for S where
    S: EventAdmin
        + DeliveryAdmin
        + JobAdmin
        + KeyAdmin
        + InboxAdmin
        + SagaAdmin
        + DestinationAdmin
        + DestinationChanges
        + PollAdmin
        + EndpointAdmin
        + EndpointOverview
        + UnsentEvents
        + OverviewAdmin
        + TimelineAdmin
        + AuditAdmin
        + fmt::Debug
{
}

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

    /// The name of the tenant to which the operator is limited.
    pub fn tenant(&self) -> Option<&str> {
        self.tenant.as_ref().map(Tenant::as_str)
    }
}

/// A page of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Page<T> {
    /// The items. They may be empty although there is a next page.
    pub items: Vec<T>,
    /// The value of `before` (or `after`) for the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl<T> Page<T> {
    /// The last page of a list, with these items.
    pub fn last(items: Vec<T>) -> Self {
        Self { items, next: None }
    }

    /// A page with at most `limit` items. If it is full, the next page begins at the `cursor` of its last
    /// item.
    pub fn up_to(limit: usize, items: Vec<T>, cursor: impl FnOnce(&T) -> String) -> Self {
        let last = items.last().filter(|_| items.len() == limit);
        let next = last.map(cursor);
        Self { items, next }
    }
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
        field: String,
        /// What is wrong with the field.
        problem: String,
    },
    /// Other programs have held the lock of the database for too long. Nothing was changed, and the
    /// operation may be tried again.
    #[error("the database is busy: other programs have been writing to it; try again")]
    Busy,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl AdminError {
    /// An object does not exist, or belongs to another tenant.
    pub fn not_found(what: impl fmt::Display) -> Self {
        let what = what.to_string();
        Self::NotFound { what }
    }

    /// The state of an object does not allow the operation.
    pub fn conflict(what: impl Into<String>) -> Self {
        Self::Conflict { what: what.into() }
    }

    /// A field of the request is not valid.
    pub fn invalid(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Invalid {
            field: field.into(),
            problem: problem.into(),
        }
    }
}
