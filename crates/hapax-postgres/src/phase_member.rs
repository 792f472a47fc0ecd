//! Members of a group of phased keys: entries and responses that wait to be written together.

use std::sync::Arc;

use hapax::{
    phases::{Entry, Ownership},
    store::StoreError,
};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::idempotency::ResponseColumns;

/// An entry or a response that is a member of a group, with its caller.
pub(crate) enum PhaseMember {
    /// Enters a key that has no row.
    Enter(Arc<Attempt>, Reply<Ownership>),
    /// Finishes a key.
    Finish(Arc<Finish>, Reply<()>),
}

/// An entry with the identity of the attempt that makes it.
pub(crate) struct Attempt {
    pub(crate) entry: Entry,
    /// The identity. The row has it as its owner until the key has another one, or a response.
    pub(crate) id: String,
}

/// A response for a key that is owned.
pub(crate) struct Finish {
    pub(crate) owned: Ownership,
    pub(crate) response: ResponseColumns,
}

/// The caller of a member, which goes on with the member if the group has not written it.
pub(crate) type Reply<T> = oneshot::Sender<Result<Written<T>, StoreError>>;

/// The outcome of a member.
pub(crate) enum Written<T> {
    /// It is committed with its group.
    Committed(T),
    /// Its group is committed without it: the state of its row does not allow it, or another
    /// transaction is using the key.
    Refused,
    /// The result of its group is lost: it may be committed.
    Lost(StoreError),
    /// Nothing was tried. A member that was alone in its group has the lane, which it releases after
    /// its first statement.
    Left(Option<OwnedSemaphorePermit>),
}

impl PhaseMember {
    /// Whether the caller still waits.
    pub(crate) fn has_caller(&self) -> bool {
        match self {
            Self::Enter(_, reply) => !reply.is_closed(),
            Self::Finish(_, reply) => !reply.is_closed(),
        }
    }

    /// Leaves the member to its caller. Nothing of it was written.
    pub(crate) fn leave(self, lane: Option<OwnedSemaphorePermit>) {
        // A caller that has gone does not need it. The lane is released then.
        match self {
            Self::Enter(_, reply) => drop(reply.send(Ok(Written::Left(lane)))),
            Self::Finish(_, reply) => drop(reply.send(Ok(Written::Left(lane)))),
        }
    }

    /// Ends the member because the result of its group is lost.
    pub(crate) fn lose(self, error: StoreError) {
        match self {
            Self::Enter(_, reply) => drop(reply.send(Ok(Written::Lost(error)))),
            Self::Finish(_, reply) => drop(reply.send(Ok(Written::Lost(error)))),
        }
    }

    /// Ends the member with an error of the store. Nothing of it was written.
    pub(crate) fn fail(self, error: StoreError) {
        match self {
            Self::Enter(_, reply) => drop(reply.send(Err(error))),
            Self::Finish(_, reply) => drop(reply.send(Err(error))),
        }
    }
}
