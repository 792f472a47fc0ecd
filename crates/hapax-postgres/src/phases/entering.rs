//! Entries: the commit with which a phased request takes its key.
//!
//! An entry takes the advisory lock of its key during the one statement that writes the row, so that it
//! never comes between a claim and its completion.
//!
//! Each attempt to enter a key has an identity, which it writes into the row. If the result of its commit
//! is lost, it tries again, and finds its row by the identity: the caller then owns the key, as if the
//! result had arrived. If the caller gets an error instead, it does nothing under the key. A task then
//! frees the key, by the same identity. The row of another attempt has another identity, and a row that
//! was taken over has none, so neither is freed.

use std::{sync::Arc, time::Duration};

use hapax::{
    idempotency::{Claim, Taken},
    key::Scope,
    phases::{Entry, Ownership, Start, evaluate_entry},
    retry::Delays,
    store::{ClaimOutcome, StoreError},
};
use tokio::time::{Instant, sleep};
use tokio_postgres::Row;

use super::{group, unreadable};
use crate::{
    claim::{PAUSE, find},
    connection::CommitError,
    error::{encrypted, own_error, unavailable},
    idempotency::{parts, retention},
    payload_lock::payload_lock,
    phase_member::{Attempt, Written},
    postgres::{Handle, Postgres},
    query,
    value::{Moment, Param, millis},
};

/// How long an attempt whose result is lost waits before it tries again, at first and at most.
const LOST_PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(200));
/// The same for the release of its row.
const RELEASE_PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));
/// How long a row is still to be released while the database cannot be reached, if the lease is
/// shorter: without the database, no other request can take the key over either.
const UNREACHABLE_MAX: Duration = Duration::from_mins(5);

/// Takes a key. While another transaction has it, waits for as long as the settings say, and as long
/// again after the result of a commit was lost.
pub(super) async fn enter(
    store: &Postgres,
    entry: Entry,
) -> Result<ClaimOutcome<Ownership>, StoreError> {
    let attempt = Arc::new(Attempt {
        entry: kept(store, entry)?,
        id: identity(store),
    });
    let asked = Instant::now();
    let mut is_lost = false;
    let entered = try_to_enter(store, &attempt, &mut is_lost).await;
    if is_lost && !matches!(entered, Ok(ClaimOutcome::Open(_))) {
        let unowned = Unowned {
            scope: attempt.entry.claim.scope.clone(),
            id: attempt.id.clone(),
            asked,
            lease: attempt.entry.lease,
        };
        tokio::spawn(unowned.release(store.handle()));
    }
    entered
}

/// Tries to enter until the time is over. `is_lost` becomes true if the result of a commit is lost.
async fn try_to_enter(
    store: &Postgres,
    attempt: &Arc<Attempt>,
    is_lost: &mut bool,
) -> Result<ClaimOutcome<Ownership>, StoreError> {
    let wait = store.settings().wait;
    let mut end = Instant::now() + wait;
    let mut entering = group::enter(store, attempt).await?;
    let (mut busy, mut lost) = (Delays::new(PAUSE), Delays::new(LOST_PAUSE));
    loop {
        let failure = match try_once(store, attempt, entering, *is_lost).await {
            Ok(Some(entered)) => return Ok(entered),
            Ok(None) => None,
            Err(failed) => {
                if failed.is_unknown && !*is_lost {
                    tracing::warn!(
                        error = failed.cause.error_chain(),
                        "the result of a claim was lost: checking whether it was committed"
                    );
                    *is_lost = true;
                    end = Instant::now() + wait;
                }
                if !*is_lost || !is_transient(&failed.cause) {
                    return Err(failed.cause);
                }
                Some(failed.cause)
            }
        };
        entering = Written::Left(None);
        let delays = if failure.is_some() {
            &mut lost
        } else {
            &mut busy
        };
        let pause = delays.advance().mul_f64(0.5 + store.random().unit() / 2.0);
        if Instant::now() + pause >= end {
            return failure.map_or(Ok(ClaimOutcome::Taken(Taken::InProgress)), Err);
        }
        sleep(pause).await;
    }
}

