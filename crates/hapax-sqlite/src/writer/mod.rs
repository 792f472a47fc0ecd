//! The writer: one thread and one connection that write all waiting jobs in one commit.
//!
//! The writer sleeps until the first job and runs it. Then it takes the jobs that were queued
//! meanwhile, up to a number and an age, and commits once. No member of a group gets its result
//! before that commit. If the commit fails or the writer panics, all members get `Unavailable`, and
//! the writer continues with the next group. It sets no timers. The log is merged into the database by
//! another thread ([`Merger`]).

pub(crate) mod job;

use std::{
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind},
    time::{Duration, Instant},
};

use hapax::{
    Clock, Timestamp,
    failpoint::Failpoints,
    group::{Fate, Waiting},
    keyring::Keyring,
    notify::Notifier,
    store::{DatabaseError, StoreError},
    telemetry::panic_message,
};
use rusqlite::{Connection, ErrorCode};

use crate::{
    connection::Guard,
    control,
    error::{store_error, unavailable},
    file_identity::FileIdentity,
    lock::Lock,
    merge::Merger,
    value::rows,
    writer::job::{Job, SavepointOutcome},
};

/// The maximum age of a group. It delays the first member by a fraction of a commit on a slow disk.
const GROUP_AGE: Duration = Duration::from_millis(5);

/// The writer context: what a job uses inside its savepoint.
#[derive(Debug)]
pub(crate) struct WriterContext {
    pub(crate) conn: Connection,
    pub(crate) clock: Clock,
    /// How long one job may hold the writer.
    pub(crate) tx_max: Duration,
    /// Decrypts the values that a job reads.
    pub(crate) keyring: Keyring,
    guard: Guard,
    /// The last position given to an event. It never decreases; positions may be skipped.
    position: i64,
    /// Whether the relay is woken after the commit of this group.
    notifies: Cell<bool>,
}

