//! The key table: one read to claim a key, one write to complete it.
//!
//! There is only one writer, so a claim writes no row: the job that is in its savepoint owns the
//! key until the savepoint ends, and `running` has its payload in memory meanwhile. A completed row
//! is written at once, with all its columns. If a claim finds a row, [`evaluate_claim`] evaluates it;
//! an expired row is overwritten.

use std::{borrow::Cow, time::Duration};

use bytes::Bytes;
use hapax::{
    Timestamp,
    idempotency::{Claim, KeyRecord, KeyState, OnExpired, StoredResponse, Taken, evaluate_claim},
    key::{Fingerprint, Scope},
    keyring::Keyring,
    limits::{RETENTION_MAX, SAGA_KEY},
    store::StoreError,
};
use rusqlite::{Connection, OptionalExtension, Row, params, types::Value};

use crate::{
    error::{corrupt, encrypted, not_encrypted, own_error},
    query,
    writer::WriterContext,
};

/// One statement of a single-shot request, with its parameters in order.
#[derive(Clone, Debug, PartialEq)]
pub struct Statement {
    /// The text of the statement. A text is prepared only once.
    pub sql: Cow<'static, str>,
    /// The values of `?1`, `?2` and so on.
    pub params: Vec<Value>,
}

impl Statement {
    /// The statement `sql` with `params`.
    pub fn new(sql: impl Into<Cow<'static, str>>, params: impl IntoIterator<Item = Value>) -> Self {
        Self {
            sql: sql.into(),
            params: params.into_iter().collect(),
        }
    }
}

/// A response as it is stored in the row, encoded before the writer runs the job.
#[derive(Debug)]
pub(crate) struct ResponseColumns {
    pub(crate) status: u16,
    pub(crate) headers: Vec<u8>,
    pub(crate) body: Bytes,
    pub(crate) resource_id: Option<String>,
}

impl ResponseColumns {
    pub(crate) fn of(
        keyring: &Keyring,
        scope: Option<&Scope>,
        response: &StoredResponse,
    ) -> Result<Self, StoreError> {
        let kept = match scope {
            Some(scope) => keyring.encrypt_response(scope, response),
            None => Ok(Cow::Borrowed(response)),
        };
        let kept = kept.map_err(not_encrypted)?;
        Ok(Self {
            status: kept.status,
            headers: kept.header_block(),
            body: kept.body.clone(),
            resource_id: kept.resource_id().map(str::to_owned),
        })
    }

    /// The name of the key's state after this response is stored.
    pub(crate) fn state(&self) -> &'static str {
        if self.status >= 500 {
            "failed"
        } else {
            "completed"
        }
    }
}

/// The retention of a response: what the claim asks for, up to the bound.
pub(crate) fn retention(claim: &Claim) -> Duration {
    claim.retention.min(RETENTION_MAX)
}

/// The name of what happens to the key after it has expired.
pub(crate) fn on_expired(claim: &Claim) -> &'static str {
    match claim.on_expired {
        OnExpired::New => "new",
        OnExpired::Gone => "gone",
    }
}

/// Returns the claim outcome of a key, or `None` if it is free.
pub(crate) fn taken(ctx: &WriterContext, claim: &Claim) -> Result<Option<Taken>, StoreError> {
    let now = ctx.now();
    let record = find(&ctx.conn, &claim.scope, now)?;
    let taken = record.and_then(|record| evaluate_claim(record, claim, now));
    let taken = taken.map(|taken| ctx.keyring.decrypt_taken(&claim.scope, taken));
    taken.transpose().map_err(encrypted("stored response"))
}

/// Stores the response under a key that this job owns. `transaction` is the number of the
/// transaction, if it has events.
pub(crate) fn complete(
    ctx: &WriterContext,
    claim: &Claim,
    created_at: Timestamp,
    response: &ResponseColumns,
    transaction: Option<i64>,
) -> Result<(), StoreError> {
    let sql = query!("idempotency/complete");
    store(ctx, sql, claim, created_at, response, transaction)
        .map(drop)
        .map_err(own_error)
}

