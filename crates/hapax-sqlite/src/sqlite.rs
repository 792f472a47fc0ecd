//! The store's handle: open, read, write, migrate, close.
//!
//! Clones of a [`Sqlite`] share one writer and the readers. Dropping the last clone finishes the
//! queued writes; [`Sqlite::close`] does the same and returns when it is done.

use std::{
    collections::BTreeSet,
    fmt,
    sync::{Arc, Mutex, PoisonError, Weak},
    thread::{self, JoinHandle},
    time::Instant,
};

use hapax::{
    Clock, Random,
    delivery::KnownDestinations,
    group::{self, Queue, StartOnce},
    keyring::Keyring,
    limits::WRITER_JOBS,
    notify::Notifier,
    outbox::EventCheck,
    store::StoreError,
};
use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::{
    clock::{self, Latest},
    connection::{Guard, open_writer},
    error::{OpenError, SchemaError, store_error, unavailable},
    file_identity::FileIdentity,
    lock::{Lock, note_relay},
    merge::{Flushes, Merger},
    migrations::{self, Migration},
    pool::Pool,
    query,
    running::Running,
    settings::Settings,
    writer::job::{Brief, Job},
    writer::{Writer, WriterContext},
};

/// A SQLite database as a store.
#[derive(Clone)]
pub struct Sqlite(Arc<Inner>);

struct Inner {
    jobs: Queue<Box<dyn Job>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    readers: Pool,
    flushes: Flushes,
    notifier: Notifier,
    clock: Clock,
    latest: Latest,
    random: Random,
    keyring: Keyring,
    /// The settings with which the store was opened, for a handle of operators.
    settings: Settings,
    /// The destinations known to relays of this process that have no node name.
    relays: Mutex<Vec<Weak<KnownDestinations>>>,
    running: Running,
}

impl Sqlite {
    /// Opens the database, creates or migrates it as needed, and starts the writer.
    ///
    /// # Errors
    /// Fails if another store has the file open, if the file cannot be written, and if it is
    /// damaged or has a schema that this version does not know.
    pub fn open(settings: Settings) -> Result<Self, OpenError> {
        let lock = Lock::take(&settings.path)?;
        let kept = settings.clone();
        let guard = Guard::new();
        let mut conn = open_writer(&settings, &guard)?;
        migrations::apply_own(&mut conn, settings.clock.now())
            .map_err(|error| OpenError::schema(settings.path.clone(), error))?;
        let latest = Latest::default();
        let clock = latest.of(settings.clock);
        clock::bring_forward(&conn, clock.now())
            .map_err(|error| OpenError::of(settings.path.clone(), error))?;
        let position = conn
            .query_row(query!("outbox/last"), [], |row| row.get(0))
            .map_err(|error| OpenError::of(settings.path.clone(), error))?;
        let place =
            FileIdentity::of(settings.path.clone()).map_err(|error| OpenError::Unavailable {
                path: settings.path.clone(),
                source: error.into(),
            })?;
        let readers = Pool::of_readers(&settings.path, settings.readers)?;
        let merger = Merger::start(&mut conn, &kept)?;
        let flushes = merger.flushes().clone();
        let notifier = Notifier::new();
        let (queue, jobs) = group::queue(WRITER_JOBS, settings.group_max);
        let ctx = WriterContext::new(
            conn,
            clock.clone(),
            settings.tx_max,
            settings.keyring.clone(),
            guard,
            position,
        );
        let writer = Writer {
            merger,
            ctx,
            jobs,
            failpoints: settings.failpoints,
            notifier: notifier.clone(),
            logged: false,
            place,
            lock,
        };
        let spawned = thread::Builder::new()
            .name("hapax-writer".to_owned())
            .spawn(move || writer.run());
        let thread = spawned.map_err(|error| OpenError::Unavailable {
            path: settings.path,
            source: error.into(),
        })?;
        Ok(Self(Arc::new(Inner {
            jobs: queue,
            thread: Mutex::new(Some(thread)),
            readers,
            flushes,
            notifier,
            clock,
            latest,
            random: settings.random,
            keyring: settings.keyring,
            settings: kept,
            relays: Mutex::default(),
            running: Running::default(),
        })))
    }

