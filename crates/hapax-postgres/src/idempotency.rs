//! The key table: a lock and a read to claim a key, one write to complete it.
//!
//! While the transaction of a key runs, the key is represented by an advisory lock and not by a
//! row. A claim that does not get the lock returns its connection, waits a little and tries again,
//! so that many duplicates on many nodes hold no connections. The lock and the read are separate
//! statements, so the read sees everything that was committed before the lock was free.

use std::time::Duration;

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
    limits::{PURGE_ROWS, PURGES_KEPT, RETENTION_MAX, TOMBSTONE},
    outbox::Draft,
    purges::{PurgeMark, Purged},
    quota::Usage,
    seeded::{self, Bug},
    store::{ClaimOutcome, KeyMaintenance, Keys, StoreError},
};
use tokio::time::{Instant, sleep};
use tokio_postgres::{Row, error::SqlState};

use crate::{
    error::{corrupt, encrypted, unavailable},
    outbox::rows,
    postgres::Postgres,
    query,
    session::{PipelineError, Session},
    single_shot,
    statement::Statement,
    transaction::Tx,
    value::{Moment, Param},
};

/// How long a claim waits before it asks again, at first and at most.
pub(crate) const PAUSE: (Duration, Duration) =
    (Duration::from_millis(2), Duration::from_millis(40));

/// Connections that a claim may find dead before it gives up.
const CLOSED_MAX: u32 = 2;

impl Keys for Postgres {
    type Tx = Tx;

    type Statement = Statement;

    async fn begin(&self, tenant: Option<Tenant>, context: Headers) -> Result<Tx, StoreError> {
        let mut session = Session::open(self).await?;
        session.begin(begin(self));
        Ok(Tx::new(self, session, Draft::new(tenant, context), None))
    }

    async fn claim(&self, mut claim: Claim) -> Result<ClaimOutcome<Tx>, StoreError> {
        let draft = Draft::of(&mut claim);
        Ok(match hold(self, &claim).await? {
            ClaimOutcome::Open((session, row)) => {
                let held = Held { claim, row };
                ClaimOutcome::Open(Tx::new(self, *session, draft, Some(held)))
            }
            ClaimOutcome::Taken(taken) => ClaimOutcome::Taken(taken),
        })
    }

    async fn claim_pipelined(&self, mut claim: Claim) -> Result<ClaimOutcome<Tx>, StoreError> {
        let draft = Draft::of(&mut claim);
        let session = Session::open(self).await?;
        Ok(ClaimOutcome::Open(Tx::pipelined(
            self, session, draft, claim,
        )))
    }

    async fn execute_plan(
        &self,
        planned: PlannedRequest<Statement>,
    ) -> Result<ClaimOutcome<Duration>, StoreError> {
        single_shot::run(self, planned).await
    }

    async fn look_up(&self, scope: &Scope) -> Result<Option<KeyRecord>, StoreError> {
        let Some(mut record) = find(self, scope).await? else {
            return Ok(None);
        };
        if let Some(kept) = record.response.take() {
            let response = self.keyring().decrypt_response(scope, kept);
            record.response = Some(response.map_err(encrypted("stored answer"))?);
        }
        Ok(Some(record))
    }

    async fn derivation_secret(&self) -> Result<DerivationSecret, StoreError> {
        let rows = self.ask(query!("idempotency/secret"), &[]).await?;
        let secret: Option<&[u8]> = rows.first().and_then(|row| row.try_get(0).ok());
        let secret = secret.and_then(|bytes| bytes.try_into().ok());
        secret
            .map(DerivationSecret::from_bytes)
            .ok_or_else(|| corrupt("the secret of derived keys is missing or not 32 bytes long"))
    }
}

impl KeyMaintenance for Postgres {
    async fn forget(&self, scope: &Scope) -> Result<bool, StoreError> {
        let [tenant, operation, key] = parts(scope);
        let params: [&dyn Param; 4] = [&tenant, &operation, &key, &rows(PURGES_KEPT)];
        let gone = self.ask(query!("idempotency/forget"), &params).await?;
        Ok(!gone.is_empty())
    }

