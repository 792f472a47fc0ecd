//! Merger: a thread that merges the write-ahead log into the database beside the writer.
//!
//! A merge (SQLite calls it a checkpoint) copies pages from the log into the database file and
//! flushes it. On the writer's connection, each of them delays the requests that wait by
//! milliseconds. The thread has a separate connection and merges without locking out the writer. It
//! weakens no promise: a page of the log is overwritten only after it is merged and the database file
//! is flushed. If the thread fails or ends, the writer merges. If the database file cannot be
//! flushed, nothing is merged, read or written any more, and the log is kept ([`Flushes`]). The
//! thread ends before the store releases its file.
//!
//! This relies on SQLite 3.51.3 or later: in earlier versions, a log that starts again while another
//! connection merges it can damage the database.

mod log_state;
mod flushes;

use std::{
    ffi::c_int,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use hapax::{failpoint::Failpoints, telemetry::panic_message};
use rusqlite::{Connection, config::DbConfig, ffi, hooks::Wal};

use crate::{
    connection::{LOG_PAGES, open_merger, wait_for_lock},
    error::OpenError,
    settings::Settings,
};
pub(crate) use flushes::Flushes;
use log_state::{LogState, Pass, Step};

/// The most passes of a round. SQLite flushes the database file only after a pass during which no
/// transaction was committed. The first pass takes too long for that; the next ones are short.
const PASSES: usize = 6;
/// How long the writer waits for readers when the log has reached its limit.
const READERS_WAIT: Duration = Duration::from_millis(100);
const MERGE: &str = "PRAGMA main.wal_checkpoint(PASSIVE)";
const MERGE_ALL: &str = "PRAGMA main.wal_checkpoint(RESTART)";
/// Merges the logs of all databases of the connection, and empties them.
const EMPTY: &str = "PRAGMA wal_checkpoint(TRUNCATE)";
/// Pages of the log in a MiB, at the page size of the store.
const MIB_PAGES: u32 = 256;

/// The writer's handle of the thread. Dropping it ends the thread.
#[derive(Debug)]
pub(crate) struct Merger {
    shared: Arc<Shared>,
    failpoints: Failpoints,
    /// The failures of the writer's own merges.
    failing: Failing,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    log: Mutex<LogState>,
    /// Frames in the log after the last commit of the writer; 0 before its first one.
    latest: AtomicU32,
    /// Changed while `log` is locked.
    is_closed: AtomicBool,
    changed: Condvar,
    flushes: Flushes,
}

impl Merger {
    /// Starts the thread, and takes the merging from the writer's connection. If the settings turn
    /// the thread off, the connection merges when it commits.
    pub(crate) fn start(writer: &mut Connection, settings: &Settings) -> Result<Self, OpenError> {
        let shared = Arc::<Shared>::default();
        let thread = if settings.merges_beside {
            let conn = open_merger(settings)?;
            watch(writer, Arc::clone(&shared))
                .map_err(|error| OpenError::of(settings.path.clone(), error))?;
            let (work, failpoints) = (Arc::clone(&shared), settings.failpoints.clone());
            let spawned = thread::Builder::new()
                .name("hapax-merger".to_owned())
                .spawn(move || work.run(&conn, &failpoints));
            Some(spawned.map_err(|error| OpenError::Unavailable {
                path: settings.path.clone(),
                source: error.into(),
            })?)
        } else {
            None
        };
        Ok(Self {
            shared,
            failpoints: settings.failpoints.clone(),
            failing: Failing::default(),
            thread,
        })
    }

    /// Whether the database file can be relied upon.
    pub(crate) fn flushes(&self) -> &Flushes {
        &self.shared.flushes
    }

    /// Does what the log needs after a group. Its members have their results already.
    pub(crate) fn after_group(&mut self, writer: &mut Connection) {
        let frames = self.shared.latest.load(Ordering::Relaxed);
        if frames == 0 {
            return;
        }
        let waits = match self.shared.committed(frames) {
            Step::Finish => false,
            Step::Restart => true,
            Step::Nothing | Step::Round | Step::Await => return,
        };
        let (shared, failpoints) = (&self.shared, &self.failpoints);
        let merged = shared.attempt(|| {
            failpoints.hit("sqlite.merge.finish.before");
            if waits {
                shared.restart(writer)?;
            } else {
                shared.pass(writer)?;
            }
            failpoints.hit("sqlite.merge.finish.after");
            Ok(())
        });
        self.failing.record(&merged);
    }

    /// Ends the thread, and merges all of the log, unless it must be kept ([`Shared::stop`]).
    pub(crate) fn close(self, writer: &Connection) {
        let shared = Arc::clone(&self.shared);
        drop(self);
        let merged = if shared.is_stopped() {
            Ok(())
        } else {
            shared.attempt(|| writer.execute_batch(EMPTY))
        };
        if let Err(error) = merged {
            tracing::warn!(
                error = error.as_str(),
                "log was not merged into the database at close"
            );
        }
        if shared.is_stopped() {
            // Otherwise the last connection merges the log and deletes it.
            let kept = writer.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
            if let Err(error) = kept {
                tracing::error!(%error, "write-ahead log cannot be kept at close");
            }
        }
    }
}

impl Drop for Merger {
    fn drop(&mut self) {
        self.shared.close();
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}

impl Shared {
    /// The thread: runs the rounds that are due, until it is closed.
    fn run(&self, conn: &Connection, failpoints: &Failpoints) {
        let _ended = RecordEnd(self);
        let mut failing = Failing::default();
        while self.next_round() {
            let merged = self.attempt(|| self.round(conn, failpoints));
            failing.record(&merged);
            self.lock().end(merged.is_err());
            self.changed.notify_all();
        }
    }

    /// Waits for a round; false if there is none because the store is being closed.
    fn next_round(&self) -> bool {
        let mut log = self.lock();
        loop {
            if self.is_closed() {
                return false;
            }
            if log.begin() {
                return true;
            }
            log = self.wait(log);
        }
    }

    fn round(&self, conn: &Connection, failpoints: &Failpoints) -> rusqlite::Result<()> {
        for _ in 0..PASSES {
            failpoints.hit("sqlite.merge.before");
            let goes_on = self.pass(conn)?;
            failpoints.hit("sqlite.merge.after");
            if !goes_on || self.is_closed() {
                break;
            }
        }
        Ok(())
    }

    /// Runs `work`, whose panic must end neither the thread nor the writer.
    fn attempt(&self, work: impl FnOnce() -> rusqlite::Result<()>) -> Result<(), String> {
        match catch_unwind(AssertUnwindSafe(work)) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => {
                if error.sqlite_extended_error_code() == Some(ffi::SQLITE_IOERR_FSYNC) {
                    self.stop();
                }
                Err(error.to_string())
            }
            Err(panic) => Err(panic_message(&*panic).to_owned()),
        }
    }

    /// Merges what readers allow, without waiting. Returns whether another pass is useful.
    fn pass(&self, conn: &Connection) -> rusqlite::Result<bool> {
        let restarts = self.lock().restarts();
        let pass = merge(conn, MERGE)?;
        Ok(pass.is_some_and(|pass| self.passed(restarts, pass)))
    }

    /// Merges all frames, and waits for the readers of the log for a limited time. The next
    /// transaction then starts the log again.
    fn restart(&self, writer: &mut Connection) -> rusqlite::Result<()> {
        let restarts = self.lock().restarts();
        writer.busy_timeout(READERS_WAIT)?;
        let merged = merge(writer, MERGE_ALL);
        wait_for_lock(writer)?;
        if let Some(pass) = merged? {
            self.passed(restarts, pass);
        }
        Ok(())
    }

    /// Records a pass. Returns whether another one is useful.
    fn passed(&self, restarts: u64, pass: Pass) -> bool {
        let latest = self.latest.load(Ordering::Relaxed);
        let mut log = self.lock();
        let goes_on = log.passed(restarts, pass, latest);
        let too_long = log.too_long(pass.is_busy);
        drop(log);
        // The writer may wait until less is left.
        self.changed.notify_all();
        if let Some(frames) = too_long {
            tracing::warn!(
                log_mib = frames / MIB_PAGES,
                "write-ahead log grows, because a program has been reading the database for long"
            );
        }
        goes_on
    }

    /// Decides what is due after a commit, and wakes the thread for a round.
    fn committed(&self, frames: u32) -> Step {
        let mut log = self.lock();
        loop {
            let step = log.committed(frames);
            match step {
                Step::Await => log = self.wait(log),
                Step::Round => {
                    self.changed.notify_all();
                    return step;
                }
                Step::Nothing | Step::Finish | Step::Restart => return step,
            }
        }
    }

    /// Ends the merging, because the database file could not be flushed.
    ///
    /// The operating system may have dropped the pages that it could not write, also those that
    /// SQLite counts as merged and does not copy again. All of them are in the log: after a restart,
    /// SQLite merges it from its beginning.
    fn stop(&self) {
        self.flushes.fail();
        self.lock().stop();
        self.changed.notify_all();
        tracing::error!(
            "database file could not be flushed: nothing is read or written until the service is \
             restarted; check the disk first"
        );
    }

    fn close(&self) {
        let log = self.lock();
        self.is_closed.store(true, Ordering::Relaxed);
        drop(log);
        self.changed.notify_all();
    }

    fn is_stopped(&self) -> bool {
        self.lock().is_stopped()
    }

    fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, LogState> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, log: MutexGuard<'a, LogState>) -> MutexGuard<'a, LogState> {
        self.changed
            .wait(log)
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Records the end of the thread, however it ends, so that the writer does not wait for it.
struct RecordEnd<'a>(&'a Shared);

impl Drop for RecordEnd<'_> {
    fn drop(&mut self) {
        self.0.lock().gone();
        self.0.changed.notify_all();
        if !self.0.is_closed() {
            tracing::error!(
                "thread that merges the write-ahead log has ended: the writer merges it until the \
                 service is restarted"
            );
        }
    }
}

/// Whether the last merge failed, so that only the first of several failures is logged.
#[derive(Debug, Default)]
struct Failing(bool);

impl Failing {
    fn record(&mut self, merged: &Result<(), String>) {
        match merged {
            Err(error) if !self.0 => {
                tracing::warn!(
                    error = error.as_str(),
                    "write-ahead log could not be merged into the database"
                );
            }
            Ok(()) if self.0 => tracing::info!("write-ahead log is merged into the database again"),
            Ok(()) | Err(_) => {}
        }
        self.0 = merged.is_err();
    }
}

/// Makes the writer's connection report the length of the log after each commit, instead of merging.
///
/// The hook also serves databases that a service has attached, which the thread does not know. They
/// are merged when they are committed.
fn watch(writer: &mut Connection, shared: Arc<Shared>) -> rusqlite::Result<()> {
    writer.wal_hook(Some(move |log: &mut Wal, count: c_int| {
        let count = u32::try_from(count).unwrap_or(0);
        if log.name() == c"main" {
            shared.latest.store(count, Ordering::Relaxed);
        } else if count >= LOG_PAGES {
            // An error would be that of the commit, which has happened. The next commit tries again.
            let _later = log.checkpoint();
        }
        Ok(())
    }))
}

/// Merges the log; `None` if another connection is merging it at this moment.
fn merge(conn: &Connection, sql: &'static str) -> rusqlite::Result<Option<Pass>> {
    let mut statement = conn.prepare_cached(sql)?;
    statement.query_row([], |row| {
        let (log, merged): (i64, i64) = (row.get("log")?, row.get("checkpointed")?);
        let is_busy = row.get("busy")?;
        // SQLite returns -1 for both if it has not begun.
        let frames = u32::try_from(log).ok().zip(u32::try_from(merged).ok());
        Ok(frames.map(|(log, merged)| Pass {
            log,
            merged,
            is_busy,
        }))
    })
}

#[cfg(test)]
mod tests;
