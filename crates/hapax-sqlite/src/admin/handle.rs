//! The handle of operators: separate connections, beside those of a running store.

use std::{fmt, sync::Arc};

use hapax::{
    Clock, admin::AdminError, failpoint::Failpoints, keyring::Keyring, notify::Notifier,
    sink::BoxError, store::StoreError,
};
use rusqlite::{Connection, config::DbConfig};

use super::{
    audited::AuditedTransaction,
    view::{View, admin_error},
};
use crate::{
    connection::open_admin,
    error::{OpenError, SchemaError, unavailable},
    file_identity::FileIdentity,
    merge::Flushes,
    pool::Pool,
    schema_version::SchemaVersion,
    settings::Settings,
    sqlite::Sqlite,
};

/// What operators see and do, on a database that a store of this or another process may have open.
///
/// It implements [`hapax::admin::Admin`]. Its operations are short, separate transactions
/// connection: they never stop the store's writer, which waits for its turn like this handle. If the
/// lock is not free within two seconds, an operation fails with
/// [`AdminError::Busy`](hapax::admin::AdminError::Busy) and has changed nothing. Clones share the
/// connections.
#[derive(Clone)]
pub struct SqliteAdmin(Arc<Inner>);

struct Inner {
    readers: Pool,
    /// A pool of the one connection that writes.
    writer: Pool,
    /// The schema that was checked last.
    schema: SchemaVersion,
    place: FileIdentity,
    clock: Clock,
    keyring: Keyring,
    failpoints: Failpoints,
    /// Wakes the relay of this process, if it has one.
    notifier: Option<Notifier>,
    /// Whether the store of this process, if it has one, could flush the database file.
    flushes: Flushes,
}

impl Sqlite {
    /// Opens a handle of operators on this database, with separate connections. It notifies the
    /// relay of this process, and stays usable after the store was closed.
    ///
    /// # Errors
    /// Fails as [`SqliteAdmin::open`].
    pub fn admin(&self) -> Result<SqliteAdmin, OpenError> {
        let settings = Settings {
            clock: self.clock().clone(),
            ..self.settings().clone()
        };
        let beside = (self.notifier(), self.flushes().clone());
        SqliteAdmin::open_beside(settings, Some(beside))
    }
}

impl SqliteAdmin {
    /// Opens the database of a store that may be running in another process. Only the path, the
    /// clock, the keyring, the failpoints, the number of readers and the size of the file are used
    /// of `settings`.
    ///
    /// # Errors
    /// `Missing` if there is no file at the path: none is created. `Schema` if the file contains no
    /// store, or a store of another version: it is not migrated. Otherwise as
    /// [`Sqlite::open`](crate::Sqlite::open), except that the store may be in use.
    pub fn open(settings: Settings) -> Result<Self, OpenError> {
        Self::open_beside(settings, None)
    }

    /// Opens the database, which a store of this process has open if there are its notifier, which
    /// wakes the relay, and its flushes.
    fn open_beside(
        settings: Settings,
        store: Option<(Notifier, Flushes)>,
    ) -> Result<Self, OpenError> {
        let path = settings.path.clone();
        let conn = open_admin(&settings)?;
        if store.is_some() {
            // The store merges the log when it is closed, or keeps it because a flush has failed.
            conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)
                .map_err(|error| OpenError::of(path.clone(), error))?;
        }
        let (notifier, flushes) = store.unzip();
        let schema = SchemaVersion::default();
        schema
            .check_alone(&conn)
            .map_err(|error| OpenError::schema(path.clone(), error))?;
        let place = FileIdentity::of(path.clone()).map_err(|error| OpenError::Unavailable {
            path: path.clone(),
            source: error.into(),
        })?;
        Ok(Self(Arc::new(Inner {
            readers: Pool::of_readers(&path, settings.readers)?,
            writer: Pool::of(vec![conn]),
            schema,
            place,
            clock: settings.clock,
            keyring: settings.keyring,
            failpoints: settings.failpoints,
            notifier,
            flushes: flushes.unwrap_or_default(),
        })))
    }

    /// Closes the connections after the running operations have ended. Later operations fail.
    pub async fn close(&self) {
        self.0.readers.close().await;
        self.0.writer.close().await;
    }

    /// Reads one snapshot of the database.
    pub(super) async fn read<R: Send + 'static>(
        &self,
        read: impl FnOnce(&View<'_>) -> Result<R, AdminError> + Send + 'static,
    ) -> Result<R, AdminError> {
        let inner = Arc::clone(&self.0);
        let run = move |conn: &Connection| {
            let found = read(&inner.begin(conn, "BEGIN")?);
            inner.flushes.check().map_err(AdminError::Store)?;
            found
        };
        self.0.readers.run(run).await
    }

    /// Runs one operation in a transaction, which is committed if `change` returns a value and
    /// rolled back if it returns an error.
    pub(super) async fn change<R: Send + 'static>(
        &self,
        change: impl FnOnce(&AuditedTransaction<'_>) -> Result<R, AdminError> + Send + 'static,
    ) -> Result<R, AdminError> {
        let inner = Arc::clone(&self.0);
        let run = move |conn: &Connection| inner.change(conn, change);
        self.0.writer.run(run).await
    }

    /// Like [`Self::change`], for an operation that can be refused: its refusal is committed with
    /// its line in the audit log, and then returned as the error.
    pub(super) async fn change_or_refuse<R: Send + 'static>(
        &self,
        change: impl FnOnce(&AuditedTransaction<'_>) -> Result<Result<R, AdminError>, AdminError>
        + Send
        + 'static,
    ) -> Result<R, AdminError> {
        self.change(change).await?
    }
}

impl Inner {
    /// Begins a transaction. The pool ends it if it is still open when the work has ended.
    fn begin<'a>(&'a self, conn: &'a Connection, begin: &str) -> Result<View<'a>, AdminError> {
        conn.execute_batch(begin).map_err(admin_error)?;
        self.schema.check(conn).map_err(schema_error)?;
        Ok(View {
            conn,
            now: self.clock.now(),
            keyring: &self.keyring,
            failpoints: &self.failpoints,
        })
    }

    fn change<R>(
        &self,
        conn: &Connection,
        change: impl FnOnce(&AuditedTransaction<'_>) -> Result<R, AdminError>,
    ) -> Result<R, AdminError> {
        let view = self.begin(conn, "BEGIN IMMEDIATE")?;
        let changed = change(&AuditedTransaction { view })?;
        self.failpoints.hit("sqlite.admin.commit.before");
        if !self.place.is_there() {
            return Err(AdminError::Store(unavailable(
                "the database file was replaced or deleted while it was open: open it again",
            )));
        }
        self.flushes.check().map_err(AdminError::Store)?;
        conn.execute_batch("COMMIT").map_err(admin_error)?;
        self.failpoints.hit("sqlite.admin.commit.after");
        if let Some(notifier) = &self.notifier {
            notifier.notify();
        }
        Ok(changed)
    }
}

/// The error of an operation on a database whose schema was changed since it was opened.
fn schema_error(error: SchemaError) -> AdminError {
    let source: BoxError = match error {
        SchemaError::Store(StoreError::Unavailable { source }) => source,
        error => error.into(),
    };
    match source.downcast::<rusqlite::Error>() {
        Ok(error) => admin_error(*error),
        Err(source) => AdminError::Store(StoreError::Unavailable { source }),
    }
}

impl fmt::Debug for SqliteAdmin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteAdmin").finish_non_exhaustive()
    }
}
