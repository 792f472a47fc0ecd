//! The transaction that a handler uses with sqlx, and its commit.
//!
//! The handler's statements run on sqlx's connection and are not seen here. Events are kept in
//! memory until the end; then the response and the events are written by the store's statements,
//! and the transaction commits. If the result of the commit is lost, the key is queried on a
//! connection of the store, as for every other transaction: nothing is assumed.

use std::{
    ops::{Deref, DerefMut},
    time::Duration,
};

use hapax::{
    event::{EventId, Headers, NewEvent},
    idempotency::StoredResponse,
    inbox::{Acceptance, Accepted, Message, Processed, ResultError},
    outbox::{BuiltEvent, Draft, EventError},
    store::{ClaimOutcome, Effect, StoreError, Transaction},
};
use sqlx::{
    Connection as _, Executor as _, PgConnection, PgTransaction,
    postgres::{PgDatabaseError, PgSeverity},
};
use tokio::time::timeout;
use tokio_postgres::error::SqlState;

use super::{bound::bound, store::SqlxStore};
use crate::{
    commit::{BoundStatement, CommitPipeline, is_taken},
    commit_recovery::{self, IfAbsent},
    error::{lost, own_error, sqlx_error, unavailable},
    idempotency::{ClaimedKey, ResponseColumns, retention},
    query,
    settings::Settings,
};

/// How long a rollback may take before sqlx is left to do it in the background.
const ROLLBACK: Duration = Duration::from_secs(2);

/// An open transaction of [`SqlxStore`]. It dereferences to the [`PgConnection`] on which it is
/// open.
///
/// A statement of sqlx runs on `&mut **tx`, where `tx` is the `hapax_http::Tx<SqlxTx>` of a
/// handler; a function that takes `&mut PgConnection` is given `&mut tx`.
/// [`store_error`](super::store_error) converts the errors. After a statement has failed, the
/// transaction can only be rolled back, or completed with a response whose effect is dropped.
///
/// The layer commits. A handler runs no `COMMIT` or `ROLLBACK`: what it commits in this way is
/// committed without the response and the events, which are then not stored
/// ([`StoreError::EndedByHandler`]). If a savepoint does not begin (`tx.transaction().begin()`), the
/// handler runs no further statement: sqlx has rolled the transaction back, and the statement would
/// be committed at once.
#[derive(Debug)]
pub struct SqlxTx {
    store: SqlxStore,
    inner: PgTransaction<'static>,
    draft: Draft,
    accepted: Accepted,
    held: Option<ClaimedKey>,
}

impl SqlxTx {
    pub(super) fn new(
        store: &SqlxStore,
        inner: PgTransaction<'static>,
        draft: Draft,
        held: Option<ClaimedKey>,
    ) -> Self {
        Self {
            store: store.clone(),
            inner,
            draft,
            accepted: Accepted::default(),
            held,
        }
    }

    /// The transaction of sqlx, for functions that take one. The layer commits it or rolls it back.
    pub fn transaction(&mut self) -> &mut PgTransaction<'static> {
        &mut self.inner
    }

    /// Commits the events, and the response if there is a key under which to store it.
    async fn keep(self, response: Option<&StoredResponse>) -> Result<(), StoreError> {
        let Self {
            store,
            mut inner,
            mut draft,
            mut accepted,
            held,
        } = self;
        let events = draft.take_events();
        let processed = accepted.take_new();
        let written = (&*events, &*processed);
        let wrote = finish(&store, &mut inner, held.as_ref(), response, written).await;
        if let Err(error) = wrote {
            roll_back_after(inner, &error).await;
            return Err(error);
        }
        let postgres = store.postgres();
        let max = postgres.settings().statement_max;
        let failpoints = &postgres.settings().failpoints;
        failpoints.hit("postgres.commit.before");
        let unknown = match timeout(max, inner.commit()).await {
            Ok(Ok(())) => {
                failpoints.hit("postgres.commit.after");
                accepted.committed();
                if !events.is_empty() {
                    postgres.notifier().notify();
                }
                return Ok(());
            }
            Ok(Err(error)) if !is_unknown(&error) => return Err(sqlx_error(error)),
            Ok(Err(error)) => unavailable(error),
            Err(_) => unavailable("the database did not answer in time"),
        };
        let (Some(held), Some(response)) = (&held, response) else {
            return Err(unknown);
        };
        let if_absent = IfAbsent::RunAgain;
        let committed = commit_recovery::committed(postgres, &held.claim, if_absent, response);
        Box::pin(committed).await?;
        accepted.committed();
        postgres.notifier().notify();
        Ok(())
    }

    /// Rolls the effect back and stores the response alone, in a second transaction on the same
    /// connection.
    ///
    /// Between the two the key is free for a moment. If another request takes it then, this request
    /// runs again and finds the key taken.
    async fn drop_effect(
        self,
        held: ClaimedKey,
        response: &StoredResponse,
    ) -> Result<(), StoreError> {
        self.accepted.rolled_back();
        let Self { store, inner, .. } = self;
        match store.hold_again(inner, &held.claim).await? {
            Some(ClaimOutcome::Open((inner, row))) => {
                let tenant = held.claim.scope.tenant.clone();
                let draft = Draft::new(Some(tenant), Headers::new());
                let held = ClaimedKey { row, ..held };
                let tx = Self::new(&store, inner, draft, Some(held));
                tx.keep(Some(response)).await
            }
            _ => Err(lost("another request took the key")),
        }
    }
}

