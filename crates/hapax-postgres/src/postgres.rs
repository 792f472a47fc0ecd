//! The store: opening, migrating, reading and closing it.
//!
//! A [`Postgres`] is a handle. Clones share the pool of connections and the queue of groups.

use std::{
    borrow::Cow,
    fmt,
    sync::{
        Arc, Weak,
        atomic::{AtomicI64, AtomicU32, Ordering},
    },
};

use hapax::{
    Clock, Random, Timestamp, group::Queue, keyring::Keyring, notify::Notifier, outbox::EventCheck,
    store::StoreError,
};
use tokio_postgres::{Row, types::ToSql};

use crate::{
    connection::{CommitError, Connections, Link, QueryError, within},
    error::SchemaError,
    listener::Listener,
    looks::Looks,
    member::Member,
    migrations::{self, Migration},
    phase_member::PhaseMember,
    query,
    session::{BEGIN, Session},
    settings::{Settings, Time},
    value::{Moment, Param},
};

/// Milliseconds within which two clocks are considered equal: the length of a round trip and drift.
const CLOCKS_AGREE: i64 = 1_000;

/// A store in a PostgreSQL database.
#[derive(Clone)]
pub struct Postgres(Arc<Inner>);

struct Inner {
    connections: Connections,
    settings: Settings,
    notifier: Notifier,
    queue: Queue<Member>,
    phase_queue: Queue<PhaseMember>,
    /// Number of further groups that claim before they write, after an optimistic claim has failed.
    careful: AtomicU32,
    looks: Looks,
    listener: Listener,
    /// How far the database's clock is ahead of ours, in milliseconds; 0 if they agree.
    ahead: Arc<AtomicI64>,
}

/// A weak handle, which does not keep the store open.
#[derive(Clone)]
pub(crate) struct Handle(Weak<Inner>);

impl Handle {
    pub(crate) fn upgrade(&self) -> Option<Postgres> {
        self.0.upgrade().map(Postgres)
    }
}

impl Postgres {
    pub(crate) fn new(
        connections: Connections,
        settings: Settings,
        queue: Queue<Member>,
        phase_queue: Queue<PhaseMember>,
    ) -> Self {
        Self(Arc::new(Inner {
            connections,
            settings,
            notifier: Notifier::new(),
            queue,
            phase_queue,
            careful: AtomicU32::new(0),
            looks: Looks::default(),
            listener: Listener::default(),
            ahead: Arc::default(),
        }))
    }

    pub(crate) fn handle(&self) -> Handle {
        Handle(Arc::downgrade(&self.0))
    }

    /// Takes a connection for a transaction.
    pub(crate) async fn session(&self) -> Result<Session, StoreError> {
        Ok(Session::new(
            self.link().await?,
            self.settings().statement_max,
        ))
    }

