//! Ownership of a key while its handler runs: renews the lease, opens and commits phases.
//!
//! A commit runs in its own task, so that it is not interrupted if the handler is cancelled. The
//! end of the request waits for it. A renewal may have to wait for an open phase if the store has a
//! single writer, so nothing that holds a phase waits for a renewal. The release of the key does,
//! after the last phase.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::{FutureExt as _, future::BoxFuture};
use hapax::{
    event::Headers,
    idempotency::StoredResponse,
    phases::{Ownership, check_name},
    store::{StoreError, Transaction},
};
use tokio::{
    sync::{Mutex as AsyncMutex, Notify},
    task::JoinHandle,
    time::{Instant, sleep},
};

use super::AnyPhases;
use crate::{
    problem::Problem,
    tx::{Slot, Tx},
};

/// A request's ownership of its key.
pub(crate) struct Owner<T> {
    store: Arc<dyn AnyPhases<T>>,
    owned: Ownership,
    context: Headers,
    reached: Mutex<Reached<T>>,
    /// Held during a commit.
    committing: Arc<AsyncMutex<()>>,
    /// Held during a renewal.
    renewal: AsyncMutex<()>,
    over: AtomicBool,
    fenced: AtomicBool,
    fence: Notify,
    /// The end of the lease, counted from the moment at which it was last asked for.
    held_until: Mutex<Instant>,
}

/// The progress of the request.
struct Reached<T> {
    recovery_point: Option<String>,
    /// Whether a remote system may have been called.
    called_out: bool,
    /// Whether the handler has declared that the request had no effect.
    came_to_nothing: bool,
    last: Option<Slot<T>>,
}

/// The state of the last phase.
pub(crate) enum Last<T> {
    /// The last phase was not opened.
    None,
    /// The transaction is open until the response is known.
    Open(T),
    /// The handler still holds the transaction.
    Kept,
}

impl<T: Transaction> Owner<T> {
    /// `held_until` is the end of the lease at the earliest.
    pub(crate) fn new(
        store: Arc<dyn AnyPhases<T>>,
        owned: Ownership,
        context: Headers,
        held_until: Instant,
    ) -> Self {
        Self {
            store,
            context,
            reached: Mutex::new(Reached {
                recovery_point: owned.recovery_point.clone(),
                called_out: owned.resumed,
                came_to_nothing: false,
                last: None,
            }),
            owned,
            committing: Arc::default(),
            renewal: AsyncMutex::default(),
            over: AtomicBool::new(false),
            fenced: AtomicBool::new(false),
            fence: Notify::new(),
            held_until: Mutex::new(held_until),
        }
    }

    pub(crate) fn recovery_point(&self) -> Option<String> {
        self.reached().recovery_point.clone()
    }

    pub(crate) fn provider_key(&self, step: &str) -> String {
        let mut reached = self.reached();
        reached.called_out = true;
        reached.came_to_nothing = false;
        drop(reached);
        self.owned.provider_key(step)
    }

    /// Whether the key had an earlier owner that did not finish.
    pub(crate) fn is_resumed(&self) -> bool {
        self.owned.resumed
    }

    /// The headers of the request's events.
    pub(crate) fn context(&self) -> &Headers {
        &self.context
    }

    /// Accepts the declaration that nothing happened, unless the key had an earlier owner.
    pub(crate) fn nothing_happened(&self) -> bool {
        let mut reached = self.reached();
        reached.came_to_nothing = !self.is_resumed();
        reached.came_to_nothing
    }

    /// Whether the handler has declared that nothing happened, and has done nothing since.
    pub(crate) fn came_to_nothing(&self) -> bool {
        self.reached().came_to_nothing
    }

    /// Whether the key can be released as if it had never been used. A key that was entered at a
    /// recovery point cannot: its first phase is committed.
    pub(crate) fn is_untouched(&self) -> bool {
        let reached = self.reached();
        !reached.called_out && reached.recovery_point.is_none()
    }

