//! Idempotency keys looked at: listed by what is known of them, one shown.
//!
//! A list has the newest claim first. What is in progress is found by the index that holds nothing
//! else; every other filter looks at a bounded number of keys a page.

use std::fmt;

use bytes::Bytes;
use hapax::{
    Timestamp,
    idempotency::Answer,
    key::{IdempotencyKey, Operation, Scope, Tenant},
    keyring::Keyring,
    store::StoreError,
};
use tokio_postgres::Row;

use super::{Actor, OperateError, PAGE_MAX, Page, find::word};
use crate::{
    error::corrupt,
    outbox::rows,
    postgres::Postgres,
    query,
    settle::text,
    value::{Moment, Param},
};

pub use super::{
    place::{Cursor, NoCursor},
    purge::{NoVersion, Version, purge},
};

/// Which keys are meant; what is absent fits every one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keys {
    /// What they are for, such as `POST /orders`.
    pub operation: Option<String>,
    /// Whose they are.
    pub tenant: Option<Tenant>,
    /// How they begin; or how their short hash begins, as logs and spans say it, behind a `#`.
    pub key: Option<String>,
    /// How they stand.
    pub state: Option<State>,
    /// Claimed at or after this moment.
    pub since: Option<Timestamp>,
    /// Claimed before this moment.
    pub until: Option<Timestamp>,
}

/// How a key stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// Its request has begun and not ended (phased mode only).
    InProgress,
    /// Its answer is stored.
    Completed,
    /// Its answer is stored, and says that the request failed for good.
    Failed,
    /// Its answer was purged; only that it was used is left.
    Tombstone,
}

impl State {
    /// Every state.
    pub const ALL: [Self; 4] = [
        Self::InProgress,
        Self::Completed,
        Self::Failed,
        Self::Tombstone,
    ];

    /// The word that stands in rows and answers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InProgress => "in_progress",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Tombstone => "tombstone",
        }
    }

    /// The state of this word.
    pub fn named(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }
}

/// A key without its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Whose it is.
    pub tenant: String,
    /// What it is for.
    pub operation: String,
    /// The key itself.
    pub key: String,
    /// Its short hash, as logs and spans say it.
    pub short_hash: String,
    /// How it stands.
    pub state: State,
    /// How many owners it has had.
    pub epoch: i64,
    /// Until when its owner has it, while it is in progress.
    pub lease_until: Option<Timestamp>,
    /// Where its request will go on, where that has phases.
    pub recovery_point: Option<String>,
    /// The status of the stored answer.
    pub status: Option<u16>,
    /// Bytes of the stored answer's body.
    pub body_bytes: u64,
    /// When it was claimed.
    pub created_at: Timestamp,
    /// When its answer was stored.
    pub completed_at: Option<Timestamp>,
    /// When it expires; nothing that is in progress does.
    pub expires_at: Timestamp,
}

/// A key with its answer. What it holds is for who may see it: mask it before it is shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Record {
    /// What the list says.
    pub summary: Summary,
    /// Its fingerprint, in hex.
    pub fingerprint: String,
    /// What becomes of it when it expires: `new` or `gone`.
    pub on_expired: String,
    /// Bytes of the request that is kept for whoever takes it over.
    pub request_bytes: Option<u64>,
    /// The headers of the stored answer, in order.
    pub headers: Vec<(String, String)>,
    /// The body of the stored answer.
    pub body: Vec<u8>,
    /// When it was looked at, by the database's clock.
    pub at: Timestamp,
    /// When it was claimed, in microseconds of the Unix epoch.
    pub(super) micros: i64,
    /// The low half of the number of the transaction that wrote its row last.
    pub(super) xmin: i64,
}

impl Record {
    /// Which version of the key this is: for whoever purges it.
    pub fn version(&self) -> Version {
        Version {
            epoch: self.summary.epoch,
            micros: self.micros,
            xmin: self.xmin,
        }
    }
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Neither a key nor what is stored under it belongs into a log.
        f.debug_struct("Record")
            .field("operation", &self.summary.operation)
            .field("short_hash", &self.summary.short_hash)
            .field("state", &self.summary.state)
            .finish_non_exhaustive()
    }
}

