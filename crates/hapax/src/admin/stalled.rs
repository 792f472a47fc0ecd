//! Stalled destinations, partitions, order keys and event types, with one reason for each.
//!
//! The reasons are those that the database knows. Whether a breaker is open is known only to the
//! relay that owns the partition, whose metrics show it.

use std::fmt;

use serde::Serialize;

use super::destination_of;
use crate::clock::Timestamp;

/// An item that makes no progress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Stalled {
    /// The item.
    #[serde(flatten)]
    pub what: StalledItem,
    /// The item, in words.
    pub name: String,
    /// The reason.
    #[serde(flatten)]
    pub cause: Cause,
    /// The reason, in words.
    pub detail: String,
    /// The time since which it is stalled, if that is recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// The approximate number of waiting events, deliveries or sagas, counted up to a bound.
    pub waiting: u64,
}

impl Stalled {
    /// Maximum number of order keys in the list.
    pub const ORDER_KEYS: i64 = 50;
    /// Maximum number of event types in the list.
    pub const EVENT_TYPES: i64 = 20;
    /// Deliveries of each kind that are checked for what they block, and maximum number of blocked
    /// deliveries that are counted for each order key.
    pub const HEADS: i64 = 100;
    /// Maximum number of sagas of one kind that are counted.
    pub const SAGAS: i64 = 1_000;

    /// An item and the reason why it is stalled.
    pub fn new(what: StalledItem, cause: Cause, since: Option<Timestamp>, waiting: u64) -> Self {
        Self {
            name: what.to_string(),
            what,
            detail: cause.to_string(),
            cause,
            since,
            waiting,
        }
    }
}

/// The item that is stalled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "what", rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum StalledItem {
    /// A partition of a destination.
    Partition {
        /// The partition.
        partition: String,
    },
    /// One order key at a partition of a destination. Other keys make progress.
    OrderKey {
        /// The partition.
        partition: String,
        /// The type of the aggregate.
        aggregate_type: String,
        /// The id of the aggregate.
        aggregate_id: String,
    },
    /// Events of one type at a partition of a destination. Other types make progress.
    EventType {
        /// The partition.
        partition: String,
        /// The type.
        #[serde(rename = "event_type")]
        kind: String,
    },
    /// Sagas of one kind.
    Sagas {
        /// The name of their definition.
        #[serde(rename = "saga")]
        name: String,
        /// The version of their definition.
        version: u32,
    },
    /// The outbox as a whole.
    Outbox,
}

/// The reason why an item is stalled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "cause", rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub enum Cause {
    /// The destination is paused.
    Paused {
        /// The operator who paused it; `None` if its specification does.
        #[serde(skip)]
        by: Option<String>,
    },
    /// The destination is disabled, for example because its receiver responded 410 (Gone).
    Disabled {
        /// The reason.
        #[serde(skip)]
        reason: String,
    },
    /// No relay is alive, or no live relay knows the destination.
    Unowned {
        /// The last owner.
        #[serde(rename = "node", skip_serializing_if = "Option::is_none")]
        last: Option<String>,
    },
    /// The relay that owns the partition has stopped sending heartbeats.
    OwnerSilent {
        /// The node name of the relay.
        node: String,
        /// The time of its last heartbeat.
        #[serde(skip)]
        seen_at: Option<Timestamp>,
    },
    /// A delivery waits for its next attempt, or until the time that the receiver asked for.
    WaitsForRetry {
        /// The position of the event that is tried next.
        position: i64,
        /// The number of attempts made.
        #[serde(skip)]
        attempts: u32,
        /// The time of the next attempt.
        next_at: Timestamp,
        /// The error of the last attempt.
        #[serde(skip)]
        error: Option<String>,
    },
    /// A live relay owns the partition and settles nothing: its breaker is open, or the receiver is
    /// slow. Its metrics show which.
    NotSettling,
    /// A dead letter blocks the later events of its order key.
    BehindDeadLetter {
        /// The position of its event.
        position: i64,
        /// Its last error.
        #[serde(skip)]
        error: Option<String>,
    },
    /// The receiver accepts other events and declines these: no queue or stream is bound for them,
    /// or it refuses their content. They are retried on the destination's schedule and then become
    /// dead letters.
    Declined {
        /// The position of the first one.
        position: i64,
        /// The error of one of them.
        #[serde(skip)]
        error: Option<String>,
    },
    /// These sagas need a person's decision.
    NeedsAttention,
    /// These sagas are due, and no worker takes them: no running worker knows their version.
    NobodyKnows,
    /// A transaction has written rows and is still open. Its events are not visible yet, and the
    /// outbox cannot be purged beyond them. Events of other transactions are delivered.
    HeldBack {
        /// The session of the transaction, or the name under which it was prepared.
        #[serde(skip)]
        holder: String,
    },
}

impl StalledItem {
    /// An order key, as it is stored, of a partition.
    pub fn order_key(partition: String, order_key: &str) -> Self {
        let (kind, id) = order_key.split_once('\n').unwrap_or(("", order_key));
        Self::OrderKey {
            partition,
            aggregate_type: kind.to_owned(),
            aggregate_id: id.to_owned(),
        }
    }