/// Stores the response under a key if it is free. Returns false if it is taken.
pub(crate) fn claim_completed(
    ctx: &WriterContext,
    claim: &Claim,
    response: &ResponseColumns,
    transaction: Option<i64>,
) -> Result<bool, StoreError> {
    let sql = query!("idempotency/claim_completed");
    let stored = store(ctx, sql, claim, ctx.now(), response, transaction).map_err(own_error)?;
    Ok(stored == 1)
}

fn store(
    ctx: &WriterContext,
    sql: &str,
    claim: &Claim,
    created_at: Timestamp,
    response: &ResponseColumns,
    transaction: Option<i64>,
) -> rusqlite::Result<usize> {
    let now = ctx.now();
    ctx.conn.prepare_cached(sql)?.execute(params![
        claim.scope.tenant.as_str(),
        claim.scope.operation.as_str(),
        claim.scope.key.as_str(),
        claim.fingerprint.as_bytes(),
        response.state(),
        response.status,
        response.headers,
        &*response.body,
        on_expired(claim),
        created_at.as_millis(),
        now.as_millis(),
        now.after(retention(claim)).as_millis(),
        transaction,
        response.resource_id,
    ])
}

/// Reads the row of a key. Its response is not decrypted.
pub(crate) fn find(
    conn: &Connection,
    scope: &Scope,
    now: Timestamp,
) -> Result<Option<KeyRecord>, StoreError> {
    let find = || {
        let more = i64::try_from(SAGA_KEY.as_millis()).unwrap_or(i64::MAX);
        let key = params![
            scope.tenant.as_str(),
            scope.operation.as_str(),
            scope.key.as_str(),
            now.as_millis(),
            more,
        ];
        let mut statement = conn.prepare_cached(query!("idempotency/find"))?;
        statement
            .query_row(key, |row| Ok(record(row, now)))
            .optional()
    };
    find().map_err(own_error)?.transpose()
}

/// Reads a row of the key table.
fn record(row: &Row<'_>, now: Timestamp) -> Result<KeyRecord, StoreError> {
    let bad = |error: rusqlite::Error| corrupt(format!("idempotency key: {error}"));
    let state: String = row.get("state").map_err(bad)?;
    let state = match state.as_str() {
        "in_progress" => KeyState::InProgress,
        "completed" | "failed" => KeyState::Completed,
        "tombstone" => KeyState::Tombstone,
        other => return Err(corrupt(format!("idempotency key in state {other:?}"))),
    };
    Ok(KeyRecord {
        fingerprint: Fingerprint::from_bytes(row.get("fingerprint").map_err(bad)?),
        state,
        epoch: row.get("epoch").map_err(bad)?,
        lease_until: row
            .get::<_, Option<i64>>("lease_until")
            .map_err(bad)?
            .map(Timestamp::from_millis),
        response: (state == KeyState::Completed)
            .then(|| response(row))
            .transpose()?,
        created_at: Timestamp::from_millis(row.get("created_at").map_err(bad)?),
        expires_at: Timestamp::from_millis(row.get("expires_at").map_err(bad)?),
        read_at: now,
    })
}

fn response(row: &Row<'_>) -> Result<StoredResponse, StoreError> {
    let bad = |error: rusqlite::Error| corrupt(format!("stored response: {error}"));
    let block: Vec<u8> = row.get("response_headers").map_err(bad)?;
    Ok(StoredResponse {
        status: row.get("response_status").map_err(bad)?,
        headers: StoredResponse::parse_header_block(&block)
            .ok_or_else(|| corrupt("stored response: malformed header block"))?,
        body: Bytes::from(row.get::<_, Vec<u8>>("response_body").map_err(bad)?),
    })
}
