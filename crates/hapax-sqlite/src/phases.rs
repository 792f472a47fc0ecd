//! Keys of phased requests: claimed, renewed, advanced and finished, each in a separate commit.
//!
//! There is only one writer, so a claim reads the row, evaluates it and writes it in one savepoint.
//! Later statements of an owner change its row only if the epoch and the creation time are still
//! the owner's. If no row changes, the savepoint is rolled back and the owner is fenced.

use std::time::Duration;

use hapax::{
    Timestamp,
    event::Headers,
    idempotency::{Claim, StoredResponse, Taken},
    key::{Fingerprint, IdempotencyKey, KeyError, Operation, Scope, Tenant},
    keyring::Keyring,
    limits::GRACE_DOUBLINGS,
    outbox::Draft,
    phases::{Entry, Lapsed, Ownership, Start, TakenOver, check_name, evaluate_entry},
    store::{ClaimOutcome, Phases, StoreError},
};
use rusqlite::{Row, params};

use crate::{
    error::{corrupt, encrypted, not_encrypted, own_error},
    idempotency::{ResponseColumns, find, on_expired, retention},
    phase::{Phase, fenced},
    query,
    sqlite::Sqlite,
    transaction::{Tx, interactive, interactive::TransactionKind},
    value::rows,
    writer::WriterContext,
};

impl Phases for Sqlite {
    async fn enter(&self, entry: Entry) -> Result<ClaimOutcome<Ownership>, StoreError> {
        let name = entry.recovery_point.as_deref().map(check_name);
        name.transpose().map_err(StoreError::statement)?;
        if self.running().has_other_payload(&entry.claim) {
            return Ok(ClaimOutcome::Taken(Taken::Mismatch));
        }
        let request = entry.request.map(|request| {
            let keyring = self.keyring();
            keyring.encrypt_request(&entry.claim.scope, request)
        });
        let entry = Entry {
            request: request.transpose().map_err(not_encrypted)?,
            ..entry
        };
        self.heed_clock().await?;
        self.submit(move |ctx| enter(ctx, entry)).await
    }

    async fn renew(&self, owned: &Ownership, lease: Duration) -> Result<(), StoreError> {
        let owned = owned.clone();
        let renew = move |ctx: &mut WriterContext| {
            let until = ctx.now().after(lease).as_millis();
            fenced(ctx, query!("idempotency/renew"), &owned, &[&until])
        };
        self.submit(renew).await
    }

    async fn phase(
        &self,
        owned: &Ownership,
        recovery_point: Option<&str>,
        context: Headers,
    ) -> Result<Tx, StoreError> {
        let draft = Draft::under(&owned.scope, context);
        let phase = Phase {
            owned: owned.clone(),
            recovery_point: recovery_point.map(str::to_owned),
        };
        match interactive::open(self, TransactionKind::Phase(phase), draft).await? {
            ClaimOutcome::Open(tx) => Ok(tx),
            ClaimOutcome::Taken(_) => Err(corrupt("a claim outcome although no claim was made")),
        }
    }

    async fn reach(&self, owned: &Ownership, recovery_point: &str) -> Result<(), StoreError> {
        check_name(recovery_point).map_err(StoreError::statement)?;
        let phase = Phase {
            owned: owned.clone(),
            recovery_point: Some(recovery_point.to_owned()),
        };
        self.submit(move |ctx| phase.advance(ctx, None)).await
    }

    async fn finish(
        &self,
        owned: &Ownership,
        response: &StoredResponse,
    ) -> Result<Duration, StoreError> {
        let response = ResponseColumns::of(self.keyring(), Some(&owned.scope), response)?;
        let phase = Phase {
            owned: owned.clone(),
            recovery_point: None,
        };
        self.submit(move |ctx| phase.finish(ctx, &response, None))
            .await?;
        Ok(owned.retention)
    }

    async fn give_back(&self, owned: &Ownership) -> Result<(), StoreError> {
        self.renew(owned, Duration::ZERO).await
    }

    async fn release(&self, owned: &Ownership) -> Result<(), StoreError> {
        let owned = owned.clone();
        let release =
            move |ctx: &mut WriterContext| fenced(ctx, query!("idempotency/release"), &owned, &[]);
        self.submit(release).await
    }

    async fn take_over(
        &self,
        operations: &[Operation],
        lapsed: Lapsed,
    ) -> Result<Vec<TakenOver>, StoreError> {
        self.heed_clock().await?;
        let operations: Vec<_> = operations.iter().map(Operation::as_str).collect();
        let operations = serde_json::to_string(&operations)
            .map_err(|error| corrupt(format!("operations: {error}")))?;
        self.submit(move |ctx| take_over(ctx, &operations, lapsed))
            .await
    }
}

fn enter(ctx: &WriterContext, entry: Entry) -> Result<ClaimOutcome<Ownership>, StoreError> {
    let now = ctx.now();
    let scope = entry.claim.scope.clone();
    let record = find(&ctx.conn, &scope, now)?;
    let is_known = record.is_some();
    match evaluate_entry(record, &entry.claim, now) {
        ClaimOutcome::Taken(taken) => {
            let taken = ctx.keyring.decrypt_taken(&scope, taken);
            taken
                .map(ClaimOutcome::Taken)
                .map_err(encrypted("stored response"))
        }
        ClaimOutcome::Open(Start::New) => begin(ctx, is_known, entry, now).map(ClaimOutcome::Open),
        ClaimOutcome::Open(Start::Resume) => resume(ctx, entry, now).map(ClaimOutcome::Open),
    }
}

