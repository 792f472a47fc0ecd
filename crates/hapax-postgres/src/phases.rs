//! Keys of phased requests: entering, renewing, advancing and finishing them, each with a commit.
//!
//! An entry takes the advisory lock of its key during the one statement that writes the row, so
//! that it never comes between a claim and its completion. Later statements of the owner change its
//! row only if the row still has the owner's epoch and time of entry. A statement that finds no
//! such row fails, and the commit that is sent after it fails too.

use std::time::Duration;

use bytes::Bytes;
use hapax::{
    event::Headers,
    idempotency::{Claim, Taken},
    key::{Fingerprint, IdempotencyKey, Operation, Scope, Tenant},
    keyring::Keyring,
    limits::GRACE_DOUBLINGS,
    outbox::Draft,
    phases::{Entry, Lapsed, Ownership, Start, TakenOver, evaluate_entry},
    retry::Delays,
    store::{ClaimOutcome, Phases, StoreError},
};
use tokio::time::{Instant, sleep};
use tokio_postgres::Row;

use crate::{
    claim::{PAUSE, find},
    error::{corrupt, encrypted, own_error, unavailable},
    idempotency::{parts, retention},
    payload_lock::payload_lock,
    phase::Phase,
    postgres::Postgres,
    query,
    transaction::Tx,
    value::{Moment, Param, millis},
};

impl Phases for Postgres {
    async fn enter(&self, entry: Entry) -> Result<ClaimOutcome<Ownership>, StoreError> {
        let end = Instant::now() + self.settings().wait;
        let mut delays = Delays::new(PAUSE);
        loop {
            if let Some(entered) = try_enter(self, &entry).await? {
                return Ok(entered);
            }
            let wait = delays.advance().mul_f64(0.5 + self.random().unit() / 2.0);
            if Instant::now() + wait >= end {
                return Ok(ClaimOutcome::Taken(Taken::InProgress));
            }
            sleep(wait).await;
        }
    }

    async fn renew(&self, owned: &Ownership, lease: Duration) -> Result<(), StoreError> {
        let values: [&dyn Param; 2] = [&millis(lease), &self.time()];
        fenced(self, query!("idempotency/renew"), owned, &values).await
    }

    async fn phase(
        &self,
        owned: &Ownership,
        recovery_point: Option<&str>,
        context: Headers,
    ) -> Result<Tx, StoreError> {
        let mut session = self.session().await?;
        let begin = self.begin();
        session.run(async |link| link.run(&begin).await).await?;
        let draft = Draft::under(&owned.scope, context);
        let phase = Phase {
            owned: owned.clone(),
            recovery_point: recovery_point.map(str::to_owned),
        };
        Ok(Tx::of_phase(self, session, draft, phase))
    }

    async fn give_back(&self, owned: &Ownership) -> Result<(), StoreError> {
        self.renew(owned, Duration::ZERO).await
    }

    async fn release(&self, owned: &Ownership) -> Result<(), StoreError> {
        fenced(self, query!("idempotency/release"), owned, &[]).await
    }

    async fn take_over(
        &self,
        operations: &[Operation],
        lapsed: Lapsed,
    ) -> Result<Vec<TakenOver>, StoreError> {
        let operations: Vec<_> = operations.iter().map(Operation::as_str).collect();
        let limit = i64::try_from(lapsed.limit).unwrap_or(i64::MAX);
        let params: [&dyn Param; 6] = [
            &self.time(),
            &millis(lapsed.lease),
            &millis(lapsed.grace).min(i64::MAX >> GRACE_DOUBLINGS),
            &i64::from(GRACE_DOUBLINGS),
            &operations,
            &limit,
        ];
        let rows = self
            .commit(query!("idempotency/take_over"), &params)
            .await
            .map_err(own_error)?;
        let readable = |row| match taken_over(row, self.keyring()) {
            Ok(taken) => Some(taken),
            Err(error) => {
                // Its lease expires again, each time later. The other requests continue.
                tracing::error!(error = %error, "a request cannot be resumed");
                None
            }
        };
        Ok(rows.iter().filter_map(readable).collect())
    }
}

