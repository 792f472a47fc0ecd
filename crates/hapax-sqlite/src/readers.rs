//! Readers: connections that see the last commit and never wait for the writer.
//!
//! A read runs on a blocking thread and has a connection to itself. If all connections are in use,
//! it waits for one. The connections are read-only.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use hapax::store::StoreError;
use rusqlite::Connection;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    connection::open_reader,
    error::{OpenError, unavailable},
};

/// The connections that read.
#[derive(Debug)]
pub(crate) struct Readers {
    idle: Arc<Mutex<Vec<Connection>>>,
    permits: Arc<Semaphore>,
    count: u32,
}

impl Readers {
    /// Opens `count` readers of the database at `path`.
    pub(crate) fn open(path: &Path, count: usize) -> Result<Self, OpenError> {
        let count = u32::try_from(count.clamp(1, 64)).unwrap_or(1);
        let idle: Vec<_> = (0..count)
            .map(|_| open_reader(path))
            .collect::<Result<_, _>>()?;
        let permits = Arc::new(Semaphore::new(idle.len()));
        Ok(Self {
            idle: Arc::new(Mutex::new(idle)),
            permits,
            count,
        })
    }

    /// Runs `read` on an idle connection.
    pub(crate) async fn read<R: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> Result<R, StoreError> + Send + 'static,
    ) -> Result<R, StoreError> {
        let permit = Arc::clone(&self.permits)
            .acquire_owned()
            .await
            .map_err(|_| closed())?;
        let idle = Arc::clone(&self.idle);
        let ran = tokio::task::spawn_blocking(move || run(&idle, permit, read)).await;
        ran.map_err(|_| closed())?
    }

    /// Closes the connections after the running reads have ended.
    pub(crate) async fn close(&self) {
        if self.permits.acquire_many(self.count).await.is_ok() {
            self.permits.close();
        }
        self.idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }
}

fn run<R>(
    idle: &Mutex<Vec<Connection>>,
    permit: OwnedSemaphorePermit,
    read: impl FnOnce(&Connection) -> Result<R, StoreError>,
) -> Result<R, StoreError> {
    let taken = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
    let conn = taken.ok_or_else(closed)?;
    let outcome = catch_unwind(AssertUnwindSafe(|| read(&conn)));
    if !conn.is_autocommit() {
        // An open transaction would show its old snapshot to the next read, and keep the log from
        // being merged.
        let _ended = conn.execute_batch("ROLLBACK");
    }
    idle.lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(conn);
    drop(permit);
    let panicked = |_| {
        Err(StoreError::Statement {
            source: "the read panicked".into(),
        })
    };
    outcome.unwrap_or_else(panicked)
}

fn closed() -> StoreError {
    unavailable("the store is closed")
}