    /// The notifier that wakes the relay after a commit.
    pub fn notifier(&self) -> Notifier {
        self.0.notifier.clone()
    }

    /// Reads the last committed state.
    ///
    /// # Errors
    /// Fails if the closure fails, and if the store is closed.
    pub async fn read<R: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> rusqlite::Result<R> + Send + 'static,
    ) -> Result<R, StoreError> {
        self.look(move |conn| read(conn).map_err(store_error)).await
    }

    /// Writes in a separate savepoint, which shares a commit with the other waiting requests.
    ///
    /// # Errors
    /// Fails if the closure fails, and then none of its writes are kept; and if the store is closed
    /// or cannot write.
    pub async fn write<R: Send + 'static>(
        &self,
        write: impl FnOnce(&Connection) -> rusqlite::Result<R> + Send + 'static,
    ) -> Result<R, StoreError> {
        self.submit(move |ctx| ctx.foreign(write)).await
    }

    /// Brings the service's tables up to date, by the same rules as the store's own migrations.
    ///
    /// Migrations are numbered 1, 2, 3 and never change once they are applied. Each `namespace` has
    /// its own numbers.
    ///
    /// # Errors
    /// Fails if the database is newer, if an applied migration differs from the one given here, and
    /// if a migration fails. In each case none of the missing migrations is applied.
    pub async fn migrate(
        &self,
        namespace: &str,
        migrations: &[Migration<'_>],
    ) -> Result<(), SchemaError> {
        let plan = migrations::Plan::new(namespace, migrations)?;
        let outcome = self
            .submit(move |ctx| {
                ctx.until(None);
                Ok(plan.apply_in(ctx))
            })
            .await;
        outcome.map_err(SchemaError::Store)?
    }

    /// Finishes the queued writes, merges the log into the database and releases the file.
    ///
    /// # Errors
    /// Fails if the writer thread panicked.
    pub async fn close(&self) -> Result<(), StoreError> {
        self.0.jobs.close();
        self.0.readers.close().await;
        let Some(thread) = lock(&self.0.thread).take() else {
            return Ok(());
        };
        let joined = tokio::task::spawn_blocking(move || thread.join()).await;
        match joined {
            Ok(Ok(())) => Ok(()),
            _ => Err(unavailable("the writer thread panicked")),
        }
    }

    /// The number of writes that wait for the writer.
    pub fn queued(&self) -> usize {
        self.0.jobs.len()
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.0.clock
    }

    /// The settings with which the store was opened.
    pub(crate) fn settings(&self) -> &Settings {
        &self.0.settings
    }

    pub(crate) fn latest(&self) -> &Latest {
        &self.0.latest
    }

    /// The key of the transaction that holds the writer.
    pub(crate) fn running(&self) -> &Running {
        &self.0.running
    }

    /// Whether the database file can be relied upon.
    pub(crate) fn flushes(&self) -> &Flushes {
        &self.0.flushes
    }

    pub(crate) fn random(&self) -> &Random {
        &self.0.random
    }

    pub(crate) fn keyring(&self) -> &Keyring {
        &self.0.keyring
    }

    pub(crate) fn event_check(&self) -> &EventCheck {
        &self.0.settings.event_check
    }

    /// Registers the destinations that a relay of this process knows, for as long as it runs.
    pub(crate) fn follow_relay(&self, known: Weak<KnownDestinations>) {
        note_relay(&self.0.settings.path);
        lock(&self.0.relays).push(known);
    }

    /// The destinations that relays of this process know.
    pub(crate) fn known(&self) -> BTreeSet<String> {
        let mut relays = lock(&self.0.relays);
        relays.retain(|relay| relay.strong_count() > 0);
        let known = relays.iter().filter_map(Weak::upgrade);
        known.flat_map(|relay| relay.names()).collect()
    }

    /// Runs `work` on the writer and returns its result after the commit.
    pub(crate) async fn submit<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut WriterContext) -> Result<R, StoreError> + Send + 'static,
    ) -> Result<R, StoreError> {
        self.submit_by(None, work).await
    }

    /// Like [`Self::submit`], but does not run `work` if it has not started by `deadline`.
    pub(crate) async fn submit_by<R: Send + 'static>(
        &self,
        deadline: Option<Instant>,
        work: impl FnOnce(&mut WriterContext) -> Result<R, StoreError> + Send + 'static,
    ) -> Result<R, StoreError> {
        let (reply, response) = oneshot::channel();
        let turn = StartOnce::default();
        let job = Box::new(Brief::new(work, turn.clone(), reply));
        group::answered(&self.0.jobs, job, &turn, response, deadline, closed).await
    }

    /// Adds a job to the writer's queue, and waits while the queue is full.
    pub(crate) async fn enqueue(&self, job: Box<dyn Job>) -> Result<(), StoreError> {
        if self.0.jobs.push(job).await {
            Ok(())
        } else {
            Err(closed())
        }
    }

    /// Runs `read` on a connection of the readers.
    pub(crate) async fn look<R: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> Result<R, StoreError> + Send + 'static,
    ) -> Result<R, StoreError> {
        let flushes = self.0.flushes.clone();
        let checked = move |conn: &Connection| {
            let found = read(conn);
            flushes.check()?;
            found
        };
        self.0.readers.run(checked).await
    }

    /// Brings times forward that are too far in the future, if the clock was set back.
    pub(crate) async fn heed_clock(&self) -> Result<(), StoreError> {
        let now = self.clock().now();
        if !self.latest().is_ahead_of(now) {
            return Ok(());
        }
        tracing::warn!("the clock was set back: leases, retries and sagas are brought forward");
        self.write(move |conn| clock::bring_forward(conn, now))
            .await?;
        self.latest().forget(now);
        Ok(())
    }
}