    /// The statement that opens a transaction, with its time limits if there is a pooler.
    pub(crate) fn begin(&self) -> Cow<'static, str> {
        if self.settings().pooled {
            format!("{BEGIN}; {}", self.bounds()).into()
        } else {
            BEGIN.into()
        }
    }

    /// Begins a transaction in which each statement sees everything that was committed before it.
    pub(crate) fn begin_read_committed(&self) -> String {
        format!(
            "{}; SET TRANSACTION ISOLATION LEVEL READ COMMITTED",
            self.begin()
        )
    }

    /// Runs a single statement as a transaction.
    pub(crate) async fn commit(
        &self,
        sql: &'static str,
        params: &[&dyn Param],
    ) -> Result<Vec<Row>, StoreError> {
        Ok(self.try_commit(sql, params).await?)
    }

    /// Runs a single statement as a transaction. If it fails, the error says whether the transaction
    /// may have been committed.
    pub(crate) async fn try_commit(
        &self,
        sql: &'static str,
        params: &[&dyn Param],
    ) -> Result<Vec<Row>, CommitError> {
        let failpoints = &self.settings().failpoints;
        failpoints.hit("postgres.commit.before");
        let link = self.link().await?;
        let asked = self.ask_on(link, async |link| link.ask(sql, params).await);
        let rows = asked.await?;
        failpoints.hit("postgres.commit.after");
        Ok(rows)
    }

    /// Migrates the tables of the service, by the same rules as the tables of the store.
    ///
    /// Migrations are numbered 1, 2, 3 and never change after they were applied. `namespace`
    /// separates their numbers from those of other services. If several processes migrate at the
    /// same time, one of them does it.
    ///
    /// # Errors
    /// Fails if the database is newer, if an applied migration differs from the one given here, or
    /// if a migration fails; then none of the missing migrations is applied.
    pub async fn migrate(
        &self,
        namespace: &str,
        migrations: &[Migration<'_>],
    ) -> Result<(), SchemaError> {
        let mut link = self.link().await.map_err(SchemaError::Store)?;
        migrations::of(&mut link, namespace, migrations, self.settings().schema).await
    }

    /// Reads the last committed state, outside of the transactions of requests.
    ///
    /// # Errors
    /// Fails if the statement fails, or if the database cannot be reached.
    pub async fn read(
        &self,
        sql: &str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, StoreError> {
        if self.settings().pooled {
            return self.read_pooled(sql, params).await;
        }
        let link = self.link().await?;
        let read = within(self.settings().statement_max, link.theirs(sql, params)).await;
        match read {
            Ok((rows, _)) => Ok(rows),
            Err(flight) => {
                if flight.is_unknown() {
                    link.discard();
                }
                Err(flight.into())
            }
        }
    }

    /// Asks whether the server accepts writes. If it does not, connections that are not in use are
    /// closed: the next ones may lead to another server, or have other settings.
    ///
    /// # Errors
    /// The same as [`Postgres::read`].
    pub async fn accepts_writes(&self) -> Result<bool, StoreError> {
        let rows = self.read(query!("session/accepts_writes"), &[]).await?;
        let accepted = rows.first().is_some_and(|row| row.get("accepts_writes"));
        if !accepted {
            self.reconnect();
        }
        Ok(accepted)
    }

    /// Reads in a transaction, during which the pooler keeps the same server connection.
    async fn read_pooled(
        &self,
        sql: &str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, StoreError> {
        let mut session = self.session().await?;
        session.begin(self.begin());
        let read = session.run(async |link| {
            let (rows, _) = link.theirs(sql, params).await?;
            link.run("COMMIT").await?;
            Ok(rows)
        });
        let read = read.await;
        match read {
            Ok(_) => session.end(),
            Err(_) => session.rollback().await,
        }
        Ok(read?)
    }

    /// Notifies the relay after each commit of this node that it should read the outbox.
    pub fn notifier(&self) -> Notifier {
        self.0.notifier.clone()
    }

    /// The settings with which the store was opened.
    pub fn settings(&self) -> &Settings {
        &self.0.settings
    }

    /// Number of single-shot requests, and of entries and responses of phased ones, that wait for a
    /// group.
    pub fn queued(&self) -> usize {
        self.0.queue.len() + self.0.phase_queue.len()
    }

    /// Accepts no more requests and closes the connections; those in use finish their work first.
    pub fn close(&self) {
        self.0.queue.close();
        self.0.phase_queue.close();
        self.0.connections.close();
        self.0.listener.end();
    }

    /// A connection from the pool.
    pub(crate) async fn link(&self) -> Result<Link, StoreError> {
        self.0.connections.take().await
    }

    /// Closes the connections that are not in use, and those by which a relay sleeps: they may lead
    /// to a server that is no longer the primary.
    pub(crate) fn reconnect(&self) {
        self.0.connections.renew();
        self.0.listener.end();
    }

    /// Whether the next group may use an optimistic claim.
    pub(crate) fn is_optimistic(&self) -> bool {
        let one_less = |left: u32| left.checked_sub(1);
        let careful = &self.0.careful;
        careful
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less)
            .is_err()
    }

    /// Records that an optimistic claim has failed: the next `groups` groups claim first.
    pub(crate) fn disable_optimistic_claims(&self, groups: u32) {
        self.0.careful.store(groups, Ordering::Relaxed);
    }

    pub(crate) fn queue(&self) -> &Queue<Member> {
        &self.0.queue
    }

    pub(crate) fn phase_queue(&self) -> &Queue<PhaseMember> {
        &self.0.phase_queue
    }

    pub(crate) fn looks(&self) -> &Looks {
        &self.0.looks
    }

    pub(crate) fn listener(&self) -> &Listener {
        &self.0.listener
    }

    /// Statements that set the timeouts and the mark of a transaction if nothing is kept on a
    /// connection.
    pub(crate) fn bounds(&self) -> String {
        self.0.connections.bounds(self.settings())
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.0.settings.clock
    }

    pub(crate) fn random(&self) -> &Random {
        &self.0.settings.random
    }

    pub(crate) fn keyring(&self) -> &Keyring {
        &self.0.settings.keyring
    }

    pub(crate) fn event_check(&self) -> &EventCheck {
        &self.0.settings.event_check
    }

    /// The time as a parameter; null if the database's clock decides.
    pub(crate) fn time(&self) -> Option<Moment> {
        match &self.0.settings.time {
            Time::Database => None,
            Time::Given(clock) => Some(Moment(clock.now())),
        }
    }

    /// The estimated time of the database as a parameter.
    pub(crate) fn now(&self) -> Moment {
        Moment(self.database_clock().now())
    }

    /// A clock that estimates the database's time. Relays use it, so that nodes whose clocks differ
    /// agree on schedules.
    ///
    /// It returns this node's time until a relay has sent its first heartbeat, and as long as the
    /// two clocks differ by less than a second.
    pub fn database_clock(&self) -> Clock {
        let (ours, ahead) = (self.clock().clone(), Arc::clone(&self.0.ahead));
        Clock::new(move || {
            let ahead = ahead.load(Ordering::Relaxed);
            Timestamp::from_millis(ours.now().as_millis().saturating_add(ahead))
        })
    }

    /// Records the database's time `there` from a query that was sent at `asked_at` by our clock.
    pub(crate) fn observe_time(&self, asked_at: Timestamp, there: Timestamp) {
        if matches!(self.0.settings.time, Time::Given(_)) {
            return;
        }
        let here = asked_at
            .as_millis()
            .midpoint(self.clock().now().as_millis());
        let ahead = there.as_millis() - here;
        let ahead = if ahead.abs() < CLOCKS_AGREE { 0 } else { ahead };
        self.0.ahead.store(ahead, Ordering::Relaxed);
    }

    /// Runs a statement of this crate and returns its rows.
    pub(crate) async fn ask(
        &self,
        sql: &'static str,
        params: &[&dyn Param],
    ) -> Result<Vec<Row>, StoreError> {
        self.ask_all(async |link| link.ask(sql, params).await).await
    }

    /// Runs statements of this crate, each as a separate transaction.
    pub(crate) async fn ask_all<R>(
        &self,
        ask: impl AsyncFnOnce(&Link) -> Result<R, tokio_postgres::Error>,
    ) -> Result<R, StoreError> {
        let link = self.link().await?;
        Ok(self.ask_on(link, ask).await?)
    }

    /// Runs statements of this crate on a connection, which is closed if the result is lost.
    async fn ask_on<R>(
        &self,
        link: Link,
        ask: impl AsyncFnOnce(&Link) -> Result<R, tokio_postgres::Error>,
    ) -> Result<R, QueryError> {
        let asked = within(self.settings().statement_max, ask(&link)).await;
        if let Err(failed) = &asked {
            if let QueryError::Failed(error) = failed {
                link.hear(error);
            }
            if failed.is_unknown() {
                link.discard();
            }
        }
        asked
    }
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres").finish_non_exhaustive()
    }
}
