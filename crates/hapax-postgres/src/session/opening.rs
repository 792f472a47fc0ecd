//! The statement that opens a transaction, and the guard that follows it.
//!
//! Statements that are sent together with the one that opens their transaction run only in it. The
//! server runs each of them even if that one fails, so a guard is sent in between, which keeps the
//! others from writing if no transaction is open.

use super::{Completed, QueuedStatement};
use crate::{connection::Link, query};

/// How far the statement is that opens the transaction: a cancellation must not stop it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opening {
    Unsent,
    /// It may be running. It is the first statement of a pipeline.
    Sent,
    /// Its result was read.
    Read,
    /// It failed. The guard may have changed the connection, which is not used again.
    Failed,
}

impl Opening {
    /// How far it is once a result of a pipeline was read, which is its own or that of a later
    /// statement.
    pub(super) fn after(self, is_own: bool, completed: &Completed) -> Self {
        match completed {
            Err(_) if is_own => Self::Failed,
            _ if self == Self::Failed => self,
            _ => Self::Read,
        }
    }

    /// Draws conclusions from a failure.
    pub(super) fn hear(self, link: &Link, error: &tokio_postgres::Error) {
        link.hear(error);
        if self == Self::Failed {
            link.taint();
        }
    }

    /// Whether the statement that opens the transaction has failed, or may still fail. Then the
    /// guard, which was sent after it, changes the connection.
    pub(super) fn may_have_changed(self) -> bool {
        matches!(self, Self::Failed | Self::Sent)
    }
}

/// The statement that opens the transaction, and its guard. Those that follow in the same pipeline
/// write nothing if the first one fails.
///
/// Without a pooler, the guard makes the session read-only. A pooler would give that session
/// to another client, so there the guard ends the connection to the server.
pub(super) async fn opened<'a>(
    link: &'a Link,
    begin: &'a str,
) -> Result<Vec<QueuedStatement<'a>>, tokio_postgres::Error> {
    let guard = if link.is_pooled() {
        query!("session/require_transaction_pooled")
    } else {
        query!("session/require_transaction")
    };
    // It is ready before anything is sent.
    let [guard] = link.ready([guard]).await?;
    let statements: Vec<QueuedStatement<'a>> = vec![
        Box::pin(link.none(begin)),
        Box::pin(async move { link.rows(&guard, &[]).await }),
    ];
    Ok(statements)
}