impl WriterContext {
    pub(crate) fn new(
        conn: Connection,
        clock: Clock,
        tx_max: Duration,
        keyring: Keyring,
        guard: Guard,
        position: i64,
    ) -> Self {
        Self {
            conn,
            clock,
            tx_max,
            keyring,
            guard,
            position,
            notifies: Cell::new(false),
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The position of the next event.
    pub(crate) fn next_position(&self) -> i64 {
        self.position + 1
    }

    /// Takes the next `count` positions of the outbox, and returns the first.
    pub(crate) fn take_positions(&mut self, count: usize) -> i64 {
        let first = self.position + 1;
        self.position += rows(count);
        self.notifies.set(true);
        first
    }

    /// Wakes the relay once the group is committed.
    pub(crate) fn notify_after_commit(&self) {
        self.notifies.set(true);
    }

    /// Runs a caller's closure, which can neither end the transaction nor stop the thread by a
    /// panic.
    pub(crate) fn foreign<R>(
        &self,
        run: impl FnOnce(&Connection) -> rusqlite::Result<R>,
    ) -> Result<R, StoreError> {
        let run = || self.guard.foreign(|| run(&self.conn));
        match catch_unwind(AssertUnwindSafe(run)) {
            Ok(result) => result.map_err(store_error),
            Err(panic) => Err(StoreError::statement(panic_message(&*panic))),
        }
    }

    /// Interrupts statements that are still running at `deadline`.
    pub(crate) fn until(&self, deadline: Option<Instant>) {
        self.guard.until(deadline);
    }

    /// Rolls back the writes of this job so far.
    pub(crate) fn rewind(&self) -> Result<(), StoreError> {
        self.run(control::REWIND)
    }

    /// Whether SQLite has ended the transaction by itself.
    pub(crate) fn is_lost(&self) -> bool {
        self.conn.is_autocommit()
    }

    fn run(&self, sql: &'static str) -> Result<(), StoreError> {
        let run = || self.conn.prepare_cached(sql)?.execute([]);
        run().map(drop).map_err(store_error)
    }
}

/// The state of the writer thread.
pub(crate) struct Writer {
    /// Merges the log. It is the first field, so its connection is closed before the writer's.
    pub(crate) merger: Merger,
    pub(crate) ctx: WriterContext,
    pub(crate) jobs: Waiting<Box<dyn Job>>,
    pub(crate) failpoints: Failpoints,
    pub(crate) notifier: Notifier,
    /// Whether the failure of this group is already logged.
    pub(crate) logged: bool,
    /// The database file. If it was moved or replaced, the writer refuses to commit.
    pub(crate) place: FileIdentity,
    /// Released after the last write is on disk.
    pub(crate) lock: Lock,
}

impl Writer {
    /// Works until the store is closed and the queue is empty.
    pub(crate) fn run(mut self) {
        let mut group = Vec::new();
        while let Some(first) = self.jobs.blocking_first() {
            self.run_group(first, &mut group);
            self.merger.after_group(&mut self.ctx.conn);
        }
        self.merger.close(&self.ctx.conn);
        drop(self.ctx);
        drop(self.lock);
    }

    fn run_group(&mut self, first: Box<dyn Job>, group: &mut Vec<Box<dyn Job>>) {
        self.ctx.notifies.set(false);
        self.logged = false;
        // A panic in a request only rolls back that request. Any other panic is a bug of the
        // writer. It must not end the thread, because a store without its writer refuses all
        // writes.
        let wrote = catch_unwind(AssertUnwindSafe(|| self.write_group(first, group)));
        let wrote = wrote.unwrap_or_else(|panic| {
            let source = panic_message(&*panic).into();
            Err(StoreError::Unavailable { source })
        });
        let fate = match wrote {
            Ok(()) => Fate::Committed,
            Err(error) => self.lose(error, group.len()),
        };
        if self.ctx.notifies.get() && matches!(fate, Fate::Committed) {
            self.notifier.notify();
        }
        for job in group.drain(..) {
            job.response(&fate);
        }
    }

    fn write_group(
        &mut self,
        first: Box<dyn Job>,
        group: &mut Vec<Box<dyn Job>>,
    ) -> Result<(), StoreError> {
        if let Err(error) = self.ctx.run(control::BEGIN) {
            group.push(first);
            return Err(again(error));
        }
        let started = Instant::now();
        let members_max = self.jobs.members();
        let mut next = Some(first);
        while let Some(mut job) = next {
            let wrote = if job.is_wanted() {
                self.write_member(job.as_mut())
            } else {
                Ok(())
            };
            group.push(job);
            wrote?;
            let full = group.len() >= members_max || started.elapsed() >= GROUP_AGE;
            next = if full { None } else { self.jobs.another() };
        }
        self.failpoints.hit("sqlite.commit.before");
        if !self.place.is_there() {
            return Err(unavailable(
                "the database file was replaced or deleted while it was open: further writes would \
                 be lost; restart to use the file that is at its path now",
            ));
        }
        self.merger.flushes().check()?;
        self.ctx.run(control::COMMIT)?;
        self.failpoints.hit("sqlite.commit.after");
        Ok(())
    }

    /// Runs one job in its savepoint. Returns an error only if the whole group has failed.
    fn write_member(&mut self, job: &mut dyn Job) -> Result<(), StoreError> {
        self.ctx.run(control::SAVEPOINT)?;
        let ran = catch_unwind(AssertUnwindSafe(|| job.run(&mut self.ctx)));
        self.ctx.until(None);
        let verdict = ran.unwrap_or_else(|panic| {
            tracing::error!(
                error = panic_message(&*panic),
                "write panicked and was rolled back"
            );
            SavepointOutcome::RollBack
        });
        if let Some(error @ StoreError::Unavailable { .. }) = job.failure() {
            self.log(error);
        }
        if self.ctx.is_lost() {
            return Err(unavailable(
                "the transaction ended while one of its requests ran",
            ));
        }
        if verdict == SavepointOutcome::RollBack {
            self.ctx.rewind()?;
        }
        self.ctx.run(control::RELEASE)
    }

    /// Rolls back a group that has failed.
    ///
    /// A violated constraint that is only checked at the commit fails the whole group. If the group
    /// has one member, that request gets the violation as its error.
    fn lose(&mut self, error: StoreError, members: usize) -> Fate {
        if !self.ctx.is_lost()
            && let Err(error) = self.ctx.run(control::ROLLBACK)
        {
            tracing::error!(
                error = error.error_chain(),
                "group could not be rolled back"
            );
        }
        match error {
            StoreError::Statement { source } if members == 1 => {
                match source.downcast::<DatabaseError>() {
                    Ok(refused) => Fate::Violated(*refused),
                    Err(source) => Fate::Refused(source.to_string()),
                }
            }
            error => {
                self.log(&error);
                if matches!(error, StoreError::Statement { .. }) {
                    self.jobs.spoilt();
                }
                Fate::Lost(error.error_chain())
            }
        }
    }

    /// Logs why nothing can be written, once per group.
    fn log(&mut self, error: &StoreError) {
        if !self.logged {
            tracing::error!(
                reason = word_for(error),
                error = error.error_chain(),
                "write failed"
            );
            self.logged = true;
        }
    }
}

/// Turns the error of a group that cannot begin into one that may be retried: no member caused it.
fn again(error: StoreError) -> StoreError {
    match error {
        StoreError::Statement { source } => StoreError::Unavailable { source },
        error => error,
    }
}

/// The reason in a few words, for an operator who reads the log.
fn word_for(error: &StoreError) -> &'static str {
    let StoreError::Unavailable { source } = error else {
        return "transaction ended early";
    };
    let code = source
        .downcast_ref::<rusqlite::Error>()
        .and_then(rusqlite::Error::sqlite_error_code);
    match code {
        Some(ErrorCode::DiskFull) => "disk full",
        Some(ErrorCode::SystemIoFailure) => "disk failed",
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => "database is read-only",
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => "database is damaged",
        Some(ErrorCode::CannotOpen) => "database cannot be opened",
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => "locked by another program",
        _ => "database failed",
    }
}
