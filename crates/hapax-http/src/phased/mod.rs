//! A request in phases, in the hands of a handler that calls foreign systems.
//!
//! Between two foreign calls the handler commits what it knows: rows, events and the name of the
//! phase, in one commit. If it dies, the request is resumed behind the last phase that was
//! committed, by the client's retry or by a [`Completer`]. A handler that lost its key to somebody
//! else commits nothing any more.

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
/// `T` is the store's transaction. A handler reads [`Phased::recovery_point`] first and goes on
/// behind it; what it did before is in its own rows.
pub struct Phased<T: Transaction>(Arc<Owner<T>>);

impl<T: Transaction> Phased<T> {
    /// The name of the last phase that was committed, by this attempt or by one before it.
    pub fn recovery_point(&self) -> Option<String> {
        self.0.recovery_point()
    }

    /// Whether somebody had the key before and did not finish: a call of theirs may still arrive.
    pub fn is_resumed(&self) -> bool {
        self.0.is_resumed()
    }

    /// What the events of this request carry: its `traceparent`, for calls to take along.
    pub fn context(&self) -> &Headers {
        self.0.context()
    }

    /// The key to send to a foreign system with the step `step`: the same for every attempt.
    ///
    /// It is 36 characters long and reads as a UUID. Once it was asked for, the key is not
    /// released any more, for nobody can tell whether the foreign system has seen it; unless the
    /// handler finds out that [nothing happened](Phased::nothing_happened).
    pub fn provider_key(&self, step: &str) -> String {
        self.0.provider_key(step)
    }

    /// Says that nothing came of this request: the foreign system knows nothing of its provider
    /// keys, and no call under one of them is on its way any more.
    ///
    /// A failure that is answered then lets the key go. A later provider key or phase takes the
    /// word back, even a phase that fails. What phases wrote stays: undo it in a phase before, where
    /// it matters.
    ///
    /// It is not taken when somebody had the key before and did not finish, for a call of theirs
    /// may still arrive: then this is false, and the key stays in progress.
    pub fn nothing_happened(&self) -> bool {
        self.0.nothing_happened()
    }

    /// Runs `phase` in a transaction and commits it, with `name` as the new recovery point.
    ///
    /// Call no foreign system in it: it may hold the store. An error rolls it back. Once it is
    /// being committed nothing cuts it off, not even the end of the client's time.
    ///
    /// # Errors
    /// Fails as `phase` does, as the store does, and with [`StoreError::Fenced`] when somebody
    /// else has taken the key over; then nothing was changed.
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

    /// Opens the last phase: what is written in it is committed with the answer, and kept or
    /// dropped as the answer says.
    ///
    /// Answer soon after: it may hold the store. A handler that needs no last phase does without.
    ///
    /// # Errors
    /// Fails as [`Phased::phase`] does, and when the last phase was opened before.
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
                "the handler asks for phases that its route does not have, or twice: mark its \
                 operation as phased",
            )
        })
    }
}

/// What a phased request brings to its handler.
pub(crate) struct Lent<T>(pub(crate) Arc<Owner<T>>);

impl<T> Clone for Lent<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}