/// Lists keys by a filter, the newest claim first.
///
/// # Errors
/// Fails when the store cannot be read.
pub async fn list(
    store: &Postgres,
    actor: &Actor,
    keys: &Keys,
    before: Option<&Cursor>,
    limit: usize,
) -> Result<Page<Summary, Cursor>, OperateError> {
    let Some(find) = Find::of(actor, keys) else {
        return Ok(Page {
            items: Vec::new(),
            next: None,
        });
    };
    let limit = limit.clamp(1, PAGE_MAX);
    let from = Cursor::of(before, keys.until);
    // What few keys have is found by an index of its own, unless they are many after all.
    let narrow = match (keys.state, &find.prefix) {
        (_, Some(_)) => Some((query!("operate/keys_under"), LOOK_UNDER)),
        (Some(State::InProgress), _) => Some((query!("operate/keys_in_progress"), LOOK)),
        _ => None,
    };
    if let Some((sql, look)) = narrow {
        let found = find.ask(store, sql, from, limit, look).await?;
        if found.first().is_none_or(|row| row.get::<_, i64>(0) < look) {
            return page(&found, limit, look, None);
        }
    }
    let look = if find.is_any() { rows(limit) } else { LOOK };
    let sql = query!("operate/keys");
    let found = find.ask(store, sql, from, limit, look).await?;
    page(&found, limit, look, keys.since)
}

/// Reads one key. An actor of a tenant may leave the tenant out, and so may anybody as long as no
/// two tenants have used the key for the same operation.
///
/// # Errors
/// `NotFound` when there is none, or it is another tenant's; `Invalid` when the tenant has to be
/// said.
pub async fn get(
    store: &Postgres,
    actor: &Actor,
    tenant: Option<&str>,
    operation: &str,
    key: &str,
) -> Result<Record, OperateError> {
    one(store, actor, tenant, Some(operation), key).await
}

/// The one key that fits.
pub(super) async fn one(
    store: &Postgres,
    actor: &Actor,
    tenant: Option<&str>,
    operation: Option<&str>,
    key: &str,
) -> Result<Record, OperateError> {
    let missing = || {
        let what = operation.map(|it| format!(" {}", it.escape_debug()));
        OperateError::not_found(format!("key of that name{}", what.unwrap_or_default()))
    };
    let tenant = match (actor.tenant(), tenant) {
        (Some(own), Some(other)) if own != other => return Err(missing()),
        (own, other) => own.or(other).map(text),
    };
    let (key, operation, time) = (text(key), operation.map(text), store.time());
    let params: [&dyn Param; 4] = [&key, &operation, &tenant, &time];
    let found = store.ask(query!("operate/key"), &params).await?;
    match found.as_slice() {
        [] => Err(missing()),
        [row] => record(row, store.keyring()).map_err(Into::into),
        _ => {
            let field = if operation.is_some() {
                "tenant"
            } else {
                "operation"
            };
            Err(OperateError::invalid(
                field,
                "has to be said: several keys of that name are there",
            ))
        }
    }
}

/// Keys that a page looks at: some tens of milliseconds.
const LOOK: i64 = 10_000;
/// The same where they lie in no order of time, a page of the table each.
const LOOK_UNDER: i64 = 2_000;

/// A filter as the parameters of a statement.
struct Find {
    operation: Option<String>,
    tenant: Option<String>,
    prefix: Option<String>,
    hash: Option<String>,
    state: Option<&'static str>,
    since: Option<Moment>,
}

impl Find {
    /// The filter of an actor; `None` when it asks for another tenant's keys.
    fn of(actor: &Actor, keys: &Keys) -> Option<Self> {
        let tenant = match (&actor.tenant, &keys.tenant) {
            (Some(own), Some(other)) if own != other => return None,
            (own, other) => own.as_ref().or(other.as_ref()),
        };
        let asked = keys.key.as_deref().filter(|key| !key.is_empty());
        let hash = asked.and_then(|key| key.strip_prefix('#'));
        Some(Self {
            operation: word(keys.operation.as_ref()),
            tenant: tenant.map(Tenant::as_str).map(text),
            prefix: asked.filter(|_| hash.is_none()).map(text),
            hash: hash.map(|hash| text(hash).to_ascii_lowercase()),
            state: keys.state.map(State::as_str),
            since: keys.since.map(Moment),
        })
    }

    /// Whether every key fits: then no more are looked at than are listed.
    fn is_any(&self) -> bool {
        let words = [&self.operation, &self.tenant, &self.prefix, &self.hash];
        words.iter().all(|it| it.is_none()) && self.state.is_none() && self.since.is_none()
    }

