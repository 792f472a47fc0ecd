//! The key table: one read to claim a key, one write to complete it.
//!
//! There is only one writer, so a claim writes no row: the job that is in its savepoint owns the
//! key until the savepoint ends. A completed row is written at once, with all its columns. If a
//! claim finds a row, [`evaluate_claim`] evaluates it; an expired row is overwritten.

use std::{borrow::Cow, time::Duration};

use bytes::Bytes;
use hapax::{
    Timestamp,
    event::Headers,
    idempotency::{
        Claim, KeyRecord, KeyState, OnExpired, PlannedRequest, StoredResponse, Taken,
        evaluate_claim,
    },
    key::{DerivationSecret, Fingerprint, IdempotencyKey, Operation, Scope, Tenant},
    keyring::Keyring,
    limits::{PURGE_ROWS, PURGES_KEPT, RETENTION_MAX, SAGA_KEY, TOMBSTONE},
    outbox::Draft,
    purges::{PurgeMark, Purged},
    quota::Usage,
    seeded::{self, Bug},
    store::{ClaimOutcome, KeyMaintenance, Keys, StoreError},
};
use rusqlite::{Connection, OptionalExtension, Row, params, types::Value};

use crate::{
    error::{corrupt, encrypted, not_encrypted, store_error},
    interactive::{self, TransactionKind},
    query, single_shot,
    sqlite::Sqlite,
    transaction::Tx,
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

impl Keys for Sqlite {
    type Tx = Tx;

    type Statement = Statement;

    async fn begin(&self, tenant: Option<Tenant>, context: Headers) -> Result<Tx, StoreError> {
        match interactive::open(self, TransactionKind::Nothing, Draft::new(tenant, context)).await?
        {
            ClaimOutcome::Open(tx) => Ok(tx),
            ClaimOutcome::Taken(_) => Err(corrupt("a claim outcome although no claim was made")),
        }
    }

    async fn claim(&self, mut claim: Claim) -> Result<ClaimOutcome<Tx>, StoreError> {
        if seeded::has(Bug::CheckThenInsert)
            && let Some(taken) = looked(self, &claim).await?
        {
            return Ok(ClaimOutcome::Taken(taken));
        }
        let draft = Draft::of(&mut claim);
        interactive::open(self, TransactionKind::Claim(claim), draft).await
    }

    async fn claim_pipelined(&self, mut claim: Claim) -> Result<ClaimOutcome<Tx>, StoreError> {
        if seeded::has(Bug::CheckThenInsert) {
            return self.claim(claim).await;
        }
        let draft = Draft::of(&mut claim);
        Ok(ClaimOutcome::Open(Tx::pipelined(self, draft, claim)))
    }

    async fn execute_plan(
        &self,
        planned: PlannedRequest<Statement>,
    ) -> Result<ClaimOutcome<Duration>, StoreError> {
        single_shot::run(self, planned).await
    }

    async fn look_up(&self, scope: &Scope) -> Result<Option<KeyRecord>, StoreError> {
        let (wanted, now) = (scope.clone(), self.clock().now());
        let found = self.look(move |conn| find(conn, &wanted, now)).await?;
        let Some(mut record) = found else {
            return Ok(None);
        };
        if let Some(kept) = record.response.take() {
            let response = self.keyring().decrypt_response(scope, kept);
            record.response = Some(response.map_err(encrypted("stored response"))?);
        }
        Ok(Some(record))
    }

    async fn derivation_secret(&self) -> Result<DerivationSecret, StoreError> {
        let secret = |conn: &Connection| {
            let row = conn.query_row(query!("idempotency/secret"), [], |row| row.get(0));
            row.optional()
        };
        let secret: Option<[u8; 32]> = self.read(secret).await?;
        secret
            .map(DerivationSecret::from_bytes)
            .ok_or_else(|| corrupt("the secret of derived keys is missing"))
    }
}

impl KeyMaintenance for Sqlite {
    async fn forget(&self, scope: &Scope) -> Result<bool, StoreError> {
        let scope = scope.clone();
        self.submit(move |ctx| forget(ctx, &scope).map_err(store_error))
            .await
    }

    async fn purged(&self, since: Option<&PurgeMark>) -> Result<Purged, StoreError> {
        // Without a mark, only the current number is wanted: no purge is after `i64::MAX`.
        let after = since.map_or(i64::MAX, |since| since.number);
        let (number, kept) = self.read(move |conn| purged(conn, after)).await?;
        // While this process has the file open, no other database can take its place.
        let history = String::new();
        Ok(Purged::of(since, PurgeMark { history, number }, kept))
    }

    async fn purge_keys(&self) -> Result<Vec<(Operation, u64)>, StoreError> {
        self.submit(|ctx| purge(ctx)).await
    }

    async fn usage(&self) -> Result<Vec<Usage>, StoreError> {
        let now = self.clock().now().as_millis();
        let used = move |conn: &Connection| {
            let mut statement = conn.prepare_cached(query!("idempotency/usage"))?;
            let rows = statement.query_map([now], |row| {
                Ok((row.get(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?))
            })?;
            rows.collect::<rusqlite::Result<Vec<(String, i64, i64)>>>()
        };
        let used = self.read(used).await?.into_iter();
        let usage = used.map(|(tenant, keys, bytes)| {
            let bad = |error| corrupt(format!("usage of a tenant: {error}"));
            Ok(Usage {
                tenant: Tenant::new(tenant).map_err(bad)?,
                keys: keys.unsigned_abs(),
                bytes: bytes.unsigned_abs(),
            })
        });
        usage.collect()
    }
}

/// A response as it is stored in the row, encoded before the writer runs the job.
#[derive(Debug)]
pub(crate) struct ResponseColumns {
    pub(crate) status: u16,
    pub(crate) headers: Vec<u8>,
    pub(crate) body: Bytes,
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

/// Looks a key up before the writer runs the job; used only by a seeded bug.
pub(crate) async fn looked(store: &Sqlite, claim: &Claim) -> Result<Option<Taken>, StoreError> {
    let now = store.clock().now();
    let record = store.look_up(&claim.scope).await?;
    Ok(record.and_then(|record| evaluate_claim(record, claim, now)))
}

/// Stores the response under a key that this job owns.
pub(crate) fn complete(
    ctx: &WriterContext,
    claim: &Claim,
    created_at: Timestamp,
    response: &ResponseColumns,
) -> Result<(), StoreError> {
    let sql = query!("idempotency/complete");
    store(ctx, sql, claim, created_at, response)
        .map(drop)
        .map_err(store_error)
}

/// Stores the response under a key if it is free. Returns false if it is taken.
pub(crate) fn claim_completed(
    ctx: &WriterContext,
    claim: &Claim,
    response: &ResponseColumns,
) -> Result<bool, StoreError> {
    let sql = query!("idempotency/claim_completed");
    let stored = store(ctx, sql, claim, ctx.now(), response).map_err(store_error)?;
    Ok(stored == 1)
}

fn store(
    ctx: &WriterContext,
    sql: &str,
    claim: &Claim,
    created_at: Timestamp,
    response: &ResponseColumns,
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
    find().map_err(store_error)?.transpose()
}

/// Reads a row of the key table.
fn record(row: &Row<'_>, now: Timestamp) -> Result<KeyRecord, StoreError> {
    let bad = |error: rusqlite::Error| corrupt(format!("idempotency key: {error}"));
    let state: String = row.get(1).map_err(bad)?;
    let state = match state.as_str() {
        "in_progress" => KeyState::InProgress,
        "completed" | "failed" => KeyState::Completed,
        "tombstone" => KeyState::Tombstone,
        other => return Err(corrupt(format!("idempotency key in state {other:?}"))),
    };
    Ok(KeyRecord {
        fingerprint: Fingerprint::from_bytes(row.get(0).map_err(bad)?),
        state,
        epoch: row.get(2).map_err(bad)?,
        lease_until: row
            .get::<_, Option<i64>>(3)
            .map_err(bad)?
            .map(Timestamp::from_millis),
        response: (state == KeyState::Completed)
            .then(|| response(row))
            .transpose()?,
        created_at: Timestamp::from_millis(row.get(7).map_err(bad)?),
        expires_at: Timestamp::from_millis(row.get(8).map_err(bad)?),
        read_at: now,
    })
}

fn response(row: &Row<'_>) -> Result<StoredResponse, StoreError> {
    let bad = |error: rusqlite::Error| corrupt(format!("stored response: {error}"));
    let block: Vec<u8> = row.get(5).map_err(bad)?;
    Ok(StoredResponse {
        status: row.get(4).map_err(bad)?,
        headers: StoredResponse::parse_header_block(&block)
            .ok_or_else(|| corrupt("stored response: malformed header block"))?,
        body: Bytes::from(row.get::<_, Vec<u8>>(6).map_err(bad)?),
    })
}

/// Deletes a key and records the purge.
fn forget(ctx: &WriterContext, scope: &Scope) -> rusqlite::Result<bool> {
    let parts = [
        scope.tenant.as_str(),
        scope.operation.as_str(),
        scope.key.as_str(),
    ];
    let mut forget = ctx.conn.prepare_cached(query!("idempotency/forget"))?;
    if forget.execute(parts)? == 0 {
        return Ok(false);
    }
    let [tenant, operation, key] = parts;
    let now = ctx.now().as_millis();
    let mut note = ctx.conn.prepare_cached(query!("idempotency/note_purge"))?;
    let drawn: i64 = note.query_row(params![tenant, operation, key, now], |row| row.get(0))?;
    let mut drop = ctx.conn.prepare_cached(query!("idempotency/drop_purges"))?;
    drop.execute([drawn - rows(PURGES_KEPT)])?;
    Ok(true)
}

/// Returns the number of the last purge, and the keys that were purged after a number.
fn purged(conn: &Connection, after: i64) -> rusqlite::Result<(i64, Vec<Scope>)> {
    let mut statement = conn.prepare_cached(query!("idempotency/purged"))?;
    let (mut number, mut kept) = (0, Vec::new());
    let mut found = statement.query([after])?;
    while let Some(row) = found.next()? {
        number = row.get(0)?;
        // An unreadable row is left out. The gap in the numbers then makes the replay cache forget
        // all responses.
        kept.extend(purged_scope(row));
    }
    Ok((number, kept))
}

fn purged_scope(row: &Row<'_>) -> Option<Scope> {
    let part = |place| row.get::<_, Option<String>>(place).ok().flatten();
    Some(Scope {
        tenant: Tenant::new(part(1)?).ok()?,
        operation: Operation::new(part(2)?).ok()?,
        key: IdempotencyKey::new(part(3)?).ok()?,
    })
}

/// An expired row of the key table.
struct Expired {
    rowid: i64,
    operation: String,
    leaves_tombstone: bool,
    expires_at: Timestamp,
}

fn purge(ctx: &WriterContext) -> Result<Vec<(Operation, u64)>, StoreError> {
    let mut now = ctx.now();
    if seeded::has(Bug::PurgeLiveKey) {
        now = now.after(RETENTION_MAX);
    }
    let mut gone: Vec<String> = Vec::new();
    let mut purge = || {
        for row in expired(&ctx.conn, now)? {
            purge_one(&ctx.conn, &row, now)?;
            gone.push(row.operation);
        }
        let mut tombstones = ctx
            .conn
            .prepare_cached(query!("idempotency/purge_tombstones"))?;
        let operations = |row: &Row<'_>| row.get(0);
        for operation in
            tombstones.query_map(params![now.as_millis(), rows(PURGE_ROWS)], operations)?
        {
            gone.push(operation?);
        }
        Ok(())
    };
    purge().map_err(store_error)?;
    count(gone)
}

fn count(gone: Vec<String>) -> Result<Vec<(Operation, u64)>, StoreError> {
    let mut counts: Vec<(Operation, u64)> = Vec::new();
    for operation in gone {
        let counted = counts
            .iter_mut()
            .find(|(counted, _)| counted.as_str() == operation);
        if let Some((_, count)) = counted {
            *count += 1;
            continue;
        }
        let operation = Operation::new(operation)
            .map_err(|error| corrupt(format!("operation of a key: {error}")))?;
        counts.push((operation, 1));
    }
    Ok(counts)
}

fn expired(conn: &Connection, now: Timestamp) -> rusqlite::Result<Vec<Expired>> {
    let mut statement = conn.prepare_cached(query!("idempotency/expired"))?;
    let read = |row: &Row<'_>| {
        Ok(Expired {
            rowid: row.get(0)?,
            operation: row.get(1)?,
            leaves_tombstone: row.get_ref(2)?.as_str()? == "gone",
            expires_at: Timestamp::from_millis(row.get(3)?),
        })
    };
    statement
        .query_map(params![now.as_millis(), rows(PURGE_ROWS)], read)?
        .collect()
}

fn purge_one(conn: &Connection, row: &Expired, now: Timestamp) -> rusqlite::Result<usize> {
    let until = row.expires_at.after(TOMBSTONE);
    if row.leaves_tombstone && until > now {
        let mut bury = conn.prepare_cached(query!("idempotency/bury"))?;
        return bury.execute(params![row.rowid, until.as_millis()]);
    }
    conn.prepare_cached(query!("idempotency/purge"))?
        .execute([row.rowid])
}

/// A number of rows as a parameter.
pub(crate) fn rows(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
