//! A connection with an open transaction: it is opened with the first statements, and always ends.
//!
//! However a session ends, no transaction stays open. If a future is dropped while it runs, a
//! separate task rolls back: it has the server cancel the statement, unless that may be the one
//! that opens the transaction. Then it only closes the connection, and the server rolls back. A
//! connection that does not respond is closed and never returned to the pool. If the result of a
//! pipeline is lost, its outcome is not known here; see `commit_recovery`.

mod opening;
mod pipeline;

use std::{borrow::Cow, future::Future, pin::Pin, time::Duration};

use tokio::{
    runtime::Handle,
    time::{Instant, timeout},
};
use tokio_postgres::Row;

use self::{
    opening::{Opening, opened},
    pipeline::{Sent, pipeline},
};
use crate::{
    connection::{Link, QueryError, Ready, within},
    error::is_wire,
};

/// Opens a transaction. `DEFERRABLE` has no effect on a transaction that writes: it is the mark by
/// which the guard knows that one is open.
pub(crate) const BEGIN: &str = "BEGIN DEFERRABLE";
/// How long a rollback or a cancellation may take before the connection is closed.
const ROLLBACK: Duration = Duration::from_secs(2);

/// One statement of a pipeline.
pub(crate) type QueuedStatement<'a> =
    Pin<Box<dyn Future<Output = Result<Vec<Row>, tokio_postgres::Error>> + Send + 'a>>;

/// The result of one statement.
type Completed = Result<Vec<Row>, tokio_postgres::Error>;

/// A connection on which a transaction is open, or will be opened by the first pipeline.
#[derive(Debug)]
pub(crate) struct Session {
    /// `None` only after the session has ended.
    link: Option<Link>,
    /// The statement that opens the transaction, until it is sent with the first pipeline.
    begin: Option<Cow<'static, str>>,
    /// Whether a pipeline was sent and has not completed.
    in_flight: bool,
    opening: Opening,
    max: Duration,
    /// When the statements of a pipeline are cancelled, and the first of them that may be.
    cancel: Option<(Instant, usize)>,
}

/// A pipeline that failed: the index of the failed statement, and the cause.
#[derive(Debug)]
pub(crate) struct PipelineError {
    pub(crate) statement: usize,
    pub(crate) cause: QueryError,
}

impl Session {
    /// A session on this connection, whose statements take at most `max` each.
    pub(crate) fn new(link: Link, max: Duration) -> Self {
        Self {
            link: Some(link),
            begin: None,
            in_flight: false,
            opening: Opening::Unsent,
            max,
            cancel: None,
        }
    }

    /// Sets the statement that opens the transaction. It is sent with the first pipeline.
    pub(crate) fn begin(&mut self, begin: Cow<'static, str>) {
        self.begin = Some(begin);
    }