/// The epoch of a key that had no row.
const FIRST_EPOCH: i64 = 1;

fn begin(
    ctx: &WriterContext,
    is_known: bool,
    entry: Entry,
    now: Timestamp,
) -> Result<Ownership, StoreError> {
    let Claim { scope, .. } = &entry.claim;
    let retention = retention(&entry.claim);
    let row = params![
        scope.tenant.as_str(),
        scope.operation.as_str(),
        scope.key.as_str(),
        entry.claim.fingerprint.as_bytes(),
        now.after(entry.lease).as_millis(),
        entry.request.as_deref(),
        on_expired(&entry.claim),
        now.as_millis(),
        now.after(retention).as_millis(),
        entry.recovery_point,
    ];
    let begin = || {
        if is_known {
            let mut statement = ctx.conn.prepare_cached(query!("idempotency/enter_anew"))?;
            statement.query_row(row, |row| row.get("epoch"))
        } else {
            let mut statement = ctx.conn.prepare_cached(query!("idempotency/enter"))?;
            statement.execute(row)?;
            Ok(FIRST_EPOCH)
        }
    };
    let epoch = begin().map_err(own_error)?;
    Ok(Ownership {
        scope: entry.claim.scope,
        fingerprint: entry.claim.fingerprint,
        epoch,
        created_at: now,
        recovery_point: entry.recovery_point,
        resumed: false,
        retention,
    })
}

fn resume(ctx: &WriterContext, entry: Entry, now: Timestamp) -> Result<Ownership, StoreError> {
    let Claim {
        scope, fingerprint, ..
    } = entry.claim;
    let row = params![
        scope.tenant.as_str(),
        scope.operation.as_str(),
        scope.key.as_str(),
        now.after(entry.lease).as_millis(),
        entry.request.as_deref(),
    ];
    let resume = || {
        let mut statement = ctx.conn.prepare_cached(query!("idempotency/resume"))?;
        statement.query_row(row, |row| {
            let (created_at, expires_at) = (row.get("created_at")?, row.get("expires_at")?);
            Ok((
                row.get("epoch")?,
                row.get("recovery_point")?,
                created_at,
                expires_at,
            ))
        })
    };
    let (epoch, recovery_point, created_at, expires_at) = resume().map_err(own_error)?;
    Ok(Ownership {
        scope,
        fingerprint,
        epoch,
        created_at: Timestamp::from_millis(created_at),
        recovery_point,
        resumed: true,
        retention: between(created_at, expires_at),
    })
}

fn take_over(
    ctx: &WriterContext,
    operations: &str,
    lapsed: Lapsed,
) -> Result<Vec<TakenOver>, StoreError> {
    let now = ctx.now();
    let grace = i64::try_from(lapsed.grace.as_millis()).unwrap_or(i64::MAX >> GRACE_DOUBLINGS);
    let asked = params![
        now.as_millis(),
        now.after(lapsed.lease).as_millis(),
        grace,
        GRACE_DOUBLINGS,
        operations,
        rows(lapsed.limit),
    ];
    let take_over = || {
        let mut statement = ctx.conn.prepare_cached(query!("idempotency/take_over"))?;
        let taken = statement.query_map(asked, |row| Ok(taken_over(row, &ctx.keyring)))?;
        taken.collect::<rusqlite::Result<Vec<_>>>()
    };
    let readable = |taken| match taken {
        Ok(taken) => Some(taken),
        Err(error) => {
            // Its lease expires again, each time later. The other requests are resumed.
            tracing::error!(error = %error, "a stored request cannot be read or resumed");
            None
        }
    };
    let taken = take_over().map_err(own_error)?;
    Ok(taken.into_iter().filter_map(readable).collect())
}

fn taken_over(row: &Row<'_>, keyring: &Keyring) -> Result<TakenOver, StoreError> {
    let bad = |error: rusqlite::Error| corrupt(format!("idempotency key: {error}"));
    let bad_part = |error: KeyError| corrupt(format!("scope of a key: {error}"));
    let text = |column: &str| row.get::<_, String>(column).map_err(bad);
    let (created_at, expires_at) = (
        row.get("created_at").map_err(bad)?,
        row.get("expires_at").map_err(bad)?,
    );
    let scope = Scope {
        tenant: Tenant::new(text("tenant")?).map_err(bad_part)?,
        operation: Operation::new(text("operation")?).map_err(bad_part)?,
        key: IdempotencyKey::new(text("key")?).map_err(bad_part)?,
    };
    let request: Vec<u8> = row.get("request").map_err(bad)?;
    let request = keyring.decrypt_request(&scope, &request);
    let request = request.map_err(encrypted("kept request"))?;
    let ownership = Ownership {
        scope,
        fingerprint: Fingerprint::from_bytes(row.get("fingerprint").map_err(bad)?),
        epoch: row.get("epoch").map_err(bad)?,
        created_at: Timestamp::from_millis(created_at),
        recovery_point: row.get("recovery_point").map_err(bad)?,
        resumed: true,
        retention: between(created_at, expires_at),
    };
    Ok(TakenOver { ownership, request })
}

/// The retention of the response, which is the difference between the row's first expiry and its
/// creation.
fn between(created_at: i64, expires_at: i64) -> Duration {
    Timestamp::from_millis(expires_at).since(Timestamp::from_millis(created_at))
}
