//! Transactions: a list of changes that the commit makes, all at once.

use std::{sync::Arc, time::Duration};

use hapax::{
    Timestamp,
    event::{Event, EventId, NewEvent},
    idempotency::{Claim, KeyRecord, KeyState, StoredResponse},
    inbox::{Acceptance, Accepted, Message, ResultError},
    keyring::Keyring,
    limits::RETENTION_MAX,
    outbox::{BuiltEvent, Draft, EventCheck, EventError, OutboxEvent, decode_columns},
    store::{DatabaseError, DatabaseErrorKind, Effect, StoreError, Transaction},
};
use tokio::sync::OwnedMutexGuard;

use crate::{
    Memory,
    running::RunningKey,
    tables::{InboxRow, KeyRow},
};

/// The only kind of statement: inserts a row of the service. An empty row is refused.
#[derive(Clone, Debug)]
pub struct InsertRow(pub String);

/// An open transaction.
#[derive(Debug)]
pub struct Tx {
    store: Memory,
    _running: RunningKey,
    /// Keeps other transactions out until this one ends.
    _writer: OwnedMutexGuard<()>,
    claim: Option<Claim>,
    began_at: Timestamp,
    draft: Draft,
    rows: Vec<String>,
    accepted: Vec<Message>,
    /// The outcomes of messages, to be counted. No view of this store shows results, so it does not
    /// keep them.
    outcomes: Accepted,
}

impl Tx {
    pub(crate) fn new(
        store: &Memory,
        writer: OwnedMutexGuard<()>,
        claim: Option<Claim>,
        draft: Draft,
    ) -> Self {
        Self {
            began_at: store.clock.now(),
            store: store.clone(),
            _running: store.database.running.start(claim.as_ref()),
            _writer: writer,
            claim,
            draft,
            rows: Vec::new(),
            accepted: Vec::new(),
            outcomes: Accepted::default(),
        }
    }

    /// Inserts a row of the service.
    ///
    /// # Errors
    /// Fails if the row is empty. The transaction stays usable.
    pub fn insert(&mut self, insert: InsertRow) -> Result<(), StoreError> {
        if insert.0.is_empty() {
            let kind = DatabaseErrorKind::CheckViolation;
            let constraint = Some("row_is_not_empty".to_owned());
            let refused = DatabaseError::new(kind, constraint, "empty", "the row is empty");
            return Err(StoreError::statement(refused));
        }
        self.rows.push(insert.0);
        Ok(())
    }

    /// Makes all changes, or none of them.
    fn write(mut self, key: Option<(Claim, KeyRow)>) -> Result<(), StoreError> {
        let events = self.draft.take_events().into_iter().map(stored_event);
        let events: Vec<Event> = events.collect::<Result<_, _>>()?;
        let has_events = !events.is_empty();
        let accepted_at = self.store.clock.now();
        let mut tables = self.store.tables();
        // From here on nothing can fail.
        tables.rows.append(&mut self.rows);
        for message in self.accepted {
            let payload_hash = message.payload_hash;
            let row = InboxRow {
                payload_hash,
                accepted_at,
            };
            tables.inbox.insert(inbox_key(&message), row);
        }
        for event in events {
            tables.last_position += 1;
            let position = tables.last_position;
            let event = Arc::new(OutboxEvent { position, event });
            tables.events.insert(position, event);
        }
        if let Some((claim, row)) = key {
            tables.keys.insert(claim.scope, row);
        }
        drop(tables);
        self.outcomes.committed();
        if has_events {
            self.store.notifier.notify();
        }
        Ok(())
    }
}

impl Transaction for Tx {
    fn emit(&mut self, event: NewEvent) -> Result<EventId, EventError> {
        let Memory { clock, random, .. } = &self.store;
        let (keyring, check) = (Keyring::default(), EventCheck::none());
        self.draft.add(event, clock, random, &keyring, &check)
    }

    async fn accept(&mut self, message: &Message) -> Result<Acceptance, StoreError> {
        let key = inbox_key(message);
        let mut earlier = self.accepted.iter();
        let earlier = earlier.find(|earlier| inbox_key(earlier) == key);
        let committed = || {
            let tables = self.store.tables();
            tables.inbox.get(&key).map(|row| row.payload_hash)
        };
        let known = earlier
            .map(|earlier| earlier.payload_hash)
            .or_else(committed);
        let acceptance = match known {
            None => {
                self.accepted.push(message.clone());
                Acceptance::First
            }
            Some(hash) if hash == message.payload_hash => Acceptance::Duplicate,
            Some(_) => Acceptance::Mismatch,
        };
        self.outcomes.add(message, acceptance);
        Ok(acceptance)
    }

    fn record_result(&mut self, result: &str) -> Result<(), ResultError> {
        self.outcomes.record_result(result)
    }

    async fn complete(
        mut self,
        response: &StoredResponse,
        effect: Effect,
    ) -> Result<Duration, StoreError> {
        if effect == Effect::Drop {
            self.rows.clear();
            self.accepted.clear();
            self.outcomes.rolled_back();
            self.outcomes = Accepted::default();
            self.draft.take_events();
        }
        let Some(claim) = self.claim.take() else {
            return self.write(None).map(|()| Duration::ZERO);
        };
        let fresh_for = claim.retention.min(RETENTION_MAX);
        let now = self.store.clock.now();
        let row = KeyRow {
            record: KeyRecord {
                fingerprint: claim.fingerprint,
                state: KeyState::Completed,
                epoch: 0,
                lease_until: None,
                response: Some(response.clone()),
                created_at: self.began_at,
                expires_at: now.after(fresh_for),
                read_at: now,
            },
            on_expired: claim.on_expired,
        };
        self.write(Some((claim, row))).map(|()| fresh_for)
    }

    async fn commit(self) -> Result<(), StoreError> {
        self.write(None)
    }

    async fn rollback(self) {
        self.outcomes.rolled_back();
    }
}

/// The columns that identify a message.
fn inbox_key(message: &Message) -> [String; 3] {
    let Message {
        source,
        message_id,
        consumer,
        ..
    } = message;
    [source, message_id, consumer].map(Clone::clone)
}

/// Decodes the columns of an event. A store on disk writes the columns, and decodes them when it
/// reads the event.
fn stored_event(columns: BuiltEvent) -> Result<Event, StoreError> {
    let payload = columns.payload().to_owned();
    let keyring = Keyring::default();
    let decoded = decode_columns(columns.event.id, &columns.headers, payload, &keyring);
    let (headers, payload) = decoded.map_err(|what| StoreError::Corrupt { what })?;
    Ok(Event {
        headers,
        payload,
        ..columns.event
    })
}