/// Tries once to enter. Returns `None` while another transaction holds the key.
async fn try_enter(
    store: &Postgres,
    entry: &Entry,
) -> Result<Option<ClaimOutcome<Ownership>>, StoreError> {
    if let Some(owned) = write(store, query!("idempotency/enter"), entry).await? {
        return Ok(Some(ClaimOutcome::Open(owned)));
    }
    let Some(record) = find(store, &entry.claim.scope).await? else {
        return conflict(store, &entry.claim).await;
    };
    let (now, read) = (record.read_at, (record.epoch, Moment(record.created_at)));
    Ok(match evaluate_entry(Some(record), &entry.claim, now) {
        ClaimOutcome::Taken(taken) => {
            let taken = store.keyring().decrypt_taken(&entry.claim.scope, taken);
            Some(ClaimOutcome::Taken(
                taken.map_err(encrypted("stored answer"))?,
            ))
        }
        ClaimOutcome::Open(Start::New) => {
            match write(store, query!("idempotency/enter_anew"), entry).await? {
                Some(owned) => Some(ClaimOutcome::Open(owned)),
                None => conflict(store, &entry.claim).await?,
            }
        }
        ClaimOutcome::Open(Start::Resume) => {
            resume(store, entry, read).await?.map(ClaimOutcome::Open)
        }
    })
}

/// Finds out whether another transaction, which has the key, runs another payload. `None` if it does
/// not, or if it is not known.
async fn conflict(
    store: &Postgres,
    claim: &Claim,
) -> Result<Option<ClaimOutcome<Ownership>>, StoreError> {
    let [tenant, operation, key] = parts(&claim.scope);
    let params: [&dyn Param; 4] = [&tenant, &operation, &key, &payload_lock(claim)];
    let rows = store.ask(query!("idempotency/is_other_payload"), &params);
    let rows = rows.await.map_err(own_error)?;
    if !rows.first().is_some_and(|row| row.get("is_other")) {
        return Ok(None);
    }
    // A row that was committed in the meantime decides, at the next attempt.
    let record = find(store, &claim.scope).await?;
    let now = record.as_ref().map(|record| record.read_at);
    let entered = evaluate_entry(record, claim, now.unwrap_or_default());
    let is_free = entered == ClaimOutcome::Open(Start::New);
    Ok(is_free.then_some(ClaimOutcome::Taken(Taken::Mismatch)))
}

/// Writes the row of an entry. Returns `None` if the state of the key does not allow the statement.
async fn write(
    store: &Postgres,
    sql: &'static str,
    entry: &Entry,
) -> Result<Option<Ownership>, StoreError> {
    let claim = &entry.claim;
    let [tenant, operation, key] = parts(&claim.scope);
    let fingerprint: &[u8] = claim.fingerprint.as_bytes();
    let retention = retention(claim);
    let request = kept_request(store, entry)?;
    let params: [&dyn Param; 9] = [
        &tenant,
        &operation,
        &key,
        &fingerprint,
        &millis(entry.lease),
        &request.as_deref(),
        &claim.on_expired.name(),
        &millis(retention),
        &store.time(),
    ];
    let rows = store.commit(sql, &params).await.map_err(own_error)?;
    let owned = |row: &Row| {
        let Moment(created_at) = row.try_get(1).map_err(unreadable)?;
        Ok(Ownership {
            scope: claim.scope.clone(),
            fingerprint: claim.fingerprint,
            epoch: row.try_get(0).map_err(unreadable)?,
            created_at,
            recovery_point: None,
            resumed: false,
            retention,
        })
    };
    rows.first().map(owned).transpose()
}