/// Tries once to enter, after the group of the entry was written. Returns `None` while another
/// transaction holds the key. If an earlier result is lost, the row may be the attempt's own.
async fn try_once(
    store: &Postgres,
    attempt: &Attempt,
    in_group: Written<Ownership>,
    is_lost: bool,
) -> Result<Option<ClaimOutcome<Ownership>>, CommitError> {
    let entry = &attempt.entry;
    let owned = match in_group {
        Written::Committed(owned) => Some(owned),
        Written::Refused => None,
        Written::Lost(error) => return Err(CommitError::unknown(error)),
        Written::Left(lane) => {
            let enter = write(store, query!("idempotency/enter"), attempt);
            group::in_lane(lane, enter).await?
        }
    };
    if let Some(owned) = owned {
        return Ok(Some(ClaimOutcome::Open(owned)));
    }
    if is_lost && let Some(owned) = find_own(store, attempt).await? {
        return Ok(Some(ClaimOutcome::Open(owned)));
    }
    let Some(record) = find(store, &entry.claim.scope).await? else {
        return Ok(conflict(store, &entry.claim).await?);
    };
    let (now, read) = (record.read_at, (record.epoch, Moment(record.created_at)));
    Ok(match evaluate_entry(Some(record), &entry.claim, now) {
        ClaimOutcome::Taken(taken) => {
            let taken = store.keyring().decrypt_taken(&entry.claim.scope, taken);
            Some(ClaimOutcome::Taken(
                taken.map_err(encrypted("stored response"))?,
            ))
        }
        ClaimOutcome::Open(Start::New) => {
            match write(store, query!("idempotency/enter_anew"), attempt).await? {
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
    attempt: &Attempt,
) -> Result<Option<Ownership>, CommitError> {
    let Attempt { entry, id } = attempt;
    let claim = &entry.claim;
    let [tenant, operation, key] = parts(&claim.scope);
    let fingerprint: &[u8] = claim.fingerprint.as_bytes();
    let params: [&dyn Param; 11] = [
        &tenant,
        &operation,
        &key,
        &fingerprint,
        &millis(entry.lease),
        &entry.request.as_deref(),
        &claim.on_expired.name(),
        &millis(retention(claim)),
        &store.time(),
        &entry.recovery_point.as_deref(),
        &id.as_str(),
    ];
    let rows = store.try_commit(sql, &params).await;
    let rows = rows.map_err(CommitError::of_own_statement)?;
    Ok(rows.first().map(|row| entered(entry, row)).transpose()?)
}

/// Finds the row that this attempt has written, if it is still in progress and has no other owner.
async fn find_own(store: &Postgres, attempt: &Attempt) -> Result<Option<Ownership>, StoreError> {
    let [tenant, operation, key] = parts(&attempt.entry.claim.scope);
    let params: [&dyn Param; 4] = [&tenant, &operation, &key, &attempt.id.as_str()];
    let rows = store.ask(query!("idempotency/find_attempt"), &params).await;
    let rows = rows.map_err(own_error)?;
    rows.first()
        .map(|row| entered(&attempt.entry, row))
        .transpose()
}

/// The ownership of a key that was entered as new.
pub(super) fn entered(entry: &Entry, row: &Row) -> Result<Ownership, StoreError> {
    let claim = &entry.claim;
    let Moment(created_at) = row.try_get("created_at").map_err(unreadable)?;
    Ok(Ownership {
        scope: claim.scope.clone(),
        fingerprint: claim.fingerprint,
        epoch: row.try_get("epoch").map_err(unreadable)?,
        created_at,
        recovery_point: entry.recovery_point.clone(),
        resumed: false,
        retention: retention(claim),
    })
}

/// The entry with its request as it is stored in the row: encrypted if there is a key.
fn kept(store: &Postgres, entry: Entry) -> Result<Entry, StoreError> {
    let request = entry.request.map(|request| {
        let keyring = store.keyring();
        keyring.encrypt_request(&entry.claim.scope, request)
    });
    let request = request.transpose().map_err(unavailable)?;
    Ok(Entry { request, ..entry })
}

/// The identity of a new attempt: 128 random bits.
fn identity(store: &Postgres) -> String {
    let random = store.random();
    format!("entry {:016x}{:016x}", random.bits(), random.bits())
}

async fn resume(
    store: &Postgres,
    entry: &Entry,
    (epoch, created_at): (i64, Moment),
) -> Result<Option<Ownership>, StoreError> {
    let claim = &entry.claim;
    let [tenant, operation, key] = parts(&claim.scope);
    let params: [&dyn Param; 8] = [
        &tenant,
        &operation,
        &key,
        &epoch,
        &millis(entry.lease),
        &entry.request.as_deref(),
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

/// Whether the store may accept the same statement later.
fn is_transient(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::Unavailable { .. } | StoreError::TimedOut | StoreError::Conflict { .. }
    )
}

/// A key that an attempt may have entered although its caller has an error, and does nothing under it.
struct Unowned {
    scope: Scope,
    id: String,
    /// When the attempt began, and with it its lease at the earliest.
    asked: Instant,
    lease: Duration,
}

impl Unowned {
    /// Frees the key if this attempt has entered it. A row that is not there may be written by a server
    /// that has not executed the statement yet, so it is looked for until the lease is over.
    async fn release(self, store: Handle) {
        let mut delays = Delays::new(RELEASE_PAUSE);
        loop {
            // The task does not keep the store open while it waits.
            let Some(open) = store.upgrade() else { return };
            let released = self.try_release(&open).await;
            drop(open);
            let tried_for = match released {
                Ok(true) => {
                    tracing::info!("released a key that was entered without a result");
                    return;
                }
                Ok(false) => self.lease,
                Err(error) => {
                    tracing::debug!(
                        error = error.error_chain(),
                        "cannot release a key that may be entered; it is tried again"
                    );
                    self.lease.max(UNREACHABLE_MAX)
                }
            };
            let pause = delays.advance();
            if self.asked.elapsed() + pause >= tried_for {
                return;
            }
            sleep(pause).await;
        }
    }

    async fn try_release(&self, store: &Postgres) -> Result<bool, StoreError> {
        let [tenant, operation, key] = parts(&self.scope);
        let params: [&dyn Param; 4] = [&tenant, &operation, &key, &self.id.as_str()];
        let released = store.commit(query!("idempotency/release_attempt"), &params);
        let released = released.await.map_err(own_error)?;
        Ok(!released.is_empty())
    }
}
