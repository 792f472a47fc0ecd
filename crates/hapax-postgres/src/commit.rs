//! The last pipeline of a transaction: the response or the recovery point, the events, the results of
//! messages, `COMMIT`.
//!
//! The most frequent case, a response and one event, is one statement. No response is awaited in
//! between: if a statement fails, the commit becomes a rollback. An optimistic claim is part of the
//! statement that stores the response. A message that is accepted at the commit is the first of
//! these statements.

use hapax::{
    failpoint::Failpoints,
    inbox::{Message, Processed},
    outbox::BuiltEvent,
    store::StoreError,
};
use tokio_postgres::error::SqlState;

use crate::{
    connection::QueryError,
    emit::{Columns, One},
    error::{own_error, store_error},
    idempotency::{ClaimedKey, OldRow, ResponseColumns, parts, retention},
    phase::{Phase, is_fenced},
    query,
    session::{QueuedStatement, Session},
    value::{Moment, Param, millis},
};

/// The last pipeline of a transaction: the rows that it writes at its end, and `COMMIT`.
pub(crate) struct CommitPipeline<'a> {
    /// The response, with the key that was claimed for it.
    response: Option<Row<'a>>,
    /// The phase that ends, with the response if it is the last.
    phase: Option<(&'a Phase, Option<&'a ResponseColumns>)>,
    /// The only event.
    event: Option<One<'a>>,
    /// All events, if there are several.
    events: Option<Columns<'a>>,
    /// The message that is accepted at the commit.
    message: Option<NewMessage<'a>>,
    /// The messages that were accepted.
    processed: &'a [Processed],
    time: Option<Moment>,
}

/// A statement and its parameters.
pub(crate) type BoundStatement<'a> = (&'static str, Vec<&'a dyn Param>);

impl<'a> CommitPipeline<'a> {
    pub(crate) fn of(
        held: Option<&'a ClaimedKey>,
        phase: Option<&'a Phase>,
        response: Option<&'a ResponseColumns>,
        events: &'a [BuiltEvent],
        processed: &'a [Processed],
        time: Option<Moment>,
    ) -> Self {
        let (event, events) = match events {
            [] => (None, None),
            [event] => (Some(One::of(event)), None),
            events => (None, Some(Columns::of(&events.iter().collect::<Vec<_>>()))),
        };
        Self {
            response: held
                .zip(response)
                .map(|(held, response)| Row::of(held, response, time)),
            phase: phase.map(|phase| (phase, response)),
            event,
            events,
            message: None,
            processed,
            time,
        }
    }

    /// Accepts `message`, which is the first of the transaction's new messages, at the commit.
    pub(crate) fn accepting(self, message: Option<&'a Message>) -> Self {
        match (message, self.processed.split_first()) {
            (Some(message), Some((first, rest))) => Self {
                message: Some(NewMessage {
                    payload_hash: &message.payload_hash,
                    row: first,
                }),
                processed: rest,
                ..self
            },
            _ => self,
        }
    }

    /// Sends the statements and `COMMIT`, and waits for the result.
    pub(crate) async fn send(
        &self,
        session: &mut Session,
        failpoints: &Failpoints,
    ) -> Result<(), CommitError> {
        let bound = self.statements();
        let at_the_start = |cause| CommitError {
            cause,
            at: FailedStatement::Own,
        };
        let mut texts: Vec<&'static str> = Vec::with_capacity(2);
        texts.extend(self.phase.map(|(_, response)| Phase::sql(response)));
        texts.extend(bound.iter().map(|(sql, _)| *sql));
        let ready = session.ready(&texts).await.map_err(at_the_start)?;
        let commit = ready.len();
        failpoints.hit("postgres.commit.before");
        let results = session.pipeline(|link| {
            let mut statements: Vec<QueuedStatement<'_>> = Vec::with_capacity(ready.len() + 1);
            let mut ready = ready.iter();
            if let Some((phase, response)) = self.phase
                && let Some(advance) = ready.next()
            {
                statements.push(Box::pin(phase.end(link, advance, response, self.time)));
            }
            for (ready, (_, params)) in ready.zip(&bound) {
                statements.push(Box::pin(link.rows(ready, params)));
            }
            statements.push(Box::pin(link.none("COMMIT")));
            statements
        });
        results.await.map(drop).map_err(|failed| CommitError {
            at: match (failed.statement, &self.phase, &self.response) {
                (0, Some(_), _) => FailedStatement::Fence,
                (0, None, Some(row)) if row.assumes_free => FailedStatement::Claim,
                (0, None, Some(_)) => FailedStatement::Key,
                (0, None, None) if self.message.is_some() => FailedStatement::Message,
                (statement, ..) if statement == commit => FailedStatement::Commit,
                _ => FailedStatement::Own,
            },
            cause: failed.cause,
        })
    }

