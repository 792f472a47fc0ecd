//! A store whose transactions are sqlx's, for the layer of `hapax-http`.
//!
//! A claim opens a transaction on the service's own pool and runs the store's two statements in it:
//! the lock, and the read of the row. Everything that belongs to no handler's transaction runs on
//! the connections of the [`Postgres`]: plans, purges, and finding out what happened to a commit
//! whose result was lost.

use std::time::Duration;

use hapax::{
    delivery::{Frontier, Shards},
    event::Headers,
    idempotency::{Claim, KeyRecord, PlannedRequest, Taken},
    key::{DerivationSecret, Operation, Scope, Tenant},
    notify::Sleep,
    outbox::Draft,
    purges::{PurgeMark, Purged},
    quota::Usage,
    store::{Batch, ClaimOutcome, KeyMaintenance, Keys, Past, Source, StoreError},
};
use sqlx::{
    AssertSqlSafe, Connection as _, Executor as _, PgConnection, PgPool, PgTransaction, Row as _,
};
use tokio::time::timeout;
use tokio_postgres::error::SqlState;

use super::{
    bound::{bound, record},
    transaction::{SqlxTx, refused, roll_back, roll_back_after},
};
use crate::{
    claim::ClaimAttempts,
    error::{own_error, sqlx_error, unavailable},
    idempotency::{ClaimedKey, KeyLock, OldRow, evaluate, parts},
    payload_lock::payload_lock,
    postgres::Postgres,
    query,
    statement::Statement,
};

/// A store on PostgreSQL whose transactions belong to sqlx: a handler extracts
/// `hapax_http::Tx<SqlxTx>` and runs its statements on a [`PgConnection`].
///
/// Keys, events and responses are those of the [`Postgres`], so a service can use both for
/// different operations, for instance this one for atomic mode and the other one for phased mode.
/// The relay reads the events from the [`Postgres`].
#[derive(Clone, Debug)]
pub struct SqlxStore {
    postgres: Postgres,
    pool: PgPool,
}

impl SqlxStore {
    /// Creates a store whose transactions are opened on `pool`, which must lead to the database of
    /// `postgres`.
    ///
    /// A transaction has the time limits of the `postgres`, in place of those of the pool:
    /// [`statement_max`](crate::Settings::statement_max) and
    /// [`idle_max`](crate::Settings::idle_max). A request that is cut off leaves its statement
    /// running, and the key locked, until the statement ends or reaches its limit.
    pub fn new(postgres: Postgres, pool: PgPool) -> Self {
        Self { postgres, pool }
    }

    /// The store to which the keys and events belong.
    pub fn postgres(&self) -> &Postgres {
        &self.postgres
    }

    /// Tries once to lock a key in a transaction; `None` while another one has the key.
    pub(super) async fn try_hold(
        &self,
        claim: &Claim,
    ) -> Result<Option<ClaimOutcome<Locked>>, StoreError> {
        let mut tx = self.open().await?;
        let locked = self.within(lock(&self.postgres, &mut tx, claim)).await;
        open_or_end(tx, locked.map_err(own_error)).await
    }

    /// Rolls a transaction back and locks its key again, on the same connection.
    ///
    /// The connection does not return to the pool in between: it would go to another request, and
    /// this one would wait for the next free connection.
    pub(super) async fn hold_again(
        &self,
        mut tx: PgTransaction<'static>,
        claim: &Claim,
    ) -> Result<Option<ClaimOutcome<Locked>>, StoreError> {
        if !tx.is_in_transaction() {
            // sqlx has rolled it back and would send no COMMIT.
            roll_back(tx).await;
            return self.try_hold(claim).await;
        }
        let begin = self.bounded_begin();
        let again = async {
            restart(&mut tx, &begin).await?;
            lock(&self.postgres, &mut tx, claim).await
        };
        let locked = self.within(again).await;
        open_or_end(tx, locked.map_err(own_error)).await
    }

    /// Waits for statements of the store, at most as long as one may take.
    async fn within<R>(
        &self,
        statements: impl Future<Output = Result<R, StoreError>>,
    ) -> Result<R, StoreError> {
        let max = self.postgres.settings().statement_max;
        let completed = timeout(max, statements).await;
        completed.unwrap_or(Err(StoreError::TimedOut))
    }

    /// Begins a transaction with the time limits of the store.
    ///
    /// sqlx does not know of a transaction until it has received the result of the `BEGIN`. If the
    /// future is dropped before that, the connection returns to the pool with the transaction open.
    /// A separate task therefore begins it. If the request is gone by then, the task drops the
    /// transaction, and sqlx rolls it back.
    async fn open(&self) -> Result<PgTransaction<'static>, StoreError> {
        let (pool, begin) = (self.pool.clone(), AssertSqlSafe(self.bounded_begin()));
        let opened = tokio::spawn(async move { pool.begin_with(begin).await });
        let opened = opened.await.map_err(unavailable)?;
        opened.map_err(sqlx_error)
    }

    /// The statements that begin a transaction. They limit it, so that the server ends it if this
    /// node vanishes.
    fn bounded_begin(&self) -> String {
        format!("BEGIN; {}", self.postgres.bounds())
    }
}

