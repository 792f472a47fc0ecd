//! The progress of deliveries: checkpoints, parked deliveries, attempts, and settlements.
//!
//! A delivery that succeeds needs no row. A [`Checkpoint`] records up to which position a
//! destination has settled everything, which later events are settled too, and which may be in
//! flight. Only deliveries that are late, failing, blocked or dead have a row; they are [`Parked`].
//! A [`Settlement`] changes all of this in one transaction.

pub mod positions;
mod shards;
mod start;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use serde::Serialize;

use crate::{clock::Timestamp, event::EventId, json, outbox::OutboxEvent};

pub use shards::{SHARDS, Shards, ShardsError, partition};
pub use start::{Start, StartError};

/// How far a destination has read: the highest position, and the snapshot in which it was read.
///
/// The snapshot is empty if positions are in commit order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Frontier {
    /// The highest position that was read.
    pub high: i64,
    /// The store's description of the transactions that were visible.
    pub snapshot: Option<Box<str>>,
}

/// The settled events of a destination.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checkpoint {
    /// Every event up to here is delivered, parked, or not routed to this destination.
    pub frontier: Frontier,
    /// Positions after the frontier that are settled too.
    pub settled: BTreeSet<i64>,
    /// Positions after the frontier that are being offered for the first time.
    ///
    /// They are recorded before the offer. If the relay dies, each of them counts as one attempt.
    pub offered: BTreeSet<i64>,
}

/// Identifies a partition's checkpoint among all that it has had or could have had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckpointId {
    /// The epoch in which the checkpoint was written; 0 if the partition has no checkpoint.
    pub epoch: i64,
    /// The [number](Settlement::number) of the settlement that wrote it; 0 if it was not written by
    /// a settlement.
    pub settlement: i64,
    /// The highest position of its frontier.
    pub high: i64,
}

impl fmt::Display for CheckpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            epoch,
            settlement,
            high,
        } = self;
        write!(f, "at {high}, of epoch {epoch}, by settlement {settlement}")
    }
}

/// A partition that was taken by a relay.
#[derive(Clone, Debug)]
pub struct Opened {
    /// The epoch of this ownership. Every settlement contains it.
    pub epoch: i64,
    /// The newest checkpoint of the partition when the ownership was committed.
    pub newest: CheckpointId,
    /// Where to continue. Its `offered` is empty, because those events are parked now.
    pub checkpoint: Checkpoint,
    /// Order keys that have an unfinished (`Retrying`, `Blocked`, `Dead`) delivery, in order, at
    /// most one more than [`BLOCKED_KEYS`](crate::limits::BLOCKED_KEYS). The store is asked about
    /// all others.
    pub blocked_keys: Vec<String>,
    /// The number of attempts whose outcome the last owner did not record.
    pub interrupted: u64,
    /// The reason for which the destination had been disabled, if it had been. Opening it has
    /// enabled it.
    pub was_disabled: Option<String>,
}

/// The live relay nodes and the partitions that they own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Membership {
    /// The names of the live nodes, in order, including the one that asked.
    pub nodes: Vec<String>,
    /// The partitions that are owned by a live node.
    pub held: Vec<OwnedPartition>,
    /// The destinations that each node knows, by the name of the node. Nodes that report none are
    /// left out.
    pub knows: BTreeMap<String, BTreeSet<String>>,
    /// The highest [version](OperatorSetting::version) of what operators have set, 0 without any;
    /// `None` if the store does not report it here.
    pub operators: Option<i64>,
}

/// The owner of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedPartition {
    /// The partition.
    pub partition: String,
    /// The node that owns it.
    pub node: String,
    /// The epoch of the ownership.
    pub epoch: i64,
}

/// The setting of a destination that an operator has made at run time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorSetting {
    /// The name of the destination.
    pub destination: String,
    /// The number of the change, which is higher than the numbers of all earlier changes. A relay
    /// takes the destination again after a change, which enables it.
    pub version: i64,
    /// Whether the destination is paused.
    pub is_paused: bool,
    /// Whether the destination is removed: no relay serves it.
    pub is_removed: bool,
}

/// The destinations that a relay without a node name owns, or would own.
#[derive(Debug, Default)]
pub struct KnownDestinations(Mutex<BTreeSet<String>>);

impl KnownDestinations {
    /// Replaces the names.
    pub fn set(&self, names: BTreeSet<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = names;
    }

