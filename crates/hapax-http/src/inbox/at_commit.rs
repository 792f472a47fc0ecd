//! Acceptance at the commit: the handler starts at once, and its message is accepted together with
//! its effect.
//!
//! A run commits a new message with its effect, or it commits nothing. In the second case the
//! message is accepted in the regular way (`accept`), which alone decides about duplicates and
//! mismatches. The same happens if the handler does not respond 2xx: it may have failed because
//! this message was processed before.

use hapax::{
    event::Headers,
    inbox::{Acceptance, Message},
    store::{Keys, StoreError, Transaction},
};
use tokio::time::{Instant, timeout_at};

use super::{
    Inbox,
    accept::{ProcessedMessage, STORE_ERROR, finish, not_taken, note, takes, unaccepted},
};
use crate::{
    problem::{self, Finality, Problem, TIMEOUT},
    request::Run,
};

/// Runs the handler in a transaction whose message is assumed to be new. Returns the request if
/// nothing was committed.
pub(super) async fn at_commit<K: Keys>(
    inbox: &Inbox<K>,
    message: &Message,
    context: Headers,
    mut run: Run,
) -> Result<ProcessedMessage, Run> {
    let (id, end) = (run.id.clone(), run.end);
    let ended = |outcome, problem: &Problem| (outcome, problem::write_out(problem, &id));
    let opened = inbox.store.accept_at_commit(None, context, message);
    let tx = match timeout_at(end, opened).await {
        Ok(Ok(Some(tx))) => tx,
        Ok(Ok(None)) => return Err(run),
        Ok(Err(error)) => return Ok(ended(STORE_ERROR, &unaccepted(error))),
        Err(_) => return Ok(ended(STORE_ERROR, &Problem::new(TIMEOUT))),
    };
    let again = run.clone();
    run.parts.extensions.insert(Finality::Provisional);
    let (tx, finished) = finish(tx, run).await;
    // If the handler still holds its transaction, that is rolled back. It does so again.
    let Some(tx) = tx else { return Err(again) };
    if takes(&finished) {
        return match tx.commit().await {
            Ok(()) => Ok((note(Acceptance::First), finished.into_response())),
            // The commit may have happened, or may still happen. The next delivery finds out. Or the
            // handler has committed, and would do so again.
            Err(error @ (StoreError::Unavailable { .. } | StoreError::EndedByHandler)) => {
                Ok(ended(STORE_ERROR, &error.into()))
            }
            Err(_) => Err(again),
        };
    }
    tx.rollback().await;
    if Instant::now() >= end {
        // There is no time left to accept the message.
        let late = Problem::new(TIMEOUT).detail("the time ran out before the commit");
        return Ok(ended(not_taken(&finished), &late));
    }
    Err(again)
}