impl Transaction for SqlxTx {
    fn emit(&mut self, event: NewEvent) -> Result<EventId, EventError> {
        let Self { store, draft, .. } = self;
        let postgres = store.postgres();
        draft.add(
            event,
            postgres.clock(),
            postgres.random(),
            postgres.keyring(),
            postgres.event_check(),
        )
    }

    async fn accept(&mut self, message: &Message) -> Result<Acceptance, StoreError> {
        still_open(&self.inner)?;
        let taken = super::take(&mut self.inner, message).await;
        let acceptance = taken.map_err(own_error)?;
        self.accepted.add(message, acceptance);
        Ok(acceptance)
    }

    fn record_result(&mut self, result: &str) -> Result<(), ResultError> {
        self.accepted.record_result(result)
    }

    async fn complete(
        mut self,
        response: &StoredResponse,
        effect: Effect,
    ) -> Result<Duration, StoreError> {
        let held = self.held.as_ref();
        let stands = held.map_or(Duration::ZERO, |held| retention(&held.claim));
        match (effect, self.held.take()) {
            (Effect::Keep, held) => {
                let kept = Self { held, ..self };
                kept.keep(Some(response)).await?;
            }
            (Effect::Drop, Some(held)) => Box::pin(self.drop_effect(held, response)).await?,
            (Effect::Drop, None) => {
                self.accepted.rolled_back();
                roll_back(self.inner).await;
            }
        }
        Ok(stands)
    }

    async fn commit(self) -> Result<(), StoreError> {
        self.keep(None).await
    }

    async fn rollback(self) {
        self.accepted.rolled_back();
        let mut tx = self.inner;
        let open = timeout(ROLLBACK, require_open(&mut tx)).await;
        match open {
            Ok(Err(error @ StoreError::EndedByHandler)) => {
                tracing::error!(
                    error = error.error_chain(),
                    "the handler has ended its transaction, which cannot be rolled back"
                );
                roll_back(tx).await;
            }
            // A statement of the handler has failed. It is not known here why.
            Ok(Err(_)) => roll_back_and_forget(tx).await,
            _ => roll_back(tx).await,
        }
    }
}

impl Deref for SqlxTx {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.inner
    }
}

impl DerefMut for SqlxTx {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.inner
    }
}

/// Rolls back. What does not end in time, sqlx rolls back before the connection is used again.
pub(super) async fn roll_back(tx: PgTransaction<'static>) {
    let _rolled_back = timeout(ROLLBACK, tx.rollback()).await;
}

/// Rolls back after a failure of a statement of the store.
pub(super) async fn roll_back_after(tx: PgTransaction<'static>, error: &StoreError) {
    if matches!(error, StoreError::Conflict { .. }) {
        roll_back_and_forget(tx).await;
    } else {
        roll_back(tx).await;
    }
}

/// Rolls back, and lets the connection forget its prepared statements.
///
/// If a migration has changed the result of a statement, or it was deallocated, sqlx would use it
/// again, and it would fail on this connection each time.
async fn roll_back_and_forget(mut tx: PgTransaction<'static>) {
    // If this fails, the connection does not return to the pool.
    let _forgot = timeout(ROLLBACK, tx.clear_cached_statements()).await;
    roll_back(tx).await;
}

