//! Queries for idempotency keys: lists by a filter, and single keys.
//!
//! Lists start with the newest claim. Keys in progress are found by a partial index. With any other
//! filter, a page reads a bounded number of keys.

use std::fmt;

use bytes::Bytes;
use hapax::{
    Timestamp,
    idempotency::StoredResponse,
    key::{IdempotencyKey, Operation, Scope, Tenant},
    keyring::Keyring,
    store::StoreError,
};
use tokio_postgres::Row;

use super::{Actor, AdminError, PAGE_MAX, Page, filters::word};
use crate::{
    delivery::settle::text,
    error::corrupt,
    postgres::Postgres,
    query,
    value::{Moment, Param, rows},
};

pub use super::{
    pagination::{Cursor, NoCursor},
    purge::{NoVersion, Version, purge},
};

/// A filter for keys. A field that is absent matches every key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keys {
    /// The operation, such as `POST /orders`.
    pub operation: Option<String>,
    /// The tenant.
    pub tenant: Option<Tenant>,
    /// The beginning of the key; or, after a `#`, the beginning of its short hash, which logs and
    /// spans contain.
    pub key: Option<String>,
    /// The state.
    pub state: Option<State>,
    /// Claimed at or after this time.
    pub since: Option<Timestamp>,
    /// Claimed before this time.
    pub until: Option<Timestamp>,
}

/// The state of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// The request has started and not ended (phased mode only).
    InProgress,
    /// The response is stored.
    Completed,
    /// The response is stored and says that the request has failed permanently.
    Failed,
    /// The response was purged. Only the fact that the key was used is kept.
    Tombstone,
}

impl State {
    /// All states.
    pub const ALL: [Self; 4] = [
        Self::InProgress,
        Self::Completed,
        Self::Failed,
        Self::Tombstone,
    ];

    /// The name in rows and responses.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InProgress => "in_progress",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Tombstone => "tombstone",
        }
    }

    /// The state with this name.
    pub fn named(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }
}

/// A key without its response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The tenant.
    pub tenant: String,
    /// The operation.
    pub operation: String,
    /// The key.
    pub key: String,
    /// The short hash of the key, which logs and spans contain.
    pub short_hash: String,
    /// The state.
    pub state: State,
    /// The number of owners that the key has had.
    pub epoch: i64,
    /// The end of its owner's lease, while the key is in progress.
    pub lease_until: Option<Timestamp>,
    /// The recovery point where a phased request will continue.
    pub recovery_point: Option<String>,
    /// The status of the stored response.
    pub status: Option<u16>,
    /// The size of the body of the stored response, in bytes.
    pub body_bytes: u64,
    /// When it was claimed.
    pub created_at: Timestamp,
    /// When the response was stored.
    pub completed_at: Option<Timestamp>,
    /// When it expires. A key in progress does not expire.
    pub expires_at: Timestamp,
}

/// A key with its response. It may contain confidential data: mask it before it is displayed.
#[derive(Clone, PartialEq, Eq)]
pub struct Record {
    /// The key as in a list.
    pub summary: Summary,
    /// The fingerprint of the request, in hex.
    pub fingerprint: String,
    /// What happens when it expires: `new` or `gone`.
    pub on_expired: String,
    /// The size of the request that is stored for a later owner, in bytes.
    pub request_bytes: Option<u64>,
    /// The headers of the stored response, in order.
    pub headers: Vec<(String, String)>,
    /// The body of the stored response.
    pub body: Vec<u8>,
    /// When it was read, by the database's clock.
    pub at: Timestamp,
    /// When it was claimed, in microseconds of the Unix epoch.
    pub(super) micros: i64,
    /// The low half of the id of the transaction that last wrote its row.
    pub(super) xmin: i64,
}

impl Record {
    /// The version of the key, which [`purge`] requires.
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
        // Neither a key nor its response belongs into a log.
        f.debug_struct("Record")
            .field("operation", &self.summary.operation)
            .field("short_hash", &self.summary.short_hash)
            .field("state", &self.summary.state)
            .finish_non_exhaustive()
    }
}

/// Lists keys that match a filter, the newest claim first.
///
/// # Errors
/// Fails if the store cannot be read.
pub async fn list(
    store: &Postgres,
    actor: &Actor,
    keys: &Keys,
    before: Option<&Cursor>,
    limit: usize,
) -> Result<Page<Summary, Cursor>, AdminError> {
    let Some(find) = Filters::of(actor, keys) else {
        return Ok(Page {
            items: Vec::new(),
            next: None,
        });
    };
    let limit = limit.clamp(1, PAGE_MAX);
    let from = Cursor::of(before, keys.until);
    // Filters that normally match few keys use a separate index, unless they match many.
    let narrow = match (keys.state, &find.prefix) {
        (_, Some(_)) => Some((query!("admin/keys_under"), LOOK_UNDER)),
        (Some(State::InProgress), _) => Some((query!("admin/keys_in_progress"), LOOK)),
        _ => None,
    };
    if let Some((sql, look)) = narrow {
        let found = find.ask(store, sql, from, limit, look).await?;
        if found.first().is_none_or(|row| row.get::<_, i64>(0) < look) {
            return page(&found, limit, look, None);
        }
    }
    let look = if find.is_any() { rows(limit) } else { LOOK };
    let sql = query!("admin/keys");
    let found = find.ask(store, sql, from, limit, look).await?;
    page(&found, limit, look, keys.since)
}

