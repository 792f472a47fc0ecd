//! Connections to the database, and their restrictions.
//!
//! The database is shared with the handles of operators ([`SqliteAdmin`](crate::SqliteAdmin)), in this
//! process and in others. Connections that write wait for the lock in short steps ([`wait_for_lock`]).
//!
//! A [`Guard`] watches the writer's connection. A caller's closure can do anything except end the
//! transaction in which it runs. Its statements are interrupted at its deadline.

use std::{
    fs, io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use rusqlite::{
    Connection, OpenFlags,
    hooks::{AuthAction, AuthContext, Authorization},
};

use crate::{error::OpenError, settings::Settings};

/// The savepoint that each member of a group runs in.
pub(crate) const MEMBER: &str = "hapax_member";

/// The most prepared statements that a connection caches, including those of the service.
const STATEMENTS: usize = 256;
/// How long a connection waits while another program has locked the file.
const BUSY: Duration = Duration::from_secs(2);
/// Pause between two attempts to lock the file for writing. A busy writer releases the lock between
/// two groups for some tens of microseconds only.
const LOCK_PAUSE: Duration = Duration::from_micros(100);
/// Virtual-machine steps between two checks of the deadline: some tens of microseconds.
const STEPS: i32 = 20_000;
/// Pages of the log from which on it is to start again at its beginning. Fewer starts mean fewer
/// writes of pages that change often. An operator's connection merges a log of this length when it
/// commits.
pub(crate) const LOG_PAGES: u32 = 4_000;
/// The writer's page cache in KiB, which holds the upper levels of the indexes.
const CACHE_KIB: i64 = 16 * 1024;
/// The size in bytes to which the log file is truncated after a checkpoint.
const LOG_BYTES: i64 = 64 * 1024 * 1024;

/// Opens the connection that writes.
pub(crate) fn open_writer(settings: &Settings, guard: &Guard) -> Result<Connection, OpenError> {
    let fail = |error| OpenError::of(settings.path.clone(), error);
    let mut conn = Connection::open_with_flags(
        &settings.path,
        OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )
    .map_err(fail)?;
    prepare_writer(&mut conn, settings, guard).map_err(fail)?;
    let mode: String = conn
        .pragma_query_value(None, "journal_mode", |row| row.get(0))
        .map_err(fail)?;
    if mode != "wal" {
        let reason = "its file system does not support a write-ahead log";
        return Err(OpenError::Unavailable {
            path: settings.path.clone(),
            source: reason.into(),
        });
    }
    Ok(conn)
}

/// Opens a connection of an operator's handle, which writes beside the store's writer. The file must
/// exist.
pub(crate) fn open_admin(settings: &Settings) -> Result<Connection, OpenError> {
    let path = &settings.path;
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(OpenError::Missing { path: path.clone() });
        }
        _ => {}
    }
    open_existing(settings).map_err(|error| OpenError::of(path.clone(), error))
}

/// Opens the connection of the thread that merges the log. The file must exist.
pub(crate) fn open_merger(settings: &Settings) -> Result<Connection, OpenError> {
    let open = || {
        let conn = open_existing(settings)?;
        // SQLite opens the log at the first read. Later its path may lead to another file.
        conn.pragma_query_value(None, "schema_version", |_| Ok(()))?;
        Ok(conn)
    };
    open().map_err(|error| OpenError::of(settings.path.clone(), error))
}

fn open_existing(settings: &Settings) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut conn = Connection::open_with_flags(&settings.path, flags)?;
    prepare_writing(&mut conn, settings)?;
    Ok(conn)
}

/// Opens a connection that only reads.
pub(crate) fn open_reader(path: &Path) -> Result<Connection, OpenError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let open = || {
        let conn = Connection::open_with_flags(path, flags)?;
        conn.busy_timeout(BUSY)?;
        conn.set_prepared_statement_cache_capacity(STATEMENTS);
        conn.pragma_update(None, "query_only", true)?;
        Ok(conn)
    };
    open().map_err(|error| OpenError::of(path.to_owned(), error))
}

fn prepare_writer(
    conn: &mut Connection,
    settings: &Settings,
    guard: &Guard,
) -> rusqlite::Result<()> {
    // The log must be the journal before anything else is set.
    wait_for_lock(conn)?;
    conn.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()))?;
    prepare_writing(conn, settings)?;
    conn.pragma_update(None, "cache_size", -CACHE_KIB)?;
    guard.watch(conn)
}

