//! Deliveries that have a row: parked, dead, or finished after they were parked.
//!
//! An event that was delivered at the first attempt has no such row; its trace shows that attempt.

use async_trait::async_trait;
use serde::Serialize;

use super::{Actor, AdminError, DeliveryStatus, EventFilter, Page, REASON_BYTES_MAX};
use crate::clock::Timestamp;

/// Lists of deliveries, and operations on one of them. Many dead letters at once are processed by a
/// job.
#[async_trait]
pub trait DeliveryAdmin: Send + Sync {
    /// Lists the deliveries that match a filter, the newest event first.
    ///
    /// `Invalid` for a state in which deliveries have no row.
    async fn deliveries(
        &self,
        actor: &Actor,
        filter: &DeliveryFilter,
        before: Option<&str>,
        limit: usize,
    ) -> Result<Page<Delivery>, AdminError>;

    /// Counts the dead letters of a destination that match a filter and were dead when `seen` was
    /// taken ([`JobAdmin::seen`](super::JobAdmin::seen)). A job with the same `seen` processes
    /// exactly these.
    async fn count_dead_letters(
        &self,
        actor: &Actor,
        destination: &str,
        filter: &EventFilter,
        seen: &str,
    ) -> Result<u64, AdminError>;

    /// Makes one dead letter due again, as if it had never been tried. Its old attempts stay in the
    /// log.
    ///
    /// `NotFound` if the delivery does not exist; `Conflict` if it is not dead, or no longer.
    async fn replay_dead_letter(
        &self,
        actor: &Actor,
        partition: &str,
        position: i64,
    ) -> Result<(), AdminError>;

    /// Makes one dead letter due again with an edited payload, as if it had never been tried. The
    /// patch is a JSON merge patch (RFC 7396) and is applied to the payload that the destination
    /// was offered last.
    ///
    /// The event itself is not changed, nor what other destinations are offered. The event keeps
    /// its id, so a consumer that has accepted the event in the meantime refuses the edited one as
    /// a mismatch. The audit log contains the names of the replaced members, but no values.
    ///
    /// Fails like [`replay_dead_letter`](Self::replay_dead_letter); `Invalid` if the patch is not a
    /// JSON object, or makes the payload too large; `Conflict` if the payload is not JSON, or is
    /// encrypted with a key that is not known here.
    async fn edit_dead_letter(
        &self,
        actor: &Actor,
        partition: &str,
        position: i64,
        patch: &str,
    ) -> Result<(), AdminError>;

    /// Discards one dead letter permanently, with a reason, and releases the deliveries that it
    /// blocked.
    ///
    /// Fails like [`replay_dead_letter`](Self::replay_dead_letter); `Invalid` without a reason.
    async fn discard_dead_letter(
        &self,
        actor: &Actor,
        partition: &str,
        position: i64,
        reason: &str,
    ) -> Result<(), AdminError>;

    /// Makes one delivery due now that waits for its next attempt. Its attempts still count: if this
    /// one was the last and fails, the delivery is a dead letter. If the destination's breaker is
    /// open, its relay sends the next probe at once.
    ///
    /// A delivery that is due already is not delayed, and succeeds as well.
    ///
    /// `NotFound` if the delivery does not exist; `Conflict` if it is in another state than
    /// `retrying`.
    async fn retry_delivery_now(
        &self,
        actor: &Actor,
        partition: &str,
        position: i64,
    ) -> Result<(), AdminError>;
}

/// A filter for deliveries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeliveryFilter {
    /// The filter of their events.
    pub events: EventFilter,
    /// The destination; `None` for all.
    pub destination: Option<String>,
    /// The states; all in which deliveries have a row, if it is empty.
    pub states: Vec<DeliveryStatus>,
}

/// A delivery that has a row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Delivery {
    /// The name of the destination.
    pub destination: String,
    /// The partition; together with the position it identifies the delivery.
    pub partition: String,
    /// The position of the event.
    pub position: i64,
    /// `scheduled`, `retrying`, `blocked`, `dead`, `delivered` or `discarded`.
    pub state: String,
    /// Attempts since it was parked or replayed.
    pub attempts: u32,
    /// When the next attempt is due, or was due.
    pub next_at: Timestamp,
    /// The order key that it blocks.
    #[serde(skip)]
    pub order_key: Option<String>,
    /// When this state was recorded; for a dead letter, when it died.
    pub changed_at: Timestamp,
    /// The last error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// Why the delivery was discarded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The event id.
    pub event_id: String,
    /// The event type.
    #[serde(rename = "type")]
    pub kind: String,
    /// The tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The aggregate type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aggregate_type: Option<String>,
    /// The aggregate id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aggregate_id: Option<String>,
    /// When the event was created.
    pub created_at: Timestamp,
}

/// Checks the reason for an operation.
///
/// # Errors
/// `Invalid` if it is empty or too long.
pub fn check_reason(reason: &str) -> Result<(), AdminError> {
    if reason.trim().is_empty() || reason.len() > REASON_BYTES_MAX {
        let problem = format!("must be 1 to {REASON_BYTES_MAX} bytes long");
        return Err(AdminError::invalid("reason", problem));
    }
    Ok(())
}
