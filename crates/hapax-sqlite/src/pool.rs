//! Pool of connections: each is used by one caller at a time, on a blocking thread.
//!
//! The store's readers are a pool: they see the last commit and never wait for the writer. If all
//! connections are in use, a caller waits for one. A transaction that a caller leaves open is rolled
//! back.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use hapax::store::StoreError;
use rusqlite::Connection;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::{
    connection::open_reader,
    error::{OpenError, unavailable},
};

/// Connections to one database.
#[derive(Debug)]
pub(crate) struct Pool {
    idle: Arc<Mutex<Vec<Connection>>>,
    permits: Arc<Semaphore>,
    count: u32,
}

impl Pool {
    /// Opens `count` readers of the database at `path`.
    pub(crate) fn of_readers(path: &Path, count: usize) -> Result<Self, OpenError> {
        let readers: Vec<_> = (0..count.clamp(1, 64))
            .map(|_| open_reader(path))
            .collect::<Result<_, _>>()?;
        Ok(Self::of(readers))
    }

    /// A pool of these connections.
    pub(crate) fn of(idle: Vec<Connection>) -> Self {
        Self {
            permits: Arc::new(Semaphore::new(idle.len())),
            count: u32::try_from(idle.len()).unwrap_or(u32::MAX),
            idle: Arc::new(Mutex::new(idle)),
        }
    }

    /// Runs `work` on an idle connection.
    pub(crate) async fn run<R, E>(
        &self,
        work: impl FnOnce(&Connection) -> Result<R, E> + Send + 'static,
    ) -> Result<R, E>
    where
        R: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let permit = Arc::clone(&self.permits)
            .acquire_owned()
            .await
            .map_err(|_| closed())?;
        let idle = Arc::clone(&self.idle);
        let (reply, outcome) = oneshot::channel();
        // Tokio compiles a task once for each type, so all work has the same one.
        let task: Box<dyn FnOnce() + Send> = Box::new(move || {
            let (mut work, mut outcome) = (Some(work), None);
            let ran = run(&idle, permit, &mut |conn| {
                outcome = work.take().map(|work| work(conn));
            });
            let outcome = outcome.unwrap_or_else(|| Err(closed().into()));
            let _abandoned = reply.send(ran.map_err(E::from).and(outcome));
        });
        tokio::task::spawn_blocking(task);
        outcome.await.map_err(|_| closed())?
    }

    /// Closes the connections after the running work has ended.
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

fn run(
    idle: &Mutex<Vec<Connection>>,
    permit: OwnedSemaphorePermit,
    work: &mut dyn FnMut(&Connection),
) -> Result<(), StoreError> {
    let taken = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
    let conn = taken.ok_or_else(closed)?;
    let ran = catch_unwind(AssertUnwindSafe(|| work(&conn)));
    if !conn.is_autocommit() {
        // An open transaction would show its old snapshot to the next caller, and keep the log from
        // being merged.
        let _ended = conn.execute_batch("ROLLBACK");
    }
    idle.lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(conn);
    drop(permit);
    ran.map_err(|_| StoreError::statement("the work on a connection panicked"))
}

fn closed() -> StoreError {
    unavailable("the store is closed")
}