    /// The statements of a transaction without a phase, in order. The first one stores the response,
    /// or accepts a message, if there is one. The first one fails if a statement of a handler has
    /// ended the transaction, unless it accepts a message or writes several events: handlers of
    /// sqlx could end it, and their messages are accepted before.
    pub(crate) fn statements(&self) -> Vec<BoundStatement<'_>> {
        let mut statements: Vec<BoundStatement<'_>> = Vec::with_capacity(2);
        if let Some(NewMessage { payload_hash, row }) = &self.message {
            let params: [&dyn Param; 6] = [
                &row.consumer,
                &row.message_id,
                &row.source,
                payload_hash,
                &self.time,
                &row.result,
            ];
            statements.push((query!("inbox/accept_at_commit"), params.to_vec()));
        }
        match (&self.response, &self.event) {
            (Some(row), Some(event)) if !row.replaces => {
                let mut params = row.params().to_vec();
                params.extend(event.params());
                statements.push((row.statement_with_event(), params));
            }
            (row, event) => {
                if let Some(row) = row {
                    statements.push((row.statement(), row.params().to_vec()));
                }
                if let Some(event) = event {
                    statements.push((query!("outbox/emit_one"), event.params().to_vec()));
                }
            }
        }
        if let Some(events) = &self.events {
            statements.push((query!("outbox/emit"), events.params().to_vec()));
        }
        for it in self.processed {
            let params: [&dyn Param; 5] = [
                &it.consumer,
                &it.message_id,
                &it.source,
                &self.time,
                &it.result,
            ];
            statements.push((query!("inbox/processed"), params.to_vec()));
        }
        statements
    }
}

/// The failure of the last pipeline, with the statement that failed.
#[derive(Debug)]
pub(crate) struct CommitError {
    cause: QueryError,
    at: FailedStatement,
}

/// The statement that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FailedStatement {
    /// The one that stores the key.
    Key,
    /// The one that claims the key and stores it.
    Claim,
    /// The one that accepts a message.
    Message,
    /// The one that needs the key to be this owner's.
    Fence,
    /// Another one of the store.
    Own,
    /// The commit, at which a deferred constraint of the service may be violated.
    Commit,
}

impl CommitError {
    /// Whether it may have been committed all the same.
    pub(crate) fn is_unknown(&self) -> bool {
        self.cause.is_unknown()
    }

    pub(crate) fn into_error(self) -> StoreError {
        match self.cause {
            QueryError::Failed(error) if self.at == FailedStatement::Fence && is_fenced(&error) => {
                StoreError::Fenced
            }
            // Another program has written the key without its lock. The request looks the key up.
            QueryError::Failed(error)
                if self.at == FailedStatement::Key && error.code().is_some_and(is_taken) =>
            {
                StoreError::conflict(error)
            }
            // The key has a row, or another request is claiming it. A regular claim finds out.
            QueryError::Failed(error)
                if self.at == FailedStatement::Claim && error.code().is_some_and(is_not_free) =>
            {
                StoreError::NotClaimed
            }
            // A regular acceptance finds out whether the message is a duplicate.
            QueryError::Failed(error)
                if self.at == FailedStatement::Message && is_accepted(&error) =>
            {
                StoreError::AcceptedBefore
            }
            QueryError::Failed(error) if self.at == FailedStatement::Commit => store_error(error),
            QueryError::Failed(error) => own_error(store_error(error)),
            lost @ QueryError::Lost => lost.into(),
        }
    }
}

/// Whether the key's row could not be written because there is one already.
pub(crate) fn is_taken(state: &SqlState) -> bool {
    [SqlState::UNIQUE_VIOLATION, SqlState::NOT_NULL_VIOLATION].contains(state)
}

/// Whether an optimistic claim failed because the key has a row, or because another transaction has
/// its lock.
fn is_not_free(state: &SqlState) -> bool {
    [SqlState::UNIQUE_VIOLATION, SqlState::DIVISION_BY_ZERO].contains(state)
}

/// Whether the row of a message could not be written because there is one already.
fn is_accepted(error: &tokio_postgres::Error) -> bool {
    error.as_db_error().is_some_and(|refused| {
        *refused.code() == SqlState::UNIQUE_VIOLATION
            && refused.schema() == Some("hapax")
            && refused.constraint() == Some("inbox_message_pkey")
    })
}

/// The row of a message that is accepted at the commit, as parameters.
struct NewMessage<'a> {
    payload_hash: &'a [u8],
    row: &'a Processed,
}

/// The key's row with its response, as parameters.
struct Row<'a> {
    replaces: bool,
    /// Whether this statement claims the key.
    assumes_free: bool,
    scope: [&'a str; 3],
    fingerprint: &'a [u8],
    state: &'static str,
    status: i16,
    headers: &'a [u8],
    body: &'a [u8],
    on_expired: &'static str,
    retention: i64,
    time: Option<Moment>,
    resource_id: Option<&'a str>,
}

impl<'a> Row<'a> {
    fn of(held: &'a ClaimedKey, response: &'a ResponseColumns, time: Option<Moment>) -> Self {
        Self {
            replaces: held.row == OldRow::Expired,
            assumes_free: held.row == OldRow::Unread,
            scope: parts(&held.claim.scope),
            fingerprint: held.claim.fingerprint.as_bytes(),
            state: response.state(),
            status: response.status,
            headers: &response.headers,
            body: &response.body,
            on_expired: held.claim.on_expired.name(),
            retention: millis(retention(&held.claim)),
            time,
            resource_id: response.resource_id.as_deref(),
        }
    }

    fn statement(&self) -> &'static str {
        if self.replaces {
            query!("idempotency/replace")
        } else if self.assumes_free {
            query!("idempotency/complete_free")
        } else {
            query!("idempotency/complete")
        }
    }

    /// The statement that also appends the only event.
    fn statement_with_event(&self) -> &'static str {
        if self.assumes_free {
            query!("idempotency/complete_free_and_emit")
        } else {
            query!("idempotency/complete_and_emit")
        }
    }

    fn params(&self) -> [&dyn Param; 12] {
        let [tenant, operation, key] = &self.scope;
        [
            tenant,
            operation,
            key,
            &self.fingerprint,
            &self.state,
            &self.status,
            &self.headers,
            &self.body,
            &self.on_expired,
            &self.retention,
            &self.time,
            &self.resource_id,
        ]
    }
}
