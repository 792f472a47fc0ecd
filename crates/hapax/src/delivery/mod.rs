//! What is known about the way of each event to each destination.
//!
//! Plain sailing needs no row per event: a [`Checkpoint`] says up to where a
//! destination has settled everything, which events beyond that are settled
//! too, and which may be on the wire. Only what is late, failing, blocked or
//! dead is [`Parked`]. A [`Settlement`] changes all of it in one transaction.

pub mod positions;
mod shards;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;

use crate::{clock::Timestamp, event::EventId, outbox::OutboxEvent};

pub use shards::{SHARDS, Shards, ShardsError, part};

/// How far a destination has read: the highest id, and the snapshot that read it.
///
/// Where commit order is id order the snapshot is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Frontier {
    /// The highest position read.
    pub high: i64,
    /// The store's own description of what was visible then.
    pub snapshot: Option<Box<str>>,
}

/// What a destination has behind it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checkpoint {
    /// Everything up to here is delivered, parked or not routed here.
    pub frontier: Frontier,
    /// Positions beyond the frontier that are settled too.
    pub settled: BTreeSet<i64>,
    /// Positions beyond the frontier that are being offered for the first time.
    ///
    /// Written before the offer: if the relay dies, these count as one attempt.
    pub offered: BTreeSet<i64>,
}

/// Tells a part's newest checkpoint from every other that it had or could have had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckpointId {
    /// The ownership under which it was written; 0 where the part has no checkpoint.
    pub epoch: i64,
    /// The [number](Settlement::number) of the settlement that wrote it; 0 where none did.
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

/// A destination, taken.
#[derive(Clone, Debug)]
pub struct Opened {
    /// The number of this ownership: every settlement carries it.
    pub epoch: i64,
    /// Which checkpoint the part had when that was committed.
    pub newest: CheckpointId,
    /// Where to go on; its `offered` is empty, for those are parked now and so are settled.
    pub checkpoint: Checkpoint,
    /// Order keys that have an unfinished (`Retrying`, `Blocked`, `Dead`) delivery in the way, in
    /// order; no more than one beyond [`BLOCKED_KEYS`](crate::limits::BLOCKED_KEYS). About the others
    /// the store is asked.
    pub blocked_keys: Vec<String>,
    /// How many attempts the last owner did not see the end of.
    pub interrupted: u64,
    /// Why the destination had been disabled, if it had; opening it enabled it again.
    pub was_disabled: Option<String>,
}

/// Who is there to carry, and who carries what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attendance {
    /// The nodes that live, in order of their names; the one that asked among them.
    pub nodes: Vec<String>,
    /// The parts that a living node holds.
    pub held: Vec<Held>,
    /// The destinations that a node knows, by its name; of one that says nothing there is nothing.
    pub knows: BTreeMap<String, BTreeSet<String>>,
}

/// A part that is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The part.
    pub part: String,
    /// Who holds it.
    pub node: String,
    /// The number of that ownership.
    pub epoch: i64,
}

/// The destinations that a relay carries, or would, where it has no node name.
#[derive(Debug, Default)]
pub struct KnownDestinations(Mutex<BTreeSet<String>>);

impl KnownDestinations {
    /// Replaces what is known.
    pub fn set(&self, names: BTreeSet<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = names;
    }

    /// What is known.
    pub fn names(&self) -> BTreeSet<String> {
        let names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        names.clone()
    }
}

/// How a parked delivery waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParkedState {
    /// Its event is not to be delivered before a moment.
    Scheduled,
    /// It failed and will be offered again.
    Retrying,
    /// An earlier event of its key is in the way.
    Blocked,
    /// It is given up.
    Dead,
}

/// A delivery outside the flow.
#[derive(Clone, Debug)]
pub struct Parked {
    /// The event.
    pub event: Arc<OutboxEvent>,
    /// How it waits.
    pub state: ParkedState,
    /// Attempts made so far.
    pub attempt: u32,
    /// When it falls due.
    pub next_at: Timestamp,
    /// The order key that it holds up, as [`crate::event::Event::order_key`] spells it.
    pub order_key: Option<String>,
    /// Whether an operator asked for it, so that the destination's patterns say nothing.
    pub asked: bool,
}

/// What to write about a delivery that is parked, or parked anew.
#[derive(Clone, Debug)]
pub struct Park {
    /// The event's position.
    pub position: i64,
    /// How it waits.
    pub state: ParkedState,
    /// Attempts made so far.
    pub attempt: u32,
    /// When it falls due.
    pub next_at: Timestamp,
    /// The order key that it holds up, where order is kept.
    pub order_key: Option<String>,
    /// The last error, in one line.
    pub last_error: Option<String>,
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// The far side has it.
    Delivered,
    /// It may be taken later.
    Unavailable,
    /// It may be taken later, and only this event was refused.
    Declined,
    /// It will never be taken.
    Rejected,
    /// The destination wants nothing any more.
    Gone,
    /// The relay died before it knew.
    Interrupted,
}

