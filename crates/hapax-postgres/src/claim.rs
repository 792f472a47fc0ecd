//! Claims: locking a key in a transaction, or finding out who has it.
//!
//! A claim that does not get the lock returns its connection, waits a little and tries again, so
//! that many duplicates on many nodes hold no connections. If another payload is running under the
//! key, there is nothing to wait for.

use std::time::Duration;

use hapax::{
    idempotency::{Claim, KeyRecord, Taken},
    key::Scope,
    retry::Delays,
    store::{ClaimOutcome, StoreError},
};
use tokio::time::{Instant, sleep};
use tokio_postgres::error::SqlState;

use crate::{
    error::own_error,
    idempotency::{OldRow, evaluate_rows, parts, record},
    payload_lock::payload_lock,
    postgres::Postgres,
    query,
    session::{PipelineError, Session},
    value::Param,
};

/// How long a claim waits before it asks again, at first and at most.
pub(crate) const PAUSE: (Duration, Duration) =
    (Duration::from_millis(2), Duration::from_millis(40));

/// Connections that a claim may find dead before it gives up.
const CLOSED_MAX: u32 = 2;

/// Reads the row of a key. The response is not decrypted, because it may not be needed.
pub(crate) async fn find(store: &Postgres, scope: &Scope) -> Result<Option<KeyRecord>, StoreError> {
    let [tenant, operation, key] = parts(scope);
    let params: [&dyn Param; 4] = [&tenant, &operation, &key, &store.time()];
    let rows = store.ask(query!("idempotency/find"), &params).await;
    let rows = rows.map_err(own_error)?;
    rows.first().map(record).transpose()
}

/// The result of a successful claim: the session whose transaction has locked the key, and the old
/// row.
pub(crate) type Locked = (Box<Session>, OldRow);

/// Locks a key in a separate transaction, or returns its state if it is taken.
pub(crate) async fn hold(
    store: &Postgres,
    claim: &Claim,
) -> Result<ClaimOutcome<Locked>, StoreError> {
    let mut attempts = ClaimAttempts::of(store);
    let mut closed = 0;
    loop {
        let session = store.session().await?;
        match try_hold(store, session, claim, &store.begin()).await {
            Ok(Some(found)) => return Ok(found),
            Ok(None) => {}
            // A connection that had died in the pool: a claim that did not happen holds nothing.
            Err(error) if was_closed(&error) && closed < CLOSED_MAX => {
                closed += 1;
                continue;
            }
            Err(error) => return Err(error),
        }
        if !attempts.wait(store).await {
            return Ok(ClaimOutcome::Taken(Taken::InProgress));
        }
    }
}

/// The attempts of a claim while another transaction has its key. No connection is held in between.
pub(crate) struct ClaimAttempts {
    end: Instant,
    delays: Delays,
}

impl ClaimAttempts {
    pub(crate) fn of(store: &Postgres) -> Self {
        Self {
            end: Instant::now() + store.settings().wait,
            delays: Delays::new(PAUSE),
        }
    }

    /// Waits for the next attempt; false if the time of the claim is over.
    pub(crate) async fn wait(&mut self, store: &Postgres) -> bool {
        let wait = self
            .delays
            .advance()
            .mul_f64(0.5 + store.random().unit() / 2.0);
        if Instant::now() + wait >= self.end {
            return false;
        }
        sleep(wait).await;
        true
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
    let ready = session.run(async |link| link.ready(sql).await).await;
    let [lock, find] = ready.map_err(own_error)?;
    let [tenant, operation, key] = parts(&claim.scope);
    let (payload, time) = (payload_lock(claim), store.time());
    let scope: [&dyn Param; 4] = [&tenant, &operation, &key, &payload];
    let scope_at: [&dyn Param; 4] = [&tenant, &operation, &key, &time];
    // There is no guard, because these statements write nothing: it does no harm if they run although
    // `BEGIN` has failed.
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
            return Err(own_error(cause));
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