    /// The current names.
    pub fn names(&self) -> BTreeSet<String> {
        let names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        names.clone()
    }
}

/// Why a parked delivery waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParkedState {
    /// Its event must not be delivered before a given time.
    Scheduled,
    /// An attempt failed, and another will be made.
    Retrying,
    /// An earlier event of the same order key is unfinished.
    Blocked,
    /// No further attempt will be made.
    Dead,
}

impl ParkedState {
    /// The name in the rows of a store.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Retrying => "retrying",
            Self::Blocked => "blocked",
            Self::Dead => "dead",
        }
    }
}

/// A parked delivery.
#[derive(Clone, Debug)]
pub struct Parked {
    /// The event.
    pub event: Arc<OutboxEvent>,
    /// Why the delivery waits.
    pub state: ParkedState,
    /// The number of attempts so far.
    pub attempt: u32,
    /// When the delivery is due.
    pub next_at: Timestamp,
    /// The order key that it blocks, in the format of [`crate::event::Event::order_key`].
    pub order_key: Option<String>,
    /// Whether an operator requested this delivery. The destination's patterns and its filter do
    /// not apply then.
    pub manual: bool,
}

/// A delivery that is to be parked, or whose parked row is to be replaced.
#[derive(Clone, Debug)]
pub struct Park {
    /// The position of the event.
    pub position: i64,
    /// Why the delivery waits.
    pub state: ParkedState,
    /// The number of attempts so far.
    pub attempt: u32,
    /// When the delivery is due.
    pub next_at: Timestamp,
    /// The order key that it blocks, if the destination keeps order.
    pub order_key: Option<String>,
    /// The last error, in one line.
    pub last_error: Option<String>,
}

/// The outcome of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum AttemptOutcome {
    /// The receiver has the event.
    Delivered,
    /// The receiver may take the event later.
    Unavailable,
    /// The receiver may take the event later, and refused only this event.
    Declined,
    /// The receiver will never take the event.
    Rejected,
    /// The receiver does not want any more events.
    Gone,
    /// The relay died before it learned the outcome.
    Interrupted,
    /// No attempt was made: too many deliveries waited for the endpoint of a tenant.
    Dropped,
}

impl AttemptOutcome {
    /// The name of the outcome in rows, metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Unavailable => "unavailable",
            Self::Declined => "declined",
            Self::Rejected => "rejected",
            Self::Gone => "gone",
            Self::Interrupted => "interrupted",
            Self::Dropped => "dropped",
        }
    }

    /// Parses what [`AttemptOutcome::as_str`] returns.
    pub fn parse(text: &str) -> Option<Self> {
        use AttemptOutcome::{
            Declined, Delivered, Dropped, Gone, Interrupted, Rejected, Unavailable,
        };
        let all = [
            Delivered,
            Unavailable,
            Declined,
            Rejected,
            Gone,
            Interrupted,
            Dropped,
        ];
        all.into_iter().find(|outcome| outcome.as_str() == text)
    }
}

/// An attempt, as recorded in the append-only log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Attempt {
    /// The position of the event.
    #[serde(skip)]
    pub position: i64,
    /// The number of the attempt, starting at 1.
    pub number: u32,
    /// When the attempt started.
    pub started_at: Timestamp,
    /// How long the attempt took, in milliseconds.
    #[serde(rename = "duration_ms", serialize_with = "json::millis")]
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub duration: Duration,
    /// The outcome.
    pub outcome: AttemptOutcome,
    /// The status code of the receiver, if it sent one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The error, in one line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The beginning of the receiver's response.
    #[serde(
        rename = "response",
        skip_serializing_if = "Bytes::is_empty",
        serialize_with = "json::head"
    )]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub response_head: Bytes,
}