    async fn purged(&self, since: Option<&PurgeMark>) -> Result<Purged, StoreError> {
        // A caller without a mark only needs the current mark, so it gets no rows.
        let after = since.map_or(i64::MAX, |since| since.number);
        let found = self.ask(query!("idempotency/purged"), &[&after]).await?;
        let until = found
            .first()
            .ok_or_else(|| corrupt("purged keys: no row says how many"))?;
        let until = PurgeMark {
            history: until.get(0),
            number: until.get(1),
        };
        // A row that cannot be read is left out, and missed: then every answer is forgotten.
        let kept = found.iter().filter_map(purged_scope).collect();
        Ok(Purged::of(since, until, kept))
    }

    async fn purge_keys(&self) -> Result<Vec<(Operation, u64)>, StoreError> {
        let mut time = self.time();
        if seeded::has(Bug::PurgeLiveKey) {
            time = Some(Moment(self.clock().now().after(RETENTION_MAX)));
        }
        let params: [&dyn Param; 3] = [&time, &rows(PURGE_ROWS), &millis(TOMBSTONE)];
        let gone = self.ask(query!("idempotency/purge"), &params).await?;
        gone.iter().map(purged).collect()
    }

    async fn usage(&self) -> Result<Vec<Usage>, StoreError> {
        let time = self.time();
        let usage = self.ask(query!("idempotency/usage"), &[&time]).await?;
        usage.iter().map(used).collect()
    }
}

/// Reads the row of a key. The response is not decrypted, because it may not be needed.
pub(crate) async fn find(store: &Postgres, scope: &Scope) -> Result<Option<KeyRecord>, StoreError> {
    let [tenant, operation, key] = parts(scope);
    let params: [&dyn Param; 4] = [&tenant, &operation, &key, &store.time()];
    let rows = store.ask(query!("idempotency/find"), &params).await?;
    rows.first().map(record).transpose()
}

/// A key that a transaction has locked.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) claim: Claim,
    pub(crate) row: OldRow,
}

/// The row of a free key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OldRow {
    /// Nothing.
    None,
    /// A row that has expired.
    Expired,
}

/// The result of a successful claim: the session whose transaction has locked the key, and the old
/// row.
pub(crate) type Locked = (Box<Session>, OldRow);

/// Locks a key in a separate transaction, or returns its state if it is taken.
pub(crate) async fn hold(
    store: &Postgres,
    claim: &Claim,
) -> Result<ClaimOutcome<Locked>, StoreError> {
    let end = Instant::now() + store.settings().wait;
    let mut pause = PAUSE.0;
    let mut closed = 0;
    loop {
        let session = Session::open(store).await?;
        match try_hold(store, session, claim, &begin(store)).await {
            Ok(Some(found)) => return Ok(found),
            Ok(None) => {}
            // A connection that had died in the pool: a claim that did not happen holds nothing.
            Err(error) if was_closed(&error) && closed < CLOSED_MAX => {
                closed += 1;
                continue;
            }
            Err(error) => return Err(error),
        }
        let wait = pause.mul_f64(0.5 + store.random().unit() / 2.0);
        if Instant::now() + wait >= end {
            return Ok(ClaimOutcome::Taken(Taken::InProgress));
        }
        // No connection is held while it waits.
        sleep(wait).await;
        pause = (pause * 2).min(PAUSE.1);
    }
}

fn was_closed(error: &StoreError) -> bool {
    let StoreError::Unavailable { source } = error else {
        return false;
    };
    // A pooler ends a connection in its own words, when a request to cancel has gone through it.
    let ended = |error: &tokio_postgres::Error| {
        error.is_closed() || error.code() == Some(&SqlState::PROTOCOL_VIOLATION)
    };
    let error = source.downcast_ref::<tokio_postgres::Error>();
    error.is_some_and(ended)
}

