//! The open transaction, in the hands of a handler.
//!
//! The layer opens it, lends it to the handler through the request's
//! extensions, and completes it when the handler has answered. A handler that
//! never asks for it is completed all the same; one that keeps it beyond its
//! answer is rolled back.

use std::{
    fmt,
    ops::{Deref, DerefMut},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use axum::extract::FromRequestParts;
use hapax::{
    event::{EventId, NewEvent},
    outbox::EventError,
    store::Transaction,
};
use http::request::Parts;

use crate::{
    problem::{Problem, UNAVAILABLE},
    settings::RETRY_AFTER,
};

/// The transaction of this request: rows, events and the answer are one commit.
///
/// It dereferences to the store's own transaction. Dropping it ends nothing: the layer commits
/// or rolls back once the answer is known.
pub struct Tx<T: Transaction> {
    // `None` only after `drop` has begun.
    inner: Option<T>,
    slot: Slot<T>,
}

impl<T: Transaction> Tx<T> {
    /// Adds an event; it exists exactly when the request's effect does.
    ///
    /// # Errors
    /// Fails when the event could not be carried; the transaction stays usable.
    pub fn emit(&mut self, event: NewEvent) -> Result<EventId, EventError> {
        Transaction::emit(&mut **self, event)
    }
}

impl<T: Transaction> Deref for Tx<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.inner
            .as_ref()
            .expect("a Tx holds its transaction until it is dropped")
    }
}

impl<T: Transaction> DerefMut for Tx<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.inner
            .as_mut()
            .expect("a Tx holds its transaction until it is dropped")
    }
}

impl<T: Transaction> Drop for Tx<T> {
    fn drop(&mut self) {
        if let Some(tx) = self.inner.take() {
            self.slot.put(tx);
        }
    }
}

impl<T: Transaction> fmt::Debug for Tx<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tx")
    }
}

impl<T: Transaction, S: Sync> FromRequestParts<S> for Tx<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let slot = parts.extensions.get::<Slot<T>>().cloned();
        let slot = slot.ok_or_else(|| {
            Problem::internal(
                "the handler asks for a transaction that its route does not open: protect the \
                 route with Idempotency::operation, and neither as single_shot nor as phased",
            )
        })?;
        slot.lend()
    }
}

/// Where the transaction lies while nobody holds it.
pub(crate) struct Slot<T>(Arc<Mutex<Place<T>>>);

enum Place<T> {
    Here(T),
    Taken,
    Unreachable,
}

impl<T> Slot<T> {
    pub(crate) fn holding(tx: T) -> Self {
        Self(Arc::new(Mutex::new(Place::Here(tx))))
    }

    /// A slot for a request that runs although the store cannot be reached.
    pub(crate) fn unreachable() -> Self {
        Self(Arc::new(Mutex::new(Place::Unreachable)))
    }

    /// Takes the transaction for good; `None` when the handler still has it.
    pub(crate) fn close(&self) -> Option<T> {
        match std::mem::replace(&mut *self.lock(), Place::Taken) {
            Place::Here(tx) => Some(tx),
            Place::Taken | Place::Unreachable => None,
        }
    }

    /// Hands the transaction out until the `Tx` is dropped.
    pub(crate) fn lend(&self) -> Result<Tx<T>, Problem>
    where
        T: Transaction,
    {
        Ok(Tx {
            inner: Some(self.take()?),
            slot: self.clone(),
        })
    }

    fn take(&self) -> Result<T, Problem> {
        let mut place = self.lock();
        match std::mem::replace(&mut *place, Place::Taken) {
            Place::Here(tx) => Ok(tx),
            Place::Taken => Err(Problem::internal(
                "the handler asks for its transaction twice",
            )),
            Place::Unreachable => {
                *place = Place::Unreachable;
                Err(Problem::new(UNAVAILABLE)
                    .detail("the store cannot be used now; try again")
                    .retry_after(RETRY_AFTER))
            }
        }
    }

    fn put(&self, tx: T) {
        *self.lock() = Place::Here(tx);
    }

    fn lock(&self) -> MutexGuard<'_, Place<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Clone for Slot<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}
