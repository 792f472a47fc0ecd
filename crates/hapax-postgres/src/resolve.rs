//! A commit whose answer was lost: it happened, or it did not, and the key knows.
//!
//! The key is claimed anew on another connection. Whoever gets its lock knows that the old
//! transaction is over; a row that is there then says that it was committed, or that another
//! one was. Nothing is assumed: what cannot be reached stays unknown, and the retry finds out.

use hapax::{
    idempotency::{Answer, Claim, Known},
    store::StoreError,
};
use tokio::time::{Instant, sleep};

use crate::{
    error::unavailable,
    idempotency::{Found, OldRow, hold, retention},
    postgres::Postgres,
    transaction::lost,
};

/// How long it waits before it asks a database again that cannot be reached.
const PAUSE: std::time::Duration = std::time::Duration::from_millis(100);

/// Succeeds when the answer was committed; `Conflict` when it was not, and the request may run
/// again; `Unavailable` when nobody can say.
pub(crate) async fn committed(
    store: &Postgres,
    claim: &Claim,
    answer: &Answer,
) -> Result<(), StoreError> {
    tracing::warn!("the answer to a commit was lost: asking whether it happened");
    let end = Instant::now() + store.settings().wait;
    loop {
        match hold(store, claim).await {
            Ok(found) => return told(found, answer, may_expire(store, claim)).await,
            Err(error @ StoreError::Unavailable { .. }) => {
                if Instant::now() + PAUSE >= end {
                    return Err(error);
                }
            }
            Err(error) => return Err(error),
        }
        sleep(PAUSE).await;
    }
}

/// Whether a row that was committed may be gone by the time that its key is asked.
fn may_expire(store: &Postgres, claim: &Claim) -> bool {
    let settings = store.settings();
    retention(claim) <= settings.statement_max + settings.wait
}

async fn told(found: Found, answer: &Answer, may_expire: bool) -> Result<(), StoreError> {
    match found {
        // The stored answer is the one that goes out, and one effect is committed with it.
        Found::Taken(Known::Replay { answer: stored, .. }) if stored == *answer => Ok(()),
        Found::Taken(Known::InProgress) => Err(unavailable(
            "the answer to a commit was lost, and its transaction is still open",
        )),
        Found::Taken(_) => Err(lost("another request has the key")),
        Found::Free(session, row) => {
            session.rollback().await;
            if may_expire || matches!(row, OldRow::Expired) {
                return Err(unavailable(
                    "the answer to a commit was lost, and its key may have expired since",
                ));
            }
            Err(lost("the commit did not happen"))
        }
    }
}