/// Everything that one iteration of the relay records, in one transaction and in the order of the
/// fields.
#[derive(Clone, Debug, Default)]
pub struct Settlement {
    /// The destination of the deliveries.
    pub destination: String,
    /// The epoch of the ownership under which this is recorded.
    pub epoch: i64,
    /// The number of this settlement within its ownership. A settlement is retried until it is
    /// confirmed; only then is the next one sent, with the next number. The upper 32 bits are
    /// random for each ownership, because the same epoch can be assigned twice if a part of the
    /// history was lost.
    ///
    /// A settlement that [is written once](Self::is_once) has a checkpoint. The store recognizes it
    /// by that checkpoint when it is sent again because its confirmation was lost: an operator may
    /// have changed its deliveries meanwhile. A settlement without a number (0) is written every
    /// time.
    pub number: i64,
    /// The frontiers up to which its owner had read when it received the events of this settlement.
    ///
    /// A store can lose the end of its history: a standby that lagged takes over, or a backup is
    /// restored. The store then refuses events that were read in the lost part, with
    /// [`SetBack`](crate::store::StoreError::SetBack), because other events may have the same
    /// positions now. If this is empty, the checkpoint's frontier is used.
    pub read: Vec<Frontier>,
    /// The checkpoint that its owner knows as the partition's newest.
    ///
    /// If the newest checkpoint in the store is neither this one nor the one that this settlement
    /// writes, the store was set back, and refuses the settlement with
    /// [`SetBack`](crate::store::StoreError::SetBack). `None` skips the check.
    pub follows: Option<CheckpointId>,
    /// The last event of each read since that checkpoint was written: its position and its id.
    ///
    /// A store that can be set back between a read and its settlement, and that can then assign the
    /// same positions to other events, looks these events up. If one of them is missing or has
    /// another id, the store refuses the settlement with
    /// [`SetBack`](crate::store::StoreError::SetBack). While the last event of a read exists, no
    /// position before it is assigned again. All of them are looked up, because the database may
    /// have been set back between two reads. A settlement that is written already is not refused:
    /// its events may be purged.
    ///
    /// A store whose process assigns every position from a counter in memory, as SQLite's does,
    /// never assigns the position of an unsettled read again, and need not look anything up.
    pub seen: Vec<(i64, EventId)>,
    /// The new checkpoint, if it has changed.
    pub checkpoint: Option<Checkpoint>,
    /// Attempts at parked deliveries that start now: the position and the number of the attempt. A
    /// `Blocked` delivery becomes `Retrying`.
    pub begin: Vec<(i64, u32)>,
    /// Deliveries that are parked, or whose parked row is replaced.
    pub park: Vec<Park>,
    /// Parked deliveries that succeeded.
    pub delivered: Vec<i64>,
    /// Order keys whose first blocked delivery, by position, is due now.
    pub release: Vec<String>,
    /// Attempts for the log.
    pub attempts: Vec<Attempt>,
    /// First attempts that succeeded.
    pub arrived: Vec<Arrived>,
    /// Why the destination is to be disabled, if it is.
    pub disable: Option<String>,
    /// The deliveries that become dead letters, for [operational events](crate::operational). Each is
    /// in [`park`](Self::park), too.
    pub exhausted: Vec<Exhausted>,
}

/// An exhausted delivery: it has no attempts left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exhausted {
    /// The id of the event.
    pub event_id: EventId,
    /// The type of the event.
    pub event_type: String,
    /// The tenant of the event.
    pub event_tenant: Option<String>,
    /// The number of attempts.
    pub attempts: u32,
    /// The error of the last attempt, in one line.
    pub error: Option<String>,
}

impl Settlement {
    /// Whether this settlement changes rows that an operator may change too, so that writing it
    /// again would undo the operator's change.
    pub fn is_once(&self) -> bool {
        let rows = [self.park.len(), self.delivered.len(), self.begin.len()];
        self.disable.is_some() || rows != [0; 3]
    }
}

/// First attempts of one batch that succeeded, recorded in one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// The positions of the events.
    pub positions: BTreeSet<i64>,
    /// When the first of them was offered.
    pub started_at: Timestamp,
    /// The longest duration.
    pub duration: Duration,
    /// The status code that all of them received.
    pub status: Option<u16>,
}

/// The backlog of a destination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Events after the checkpoint's frontier, whether routed to this destination or not, and
    /// parked deliveries.
    pub events: u64,
    /// Parked deliveries without dead letters.
    pub parked: u64,
    /// Dead letters.
    pub dead: u64,
    /// When the first undelivered event became due: when it was written, or its `available_at` if
    /// that is later. If none is due yet, a later time or `None`. If it was not found among the
    /// events that were examined, no later than that.
    pub oldest_at: Option<Timestamp>,
    /// The newest checkpoint; `None` if the partition was never opened or was removed.
    pub newest: Option<CheckpointId>,
}