/// Tries once, in the transaction that `begin` opens; `None` while another one has the key.
pub(crate) async fn try_hold(
    store: &Postgres,
    mut session: Session,
    claim: &Claim,
    begin: &str,
) -> Result<Option<ClaimOutcome<Locked>>, StoreError> {
    let sql = [query!("idempotency/lock"), query!("idempotency/find")];
    let [lock, find] = session.run(async |link| link.ready(sql).await).await?;
    let [tenant, operation, key] = parts(&claim.scope);
    let time = store.time();
    let scope: [&dyn Param; 3] = [&tenant, &operation, &key];
    let scope_at: [&dyn Param; 4] = [&tenant, &operation, &key, &time];
    let results = session.pipeline(|link| {
        vec![
            Box::pin(link.none(begin)),
            Box::pin(link.rows(&lock, &scope)),
            Box::pin(link.rows(&find, &scope_at)),
        ]
    });
    let rows = match results.await {
        Ok(rows) => rows,
        Err(PipelineError { cause, .. }) => {
            session.rollback().await;
            return Err(cause.into());
        }
    };
    match evaluate_rows(&rows[1], &rows[2], claim, store.keyring()) {
        Ok(Some(ClaimOutcome::Open(row))) => Ok(Some(ClaimOutcome::Open((Box::new(session), row)))),
        Ok(Some(ClaimOutcome::Taken(taken))) => {
            session.rollback().await;
            Ok(Some(ClaimOutcome::Taken(taken)))
        }
        Ok(None) => {
            session.rollback().await;
            Ok(None)
        }
        Err(error) => {
            session.rollback().await;
            Err(error)
        }
    }
}

/// Evaluates a claim by the rows of `lock` and `find`, in that order; `None` while another
/// transaction has the key.
pub(crate) fn evaluate_rows(
    lock: &[Row],
    find: &[Row],
    claim: &Claim,
    keyring: &Keyring,
) -> Result<Option<ClaimOutcome<OldRow>>, StoreError> {
    let locked = lock.first().is_some_and(|row| row.get(0));
    let old = match find.first().map(record).transpose()? {
        None => OldRow::None,
        Some(record) => {
            let now = record.read_at;
            match evaluate_claim(record, claim, now) {
                // A committed row decides, even if another transaction has the lock.
                Some(taken) => {
                    let taken = keyring.decrypt_taken(&claim.scope, taken);
                    return taken
                        .map(ClaimOutcome::Taken)
                        .map(Some)
                        .map_err(encrypted("stored answer"));
                }
                None => OldRow::Expired,
            }
        }
    };
    Ok(if locked || seeded::has(Bug::CheckThenInsert) {
        Some(ClaimOutcome::Open(old))
    } else {
        None
    })
}

/// The statement that opens a transaction, with its time limits if there is a pooler.
pub(crate) fn begin(store: &Postgres) -> std::borrow::Cow<'static, str> {
    if store.settings().pooled {
        format!("BEGIN; {}", store.bounds()).into()
    } else {
        "BEGIN".into()
    }
}

pub(crate) fn parts(scope: &Scope) -> [&str; 3] {
    [
        scope.tenant.as_str(),
        scope.operation.as_str(),
        scope.key.as_str(),
    ]
}

/// How long a response is kept: the requested retention, limited to the maximum.
pub(crate) fn retention(claim: &Claim) -> Duration {
    claim.retention.min(RETENTION_MAX)
}

/// A duration as a parameter.
pub(crate) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// The word for what a claim wants done once the key has expired.
pub(crate) fn on_expired(claim: &Claim) -> &'static str {
    match claim.on_expired {
        OnExpired::New => "new",
        OnExpired::Gone => "gone",
    }
}

/// An answer as the row keeps it.
#[derive(Debug)]
pub(crate) struct ResponseColumns {
    pub(crate) status: i16,
    pub(crate) headers: Vec<u8>,
    pub(crate) body: Bytes,
}

