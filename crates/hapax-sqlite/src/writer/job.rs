//! Jobs of the writer: they run in a group, and return their results after its commit.
//!
//! A [`Job`] decides whether its savepoint is kept. It holds its result until the [`Fate`] of its
//! group is known. A job does not run if its caller has gone before it starts.

use std::time::Instant;

use hapax::{
    group::{Fate, StartOnce},
    store::StoreError,
};
use tokio::sync::oneshot;

use crate::writer::WriterContext;

/// One member of a group.
pub(crate) trait Job: Send {
    /// Whether the caller still waits; called once, directly before the job runs.
    fn is_wanted(&self) -> bool;

    /// Does the work, inside a savepoint.
    fn run(&mut self, ctx: &mut WriterContext) -> SavepointOutcome;

    /// The error of the job, after it has run.
    fn failure(&self) -> Option<&StoreError>;

    /// Sends the result to the caller.
    fn response(self: Box<Self>, fate: &Fate);
}

/// What happens to a job's savepoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SavepointOutcome {
    /// It is committed with the group.
    Keep,
    /// It is rolled back; the rest of the group is not.
    RollBack,
}

/// A job that consists of one closure.
pub(crate) struct Brief<F, R> {
    work: Option<F>,
    turn: StartOnce,
    outcome: Option<Result<R, StoreError>>,
    reply: oneshot::Sender<Result<R, StoreError>>,
}

impl<F, R> Brief<F, R> {
    pub(crate) fn new(
        work: F,
        turn: StartOnce,
        reply: oneshot::Sender<Result<R, StoreError>>,
    ) -> Self {
        Self {
            work: Some(work),
            turn,
            outcome: None,
            reply,
        }
    }
}

impl<F, R> Job for Brief<F, R>
where
    F: FnOnce(&mut WriterContext) -> Result<R, StoreError> + Send,
    R: Send,
{
    fn is_wanted(&self) -> bool {
        !self.reply.is_closed() && self.turn.take()
    }

    fn run(&mut self, ctx: &mut WriterContext) -> SavepointOutcome {
        let Some(work) = self.work.take() else {
            return SavepointOutcome::RollBack;
        };
        ctx.until(Some(Instant::now() + ctx.tx_max));
        let outcome = work(ctx);
        let verdict = if outcome.is_ok() {
            SavepointOutcome::Keep
        } else {
            SavepointOutcome::RollBack
        };
        self.outcome = Some(outcome);
        verdict
    }

    fn failure(&self) -> Option<&StoreError> {
        self.outcome.as_ref()?.as_ref().err()
    }

    fn response(self: Box<Self>, fate: &Fate) {
        // A caller that has gone does not need the result.
        let _gone = self.reply.send(fate.apply(self.outcome));
    }
}