/// Sets what every connection needs that writes.
fn prepare_writing(conn: &mut Connection, settings: &Settings) -> rusqlite::Result<()> {
    wait_for_lock(conn)?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS);
    conn.pragma_update(None, "synchronous", "full")?;
    conn.pragma_update(None, "foreign_keys", true)?;
    conn.pragma_update(None, "trusted_schema", false)?;
    conn.pragma_update_and_check(None, "journal_size_limit", LOG_BYTES, |_| Ok(()))?;
    conn.pragma_update_and_check(None, "wal_autocheckpoint", LOG_PAGES, |_| Ok(()))?;
    if let Some(pages) = settings.pages_max {
        conn.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()))?;
    }
    Ok(())
}

/// Makes a connection wait for the lock of another one, for at most [`BUSY`].
///
/// SQLite's own wait sleeps for up to 100 ms between two attempts. A writer that commits one group
/// after the other would then hold the lock at almost every attempt, and an operation would fail.
pub(crate) fn wait_for_lock(conn: &mut Connection) -> rusqlite::Result<()> {
    let mut until = None;
    conn.busy_handler(Some(move |attempts: i32| {
        let now = Instant::now();
        if attempts == 0 {
            until = Some(now + BUSY);
        }
        let waits = until.is_some_and(|until| now < until);
        if waits {
            pause();
        }
        waits
    }))
}

#[expect(
    clippy::disallowed_methods,
    reason = "SQLite calls this on the thread that waits for the lock, and nothing tells when it is free"
)]
fn pause() {
    thread::sleep(LOCK_PAUSE);
}

/// Watches what a caller's closure does with the writer's connection.
#[derive(Clone, Debug)]
pub(crate) struct Guard(Arc<Watch>);

#[derive(Debug)]
struct Watch {
    start: Instant,
    /// Whether a caller's closure is running.
    foreign: AtomicBool,
    /// Microseconds after `start` at which statements are interrupted; zero means never.
    deadline_us: AtomicU64,
}

impl Guard {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Watch {
            start: Instant::now(),
            foreign: AtomicBool::new(false),
            deadline_us: AtomicU64::new(0),
        }))
    }

    /// Runs a caller's closure, which can neither end the transaction nor write outside it.
    pub(crate) fn foreign<R>(&self, run: impl FnOnce() -> R) -> R {
        struct Reset<'a>(&'a AtomicBool);
        impl Drop for Reset<'_> {
            fn drop(&mut self) {
                self.0.store(false, Ordering::Relaxed);
            }
        }
        self.0.foreign.store(true, Ordering::Relaxed);
        let _reset = Reset(&self.0.foreign);
        run()
    }

    /// Sets the time at which statements are interrupted.
    pub(crate) fn until(&self, deadline: Option<Instant>) {
        let micros = deadline.map_or(0, |at| {
            let after = at.saturating_duration_since(self.0.start).as_micros();
            u64::try_from(after).unwrap_or(u64::MAX).max(1)
        });
        self.0.deadline_us.store(micros, Ordering::Relaxed);
    }

    fn watch(&self, conn: &mut Connection) -> rusqlite::Result<()> {
        let watch = Arc::clone(&self.0);
        conn.authorizer(Some(move |context: AuthContext<'_>| {
            watch.authorize(&context.action)
        }))?;
        // After some errors SQLite rolls the transaction back by itself. If the closure then
        // continued, each of its statements would be committed on its own.
        let watch = Arc::clone(&self.0);
        conn.commit_hook(Some(move || watch.foreign.load(Ordering::Relaxed)))?;
        let watch = Arc::clone(&self.0);
        conn.progress_handler(STEPS, Some(move || watch.is_over()))
    }
}

impl Watch {
    /// Denies statements that end the group, which would commit or lose the writes of other
    /// requests.
    fn authorize(&self, action: &AuthAction<'_>) -> Authorization {
        let ends = match action {
            AuthAction::Transaction { .. } => true,
            AuthAction::Savepoint { savepoint_name, .. } => {
                savepoint_name.eq_ignore_ascii_case(MEMBER)
            }
            _ => false,
        };
        if ends && self.foreign.load(Ordering::Relaxed) {
            Authorization::Deny
        } else {
            Authorization::Allow
        }
    }

    fn is_over(&self) -> bool {
        match self.deadline_us.load(Ordering::Relaxed) {
            0 => false,
            deadline => self.start.elapsed().as_micros() >= u128::from(deadline),
        }
    }
}