impl ResponseColumns {
    pub(crate) fn of(
        keyring: &Keyring,
        scope: &Scope,
        response: &StoredResponse,
    ) -> Result<Self, StoreError> {
        let kept = keyring.encrypt_response(scope, response);
        let kept = kept.map_err(unavailable)?;
        Ok(Self {
            status: i16::try_from(kept.status).unwrap_or(i16::MAX),
            headers: kept.header_block(),
            body: kept.body.clone(),
        })
    }

    /// The word for the key's state once this is stored.
    pub(crate) fn state(&self) -> &'static str {
        if self.status >= 500 {
            "failed"
        } else {
            "completed"
        }
    }
}

/// Reads a row of the key table; its answer is as it is kept.
pub(crate) fn record(row: &Row) -> Result<KeyRecord, StoreError> {
    let bad = |error: tokio_postgres::Error| corrupt(format!("idempotency key: {error}"));
    let state = match row.try_get(1).map_err(bad)? {
        "in_progress" => KeyState::InProgress,
        "completed" | "failed" => KeyState::Completed,
        "tombstone" => KeyState::Tombstone,
        other => return Err(corrupt(format!("idempotency key in state {other:?}"))),
    };
    let fingerprint: &[u8] = row.try_get(0).map_err(bad)?;
    let fingerprint = fingerprint
        .try_into()
        .map_err(|_| corrupt("idempotency key: its fingerprint has not 32 bytes"))?;
    let moment = |place| -> Result<Timestamp, StoreError> {
        let Moment(at) = row.try_get(place).map_err(bad)?;
        Ok(at)
    };
    let lease: Option<Moment> = row.try_get(3).map_err(bad)?;
    Ok(KeyRecord {
        fingerprint: Fingerprint::from_bytes(fingerprint),
        state,
        epoch: row.try_get(2).map_err(bad)?,
        lease_until: lease.map(|Moment(at)| at),
        response: (state == KeyState::Completed)
            .then(|| response(row))
            .transpose()?,
        created_at: moment(7)?,
        expires_at: moment(8)?,
        read_at: moment(9)?,
    })
}

fn response(row: &Row) -> Result<StoredResponse, StoreError> {
    let bad = |error: tokio_postgres::Error| corrupt(format!("stored answer: {error}"));
    let status: i16 = row.try_get(4).map_err(bad)?;
    let headers = StoredResponse::parse_header_block(row.try_get(5).map_err(bad)?);
    let body: &[u8] = row.try_get(6).map_err(bad)?;
    Ok(StoredResponse {
        status: status.unsigned_abs(),
        headers: headers.ok_or_else(|| corrupt("stored answer: its header block"))?,
        body: Bytes::copy_from_slice(body),
    })
}

/// The key of a row that says what was purged.
fn purged_scope(row: &Row) -> Option<Scope> {
    let part = |place| row.try_get::<_, Option<String>>(place).ok().flatten();
    Some(Scope {
        tenant: Tenant::new(part(2)?).ok()?,
        operation: Operation::new(part(3)?).ok()?,
        key: IdempotencyKey::new(part(4)?).ok()?,
    })
}

fn used(row: &Row) -> Result<Usage, StoreError> {
    let bad = |error: &dyn std::fmt::Display| corrupt(format!("usage of a tenant: {error}"));
    let tenant: String = row.try_get(0).map_err(|error| bad(&error))?;
    let keys: i64 = row.try_get(1).map_err(|error| bad(&error))?;
    let bytes: i64 = row.try_get(2).map_err(|error| bad(&error))?;
    Ok(Usage {
        tenant: Tenant::new(tenant).map_err(|error| bad(&error))?,
        keys: keys.unsigned_abs(),
        bytes: bytes.unsigned_abs(),
    })
}

fn purged(row: &Row) -> Result<(Operation, u64), StoreError> {
    let bad = |error: &dyn std::fmt::Display| corrupt(format!("operation of a key: {error}"));
    let operation: String = row.try_get(0).map_err(|error| bad(&error))?;
    let count: i64 = row.try_get(1).map_err(|error| bad(&error))?;
    let operation = Operation::new(operation).map_err(|error| bad(&error))?;
    Ok((operation, count.unsigned_abs()))
}
