//! Members of a group: single-shot requests that wait to be written together.

use std::time::Duration;

use hapax::{
    group::StartOnce,
    idempotency::{Claim, StoredResponse},
    outbox::BuiltEvent,
    store::{ClaimOutcome, StoreError},
};
use tokio::{sync::oneshot, time::Instant};

use crate::{
    idempotency::{ResponseColumns, retention},
    statement::Statement,
};

/// How long a request that was sent runs at least, even beyond its deadline. To cancel it closes a
/// connection, and a client that leaves its requests hardly any time would close them all.
pub(crate) const LEAST: Duration = Duration::from_millis(20);

/// A request that is a member of a group.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) claim: Claim,
    pub(crate) statements: Vec<Statement>,
    pub(crate) events: Vec<BuiltEvent>,
    pub(crate) response: StoredResponse,
    pub(crate) stored: ResponseColumns,
    pub(crate) deadline: Option<Instant>,
    pub(crate) turn: StartOnce,
    pub(crate) reply: oneshot::Sender<Result<ClaimOutcome<Duration>, StoreError>>,
}

impl Member {
    /// Whether the caller still waits for the result. Called once, just before the request starts.
    pub(crate) fn takes_turn(&self) -> bool {
        !self.reply.is_closed() && self.turn.take()
    }

    /// Whether the time of the request has run out.
    pub(crate) fn is_late(&self) -> bool {
        self.deadline
            .is_some_and(|deadline| deadline <= Instant::now())
    }

    /// When the request is cancelled if it is sent now.
    pub(crate) fn cut_at(&self) -> Option<Instant> {
        self.deadline
            .map(|deadline| deadline.max(Instant::now() + LEAST))
    }

    /// Sends the outcome to the caller.
    pub(crate) fn response(self, outcome: Result<ClaimOutcome<Duration>, StoreError>) {
        // A caller that has gone does not need the outcome.
        let _gone = self.reply.send(outcome);
    }

    pub(crate) fn committed(&self) -> ClaimOutcome<Duration> {
        ClaimOutcome::Open(retention(&self.claim))
    }
}