    /// Takes the statement that opens the transaction, if it was not sent yet: the caller sends
    /// another one in its place.
    pub(crate) fn take_begin(&mut self) -> Option<Cow<'static, str>> {
        self.begin.take()
    }

    /// Sets when the statements of the pipelines that follow are cancelled, from the statement
    /// `first` on.
    ///
    /// The one that opens the transaction must not be: without it, each of the others would be
    /// committed on its own. The last one, which is the commit, is not either. Their results are
    /// waited for a little longer.
    pub(crate) fn cancel_at(&mut self, deadline: Option<Instant>, first: usize) {
        self.cancel = deadline.map(|deadline| (deadline, first));
    }

    /// Whether a transaction was opened.
    pub(crate) fn is_begun(&self) -> bool {
        self.begin.is_none()
    }

    /// Whether another transaction can be opened on this connection. It cannot if the statement
    /// that opens this one has failed or may still fail: the guard changes the connection then.
    pub(crate) fn can_restart(&self) -> bool {
        !self.opening.may_have_changed()
    }

    pub(crate) fn link(&self) -> &Link {
        self.link
            .as_ref()
            .expect("a session has its connection until it ends")
    }

    /// Runs a function on the connection. If the future is dropped, its query is cancelled once the
    /// transaction is open.
    pub(crate) async fn run<R>(
        &mut self,
        run: impl AsyncFnOnce(&Link) -> Result<R, tokio_postgres::Error>,
    ) -> Result<R, QueryError> {
        self.in_flight = true;
        let begin = self.begin.take();
        if begin.is_some() {
            self.opening = Opening::Sent;
        }
        let Self {
            link, opening, max, ..
        } = self;
        let link = link
            .as_ref()
            .expect("a session has its connection until it ends");
        let ran = within(*max, first(link, begin, opening, run)).await;
        self.completed(ran)
    }

    /// Opens the transaction with `begin`, sends the statements `ahead`, and then runs a function
    /// without waiting for their results. The first of the statements is the guard: without a
    /// transaction, it has to keep those behind it from writing.
    ///
    /// If one of these statements fails, its error is returned. The result of the function is
    /// returned separately, and so are the rows of the statements `ahead`.
    pub(crate) async fn run_behind<'a, R>(
        &'a mut self,
        begin: &'a str,
        ahead: impl FnOnce(&'a Link) -> Vec<QueuedStatement<'a>>,
        run: impl AsyncFnOnce(&Link) -> Result<R, tokio_postgres::Error>,
    ) -> Result<(Vec<Vec<Row>>, Result<R, tokio_postgres::Error>), QueryError> {
        self.in_flight = true;
        self.opening = Opening::Sent;
        let Self {
            link,
            in_flight,
            opening,
            max,
            ..
        } = self;
        let link = link
            .as_ref()
            .expect("a session has its connection until it ends");
        let ahead = ahead(link);
        let flight = async {
            let mut statements: Vec<QueuedStatement<'_>> = vec![Box::pin(link.none(begin))];
            statements.extend(ahead);
            let mut sent = Sent::of(statements).await?;
            let ran = sent.run(opening, Box::pin(run(link))).await?;
            Ok((sent.completed(opening).await?.split_off(1), ran))
        };
        let results = within(*max, flight).await;
        *in_flight = match &results {
            Ok((_, Err(error))) | Err(QueryError::Failed(error)) => {
                opening.hear(link, error);
                is_wire(error)
            }
            Ok(_) => false,
            Err(QueryError::Lost) => true,
        };
        results
    }

    /// Prepares statements of this crate before the next pipeline is sent.
    pub(crate) async fn ready(&mut self, sql: &[&'static str]) -> Result<Vec<Ready>, QueryError> {
        self.in_flight = true;
        let ready = within(self.max, self.link().ready_all(sql)).await;
        self.completed(ready)
    }

    /// Sends all statements at once, in order, and waits for all of them.
    ///
    /// If a statement cannot be sent, those after it are not sent either: a commit is never sent
    /// without the statements that it commits.
    pub(crate) async fn pipeline<'a>(
        &'a mut self,
        statements: impl FnOnce(&'a Link) -> Vec<QueuedStatement<'a>>,
    ) -> Result<Vec<Vec<Row>>, PipelineError> {
        let begin = self.begin.take();
        let is_opening = begin.is_some();
        let results = self.send_all(begin, statements).await;
        if !is_opening {
            return results;
        }
        // The caller does not count the statement that opens the transaction.
        match results {
            Ok(mut rows) => Ok(rows.split_off(1)),
            Err(PipelineError { statement, cause }) => Err(PipelineError {
                statement: statement.saturating_sub(1),
                cause,
            }),
        }
    }

    /// The same for statements of which `begin`, if it is there, opens the transaction. In the
    /// results, and as the statement that failed, it is number 0.
    pub(crate) async fn pipeline_from<'a>(
        &'a mut self,
        begin: Option<&'a str>,
        statements: impl FnOnce(&'a Link) -> Vec<QueuedStatement<'a>>,
    ) -> Result<Vec<Vec<Row>>, PipelineError> {
        self.send_all(begin.map(Cow::Borrowed), statements).await
    }

    async fn send_all<'a>(
        &'a mut self,
        begin: Option<Cow<'a, str>>,
        statements: impl FnOnce(&'a Link) -> Vec<QueuedStatement<'a>>,
    ) -> Result<Vec<Vec<Row>>, PipelineError> {
        self.in_flight = true;
        if self.opening == Opening::Unsent {
            self.opening = Opening::Sent;
        }
        let Self {
            link,
            in_flight,
            opening,
            max,
            cancel,
            ..
        } = self;
        let link = link
            .as_ref()
            .expect("a session has its connection until it ends");
        let max = cancel.map_or(*max, |(deadline, _)| {
            (*max).min(deadline.saturating_duration_since(Instant::now()) + ROLLBACK)
        });
        let not_sent = |cause| PipelineError {
            statement: 0,
            cause,
        };
        let statements = statements(link);
        let flight = async {
            let mut all = match &begin {
                Some(begin) => opened(link, begin)
                    .await
                    .map_err(|error| not_sent(QueryError::Failed(error)))?,
                None => Vec::new(),
            };
            all.extend(statements);
            pipeline(link, *cancel, opening, begin.is_some(), all).await
        };
        let results = timeout(max, flight).await;
        let results = results.unwrap_or(Err(not_sent(QueryError::Lost)));
        if let Err(PipelineError {
            cause: QueryError::Failed(error),
            ..
        }) = &results
        {
            opening.hear(link, error);
        }
        if !results
            .as_ref()
            .is_err_and(|failed| failed.cause.is_unknown())
        {
            *in_flight = false;
        }
        results
    }

    fn completed<R>(&mut self, ran: Result<R, QueryError>) -> Result<R, QueryError> {
        if let Err(QueryError::Failed(error)) = &ran {
            self.opening.hear(self.link(), error);
        }
        if !ran.as_ref().is_err_and(QueryError::is_unknown) {
            self.in_flight = false;
        }
        ran
    }

    /// Returns the connection to the pool after its transaction has ended.
    pub(crate) fn end(mut self) {
        drop(self.link.take());
    }

    /// Closes the connection, because its state is not known.
    pub(crate) fn discard(mut self) {
        if let Some(link) = self.link.take() {
            link.discard();
        }
    }

    /// Rolls back and returns the connection to the pool.
    pub(crate) async fn rollback(mut self) {
        let Some(link) = self.link.take() else { return };
        if self.begin.is_none() || self.in_flight {
            roll_back(link, self.in_flight, self.opening).await;
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let Some(link) = self.link.take() else { return };
        // Nothing was sent, not even to prepare a statement.
        if self.begin.is_some() && !self.in_flight {
            return;
        }
        match Handle::try_current() {
            Ok(handle) => {
                let (in_flight, opening) = (self.in_flight, self.opening);
                drop(handle.spawn(roll_back(link, in_flight, opening)));
            }
            Err(_) => link.discard(),
        }
    }
}

/// Rolls back an open transaction. If this takes too long, the connection is closed.
///
/// It is closed at once if the result of the statement that opens the transaction was not read. If
/// that statement is running, it must not be cancelled: without it, each of the statements that
/// were sent with it would be committed on its own. If it failed, the guard may have changed the
/// connection.
async fn roll_back(link: Link, in_flight: bool, opening: Opening) {
    if opening.may_have_changed() {
        return link.discard();
    }
    if in_flight {
        return link.abandon(ROLLBACK).await;
    }
    match timeout(ROLLBACK, link.run("ROLLBACK")).await {
        Ok(Ok(())) => drop(link),
        _ => link.discard(),
    }
}

/// Sends the statement that opens the transaction and then runs a function, without waiting in
/// between.
async fn first<R>(
    link: &Link,
    begin: Option<Cow<'static, str>>,
    opening: &mut Opening,
    run: impl AsyncFnOnce(&Link) -> Result<R, tokio_postgres::Error>,
) -> Result<R, tokio_postgres::Error> {
    let Some(begin) = begin else {
        return run(link).await;
    };
    let mut sent = Sent::of(opened(link, &begin).await?).await?;
    let ran = sent.run(opening, Box::pin(run(link))).await?;
    sent.completed(opening).await?;
    ran
}