/// Reads one key. The tenant can be omitted by an actor of a tenant, and by any actor if only one
/// tenant has used the key for this operation.
///
/// # Errors
/// `NotFound` if the key does not exist or belongs to another tenant; `Invalid` if the tenant is
/// required.
pub async fn get(
    store: &Postgres,
    actor: &Actor,
    tenant: Option<&str>,
    operation: &str,
    key: &str,
) -> Result<Record, AdminError> {
    one(store, actor, tenant, Some(operation), key).await
}

/// Reads the only key that matches.
pub(super) async fn one(
    store: &Postgres,
    actor: &Actor,
    tenant: Option<&str>,
    operation: Option<&str>,
    key: &str,
) -> Result<Record, AdminError> {
    let missing = || {
        let what = operation.map(|it| format!(" for {}", it.escape_debug()));
        AdminError::not_found(format!("such key{}", what.unwrap_or_default()))
    };
    let tenant = match (actor.tenant(), tenant) {
        (Some(own), Some(other)) if own != other => return Err(missing()),
        (own, other) => own.or(other).map(text),
    };
    let (key, operation, time) = (text(key), operation.map(text), store.time());
    let params: [&dyn Param; 4] = [&key, &operation, &tenant, &time];
    let found = store.ask(query!("admin/key"), &params).await?;
    match found.as_slice() {
        [] => Err(missing()),
        [row] => record(row, store.keyring()).map_err(Into::into),
        _ => {
            let field = if operation.is_some() {
                "tenant"
            } else {
                "operation"
            };
            Err(AdminError::invalid(
                field,
                "is required: several keys have this name",
            ))
        }
    }
}

/// Keys that a page reads. This takes some tens of milliseconds.
const LOOK: i64 = 10_000;
/// Keys that a page reads if they are not stored in order of time, so that each is on another page
/// of the table.
const LOOK_UNDER: i64 = 2_000;

/// A filter as the parameters of a statement.
struct Filters {
    operation: Option<String>,
    tenant: Option<String>,
    prefix: Option<String>,
    hash: Option<String>,
    state: Option<&'static str>,
    since: Option<Moment>,
}

impl Filters {
    /// The filter of an actor; `None` if it asks for the keys of another tenant.
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

    /// Whether every key matches, so that no more keys are read than are listed.
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
) -> Result<Page<Summary, Cursor>, AdminError> {
    let matching = found
        .iter()
        .filter(|row| row.get::<_, Option<&str>>("tenant").is_some());
    let listed: Vec<&Row> = matching.collect();
    let last = listed.last().filter(|_| listed.len() == limit);
    let last = last.map(|row| Cursor::at(row));
    let items = listed.iter().map(|row| summary(row));
    Ok(Page {
        items: items.collect::<Result<_, _>>()?,
        next: Cursor::next(last, found, look, since),
    })
}

fn summary(row: &Row) -> Result<Summary, StoreError> {
    let key: String = row.get("key");
    let state: &str = row.get("state");
    let moment = |column| row.get::<_, Option<Moment>>(column).map(|it| it.0);
    let status: Option<i16> = row.get("response_status");
    let bytes: Option<i64> = row.get("body_bytes");
    Ok(Summary {
        tenant: row.get("tenant"),
        operation: row.get("operation"),
        short_hash: short_hash(&key)?,
        key,
        state: State::named(state).ok_or_else(|| corrupt(format!("key in state {state:?}")))?,
        epoch: row.get("epoch"),
        lease_until: moment("lease_until"),
        recovery_point: row.get("recovery_point"),
        status: status.map(i16::unsigned_abs),
        body_bytes: bytes.unwrap_or(0).unsigned_abs(),
        created_at: row.get::<_, Moment>("created_at").0,
        completed_at: moment("completed_at"),
        expires_at: row.get::<_, Moment>("expires_at").0,
    })
}

pub(super) fn record(row: &Row, keyring: &Keyring) -> Result<Record, StoreError> {
    let summary = summary(row)?;
    let block: Option<&[u8]> = row.get("response_headers");
    let headers = StoredResponse::parse_header_block(block.unwrap_or_default());
    let body: Option<&[u8]> = row.get("response_body");
    let kept = StoredResponse {
        status: summary.status.unwrap_or_default(),
        headers: headers.ok_or_else(|| corrupt("stored response: its header block"))?,
        body: Bytes::copy_from_slice(body.unwrap_or_default()),
    };
    // A response that cannot be decrypted here is shown as it is stored. A header names its key.
    let answer = scope(&summary)
        .and_then(|scope| keyring.decrypt_response(&scope, kept.clone()).ok())
        .unwrap_or(kept);
    // Header values are Latin-1, as in HTTP.
    let latin = |value: &[u8]| value.iter().map(|byte| char::from(*byte)).collect();
    let headers = answer
        .headers
        .iter()
        .map(|(name, value)| (name.clone(), latin(value)));
    Ok(Record {
        summary,
        fingerprint: row.get("fingerprint"),
        on_expired: row.get("on_expired"),
        request_bytes: row
            .get::<_, Option<i64>>("request_bytes")
            .map(i64::unsigned_abs),
        headers: headers.collect(),
        body: answer.body.to_vec(),
        at: row.get::<_, Moment>("at").0,
        xmin: row.get("xmin"),
        micros: row.get("micros"),
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
