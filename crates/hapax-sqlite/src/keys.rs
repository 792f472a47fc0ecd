//! The store's traits for keys: claims, planned requests, and the maintenance of the key table.

use std::time::Duration;

use hapax::{
    Timestamp,
    event::Headers,
    idempotency::{Claim, KeyRecord, OnClaimed, PlannedRequest},
    key::{DerivationSecret, IdempotencyKey, Operation, Scope, Tenant},
    limits::{PURGE_ROWS, PURGES_KEPT, TOMBSTONE},
    outbox::Draft,
    purges::{PurgeMark, Purged},
    quota::Usage,
    store::{ClaimOutcome, KeyMaintenance, Keys, StoreError},
};
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::{
    error::{corrupt, encrypted, store_error},
    idempotency::{Statement, find},
    query, single_shot,
    sqlite::Sqlite,
    transaction::{
        Tx,
        interactive::{self, TransactionKind},
    },
    value::rows,
    writer::WriterContext,
};

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
        let draft = Draft::of(&mut claim);
        interactive::open(self, TransactionKind::Claim(claim), draft).await
    }

    async fn claim_pipelined(
        &self,
        mut claim: Claim,
        on_claimed: OnClaimed,
    ) -> Result<ClaimOutcome<Tx>, StoreError> {
        let draft = Draft::of(&mut claim);
        let pipelined = (claim, on_claimed);
        Ok(ClaimOutcome::Open(Tx::pipelined(self, draft, pipelined)))
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
                Ok((row.get("tenant")?, row.get("keys")?, row.get("bytes")?))
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
        tenant: Tenant::new(part("tenant")?).ok()?,
        operation: Operation::new(part("operation")?).ok()?,
        key: IdempotencyKey::new(part("key")?).ok()?,
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
    let now = ctx.now();
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
            rowid: row.get("rowid")?,
            operation: row.get("operation")?,
            leaves_tombstone: row.get_ref("on_expired")?.as_str()? == "gone",
            expires_at: Timestamp::from_millis(row.get("expires_at")?),
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
