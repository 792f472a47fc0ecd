//! Steps of a saga that are functions, for steps that need no separate type.

use bytes::Bytes;
use futures_util::future::BoxFuture;

use super::{Call, LocalStep, Outcome, Refusal, RemoteStep, SagaRecord, Step};
use crate::sink::BoxError;

/// The result of a local step: what it made or why it was refused, or an error after which it is
/// run again.
type LocalResult = Result<Result<Bytes, Refusal>, BoxError>;

struct LocalFn<F>(F);
struct RemoteFn<F>(F);

impl<Tx, F> LocalStep<Tx> for LocalFn<F>
where
    F: for<'a> Fn(&'a mut Tx, &'a SagaRecord) -> BoxFuture<'a, LocalResult> + Send + Sync + 'static,
{
    fn run<'a>(&'a self, tx: &'a mut Tx, saga: &'a SagaRecord) -> BoxFuture<'a, LocalResult> {
        (self.0)(tx, saga)
    }
}

impl<F> RemoteStep for RemoteFn<F>
where
    F: for<'a> Fn(&'a Call) -> BoxFuture<'a, Outcome<Bytes>> + Send + Sync + 'static,
{
    fn request(&self, saga: &SagaRecord) -> Result<Bytes, BoxError> {
        Ok(saga.input.clone())
    }

    fn call<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Outcome<Bytes>> {
        (self.0)(call)
    }
}

impl<Tx> Step<Tx> {
    /// Creates a step in this database from a function; see [`LocalStep`].
    pub fn local_fn<F>(name: &'static str, act: F) -> Self
    where
        F: for<'a> Fn(&'a mut Tx, &'a SagaRecord) -> BoxFuture<'a, LocalResult>
            + Send
            + Sync
            + 'static,
    {
        Self::local(name, LocalFn(act))
    }

    /// Creates a step in a remote system from a function; see [`RemoteStep`]. Its request is the
    /// input of the saga, and it has no look-up.
    pub fn remote_fn<F>(name: &'static str, call: F) -> Self
    where
        F: for<'a> Fn(&'a Call) -> BoxFuture<'a, Outcome<Bytes>> + Send + Sync + 'static,
    {
        Self::remote(name, RemoteFn(call))
    }

    /// Sets a function as the compensation, in this database.
    #[must_use]
    pub fn compensate_fn<F>(self, undo: F) -> Self
    where
        F: for<'a> Fn(&'a mut Tx, &'a SagaRecord) -> BoxFuture<'a, LocalResult>
            + Send
            + Sync
            + 'static,
    {
        self.compensate_local(LocalFn(undo))
    }
}