impl fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sqlite").finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.jobs.close();
        let thread = lock(&self.thread).take();
        // If a job held the last handle, this runs on the writer, which cannot join itself.
        if let Some(thread) = thread.filter(|it| it.thread().id() != thread::current().id()) {
            let _ended = thread.join();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn closed() -> StoreError {
    unavailable("the store is closed")
}

#[cfg(test)]
mod tests {
    use hapax::admin::{AdminError, DestinationAdmin as _};

    use super::*;

    const NOTES: &str = "CREATE TABLE note (text TEXT); INSERT INTO note VALUES ('kept')";

    fn count(conn: &Connection) -> rusqlite::Result<i64> {
        conn.query_row("SELECT count(*) FROM note", [], |row| row.get(0))
    }

    #[tokio::test]
    async fn after_a_flush_that_failed_nothing_is_read_or_written_before_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("test.db");
        let settings = Settings::new(path, Clock::system(), Random::system());
        let store = Sqlite::open(settings.clone()).unwrap();
        let notes = store.write(|conn| conn.execute_batch(NOTES));
        notes.await.unwrap();
        assert_eq!(store.read(count).await.unwrap(), 1);
        let admin = store.admin().unwrap();
        admin.partitions(None).await.unwrap();
        store.0.flushes.fail();
        let insert = |conn: &Connection| conn.execute("INSERT INTO note VALUES ('lost')", []);
        let lost = store.write(insert).await;
        assert!(
            matches!(lost, Err(StoreError::Unavailable { .. })),
            "{lost:?}"
        );
        let read = store.read(count).await;
        assert!(
            matches!(read, Err(StoreError::Unavailable { .. })),
            "{read:?}"
        );
        let shown = admin.partitions(None).await;
        assert!(
            matches!(
                shown,
                Err(AdminError::Store(StoreError::Unavailable { .. }))
            ),
            "{shown:?}"
        );
        admin.close().await;
        store.close().await.unwrap();
        let store = Sqlite::open(settings).unwrap();
        assert_eq!(store.read(count).await.unwrap(), 1);
    }
}
