//! Connections: a pool, and the statements on one connection.
//!
//! A [`Link`] is a connection from the pool. Its statements are prepared once and kept, unless
//! there is a pooler in transaction mode: then each statement is unnamed and sent in one message,
//! with the types of its parameters. Statements that are awaited together are sent together, as a
//! *pipeline*.

mod foreign;

use std::{
    fmt,
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use deadpool_postgres::{
    Hook, HookError, Manager, ManagerConfig, Object, Pool, RecyclingMethod, Runtime, Timeouts,
};
use hapax::store::StoreError;
use tokio::time::timeout;
use tokio_postgres::{Row, Statement, types::ToSql};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::{
    address::Address,
    connection::foreign::KnownTypes,
    error::{
        OpenError, is_read_only, is_stale, is_wire, no_connection, own_error, store_error,
        unavailable,
    },
    settings::Settings,
    statement::{Argument, Call},
    tls,
    value::Param,
};

/// Statements of a service that one connection keeps prepared, or a node remembers: more than it
/// has, unless it writes its values into them.
pub(crate) const STATEMENTS_MAX: usize = 512;

/// How often the server looks whether a client is still there while it works for it.
const WATCH: &str = "client_connection_check_interval = 1000";

/// The connections of a node.
#[derive(Clone, Debug)]
pub(crate) struct Connections {
    pool: Pool,
    shared: Arc<Shared>,
}

/// State that all connections of a node share.
pub(crate) struct Shared {
    connector: MakeRustlsConnect,
    pooled: bool,
    watched: Watched,
    pub(crate) known: KnownTypes,
}

/// Whether the server looks after its clients while it works for them: not every platform can.
#[derive(Clone, Debug, Default)]
struct Watched(Arc<AtomicBool>);

impl Connections {
    /// Makes the pool; no connection is made yet.
    pub(crate) fn of(settings: &Settings) -> Result<Self, OpenError> {
        let address = Address::of(settings)?;
        let connector = tls::connector(&address)?;
        let watched = Watched::default();
        Ok(Self {
            pool: pool(settings, address, connector.clone(), watched.clone())?,
            shared: Arc::new(Shared {
                connector,
                pooled: settings.pooled,
                watched,
                known: KnownTypes::default(),
            }),
        })
    }

    /// A connection out of the pool.
    pub(crate) async fn take(&self) -> Result<Link, StoreError> {
        let object = self.pool.get().await.map_err(no_connection)?;
        Ok(Link {
            object: Some(object),
            shared: Arc::clone(&self.shared),
            tainted: AtomicBool::new(false),
        })
    }

    /// Has the server end what it does for a client that is gone, where it can: its locks would
    /// be held until then, and a pooler passes on no request to cancel whose sender does not wait.
    pub(crate) async fn watch(&self, link: &Link) -> Result<(), tokio_postgres::Error> {
        let can = link.run(&format!("BEGIN; SET LOCAL {WATCH}")).await.is_ok();
        link.run("ROLLBACK").await?;
        self.shared.watched.0.store(can, Ordering::Relaxed);
        if can && !link.is_pooled() {
            link.run(&format!("SET {WATCH}")).await?;
        }
        Ok(())
    }

    /// The settings of a transaction, if none is kept on a connection: its time limits, and the mark
    /// that the transaction is the store's (`session/require_open`).
    pub(crate) fn bounds(&self, settings: &Settings) -> String {
        let bounds = bounds(settings, &self.shared.watched, "SET LOCAL");
        format!("{bounds}; SET LOCAL hapax.transaction = 'open'")
    }

    /// Closes the connections that are not in use. New ones are opened when they are needed.
    pub(crate) fn renew(&self) {
        let _gone = self.pool.retain(|_, _| false);
    }

    /// Lets the connections go; what is in flight ends first.
    pub(crate) fn close(&self) {
        self.pool.close();
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

fn pool(
    settings: &Settings,
    address: Address,
    connector: MakeRustlsConnect,
    watched: Watched,
) -> Result<Pool, OpenError> {
    let manager = Manager::from_config(
        address.limited(settings),
        connector,
        ManagerConfig {
            recycling_method: RecyclingMethod::Fast,
        },
    );
    let wait = Some(settings.connect_max);
    let mut builder = Pool::builder(manager)
        .max_size(settings.connections.max(2))
        .runtime(Runtime::Tokio1)
        .timeouts(Timeouts {
            wait,
            create: wait,
            recycle: wait,
        });
    if !settings.pooled {
        let settings = settings.clone();
        builder = builder.post_create(Hook::async_fn(move |client, _| {
            // A transaction that is deferrable is one that a session has begun.
            let bounds = bounds(&settings, &watched, "SET");
            let bounds = format!("{bounds}; SET default_transaction_deferrable = off");
            let max = settings.connect_max;
            Box::pin(async move {
                // The pool's own bounds end where its connection is made.
                match timeout(max, client.batch_execute(&bounds)).await {
                    Ok(set) => set.map_err(HookError::Backend),
                    Err(_) => Err(HookError::message("the database did not answer in time")),
                }
            })
        }));
    }
    builder.build().map_err(|error| OpenError::Settings {
        problem: error.to_string(),
    })
}

/// The time limits of every transaction, as statements: for a session, or for one transaction.
fn bounds(settings: &Settings, watched: &Watched, set: &str) -> String {
    let millis = |time: Duration| time.as_millis().clamp(1, i32::MAX as u128);
    let mut bounds = format!(
        "{set} statement_timeout = {}; {set} idle_in_transaction_session_timeout = {}",
        millis(settings.statement_max),
        millis(settings.idle_max),
    );
    if watched.0.load(Ordering::Relaxed) {
        bounds = format!("{bounds}; {set} {WATCH}");
    }
    bounds
}

/// A connection out of the pool.
#[derive(Debug)]
pub(crate) struct Link {
    /// `None` only once it is on its way back.
    object: Option<Object>,
    shared: Arc<Shared>,
    /// Whether it must not be used again once its transaction is over.
    tainted: AtomicBool,
}

/// A statement that is ready to be sent.
#[derive(Clone, Debug)]
pub(crate) enum Ready {
    Prepared(Statement),
    Unnamed(&'static str),
}

impl Link {
    /// Makes statements of our own ready: all of a flight must be, before the first is sent.
    pub(crate) async fn ready<const N: usize>(
        &self,
        sql: [&'static str; N],
    ) -> Result<[Ready; N], tokio_postgres::Error> {
        let mut ready = sql.map(Ready::Unnamed);
        if !self.is_pooled() {
            for (ready, sql) in ready.iter_mut().zip(sql) {
                *ready = Ready::Prepared(self.object().prepare_cached(sql).await?);
            }
        }
        Ok(ready)
    }

    /// The same for any number of them.
    pub(crate) async fn ready_all(
        &self,
        sql: &[&'static str],
    ) -> Result<Vec<Ready>, tokio_postgres::Error> {
        let mut ready = Vec::with_capacity(sql.len());
        for sql in sql {
            let [it] = self.ready([*sql]).await?;
            ready.push(it);
        }
        Ok(ready)
    }

    /// Sends a statement of our own and collects its rows; sent when it is first polled.
    pub(crate) async fn rows(
        &self,
        ready: &Ready,
        params: &[&dyn Param],
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        match ready {
            Ready::Prepared(statement) => {
                let params: Vec<&(dyn ToSql + Sync)> = params.iter().map(|it| *it as _).collect();
                self.object().query(statement, &params).await
            }
            Ready::Unnamed(sql) => {
                let typed = params.iter().map(|it| (*it as _, it.of_type()));
                let typed: Vec<(&(dyn ToSql + Sync), _)> = typed.collect();
                self.object().query_typed(sql, &typed).await
            }
        }
    }

    /// Prepares and sends one statement of our own.
    pub(crate) async fn ask(
        &self,
        sql: &'static str,
        params: &[&dyn Param],
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        let [ready] = self.ready([sql]).await?;
        self.rows(&ready, params).await
    }

    /// Sends statements without parameters or rows; sent when it is first polled.
    pub(crate) async fn run(&self, sql: &str) -> Result<(), tokio_postgres::Error> {
        self.object().batch_execute(sql).await
    }

    /// The same, as a leg of a flight.
    pub(crate) async fn none(&self, sql: &str) -> Result<Vec<Row>, tokio_postgres::Error> {
        self.run(sql).await.map(|()| Vec::new())
    }

    /// Prepares the statements of single-shot requests. With a pooler they are unnamed.
    pub(crate) async fn prepare_all(
        &self,
        calls: &[Call<'_>],
    ) -> Result<Vec<Option<Statement>>, tokio_postgres::Error> {
        let mut prepared = Vec::with_capacity(calls.len());
        for call in calls {
            prepared.push(if self.is_pooled() {
                None
            } else {
                Some(self.prepared(call.sql).await?)
            });
        }
        Ok(prepared)
    }

    /// Sends a statement of single-shot requests; sent when it is first polled.
    pub(crate) async fn call(
        &self,
        call: &Call<'_>,
        prepared: Option<&Statement>,
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        let arguments = call.arguments.iter();
        if let Some(statement) = prepared {
            let params: Vec<_> = arguments.map(Argument::as_sql).collect();
            return self.object().query(statement, &params).await;
        }
        let typed = arguments.map(|it| (it.as_sql(), it.of_type()));
        let typed: Vec<_> = typed.collect();
        // Its rows are not read, so their types are not needed.
        let ran = self.object().execute_typed(call.sql, &typed).await;
        ran.map(|_| Vec::new())
    }

    /// Prepares a statement of the service, or finds it prepared.
    pub(crate) async fn prepared(&self, sql: &str) -> Result<Statement, tokio_postgres::Error> {
        if self.object().statement_cache.size() >= STATEMENTS_MAX {
            self.object().statement_cache.clear();
        }
        self.object().prepare_cached(sql).await
    }

    pub(crate) fn object(&self) -> &Object {
        self.object
            .as_ref()
            .expect("a link has its connection until it is dropped")
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    pub(crate) fn is_pooled(&self) -> bool {
        self.shared.pooled
    }

    /// Closes a connection on which a statement may be running. Asks the server, on another
    /// connection, to cancel the statement, and waits up to `patience` for the rollback.
    ///
    /// The connection does not return to the pool and frees its slot at once: a cancellation that
    /// arrives late would otherwise stop the next user of the connection.
    pub(crate) async fn abandon(mut self, patience: Duration) {
        let Some(client) = self.object.take().map(Object::take) else {
            return;
        };
        // Best effort: a statement that continues is limited by its own timeout.
        let cancel = client.cancel_token();
        let cancel = cancel.cancel_query(self.shared.connector.clone());
        let _asked = timeout(patience, cancel).await;
        let _rolled_back = timeout(patience, client.batch_execute("ROLLBACK")).await;
    }

    /// Asks the server, on another connection, to cancel the running statement, and waits up to
    /// `patience` until the request has arrived. This connection is closed when it is given back,
    /// because a late cancellation would stop its next user.
    pub(crate) async fn cancel(&self, patience: Duration) {
        self.taint();
        let token = self.object().cancel_token();
        let asked = token.cancel_query(self.shared.connector.clone());
        // Best effort: a statement that continues is limited by its own timeout.
        let _asked = timeout(patience, asked).await;
    }

    /// Draws conclusions from a failure. If the server accepts no writes, its connections are
    /// closed, because the address may lead to another server now. If the prepared statements no
    /// longer fit, the connection is closed.
    pub(crate) fn hear(&self, error: &tokio_postgres::Error) {
        if is_read_only(error) || is_stale(error) {
            self.taint();
        }
    }

    /// Has the connection closed at the end instead of given back.
    pub(crate) fn taint(&self) {
        self.tainted.store(true, Ordering::Relaxed);
    }

    /// Closes the connection instead of returning it to the pool, because its state is unknown.
    pub(crate) fn discard(self) {
        self.taint();
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if *self.tainted.get_mut() {
            drop(self.object.take().map(Object::take));
        }
    }
}

/// Waits for a pipeline, at most `max`. After that the server is considered lost.
pub(crate) async fn within<R>(
    max: Duration,
    flight: impl Future<Output = Result<R, tokio_postgres::Error>>,
) -> Result<R, QueryError> {
    match timeout(max, flight).await {
        Ok(Ok(completed)) => Ok(completed),
        Ok(Err(error)) => Err(QueryError::Failed(error)),
        Err(_) => Err(QueryError::Lost),
    }
}

/// Why a flight did not land.
#[derive(Debug)]
pub(crate) enum QueryError {
    /// The database or the wire said so.
    Failed(tokio_postgres::Error),
    /// No result was received.
    Lost,
}

impl QueryError {
    /// Whether it may have happened all the same.
    pub(crate) fn is_unknown(&self) -> bool {
        match self {
            Self::Failed(error) => is_wire(error),
            Self::Lost => true,
        }
    }
}

impl From<QueryError> for StoreError {
    fn from(flight: QueryError) -> Self {
        match flight {
            QueryError::Failed(error) => store_error(error),
            QueryError::Lost => unavailable("the database did not answer in time"),
        }
    }
}

/// A commit that has failed.
#[derive(Debug)]
pub(crate) struct CommitError {
    pub(crate) cause: StoreError,
    /// Whether the transaction may have been committed all the same.
    pub(crate) is_unknown: bool,
}

impl CommitError {
    /// A commit whose result is lost.
    pub(crate) fn unknown(cause: StoreError) -> Self {
        Self {
            cause,
            is_unknown: true,
        }
    }

    /// The error of a statement on the store's own tables.
    pub(crate) fn of_own_statement(self) -> Self {
        Self {
            cause: own_error(self.cause),
            ..self
        }
    }
}

/// Nothing was committed.
impl From<StoreError> for CommitError {
    fn from(cause: StoreError) -> Self {
        Self {
            cause,
            is_unknown: false,
        }
    }
}

impl From<QueryError> for CommitError {
    fn from(failed: QueryError) -> Self {
        Self {
            is_unknown: failed.is_unknown(),
            cause: failed.into(),
        }
    }
}

impl From<CommitError> for StoreError {
    fn from(failed: CommitError) -> Self {
        failed.cause
    }
}
