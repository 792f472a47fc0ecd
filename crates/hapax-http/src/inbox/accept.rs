//! Processing of a verified message in one transaction: accept, run the handler, commit.
//!
//! A layer may first try to accept the message at the commit (`at_commit`).

use std::sync::Arc;

use axum::response::{IntoResponse, Response};
use hapax::{
    event::Headers,
    idempotency::{Disposition, OnFailure},
    inbox::{Acceptance, Message},
    request_log::Line,
    store::{Keys, StoreError, Transaction},
};
use http::{HeaderValue, StatusCode};
use tokio::time::{Instant, timeout_at};

use super::{Inbox, at_commit::at_commit};
use crate::{
    header::IDEMPOTENCY_STATUS,
    problem::{self, INBOX_MISMATCH, Problem, TIMEOUT, UNAVAILABLE},
    profile::Profile,
    request::{Finished, Run},
    request_id::RequestId,
    settings::RETRY_AFTER,
    tx::Slot,
};

/// The outcome in the log of a message whose handler did not take it. The sender sends it again.
const RELEASED: &str = "released";
/// The outcome in the log of a message that could not be accepted because the store has failed.
pub(super) const STORE_ERROR: &str = "store_error";

/// Accepts the message, runs its handler in the same transaction, and writes its line.
pub(super) async fn accept<K: Keys>(
    inbox: Arc<Inbox<K>>,
    message: Message,
    context: Headers,
    run: Run,
    arrived: Instant,
) -> Response {
    let id = run.id.clone();
    let (outcome, response) = process(&inbox, &message, context, run).await;
    let line = Line::message(&message, outcome);
    inbox.write_line(line, &response, &id, arrived);
    response
}

/// The outcome of a message, and the response to its sender.
pub(super) type ProcessedMessage = (&'static str, Response);

async fn process<K: Keys>(
    inbox: &Inbox<K>,
    message: &Message,
    context: Headers,
    mut run: Run,
) -> ProcessedMessage {
    if inbox.accepts_at_commit {
        match Box::pin(at_commit(inbox, message, context.clone(), run)).await {
            Ok(ended) => return ended,
            Err(again) => run = again,
        }
    }
    let id = run.id.clone();
    let failed = |problem: &Problem| (STORE_ERROR, problem::write_out(problem, &id));
    let opened = timeout_at(run.end, open(inbox, message, context)).await;
    let (tx, acceptance) = match opened {
        Ok(Ok(opened)) => opened,
        Ok(Err(error)) => return failed(&unaccepted(error)),
        Err(_) => return failed(&Problem::new(TIMEOUT)),
    };
    match acceptance {
        Acceptance::First => first(tx, run).await,
        // The message may have been accepted by another transaction of the same group, which may
        // still fail: the commit decides.
        known => match tx.commit().await {
            Ok(()) => taken_before(known, &id),
            Err(error) => failed(&unaccepted(error)),
        },
    }
}

fn taken_before(acceptance: Acceptance, id: &RequestId) -> ProcessedMessage {
    if acceptance == Acceptance::Mismatch {
        let problem = Problem::new(INBOX_MISMATCH)
            .detail("this source has sent this webhook-id before with a different payload");
        return (note(acceptance), problem::write_out(&problem, id));
    }
    let replayed = HeaderValue::from_static("replayed");
    let response = (StatusCode::OK, [(IDEMPOTENCY_STATUS, replayed)]).into_response();
    (note(acceptance), response)
}

async fn open<K: Keys>(
    inbox: &Inbox<K>,
    message: &Message,
    context: Headers,
) -> Result<(K::Tx, Acceptance), StoreError> {
    let mut tx = inbox.store.begin(None, context).await?;
    let acceptance = tx.accept(message).await?;
    Ok((tx, acceptance))
}

/// Runs the handler. The message counts as accepted only after its effect is committed.
async fn first<T: Transaction>(tx: T, run: Run) -> ProcessedMessage {
    let id = run.id.clone();
    let (tx, finished) = finish(tx, run).await;
    let Some(tx) = tx else {
        let kept = "the handler still held its transaction when it responded; it was rolled back";
        return (RELEASED, problem::write_out(&Problem::internal(kept), &id));
    };
    if !takes(&finished) {
        tx.rollback().await;
        return (not_taken(&finished), finished.into_response());
    }
    match tx.commit().await {
        Ok(()) => (note(Acceptance::First), finished.into_response()),
        Err(error) => (STORE_ERROR, problem::write_out(&error.into(), &id)),
    }
}

/// Lends the transaction to the handler and runs it. The transaction is missing from the result if
/// the handler still holds it.
pub(super) async fn finish<T: Transaction>(tx: T, mut run: Run) -> (Option<T>, Finished) {
    let slot = Slot::holding(tx);
    run.parts.extensions.insert(slot.clone());
    let ((), finished) = run.finish(|response| ((), response)).await;
    (slot.close(), finished)
}

/// The message was not accepted. The sender retries.
pub(super) fn unaccepted(error: StoreError) -> Problem {
    match error {
        StoreError::TimedOut => error.into(),
        error => Problem::new(UNAVAILABLE)
            .detail("the message cannot be accepted now; try again")
            .retry_after(RETRY_AFTER)
            .caused_by(error),
    }
}

/// Whether the response says that the message was accepted: 2xx only, because senders retry
/// everything else.
pub(super) fn takes(finished: &Finished) -> bool {
    let kept = finished.verdict(OnFailure::Release, Profile::default()) == Disposition::WithEffect;
    kept && finished.status().is_success()
}

/// The outcome in the log of a message that its handler did not take.
pub(super) fn not_taken(finished: &Finished) -> &'static str {
    if finished.is_store_failure() {
        STORE_ERROR
    } else {
        RELEASED
    }
}

/// Puts the outcome on the span of the message, and returns it. The store counts it.
pub(super) fn note(acceptance: Acceptance) -> &'static str {
    let outcome = acceptance.name();
    tracing::Span::current().record("outcome", outcome);
    outcome
}
