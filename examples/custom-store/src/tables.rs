//! The tables. Each field of [`Tables`] would be a table of a database.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use hapax::{
    Timestamp,
    delivery::{Attempt, Checkpoint, CheckpointId, Park, ParkedState},
    idempotency::{KeyRecord, OnExpired},
    key::Scope,
    outbox::OutboxEvent,
};
use ring::rand::{SecureRandom as _, SystemRandom};

/// All rows of a database.
#[derive(Clone, Debug)]
pub struct Tables {
    /// The service's own table.
    pub(crate) rows: Vec<String>,
    pub(crate) keys: HashMap<Scope, KeyRow>,
    /// The newest forgotten keys, by the number of the purge.
    pub(crate) purges: BTreeMap<i64, Scope>,
    /// Changes when a backup is restored, because purges and positions are assigned again then.
    pub(crate) history: u64,
    pub(crate) derivation_secret: [u8; 32],
    /// By source, message id and consumer.
    pub(crate) inbox: BTreeMap<[String; 3], InboxRow>,
    pub(crate) events: BTreeMap<i64, Arc<OutboxEvent>>,
    /// Remains when its event is purged, so that no position is assigned twice.
    pub(crate) last_position: i64,
    /// The position after which each destination starts.
    pub(crate) starts: BTreeMap<String, i64>,
    pub(crate) partitions: BTreeMap<String, Partition>,
    pub(crate) nodes: BTreeMap<String, Node>,
}

impl Tables {
    pub(crate) fn new() -> Result<Self, ring::error::Unspecified> {
        let mut derivation_secret = [0; 32];
        SystemRandom::new().fill(&mut derivation_secret)?;
        Ok(Self {
            rows: Vec::new(),
            keys: HashMap::new(),
            purges: BTreeMap::new(),
            history: 0,
            derivation_secret,
            inbox: BTreeMap::new(),
            events: BTreeMap::new(),
            last_position: 0,
            starts: BTreeMap::new(),
            partitions: BTreeMap::new(),
            nodes: BTreeMap::new(),
        })
    }
}

/// A completed key or its tombstone. A running key has no row: its transaction holds the lock.
#[derive(Clone, Debug)]
pub(crate) struct KeyRow {
    pub(crate) record: KeyRecord,
    pub(crate) on_expired: OnExpired,
}

/// A message that a consumer has accepted.
#[derive(Clone, Debug)]
pub(crate) struct InboxRow {
    pub(crate) payload_hash: [u8; 32],
    pub(crate) accepted_at: Timestamp,
}

/// A relay's node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Node {
    pub(crate) seen_at: Timestamp,
    /// The destinations of its last heartbeat.
    pub(crate) knows: BTreeSet<String>,
}

/// A partition of a destination with its checkpoint, its parked deliveries and its attempts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Partition {
    pub(crate) epoch: i64,
    /// The node that owns it.
    pub(crate) owner: Option<String>,
    pub(crate) checkpoint: Checkpoint,
    /// The number of the settlement that wrote the checkpoint.
    pub(crate) settlement: i64,
    pub(crate) written_at: Timestamp,
    pub(crate) disabled_reason: Option<String>,
    pub(crate) parked: BTreeMap<i64, ParkedRow>,
    /// First attempts that succeeded, by position.
    pub(crate) arrivals: BTreeMap<i64, Attempt>,
    /// All other attempts, in the order in which they were recorded.
    pub(crate) attempts: Vec<AttemptRow>,
}

/// A delivery that is scheduled, retrying, blocked or dead.
#[derive(Clone, Debug)]
pub(crate) struct ParkedRow {
    pub(crate) park: Park,
    /// When the attempt started that is not settled yet.
    pub(crate) begun_at: Option<Timestamp>,
    pub(crate) changed_at: Timestamp,
}

/// An attempt in the log.
#[derive(Clone, Debug)]
pub(crate) struct AttemptRow {
    pub(crate) attempt: Attempt,
    /// The node that had started the attempt when another node interrupted it, and when that node
    /// was last seen.
    pub(crate) interrupted: Option<(String, Option<Timestamp>)>,
}

impl ParkedRow {
    /// Makes the delivery due.
    pub(crate) fn retry_at(&mut self, now: Timestamp) {
        self.park.state = ParkedState::Retrying;
        self.park.next_at = now;
        self.changed_at = now;
    }

    /// Whether the delivery blocks later ones of its order key.
    fn is_unfinished(&self) -> bool {
        self.park.state != ParkedState::Scheduled
    }
}

impl Partition {
    /// The id of the newest checkpoint.
    pub(crate) fn newest(&self) -> CheckpointId {
        CheckpointId {
            epoch: self.epoch,
            settlement: self.settlement,
            high: self.checkpoint.frontier.high,
        }
    }

    /// The unfinished deliveries of an order key, by position.
    pub(crate) fn unfinished(&self, key: &str) -> impl Iterator<Item = &ParkedRow> {
        let of_key = move |row: &&ParkedRow| row.park.order_key.as_deref() == Some(key);
        let rows = self.parked.values().filter(|row| row.is_unfinished());
        rows.filter(of_key)
    }

    /// The order keys that have an unfinished delivery, in order.
    pub(crate) fn blocked_keys(&self, limit: usize) -> Vec<String> {
        let rows = self.parked.values().filter(|row| row.is_unfinished());
        let keys: BTreeSet<_> = rows.filter_map(|row| row.park.order_key.clone()).collect();
        keys.into_iter().take(limit).collect()
    }

    /// Makes the first unfinished delivery of an order key due, if it is blocked. Returns true if
    /// the key has none.
    pub(crate) fn release(&mut self, key: &str, now: Timestamp) -> bool {
        let Some(first) = self.unfinished(key).next().map(|row| row.park.position) else {
            return true;
        };
        let first = self.parked.get_mut(&first);
        if let Some(row) = first.filter(|row| row.park.state == ParkedState::Blocked) {
            row.park.attempt = 0;
            row.retry_at(now);
        }
        false
    }

    /// All attempts at one delivery.
    pub(crate) fn attempts(&self, position: i64) -> Vec<Attempt> {
        let first = self.arrivals.get(&position).into_iter();
        let others = self.attempts.iter().map(|row| &row.attempt);
        let others = others.filter(|attempt| attempt.position == position);
        first.chain(others).cloned().collect()
    }
}
