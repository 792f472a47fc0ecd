//! What the writer is asked to do: run now, answer after the commit.
//!
//! A [`Job`] says of itself whether its savepoint is kept; what it found out it keeps until the
//! [`Fate`] of its group is known. A job whose requester has gone before it began does not begin.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use hapax::store::StoreError;
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

/// What became of a group.
#[derive(Clone, Debug)]
pub(crate) enum Fate {
    /// It is on disk.
    Committed,
    /// None of it happened, and why.
    Lost(String),
    /// It had one member, and the commit refused it.
    Refused(String),
}

impl Fate {
    /// Passes a result on only if the group that it belongs to is on disk.
    ///
    /// A job without a result did not run because its group was lost, or it panicked.
    pub(crate) fn apply<R>(&self, result: Option<Result<R, StoreError>>) -> Result<R, StoreError> {
        match (self, result) {
            (_, Some(Err(error))) => Err(error),
            (Self::Committed, Some(Ok(value))) => Ok(value),
            (Self::Committed, None) => Err(StoreError::Statement {
                source: "the write panicked".into(),
            }),
            (Self::Refused(reason), _) => Err(StoreError::Statement {
                source: reason.as_str().into(),
            }),
            (Self::Lost(reason), _) => {
                let source = format!("the group was rolled back: {reason}").into();
                Err(StoreError::Unavailable { source })
            }
        }
    }
}

/// Who comes first: the writer that begins a job, or the requester that gives it up.
#[derive(Clone, Debug, Default)]
pub(crate) struct Turn(Arc<AtomicBool>);

impl Turn {
    /// True for the first to ask.
    pub(crate) fn take(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }
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