    async fn ask(
        &self,
        store: &Postgres,
        sql: &'static str,
        from: Cursor,
        limit: usize,
        look: i64,
    ) -> Result<Vec<Row>, StoreError> {
        let count = rows(limit);
        let params: [&dyn Param; 10] = [
            &self.operation,
            &self.tenant,
            &self.prefix,
            &self.hash,
            &self.state,
            &self.since,
            &from.micros,
            &from.tie,
            &count,
            &look,
        ];
        store.ask(sql, &params).await
    }
}

fn page(
    found: &[Row],
    limit: usize,
    look: i64,
    since: Option<Timestamp>,
) -> Result<Page<Summary, Cursor>, OperateError> {
    let matching = found
        .iter()
        .filter(|row| row.get::<_, Option<&str>>(FIRST).is_some());
    let listed: Vec<&Row> = matching.collect();
    let last = listed.last().filter(|_| listed.len() == limit);
    let last = last.map(|row| Cursor::at(row, FIRST + 12));
    let items = listed.iter().map(|row| summary(row, FIRST));
    Ok(Page {
        items: items.collect::<Result<_, _>>()?,
        next: Cursor::next(last, found, look, since),
    })
}

/// The first column of a listed key: those before it say where the look ended.
const FIRST: usize = 3;

fn summary(row: &Row, first: usize) -> Result<Summary, StoreError> {
    let key: String = row.get(first + 2);
    let state: &str = row.get(first + 3);
    let moment = |column| row.get::<_, Option<Moment>>(first + column).map(|it| it.0);
    let status: Option<i16> = row.get(first + 7);
    let bytes: Option<i64> = row.get(first + 8);
    Ok(Summary {
        tenant: row.get(first),
        operation: row.get(first + 1),
        short_hash: short_hash(&key)?,
        key,
        state: State::named(state).ok_or_else(|| corrupt(format!("key in state {state:?}")))?,
        epoch: row.get(first + 4),
        lease_until: moment(5),
        recovery_point: row.get(first + 6),
        status: status.map(i16::unsigned_abs),
        body_bytes: bytes.unwrap_or(0).unsigned_abs(),
        created_at: row.get::<_, Moment>(first + 9).0,
        completed_at: moment(10),
        expires_at: row.get::<_, Moment>(first + 11).0,
    })
}

pub(super) fn record(row: &Row, keyring: &Keyring) -> Result<Record, StoreError> {
    let summary = summary(row, 0)?;
    let block: Option<&[u8]> = row.get(15);
    let headers = Answer::parse_header_block(block.unwrap_or_default());
    let body: Option<&[u8]> = row.get(16);
    let kept = Answer {
        status: summary.status.unwrap_or_default(),
        headers: headers.ok_or_else(|| corrupt("stored answer: its header block"))?,
        body: Bytes::copy_from_slice(body.unwrap_or_default()),
    };
    // One that does not decrypt here is shown as it is kept; its header says under which key.
    let answer = scope(&summary)
        .and_then(|scope| keyring.decrypt_answer(&scope, kept.clone()).ok())
        .unwrap_or(kept);
    // A value's bytes are Latin-1, as the wire has it.
    let latin = |value: &[u8]| value.iter().map(|byte| char::from(*byte)).collect();
    let headers = answer
        .headers
        .iter()
        .map(|(name, value)| (name.clone(), latin(value)));
    Ok(Record {
        summary,
        fingerprint: row.get(12),
        on_expired: row.get(13),
        request_bytes: row.get::<_, Option<i64>>(14).map(i64::unsigned_abs),
        headers: headers.collect(),
        body: answer.body.to_vec(),
        at: row.get::<_, Moment>(17).0,
        xmin: row.get(18),
        micros: row.get(19),
    })
}

fn scope(key: &Summary) -> Option<Scope> {
    Some(Scope {
        tenant: Tenant::new(key.tenant.as_str()).ok()?,
        operation: Operation::new(key.operation.as_str()).ok()?,
        key: IdempotencyKey::new(key.key.as_str()).ok()?,
    })
}

fn short_hash(key: &str) -> Result<String, StoreError> {
    let key = IdempotencyKey::new(key).map_err(|error| corrupt(format!("key: {error}")))?;
    Ok(key.short_hash())
}

pub(super) fn object(key: &Summary) -> String {
    format!("key {} #{}", key.operation, key.short_hash)
}
