//! What the writer is asked to do: run now, answer after the commit.
//!
//! A [`Job`] says of itself whether its savepoint is kept; what it found out it keeps until the
//! [`Fate`] of its group is known. A job whose requester has gone before it began does not begin.

use std::time::Instant;

use hapax::{
    group::{Fate, Turn},
    store::StoreError,
};
use tokio::sync::oneshot;

use crate::writer::Desk;

/// One member of a group.
pub(crate) trait Job: Send {
    /// Whether anybody still waits for it; asked once, just before it begins.
    fn is_wanted(&self) -> bool;

    /// Does the work, inside a savepoint.
    fn run(&mut self, desk: &mut Desk) -> Verdict;

    /// What went wrong with it, once it has run.
    fn failure(&self) -> Option<&StoreError>;

    /// Tells the requester what came of it.
    fn answer(self: Box<Self>, fate: &Fate);
}

/// What becomes of a job's savepoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It stays in the group.
    Keep,
    /// It is undone, alone.
    RollBack,
}

/// A job that is one closure.
pub(crate) struct Brief<F, R> {
    work: Option<F>,
    turn: Turn,
    outcome: Option<Result<R, StoreError>>,
    reply: oneshot::Sender<Result<R, StoreError>>,
}

impl<F, R> Brief<F, R> {
    pub(crate) fn new(work: F, turn: Turn, reply: oneshot::Sender<Result<R, StoreError>>) -> Self {
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
    F: FnOnce(&mut Desk) -> Result<R, StoreError> + Send,
    R: Send,
{
    fn is_wanted(&self) -> bool {
        !self.reply.is_closed() && self.turn.take()
    }

    fn run(&mut self, desk: &mut Desk) -> Verdict {
        let Some(work) = self.work.take() else {
            return Verdict::RollBack;
        };
        desk.until(Some(Instant::now() + desk.tx_max));
        let outcome = work(desk);
        let verdict = if outcome.is_ok() {
            Verdict::Keep
        } else {
            Verdict::RollBack
        };
        self.outcome = Some(outcome);
        verdict
    }

    fn failure(&self) -> Option<&StoreError> {
        self.outcome.as_ref()?.as_ref().err()
    }

    fn answer(self: Box<Self>, fate: &Fate) {
        // A requester that has gone does not need to know.
        let _gone = self.reply.send(fate.apply(self.outcome));
    }
}
