//! Whose the key is while its handler runs: the lease is renewed, phases are opened and committed.
//!
//! A commit runs in a task of its own, so that a handler that is cut off tears none. Whoever ends
//! the request waits for it. A renewal may have to wait for an open phase, where a store has one
//! writer: nobody who holds a phase waits for a renewal. Whoever lets the key go does, when the last
//! phase is over.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use hapax::{
    event::Headers,
    phases::{Ownership, check_name},
    seeded::{self, Bug},
    store::{StoreError, Transaction},
};
use tokio::{
    sync::{Mutex as Turn, Notify},
    task::JoinHandle,
    time::sleep,
};

use super::AnyPhases;
use crate::{
    problem::Problem,
    tx::{Slot, Tx},
};

/// A request's hold on its key.
pub(crate) struct Owner<T> {
    store: Arc<dyn AnyPhases<T>>,
    owned: Ownership,
    context: Headers,
    reached: Mutex<Reached<T>>,
    /// Held by a commit.
    committing: Arc<Turn<()>>,
    /// Held by a renewal.
    renewal: Turn<()>,
    over: AtomicBool,
    fenced: AtomicBool,
    fence: Notify,
}

/// How far the request has come.
struct Reached<T> {
    recovery_point: Option<String>,
    /// Whether a foreign system may have been asked.
    called_out: bool,
    /// Whether the handler has said that nothing came of all this.
    came_to_nothing: bool,
    last: Option<Slot<T>>,
}

/// What became of the last phase.
pub(crate) enum Last<T> {
    /// It was not opened.
    None,
    /// It waits for the answer.
    Open(T),
    /// The handler has not let go of it.
    Kept,
}

impl<T: Transaction> Owner<T> {
    pub(crate) fn new(store: Arc<dyn AnyPhases<T>>, owned: Ownership, context: Headers) -> Self {
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
            renewal: Turn::default(),
            over: AtomicBool::new(false),
            fenced: AtomicBool::new(false),
            fence: Notify::new(),
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

    /// Whether somebody had the key before and did not finish.
    pub(crate) fn is_resumed(&self) -> bool {
        self.owned.resumed
    }

    /// What the events of this request carry.
    pub(crate) fn context(&self) -> &Headers {
        &self.context
    }

    /// Takes the handler's word that nothing happened, unless somebody had the key before.
    pub(crate) fn nothing_happened(&self) -> bool {
        let mut reached = self.reached();
        reached.came_to_nothing = !self.is_resumed();
        reached.came_to_nothing
    }

    /// Whether the handler has said that nothing happened, and has done nothing since.
    pub(crate) fn came_to_nothing(&self) -> bool {
        self.reached().came_to_nothing
    }

    /// Whether the key can be let go as if it had never been used.
    pub(crate) fn is_untouched(&self) -> bool {
        let reached = self.reached();
        !reached.called_out && reached.recovery_point.is_none()
    }

    /// Whether somebody else has the key now.
    pub(crate) fn is_fenced(&self) -> bool {
        self.fenced.load(Ordering::SeqCst)
    }

    /// Waits until somebody else has the key.
    pub(crate) async fn fenced(&self) {
        while !self.is_fenced() {
            let told = self.fence.notified();
            if !self.is_fenced() {
                told.await;
            }
        }
    }

    /// Opens a phase, the last one when it has no name.
    pub(crate) async fn open(&self, name: Option<&str>) -> Result<T, StoreError> {
        if name.is_some() {
            // A phase that fails or is cut off has left undone what the handler counts on.
            self.reached().came_to_nothing = false;
        }
        let refused = |source| Err(StoreError::Statement { source });
        if self.is_fenced() {
            return Err(StoreError::Fenced);
        }
        if let Some(Err(error)) = name.map(check_name) {
            return refused(error.into());
        }
        if self.reached().last.is_some() {
            return refused("the last phase is open already".into());
        }
        let context = self.context.clone();
        let opened = self.store.phase(&self.owned, name, context).await;
        self.heed(opened)
    }

    /// Opens the last phase and keeps it for the answer.
    pub(crate) async fn open_last(&self) -> Result<Tx<T>, Problem> {
        let slot = Slot::holding(self.open(None).await?);
        let lent = slot.lend()?;
        self.reached().last = Some(slot);
        Ok(lent)
    }

    /// Commits a phase; being dropped does not stop it.
    pub(crate) async fn commit(self: &Arc<Self>, tx: T, name: &str) -> Result<(), StoreError> {
        let (owner, name) = (Arc::clone(self), name.to_owned());
        let turn = Arc::clone(&self.committing).lock_owned().await;
        let committing = tokio::spawn(async move {
            let committed = owner.heed(tx.commit().await);
            if committed.is_ok() {
                owner.reached().recovery_point = Some(name);
            }
            drop(turn);
            committed
        });
        committing.await.unwrap_or_else(|error| {
            Err(StoreError::Statement {
                source: error.into(),
            })
        })
    }

    /// Renews the lease until the request is over.
    pub(crate) fn keep(self: &Arc<Self>, lease: Duration) -> Renewing {
        let owner = Arc::clone(self);
        Renewing(tokio::spawn(async move {
            while !seeded::has(Bug::ShortLease) {
                sleep(lease / 3).await;
                let turn = owner.renewal.lock().await;
                if owner.over.load(Ordering::SeqCst) || owner.is_fenced() {
                    return;
                }
                let renewed = owner.heed(owner.store.renew(&owner.owned, lease).await);
                drop(turn);
                if let Err(error) = renewed {
                    tracing::warn!(error = error.error_chain(), "a key's lease was not renewed");
                }
            }
        }))
    }

    /// Waits for a commit that is on its way; from now on no renewal is sent.
    pub(crate) async fn settle(&self) {
        self.over.store(true, Ordering::SeqCst);
        drop(self.committing.lock().await);
    }

    /// Waits for a renewal that is on its way, which itself may wait for an open phase: there is
    /// none any more.
    pub(crate) async fn renewed(&self) {
        drop(self.renewal.lock().await);
    }

    /// Takes the last phase out of the handler's hands.
    pub(crate) fn close_last(&self) -> Last<T> {
        match self.reached().last.take() {
            None => Last::None,
            Some(slot) => slot.close().map_or(Last::Kept, Last::Open),
        }
    }

    /// Lets the key go as if it had never been used.
    pub(crate) async fn release(&self) -> Result<(), StoreError> {
        self.heed(self.store.release(&self.owned).await)
    }

    /// Ends the lease, so that the retry need not wait for its end.
    pub(crate) async fn give_back(&self) -> Result<(), StoreError> {
        self.heed(self.store.give_back(&self.owned).await)
    }

    /// Passes an outcome on, and remembers when it says that the key is somebody else's.
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