/// A transaction that has locked a key, and the key's old row.
pub(super) type Locked = (PgTransaction<'static>, OldRow);

impl Keys for SqlxStore {
    type Tx = SqlxTx;

    type Statement = Statement;

    async fn begin(&self, tenant: Option<Tenant>, context: Headers) -> Result<SqlxTx, StoreError> {
        let tx = self.open().await?;
        Ok(SqlxTx::new(self, tx, Draft::new(tenant, context), None))
    }

    async fn claim(&self, mut claim: Claim) -> Result<ClaimOutcome<SqlxTx>, StoreError> {
        let draft = Draft::of(&mut claim);
        let mut attempts = ClaimAttempts::of(&self.postgres);
        loop {
            match self.try_hold(&claim).await? {
                Some(ClaimOutcome::Open((tx, row))) => {
                    let held = ClaimedKey { claim, row };
                    let tx = SqlxTx::new(self, tx, draft, Some(held));
                    return Ok(ClaimOutcome::Open(tx));
                }
                Some(ClaimOutcome::Taken(taken)) => return Ok(ClaimOutcome::Taken(taken)),
                None => {}
            }
            if !attempts.wait(&self.postgres).await {
                return Ok(ClaimOutcome::Taken(Taken::InProgress));
            }
        }
    }

    async fn execute_plan(
        &self,
        planned: PlannedRequest<Statement>,
    ) -> Result<ClaimOutcome<Duration>, StoreError> {
        self.postgres.execute_plan(planned).await
    }

    async fn look_up(&self, scope: &Scope) -> Result<Option<KeyRecord>, StoreError> {
        self.postgres.look_up(scope).await
    }

    async fn derivation_secret(&self) -> Result<DerivationSecret, StoreError> {
        self.postgres.derivation_secret().await
    }
}

impl KeyMaintenance for SqlxStore {
    async fn forget(&self, scope: &Scope) -> Result<bool, StoreError> {
        self.postgres.forget(scope).await
    }

    async fn purged(&self, since: Option<&PurgeMark>) -> Result<Purged, StoreError> {
        self.postgres.purged(since).await
    }

    async fn purge_keys(&self) -> Result<Vec<(Operation, u64)>, StoreError> {
        self.postgres.purge_keys().await
    }

    async fn usage(&self) -> Result<Vec<Usage>, StoreError> {
        self.postgres.usage().await
    }
}

/// Reads the events of the [`Postgres`], for code that is generic over stores.
impl Source for SqlxStore {
    async fn read(
        &self,
        frontier: &Frontier,
        shards: Shards,
        limit: usize,
    ) -> Result<Batch, StoreError> {
        Source::read(&self.postgres, frontier, shards, limit).await
    }

    async fn read_past(
        &self,
        head: &Frontier,
        beyond: i64,
        shards: Shards,
        except: &[Option<Tenant>],
        limit: usize,
    ) -> Result<Past, StoreError> {
        Source::read_past(&self.postgres, head, beyond, shards, except, limit).await
    }

    async fn shards_after(&self, frontier: &Frontier) -> Result<(Shards, Frontier), StoreError> {
        Source::shards_after(&self.postgres, frontier).await
    }

    async fn fall_asleep(&self) -> Result<Option<Sleep>, StoreError> {
        Source::fall_asleep(&self.postgres).await
    }
}

/// Keeps the transaction of a claim that has its key, and ends every other one.
async fn open_or_end(
    tx: PgTransaction<'static>,
    locked: Result<Option<ClaimOutcome<OldRow>>, StoreError>,
) -> Result<Option<ClaimOutcome<Locked>>, StoreError> {
    match locked {
        Ok(Some(ClaimOutcome::Open(row))) => Ok(Some(ClaimOutcome::Open((tx, row)))),
        Ok(Some(ClaimOutcome::Taken(taken))) => {
            roll_back(tx).await;
            Ok(Some(ClaimOutcome::Taken(taken)))
        }
        Ok(None) => {
            roll_back(tx).await;
            Ok(None)
        }
        Err(error) => {
            roll_back_after(tx, &error).await;
            Err(error)
        }
    }
}

/// Ends a transaction without its effect and begins the next one, in one message. Fails if a
/// statement of the handler has ended it, because its effect may be committed.
///
/// For sqlx it is the same transaction, so it also rolls back the second one if this future is
/// dropped.
async fn restart(tx: &mut PgConnection, begin: &str) -> Result<(), StoreError> {
    let open = query!("session/require_open");
    let checked = AssertSqlSafe(format!("{open}; ROLLBACK; {begin}"));
    let restarted = tx.execute(checked).await;
    let restarted = match restarted {
        // After a failed statement, the server executes nothing but a rollback.
        Err(error) if has_failed(&error) => {
            let restart = AssertSqlSafe(format!("ROLLBACK; {begin}"));
            tx.execute(restart).await
        }
        restarted => restarted,
    };
    restarted.map(drop).map_err(|error| refused(error, false))
}

/// Whether a statement was not executed because an earlier one of its transaction has failed.
fn has_failed(error: &sqlx::Error) -> bool {
    let Some(refusal) = error.as_database_error() else {
        return false;
    };
    refusal.code().as_deref() == Some(SqlState::IN_FAILED_SQL_TRANSACTION.code())
}

async fn lock(
    postgres: &Postgres,
    tx: &mut PgConnection,
    claim: &Claim,
) -> Result<Option<ClaimOutcome<OldRow>>, StoreError> {
    let [tenant, operation, key] = parts(&claim.scope);
    let time = postgres.time();
    let settings = postgres.settings();
    let lock = bound(
        settings,
        query!("idempotency/lock"),
        &[&tenant, &operation, &key, &payload_lock(claim)],
    );
    let locked = lock.fetch_one(&mut *tx).await.map_err(sqlx_error)?;
    let locked: Option<bool> = locked.try_get(0).map_err(sqlx_error)?;
    let find = bound(
        settings,
        query!("idempotency/find"),
        &[&tenant, &operation, &key, &time],
    );
    let found = find.fetch_optional(&mut *tx).await.map_err(sqlx_error)?;
    let found = found.as_ref().map(record).transpose()?;
    evaluate(KeyLock::of(locked), found, claim, postgres.keyring())
}