/// Fails unless the transaction is open and all of its statements have succeeded.
async fn require_open(tx: &mut PgConnection) -> Result<(), StoreError> {
    let open = tx.execute(query!("session/require_open")).await;
    open.map(drop).map_err(|error| refused(error, false))
}

/// Writes what a transaction writes at its end, if it is still open: the response, the events, and
/// the results of messages.
async fn finish(
    store: &SqlxStore,
    tx: &mut PgConnection,
    held: Option<&ClaimedKey>,
    response: Option<&StoredResponse>,
    (events, processed): (&[BuiltEvent], &[Processed]),
) -> Result<(), StoreError> {
    still_open(tx)?;
    let postgres = store.postgres();
    let stored = held.zip(response).map(|(held, response)| {
        ResponseColumns::of(postgres.keyring(), &held.claim.scope, response)
    });
    let stored = stored.transpose()?;
    let time = postgres.time();
    let pipeline = CommitPipeline::of(held, None, stored.as_ref(), events, processed, time);
    let settings = postgres.settings();
    let wrote = write(tx, settings, &pipeline, stored.is_some());
    let wrote = timeout(settings.statement_max, wrote).await;
    wrote.unwrap_or(Err(StoreError::TimedOut))
}

/// Fails if sqlx has rolled the transaction back.
///
/// It does so if a savepoint does not begin. It then sends no `COMMIT`, reports success, and every
/// later statement is a separate transaction.
fn still_open(tx: &PgConnection) -> Result<(), StoreError> {
    if tx.is_in_transaction() {
        return Ok(());
    }
    let source = "the transaction was rolled back when a savepoint in it did not begin";
    Err(StoreError::statement(source))
}

/// Executes the statements of the end. The first of them, or one before it, fails if a statement of
/// the handler has ended the transaction.
async fn write(
    tx: &mut PgConnection,
    settings: &Settings,
    pipeline: &CommitPipeline<'_>,
    has_response: bool,
) -> Result<(), StoreError> {
    let statements = pipeline.statements();
    let is_unchecked = |(sql, _): &BoundStatement<'_>| *sql == query!("outbox/emit");
    if statements.first().is_none_or(is_unchecked) {
        // The COMMIT of a transaction in which a statement has failed is a rollback that reports
        // success, and outside of a transaction it does nothing. This fails in both cases.
        require_open(tx).await?;
    }
    for (number, (sql, params)) in statements.into_iter().enumerate() {
        let wrote = bound(settings, sql, &params).execute(&mut *tx).await;
        wrote.map_err(|error| own_error(refused(error, has_response && number == 0)))?;
    }
    Ok(())
}

/// Classifies the error of a statement that writes the response or the events, or that requires the
/// transaction to be open.
pub(super) fn refused(error: sqlx::Error, is_key: bool) -> StoreError {
    if is_ended(&error) {
        return StoreError::EndedByHandler;
    }
    let refusal = error.as_database_error();
    let state = refusal.and_then(|refusal| refusal.code().map(|code| SqlState::from_code(&code)));
    match state {
        // Another program has written the key without its lock. The request looks the key up.
        Some(state) if is_key && is_taken(&state) => StoreError::conflict(error),
        Some(state) if state == SqlState::IN_FAILED_SQL_TRANSACTION => {
            StoreError::statement("an earlier statement of this transaction failed")
        }
        _ => sqlx_error(error),
    }
}

/// Whether a statement of the handler has ended the transaction: then a text is cast to a boolean, and
/// is none. The name of the server's routine distinguishes it from other errors with the same code.
fn is_ended(error: &sqlx::Error) -> bool {
    let Some(refusal) = error.as_database_error() else {
        return false;
    };
    let refusal = refusal.downcast_ref::<PgDatabaseError>();
    refusal.code() == SqlState::INVALID_TEXT_REPRESENTATION.code()
        && refusal.routine() == Some("boolin")
}

/// Whether a commit that failed in this way may have happened all the same.
fn is_unknown(error: &sqlx::Error) -> bool {
    let Some(refusal) = error.as_database_error() else {
        return true;
    };
    let severity = refusal.downcast_ref::<PgDatabaseError>().severity();
    matches!(severity, PgSeverity::Fatal | PgSeverity::Panic)
}