    /// The destination to which it belongs.
    pub fn destination(&self) -> Option<&str> {
        match self {
            Self::Partition { partition }
            | Self::OrderKey { partition, .. }
            | Self::EventType { partition, .. } => Some(destination_of(partition)),
            Self::Sagas { .. } | Self::Outbox => None,
        }
    }
}

impl Cause {
    /// The name in responses.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Paused { .. } => "paused",
            Self::Disabled { .. } => "disabled",
            Self::Unowned { .. } => "unowned",
            Self::OwnerSilent { .. } => "owner_silent",
            Self::WaitsForRetry { .. } => "waits_for_retry",
            Self::NotSettling => "not_settling",
            Self::BehindDeadLetter { .. } => "behind_dead_letter",
            Self::Declined { .. } => "declined",
            Self::NeedsAttention => "needs_attention",
            Self::NobodyKnows => "nobody_knows",
            Self::HeldBack { .. } => "held_back",
        }
    }

    /// The order of the list: first what never continues by itself, then what continues when an
    /// operator or a process acts, then what is intended, and last what continues by itself.
    pub const fn rank(&self) -> u8 {
        match self {
            Self::Disabled { .. } => 0,
            Self::Unowned { .. } => 1,
            Self::OwnerSilent { .. } => 2,
            Self::NeedsAttention => 3,
            Self::NobodyKnows => 4,
            Self::BehindDeadLetter { .. } => 5,
            Self::Declined { .. } => 6,
            Self::NotSettling => 7,
            Self::HeldBack { .. } => 8,
            Self::Paused { .. } => 9,
            Self::WaitsForRetry { .. } => 10,
        }
    }

    /// Whether other deliveries of the partition may still make progress.
    pub const fn is_passing(&self) -> bool {
        matches!(self, Self::WaitsForRetry { .. } | Self::NotSettling)
    }
}

impl fmt::Display for Cause {
    /// A clause for people, without times.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = |error: &Option<String>| {
            let error = error.as_deref().filter(|error| !error.is_empty());
            error.map(|error| format!(": {error}")).unwrap_or_default()
        };
        match self {
            Self::Paused { by: Some(by) } => write!(f, "paused by {by}"),
            Self::Paused { by: None } => write!(f, "paused by its own setting"),
            Self::Disabled { reason } => write!(f, "disabled: {reason}"),
            Self::Unowned { last: Some(last) } => {
                write!(f, "no relay owns it; the last owner was {last}")
            }
            Self::Unowned { last: None } => write!(f, "no relay owns it"),
            Self::OwnerSilent { node, .. } => {
                write!(f, "owned by {node}, which sends no heartbeats")
            }
            Self::WaitsForRetry {
                position,
                attempts,
                error,
                ..
            } => {
                let error = said(error);
                write!(
                    f,
                    "event {position} waits for attempt {}{error}",
                    attempts + 1
                )
            }
            Self::NotSettling => write!(
                f,
                "its relay is alive but settles nothing: a breaker is open, or the receiver is slow"
            ),
            Self::BehindDeadLetter { position, error } => {
                write!(f, "blocked by dead letter {position}{}", said(error))
            }
            Self::Declined { error, .. } => {
                write!(f, "the receiver declines them{}", said(error))
            }
            Self::NeedsAttention => write!(f, "they need the decision of an operator"),
            Self::NobodyKnows => write!(f, "due, but no running worker knows their version"),
            Self::HeldBack { holder } => {
                write!(f, "{holder} has written rows and has not committed")
            }
        }
    }
}

impl fmt::Display for StalledItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Partition { partition } => write!(f, "destination {partition}"),
            Self::OrderKey {
                partition,
                aggregate_type,
                aggregate_id,
            } => write!(f, "{aggregate_type} {aggregate_id} at {partition}"),
            Self::EventType { partition, kind } => write!(f, "events {kind} at {partition}"),
            Self::Sagas { name, version } => write!(f, "sagas {name} version {version}"),
            Self::Outbox => write!(f, "the outbox"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_item_and_its_cause_are_one_object() {
        let what = StalledItem::EventType {
            partition: "mail/1".to_owned(),
            kind: "order.created".to_owned(),
        };
        let cause = Cause::Declined {
            position: 7,
            error: Some("no queue".to_owned()),
        };
        let since = Some(Timestamp::from_millis(1_500));
        let expected = json!({
            "what": "event_type",
            "name": "events order.created at mail/1",
            "partition": "mail/1",
            "event_type": "order.created",
            "cause": "declined",
            "detail": "the receiver declines them: no queue",
            "position": 7,
            "since": "1970-01-01T00:00:01.500Z",
            "waiting": 3,
        });
        let stalled = Stalled::new(what, cause, since, 3);
        assert_eq!(serde_json::to_value(stalled).unwrap(), expected);
        let outbox = Stalled::new(StalledItem::Outbox, Cause::NotSettling, None, 0);
        let outbox = serde_json::to_value(outbox).unwrap();
        assert_eq!(
            (&outbox["what"], &outbox["cause"]),
            (&json!("outbox"), &json!("not_settling"))
        );
    }
}
