//! The request's transaction, as an extractor for handlers.
//!
//! The layer opens the transaction, lends it to the handler through the request's extensions, and
//! completes it after the handler has responded. It also completes it if the handler does not
//! extract it. If the handler still holds it when it responds, the transaction is rolled back.

use std::{
    fmt,
    ops::{Deref, DerefMut},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use axum::extract::FromRequestParts;
use hapax::{
    event::{EventId, NewEvent},
    inbox::ResultError,
    outbox::EventError,
    store::{StoreError, Transaction},
};
use http::request::Parts;

use crate::problem::Problem;

/// The transaction of this request: rows, events and the response are one commit.
///
/// It dereferences to the store's transaction. Dropping it does not end the transaction: the layer
/// commits or rolls back after the handler has responded.
pub struct Tx<T: Transaction> {
    // `None` only while it is dropped.
    inner: Option<T>,
    slot: Slot<T>,
}

impl<T: Transaction> Tx<T> {
    /// Emits an event, which is committed or rolled back together with the request's effect.
    ///
    /// # Errors
    /// Fails if the event is not valid, for instance too long. The transaction remains usable.
    pub fn emit(&mut self, event: NewEvent) -> Result<EventId, EventError> {
        Transaction::emit(&mut **self, event)
    }

    /// Records the result of the message that this request has delivered, such as `applied`. The
    /// message's row in the inbox keeps it.
    ///
    /// # Errors
    /// Fails if the route does not receive messages, and if the result is too long or contains a
    /// NUL. The transaction remains usable.
    pub fn record_result(&mut self, result: &str) -> Result<(), ResultError> {
        Transaction::record_result(&mut **self, result)
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
                "the handler extracts a transaction that its route does not open: protect the \
                 route with Idempotency::operation, and neither as single_shot nor as phased",
            )
        })?;
        slot.lend()
    }
}

/// The arguments of a handler whose first one is the transaction `X`, as axum marks them.
///
/// It is implemented for all handlers with up to 16 arguments, and not meant for other types.
#[diagnostic::on_unimplemented(
    message = "the first argument of the handler is not its transaction",
    note = "`OperationLayer::transaction` and `WebhookLayer::transaction` take handlers such as \
            `async fn(Tx<T>, Json<Body>)`"
)]
pub trait InTransaction<X> {}

macro_rules! in_transaction {
    () => {
        impl<M, X: Transaction> InTransaction<X> for (M, Tx<X>) {}
    };
    ($first:ident $($rest:ident)*) => {
        impl<M, X: Transaction, $first, $($rest),*> InTransaction<X>
            for (M, Tx<X>, $first, $($rest,)*)
        {
        }
        in_transaction!($($rest)*);
    };
}

in_transaction!(A B C D E F G H I J K L N O P);

/// Holds the transaction while the handler does not.
pub(crate) struct Slot<T>(Arc<Mutex<SlotState<T>>>);

enum SlotState<T> {
    Here(T),
    Taken,
    Unreachable,
}

impl<T> Slot<T> {
    pub(crate) fn holding(tx: T) -> Self {
        Self(Arc::new(Mutex::new(SlotState::Here(tx))))
    }

    /// Creates a slot for a request that runs although the store is unavailable.
    pub(crate) fn unreachable() -> Self {
        Self(Arc::new(Mutex::new(SlotState::Unreachable)))
    }

    /// Takes the transaction out permanently. Returns `None` if the handler still holds it.
    pub(crate) fn close(&self) -> Option<T> {
        match std::mem::replace(&mut *self.lock(), SlotState::Taken) {
            SlotState::Here(tx) => Some(tx),
            SlotState::Taken | SlotState::Unreachable => None,
        }
    }

    /// Lends the transaction until the `Tx` is dropped.
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
        match std::mem::replace(&mut *place, SlotState::Taken) {
            SlotState::Here(tx) => Ok(tx),
            SlotState::Taken => Err(Problem::internal(
                "the handler extracts its transaction twice",
            )),
            SlotState::Unreachable => {
                *place = SlotState::Unreachable;
                let source = "no transaction could be opened".into();
                Err(StoreError::Unavailable { source }.into())
            }
        }
    }

    fn put(&self, tx: T) {
        *self.lock() = SlotState::Here(tx);
    }

    fn lock(&self) -> MutexGuard<'_, SlotState<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Clone for Slot<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}