    /// Whether the lease has certainly not expired. Every other process counts from a later moment.
    pub(crate) fn is_held(&self) -> bool {
        let until = self.held_until.lock();
        !self.is_fenced() && Instant::now() < *until.unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether another owner has the key now.
    pub(crate) fn is_fenced(&self) -> bool {
        self.fenced.load(Ordering::SeqCst)
    }

    /// Waits until another owner has the key.
    pub(crate) async fn fenced(&self) {
        while !self.is_fenced() {
            let outcome = self.fence.notified();
            if !self.is_fenced() {
                outcome.await;
            }
        }
    }

    /// Opens a phase; without a name, the last one.
    pub(crate) async fn open(&self, name: Option<&str>) -> Result<T, StoreError> {
        self.begin(name)?;
        let context = self.context.clone();
        let opened = self.store.phase(&self.owned, name, context).await;
        self.heed(opened)
    }

    /// Checks whether a phase can begin; without a name, the last one.
    fn begin(&self, name: Option<&str>) -> Result<(), StoreError> {
        if name.is_some() {
            // A phase that fails or is cancelled may have been meant to undo something.
            self.reached().came_to_nothing = false;
        }
        if self.is_fenced() {
            return Err(StoreError::Fenced);
        }
        name.map_or(Ok(()), check_name)
            .map_err(StoreError::statement)?;
        if self.reached().last.is_some() {
            return Err(StoreError::statement("the last phase is already open"));
        }
        Ok(())
    }

    /// Opens the last phase and keeps it for the response.
    pub(crate) async fn open_last(&self) -> Result<Tx<T>, Problem> {
        let slot = Slot::holding(self.open(None).await?);
        let lent = slot.lend()?;
        self.reached().last = Some(slot);
        Ok(lent)
    }

    /// Commits a phase. Dropping the future does not stop the commit.
    pub(crate) async fn commit(self: &Arc<Self>, tx: T, name: &str) -> Result<(), StoreError> {
        self.advance(name, tx.commit().boxed()).await
    }

    /// Commits a phase without rows and events. Dropping the future does not stop the commit.
    pub(crate) async fn reach(self: &Arc<Self>, name: &str) -> Result<(), StoreError> {
        self.begin(Some(name))?;
        let (owner, point) = (Arc::clone(self), name.to_owned());
        let reaching = async move { owner.store.reach(&owner.owned, &point).await };
        self.advance(name, reaching.boxed()).await
    }

    /// Stores the response without an open phase.
    pub(crate) async fn finish(&self, response: &StoredResponse) -> Result<Duration, StoreError> {
        self.begin(None)?;
        self.heed(self.store.finish(&self.owned, response).await)
    }

    /// Runs the commit of a phase in its own task, and records that the phase is reached.
    async fn advance(
        self: &Arc<Self>,
        name: &str,
        commit: BoxFuture<'static, Result<(), StoreError>>,
    ) -> Result<(), StoreError> {
        let (owner, name) = (Arc::clone(self), name.to_owned());
        let turn = Arc::clone(&self.committing).lock_owned().await;
        let committing = async move {
            let committed = owner.heed(commit.await);
            if committed.is_ok() {
                owner.reached().recovery_point = Some(name);
            }
            drop(turn);
            committed
        };
        tokio::spawn(committing.boxed())
            .await
            .unwrap_or_else(|error| Err(StoreError::statement(error)))
    }

    /// Renews the lease until the request is finished.
    pub(crate) fn keep(self: &Arc<Self>, lease: Duration) -> Renewing {
        let owner = Arc::clone(self);
        let renewing = async move {
            loop {
                sleep(lease / 3).await;
                let turn = owner.renewal.lock().await;
                if owner.over.load(Ordering::SeqCst) || owner.is_fenced() {
                    return;
                }
                let asked = Instant::now();
                let renewed = owner.heed(owner.store.renew(&owner.owned, lease).await);
                drop(turn);
                if renewed.is_ok() {
                    let mut until = owner.held_until.lock();
                    **until.as_mut().unwrap_or_else(|poisoned| poisoned.get_mut()) = asked + lease;
                }
                if let Err(error) = renewed {
                    tracing::warn!(
                        error = error.error_chain(),
                        "cannot renew the lease of a key"
                    );
                }
            }
        };
        Renewing(tokio::spawn(renewing.boxed()))
    }

    /// Waits for a commit in progress. After that no renewal is sent.
    pub(crate) async fn settle(&self) {
        self.over.store(true, Ordering::SeqCst);
        drop(self.committing.lock().await);
    }

    /// Waits for a renewal in progress. A renewal may wait for an open phase, so no phase may be
    /// open.
    pub(crate) async fn renewed(&self) {
        drop(self.renewal.lock().await);
    }

    /// Takes the last phase away from the handler.
    pub(crate) fn close_last(&self) -> Last<T> {
        match self.reached().last.take() {
            None => Last::None,
            Some(slot) => slot.close().map_or(Last::Kept, Last::Open),
        }
    }

    /// Releases the key as if it had never been used.
    pub(crate) async fn release(&self) -> Result<(), StoreError> {
        self.heed(self.store.release(&self.owned).await)
    }

    /// Ends the lease, so that a retry need not wait for it to expire.
    pub(crate) async fn give_back(&self) -> Result<(), StoreError> {
        self.heed(self.store.give_back(&self.owned).await)
    }

    /// Passes an outcome on, and records if it says that another owner has the key.
    pub(crate) fn heed<R>(&self, outcome: Result<R, StoreError>) -> Result<R, StoreError> {
        if matches!(outcome, Err(StoreError::Fenced)) {
            self.fenced.store(true, Ordering::SeqCst);
            self.fence.notify_waiters();
        }
        outcome
    }

    fn reached(&self) -> MutexGuard<'_, Reached<T>> {
        self.reached.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Renews a lease until it is dropped.
pub(crate) struct Renewing(JoinHandle<()>);

impl Drop for Renewing {
    fn drop(&mut self) {
        self.0.abort();
    }
}