/// The request as it is stored in the row: encrypted if there is a key.
fn kept_request(store: &Postgres, entry: &Entry) -> Result<Option<Bytes>, StoreError> {
    let kept = entry.request.clone().map(|request| {
        let keyring = store.keyring();
        keyring.encrypt_request(&entry.claim.scope, request)
    });
    kept.transpose().map_err(unavailable)
}

async fn resume(
    store: &Postgres,
    entry: &Entry,
    (epoch, created_at): (i64, Moment),
) -> Result<Option<Ownership>, StoreError> {
    let claim = &entry.claim;
    let [tenant, operation, key] = parts(&claim.scope);
    let request = kept_request(store, entry)?;
    let params: [&dyn Param; 8] = [
        &tenant,
        &operation,
        &key,
        &epoch,
        &millis(entry.lease),
        &request.as_deref(),
        &store.time(),
        &created_at,
    ];
    let rows = store.commit(query!("idempotency/resume"), &params).await;
    let rows = rows.map_err(own_error)?;
    let owned = |row: &Row| {
        let Moment(created_at) = row.try_get("created_at").map_err(unreadable)?;
        let Moment(expires_at) = row.try_get("expires_at").map_err(unreadable)?;
        Ok(Ownership {
            scope: claim.scope.clone(),
            fingerprint: claim.fingerprint,
            epoch: row.try_get("epoch").map_err(unreadable)?,
            created_at,
            recovery_point: row.try_get("recovery_point").map_err(unreadable)?,
            resumed: true,
            retention: expires_at.since(created_at),
        })
    };
    rows.first().map(owned).transpose()
}

/// Runs a statement that changes the owner's row, and fails if it changed none.
async fn fenced(
    store: &Postgres,
    sql: &'static str,
    owned: &Ownership,
    values: &[&dyn Param],
) -> Result<(), StoreError> {
    let [tenant, operation, key] = parts(&owned.scope);
    let created_at = Moment(owned.created_at);
    let fence: [&dyn Param; 5] = [&tenant, &operation, &key, &owned.epoch, &created_at];
    let changed = store.commit(sql, &[&fence[..], values].concat()).await;
    let changed = changed.map_err(own_error)?;
    if changed.is_empty() {
        return Err(StoreError::Fenced);
    }
    Ok(())
}

fn taken_over(row: &Row, keyring: &Keyring) -> Result<TakenOver, StoreError> {
    let bad_part = |error| corrupt(format!("scope of a key: {error}"));
    let text = |name: &str| row.try_get::<_, String>(name).map_err(unreadable);
    let Moment(created_at) = row.try_get("created_at").map_err(unreadable)?;
    let Moment(expires_at) = row.try_get("expires_at").map_err(unreadable)?;
    let fingerprint: &[u8] = row.try_get("fingerprint").map_err(unreadable)?;
    let fingerprint = fingerprint
        .try_into()
        .map_err(|_| corrupt("idempotency key: its fingerprint is not 32 bytes long"))?;
    let request: &[u8] = row.try_get("request").map_err(unreadable)?;
    let scope = Scope {
        tenant: Tenant::new(text("tenant")?).map_err(bad_part)?,
        operation: Operation::new(text("operation")?).map_err(bad_part)?,
        key: IdempotencyKey::new(text("key")?).map_err(bad_part)?,
    };
    let request = keyring.decrypt_request(&scope, request);
    let request = request.map_err(encrypted("kept request"))?;
    let ownership = Ownership {
        scope,
        fingerprint: Fingerprint::from_bytes(fingerprint),
        epoch: row.try_get("epoch").map_err(unreadable)?,
        created_at,
        recovery_point: row.try_get("recovery_point").map_err(unreadable)?,
        resumed: true,
        retention: expires_at.since(created_at),
    };
    Ok(TakenOver { ownership, request })
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "`map_err` passes the error by value"
)]
fn unreadable(error: tokio_postgres::Error) -> StoreError {
    corrupt(format!("idempotency key: {error}"))
}
