//! Merger: a thread that merges the write-ahead log into the database beside the writer.
//!
//! A merge (SQLite calls it a checkpoint) copies pages from the log into the database file and
//! flushes it. On the writer's connection, each of them delays the requests that wait by
//! milliseconds. The thread has a separate connection and merges without locking out the writer. It
//! weakens no promise: a page of the log is overwritten only after it is merged and the database file
//! is flushed. The thread ends before the store releases its file.
//!
//! This relies on SQLite 3.51.3 or later: in earlier versions, a log that starts again while another
//! connection merges it can damage the database.

mod log_state;

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
use rusqlite::{Connection, hooks::Wal};

use crate::{
    connection::{LOG_PAGES, open_merger, wait_for_lock},
    error::OpenError,
    settings::Settings,
};
use log_state::{LogState, Pass, Step};

/// Whether a thread merges the log. If false, the writer merges it when it commits, once it has
/// `LOG_PAGES` pages. Only measurements change this, to compare the two.
const IN_BACKGROUND: bool = true;
/// The most passes of a round. SQLite flushes the database file only after a pass during which no
/// transaction was committed. The first pass takes too long for that; the next ones are short.
const PASSES: usize = 4;
/// The most frames of a pass that is short enough to be the last one of its round.
const SHORT_PASS: u32 = 256;
/// How long the writer waits for readers when the log has reached its limit.
const READERS_WAIT: Duration = Duration::from_millis(100);
const MERGE: &str = "PRAGMA main.wal_checkpoint(PASSIVE)";
const MERGE_ALL: &str = "PRAGMA main.wal_checkpoint(RESTART)";
/// Pages of the log in a MiB, at the page size of the store.
const MIB_PAGES: u32 = 256;

/// The writer's handle of the thread. Dropping it ends the thread.
#[derive(Debug)]
pub(crate) struct Merger {
    shared: Arc<Shared>,
    /// Frames in the log after the last commit; 0 after the writer has seen the number.
    frames: Arc<AtomicU32>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    log: Mutex<LogState>,
    /// Changed while `log` is locked.
    is_closed: AtomicBool,
    changed: Condvar,
}

impl Merger {
    /// Starts the thread, and takes the merging from the writer's connection.
    pub(crate) fn start(writer: &mut Connection, settings: &Settings) -> Result<Self, OpenError> {
        let (shared, frames) = (Arc::<Shared>::default(), Arc::<AtomicU32>::default());
        let thread = if IN_BACKGROUND {
            let conn = open_merger(settings)?;
            watch(writer, Arc::clone(&frames))
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
            frames,
            thread,
        })
    }

    /// Does what the log needs after a group. Its members have their results already.
    pub(crate) fn after_group(&self, writer: &mut Connection) {
        let frames = self.frames.swap(0, Ordering::Relaxed);
        if frames == 0 {
            return;
        }
        let done = match self.shared.committed(frames) {
            Step::Finish => self.shared.pass(writer).map(drop),
            Step::Restart => self.shared.restart(writer, frames),
            Step::Nothing | Step::Round | Step::Await => Ok(()),
        };
        if let Err(error) = done {
            tracing::warn!(%error, "log was not merged into the database");
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
        let mut has_failed = false;
        while self.next_round() {
            // The writer may wait for the end of the round, so a panic must end it too.
            let ran = catch_unwind(AssertUnwindSafe(|| self.round(conn, failpoints)));
            let failure = match ran {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(error.to_string()),
                Err(panic) => Some(panic_message(&*panic).to_owned()),
            };
            if let Some(error) = failure.as_deref().filter(|_| !has_failed) {
                tracing::warn!(error, "log was not merged into the database");
            }
            has_failed = failure.is_some();
            self.lock().end();
            self.changed.notify_all();
        }
    }

    /// Waits for a round; false if there is none because the store is being closed.
    fn next_round(&self) -> bool {
        let mut log = self.lock();
        loop {
            if self.is_closed.load(Ordering::Relaxed) {
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
            let merged = self.pass(conn)?;
            failpoints.hit("sqlite.merge.after");
            if merged <= SHORT_PASS {
                break;
            }
        }
        Ok(())
    }

    /// Merges what readers allow, without waiting. Returns the number of frames.
    fn pass(&self, conn: &Connection) -> rusqlite::Result<u32> {
        let restarts = self.lock().restarts();
        let pass = merge(conn, MERGE)?;
        Ok(pass.map_or(0, |pass| self.lock().passed(restarts, pass)))
    }

    /// Merges all frames, and waits for the readers of the log for a limited time. The next
    /// transaction then starts the log again.
    fn restart(&self, writer: &mut Connection, frames: u32) -> rusqlite::Result<()> {
        let restarts = self.lock().restarts();
        writer.busy_timeout(READERS_WAIT)?;
        let merged = merge(writer, MERGE_ALL);
        wait_for_lock(writer)?;
        let pass = merged?;
        if let Some(pass) = pass {
            self.lock().passed(restarts, pass);
        }
        if pass.is_none_or(|pass| pass.is_busy) {
            tracing::warn!(
                log_mib = frames / MIB_PAGES,
                "write-ahead log grows, because a program has been reading the database for long"
            );
        }
        Ok(())
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

    fn close(&self) {
        let log = self.lock();
        self.is_closed.store(true, Ordering::Relaxed);
        drop(log);
        self.changed.notify_all();
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

/// Makes the writer's connection report the length of the log after each commit, instead of merging.
///
/// The hook also serves databases that a service has attached, which the thread does not know. They
/// are merged when they are committed.
fn watch(writer: &mut Connection, frames: Arc<AtomicU32>) -> rusqlite::Result<()> {
    writer.wal_hook(Some(move |log: &mut Wal, count: c_int| {
        let count = u32::try_from(count).unwrap_or(0);
        if log.name() == c"main" {
            frames.store(count, Ordering::Relaxed);
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