impl AttemptOutcome {
    /// The word that stands in rows, metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Unavailable => "unavailable",
            Self::Declined => "declined",
            Self::Rejected => "rejected",
            Self::Gone => "gone",
            Self::Interrupted => "interrupted",
        }
    }

    /// Reads back what [`AttemptOutcome::as_str`] wrote.
    pub fn parse(text: &str) -> Option<Self> {
        use AttemptOutcome::{Declined, Delivered, Gone, Interrupted, Rejected, Unavailable};
        let all = [
            Delivered,
            Unavailable,
            Declined,
            Rejected,
            Gone,
            Interrupted,
        ];
        all.into_iter().find(|outcome| outcome.as_str() == text)
    }
}

/// One try, for the append-only log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The event's position.
    pub position: i64,
    /// Which try, from 1.
    pub number: u32,
    /// When it began.
    pub started_at: Timestamp,
    /// How long it took.
    pub duration: Duration,
    /// How it ended.
    pub outcome: AttemptOutcome,
    /// The far side's status, where it gave one.
    pub status: Option<u16>,
    /// What went wrong, in one line.
    pub error: Option<String>,
    /// The beginning of the far side's response.
    pub response_head: Bytes,
}

/// All that one turn of the relay writes down, in one transaction, in the order of the fields.
#[derive(Clone, Debug, Default)]
pub struct Settlement {
    /// Whose deliveries these are.
    pub destination: String,
    /// The ownership under which this is written.
    pub epoch: i64,
    /// Which of the settlements of this ownership it is, where it is one of a row: each is sent until
    /// it is known to be written, and only then the next, whose number is the next. The upper 32
    /// bits are drawn at random for each ownership: where a history was lost, an epoch may have been
    /// given twice.
    ///
    /// One that [is written once](Self::is_once) has a checkpoint, by which the store knows it when
    /// it comes again because its answer was lost: an operator may have changed its deliveries since.
    /// One without a number (0) is written as often as it comes.
    pub number: i64,
    /// Up to where its owner had read when it got hold of what this is about.
    ///
    /// A store whose latest history can be lost (a standby takes over that had not heard of all of
    /// it, a backup is restored) refuses what was read in a lost one, as
    /// [`SetBack`](crate::store::StoreError::SetBack): under the same positions, other events may
    /// stand there now. Where this is empty, the checkpoint's frontier counts.
    pub read: Vec<Frontier>,
    /// Which checkpoint its owner knows to be the part's newest.
    ///
    /// A store whose newest checkpoint is neither this one nor the one that this settlement writes
    /// has been set back, whatever names it has: it refuses, as
    /// [`SetBack`](crate::store::StoreError::SetBack). `None` asks for nothing.
    pub follows: Option<CheckpointId>,
    /// Of each read since that checkpoint was written the last event: its position, and its id.
    ///
    /// A store that can be set back between a read and its settlement, and give the positions again
    /// to other events, refuses where one of these events does not stand at its position, as
    /// [`SetBack`](crate::store::StoreError::SetBack). Where the last event of a read stands, no
    /// position below it is given again. All of them are asked for: the database may have been set
    /// back between two reads. What is written already is not refused: its events may be purged.
    ///
    /// A store whose process gives every position itself, from a counter in its memory that outlives
    /// what is restored into its file, as that of SQLite does, gives none again to an event while a
    /// read of it is unsettled, and need not ask.
    pub seen: Vec<(i64, EventId)>,
    /// The new checkpoint, when it moved.
    pub checkpoint: Option<Checkpoint>,
    /// Attempts at parked deliveries that begin now: position and the attempt's number. One that
    /// was `Blocked` becomes `Retrying`: its turn has come.
    pub begin: Vec<(i64, u32)>,
    /// Deliveries that are parked, or parked anew.
    pub park: Vec<Park>,
    /// Parked deliveries that arrived.
    pub delivered: Vec<i64>,
    /// Order keys whose first blocked delivery, by position, falls due now.
    pub release: Vec<String>,
    /// Attempts for the log.
    pub attempts: Vec<Attempt>,
    /// First attempts that arrived.
    pub arrived: Vec<Arrived>,
    /// Why the destination is to be disabled, when it is.
    pub disable: Option<String>,
}

impl Settlement {
    /// Whether it changes what an operator may change too, so that to write it again would undo that.
    pub fn is_once(&self) -> bool {
        let rows = [self.park.len(), self.delivered.len(), self.begin.len()];
        self.disable.is_some() || rows != [0; 3]
    }
}

/// First attempts of one batch that arrived: one row for all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// The events' positions.
    pub positions: BTreeSet<i64>,
    /// When the first of them was offered.
    pub started_at: Timestamp,
    /// How long the longest took.
    pub duration: Duration,
    /// The status code that all of them got.
    pub status: Option<u16>,
}

/// How far behind a destination is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Events beyond the checkpoint's frontier, whether routed here or not, plus parked ones.
    pub backlog: u64,
    /// Deliveries waiting outside the flow, dead ones apart.
    pub parked: u64,
    /// Dead letters.
    pub dead: u64,
    /// When the oldest undelivered event was written.
    pub oldest_at: Option<Timestamp>,
    /// Which checkpoint is the newest; `None` of a part that was never opened, or was removed.
    pub newest: Option<CheckpointId>,
}
