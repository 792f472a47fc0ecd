//! Commit recovery: finding out whether a commit whose response was lost has happened.
//!
//! The key is claimed again on another connection. Once this claim has the key's lock, the old
//! transaction has ended, if it had the lock before its commit was sent. If the key then has a row,
//! either the old transaction or another one was committed. Nothing is assumed: if the database
//! cannot be reached, the outcome stays unknown and the client's retry finds it out.
//!
//! An optimistic claim takes the lock in the last pipeline. If there is no row, that pipeline may
//! still be on its way, and the outcome stays unknown as well. It can do no harm: whichever request
//! stores its response first, the unique index makes the other one lose.

use hapax::{
    idempotency::{Claim, StoredResponse, Taken, evaluate_claim},
    store::{ClaimOutcome, StoreError},
};
use tokio::time::{Instant, sleep};

use crate::{
    claim::{Locked, find, hold},
    error::{lost, unavailable},
    idempotency::{OldRow, retention},
    postgres::Postgres,
};

/// Pause before the next attempt if the database cannot be reached.
const PAUSE: std::time::Duration = std::time::Duration::from_millis(100);

/// What follows if the key has no row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IfAbsent {
    /// The request may run again. The lost transaction has ended, because it had the key's lock, or it
    /// loses against the run that claims the key now.
    RunAgain,
    /// The outcome stays unknown: the lost transaction may still commit. A run that ends without a
    /// stored response would say that nothing was changed.
    Unknown,
}

impl IfAbsent {
    /// What follows for a transaction whose key had this row when its commit was sent.
    pub(crate) fn of(row: OldRow) -> Self {
        match row {
            OldRow::Unread => Self::Unknown,
            OldRow::None | OldRow::Expired => Self::RunAgain,
        }
    }
}

/// Succeeds if the response was committed.
///
/// # Errors
/// `Conflict` if it was not committed and the request may run again; `Unavailable` if the outcome
/// cannot be determined, for any reason: any other error would say that nothing was changed.
/// `if_absent` says which of the two it is if the key has no row.
pub(crate) async fn committed(
    store: &Postgres,
    claim: &Claim,
    if_absent: IfAbsent,
    response: &StoredResponse,
) -> Result<(), StoreError> {
    tracing::warn!("the result of a commit was lost: checking whether it happened");
    let end = Instant::now() + store.settings().wait;
    loop {
        let held = hold(store, claim).await;
        if matches!(held, Ok(ClaimOutcome::Taken(Taken::Mismatch)))
            && !is_stored(store, claim).await
        {
            // Another payload that is only running may be rolled back, and proves nothing.
            return Err(unavailable(
                "the result of a commit was lost, and another request is running under its key",
            ));
        }
        match held {
            Ok(found) => {
                return conclude(found, response, if_absent, may_expire(store, claim)).await;
            }
            Err(error) if Instant::now() + PAUSE >= end => {
                return Err(match error {
                    StoreError::Unavailable { .. } => error,
                    error => unavailable(error),
                });
            }
            Err(_) => {}
        }
        sleep(PAUSE).await;
    }
}

/// Whether the key has a row with another payload. If it cannot be read, it proves nothing.
async fn is_stored(store: &Postgres, claim: &Claim) -> bool {
    let Ok(Some(record)) = find(store, &claim.scope).await else {
        return false;
    };
    let now = record.read_at;
    evaluate_claim(record, claim, now) == Some(Taken::Mismatch)
}

/// Whether a committed row may already have expired when its key is claimed again.
fn may_expire(store: &Postgres, claim: &Claim) -> bool {
    let settings = store.settings();
    retention(claim) <= settings.statement_max + settings.wait
}

async fn conclude(
    found: ClaimOutcome<Locked>,
    response: &StoredResponse,
    if_absent: IfAbsent,
    may_expire: bool,
) -> Result<(), StoreError> {
    match found {
        // The stored response is the one to be returned, and one effect was committed with it.
        ClaimOutcome::Taken(Taken::Replay {
            response: stored, ..
        }) if stored == *response => Ok(()),
        ClaimOutcome::Taken(Taken::InProgress) => Err(unavailable(
            "the result of a commit was lost, and its transaction is still open",
        )),
        ClaimOutcome::Taken(_) => Err(lost("another request has the key")),
        ClaimOutcome::Open((session, row)) => {
            session.rollback().await;
            if if_absent == IfAbsent::Unknown {
                return Err(unavailable(
                    "the result of a commit was lost, and it may still happen",
                ));
            }
            if may_expire || matches!(row, OldRow::Expired) {
                return Err(unavailable(
                    "the result of a commit was lost, and its key may have expired since",
                ));
            }
            Err(lost("the commit did not happen"))
        }
    }
}
