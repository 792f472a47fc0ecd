//! Phased requests, for handlers that call remote systems.
//!
//! Between two remote calls the handler commits what it knows: rows, events and the name of the
//! phase, in one commit. If it dies, the request is resumed after the last committed phase, by the
//! client's retry or by a [`Completer`]. A handler that has lost its key to another owner cannot
//! commit any more.

mod any;
mod owner;
mod kept;
mod completer;

use std::{fmt, sync::Arc};

use axum::extract::FromRequestParts;
use hapax::{
    event::Headers,
    store::{StoreError, Transaction},
};
use http::request::Parts;

pub(crate) use any::AnyPhases;
pub use completer::Completer;
pub(crate) use completer::Handover;
pub(crate) use kept::{encode, is_credential};
pub(crate) use owner::{Last, Owner};

use crate::{problem::Problem, tx::Tx};

/// The phases of this request.
///
/// `T` is the store's transaction. A handler first reads [`Phased::recovery_point`] and continues
/// after it. The results of earlier phases are in its own rows.
pub struct Phased<T: Transaction>(Arc<Owner<T>>);

impl<T: Transaction> Phased<T> {
    /// The name of the last committed phase, of this attempt or an earlier one. A new key may have been
    /// entered with one ([`OperationLayer::first_phase`](crate::OperationLayer::first_phase)).
    pub fn recovery_point(&self) -> Option<String> {
        self.0.recovery_point()
    }

    /// Whether the key had an earlier owner that did not finish. A remote call of it may still
    /// arrive.
    pub fn is_resumed(&self) -> bool {
        self.0.is_resumed()
    }

    /// Whether the key certainly still belongs to this owner: its lease has not expired, by the clock
    /// of this process.
    ///
    /// A process that was stopped, or has waited long, should ask directly before it calls a remote
    /// system that does not recognize repeated calls, because another owner may have the key.
    pub fn is_held(&self) -> bool {
        self.0.is_held()
    }

    /// The headers of this request's events, such as `traceparent`, for remote calls.
    pub fn context(&self) -> &Headers {
        self.0.context()
    }

    /// The idempotency key to send to a remote system for the step `step`. It is the same for every
    /// attempt.
    ///
    /// It is 36 characters long and has the form of a UUID. After it was requested, the key of the
    /// request is no longer released, because the remote system may have received the provider key,
    /// unless the handler finds out that [nothing happened](Phased::nothing_happened).
    pub fn provider_key(&self, step: &str) -> String {
        self.0.provider_key(step)
    }

    /// Declares that the request had no effect: the remote system does not know its provider keys,
    /// and no call with one of them is in flight.
    ///
    /// If the handler then returns a failure, the key is released. Requesting a provider key or
    /// starting a phase afterwards revokes the declaration, even if the phase fails. What phases
    /// have written remains: undo it in a phase before, if necessary.
    ///
    /// Returns false, and the key stays in progress, if the key had an earlier owner that did not
    /// finish, because a call of that owner may still arrive.
    pub fn nothing_happened(&self) -> bool {
        self.0.nothing_happened()
    }

    /// Runs `phase` in a transaction and commits it, with `name` as the new recovery point.
    ///
    /// Do not call remote systems in it, because it may block the store. An error rolls it back.
    /// Once the commit has started, nothing interrupts it, not even the end of the client's time.
    ///
    /// # Errors
    /// Fails with the error of `phase` or of the store, and with [`StoreError::Fenced`] if another
    /// owner has taken over the key; then nothing was changed.
    pub async fn phase<R, E>(
        &mut self,
        name: &str,
        phase: impl AsyncFnOnce(&mut T) -> Result<R, E>,
    ) -> Result<R, E>
    where
        E: From<StoreError>,
    {
        let mut tx = self.0.open(Some(name)).await?;
        match phase(&mut tx).await {
            Ok(done) => {
                self.0.commit(tx, name).await?;
                Ok(done)
            }
            Err(error) => {
                tx.rollback().await;
                Err(error)
            }
        }
    }

    /// Commits a phase without rows and events: `name` is the new recovery point. No transaction is
    /// opened, so this takes one round trip, or one place in the queue of a single writer.
    ///
    /// # Errors
    /// Fails as [`Phased::phase`] does.
    pub async fn reach(&mut self, name: &str) -> Result<(), StoreError> {
        self.0.reach(name).await
    }

    /// Opens the last phase. What is written in it is committed together with the response, or
    /// dropped if the response is a failure.
    ///
    /// Return the response soon, because the phase may block the store. The last phase is optional.
    ///
    /// # Errors
    /// Fails as [`Phased::phase`] does, and if the last phase was opened before.
    pub async fn last(&mut self) -> Result<Tx<T>, Problem> {
        self.0.open_last().await
    }
}

impl<T: Transaction> fmt::Debug for Phased<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Phased")
    }
}

impl<T: Transaction, S: Sync> FromRequestParts<S> for Phased<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let lent = parts.extensions.remove::<Lent<T>>();
        lent.map(|Lent(owner)| Self(owner)).ok_or_else(|| {
            Problem::internal(
                "the handler extracts `Phased`, but its operation is not marked as phased, or \
                 extracts it twice",
            )
        })
    }
}

/// The value that a phased request passes to its handler.
pub(crate) struct Lent<T>(pub(crate) Arc<Owner<T>>);

impl<T> Clone for Lent<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}
