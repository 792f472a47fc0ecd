//! A connection with an open transaction, and the pipelines that are sent on it.
//!
//! However a session ends, no transaction stays open. If a future is dropped while it runs, a
//! separate task rolls back: it has the server cancel the statement, unless that may be the one
//! that opens the transaction. Then it only closes the connection, and the server rolls back. A
//! connection that does not respond is closed and never returned to the pool. If the result of a
//! pipeline is lost, its outcome is not known here; see `commit_recovery`.
//!
//! Statements that are sent together with the one that opens their transaction run only in it. The
//! server runs each of them even if that one fails, so a guard is sent in between, which keeps the
//! others from writing if no transaction is open.

use std::{
    borrow::Cow,
    future::{Future, poll_fn},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    runtime::Handle,
    time::{Instant, timeout, timeout_at},
};
use tokio_postgres::Row;

use crate::{
    connection::{Link, QueryError, Ready, within},
    error::is_wire,
    query,
};

/// Opens a transaction. `DEFERRABLE` has no effect on a transaction that writes: it is the mark by
/// which the guard knows that one is open.
pub(crate) const BEGIN: &str = "BEGIN DEFERRABLE";
/// How long a rollback or a cancellation may take before the connection is closed.
const ROLLBACK: Duration = Duration::from_secs(2);

/// One statement of a pipeline.
pub(crate) type QueuedStatement<'a> =
    Pin<Box<dyn Future<Output = Result<Vec<Row>, tokio_postgres::Error>> + Send + 'a>>;

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

/// How far the statement is that opens the transaction: a cancellation must not stop it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opening {
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
    fn after(self, is_own: bool, completed: &Completed) -> Self {
        match completed {
            Err(_) if is_own => Self::Failed,
            _ if self == Self::Failed => self,
            _ => Self::Read,
        }
    }

    /// Draws conclusions from a failure.
    fn hear(self, link: &Link, error: &tokio_postgres::Error) {
        link.hear(error);
        if self == Self::Failed {
            link.taint();
        }
    }
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

    /// Whether another transaction can be opened on this connection. It cannot if the statement that
    /// opens this one has failed or may still fail, because the guard changes the connection then.
    pub(crate) fn can_restart(&self) -> bool {
        !may_be_changed(self.opening)
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

    /// The same for statements of which `begin`, if it is there, opens the transaction. In the results,
    /// and as the statement that failed, it is number 0.
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
/// that statement is running, it must not be cancelled: without it, each of the statements that were
/// sent with it would be committed on its own. If it failed, the guard may have changed the
/// connection.
async fn roll_back(link: Link, in_flight: bool, opening: Opening) {
    if may_be_changed(opening) {
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

/// Whether the statement that opens the transaction has failed, or may still fail. The guard that was
/// sent behind it changes the connection then.
fn may_be_changed(opening: Opening) -> bool {
    matches!(opening, Opening::Failed | Opening::Sent)
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

/// The statement that opens the transaction, and its guard. Those that follow in the same pipeline
/// write nothing if the first one fails.
///
/// Without a pooler, the guard makes the session read-only. A pooler would give that session
/// to another client, so there the guard ends the connection to the server.
async fn opened<'a>(
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

/// Statements that were sent.
struct Sent<'a>(Vec<(QueuedStatement<'a>, Option<Completed>)>);

impl<'a> Sent<'a> {
    /// Sends statements in order, and stops at the first one that cannot be sent.
    async fn of(statements: Vec<QueuedStatement<'a>>) -> Result<Self, tokio_postgres::Error> {
        let mut sent = Vec::with_capacity(statements.len());
        for mut statement in statements {
            let completed = match send(&mut statement).await {
                Some(Err(error)) => return Err(error),
                completed => completed,
            };
            sent.push((statement, completed));
        }
        Ok(Self(sent))
    }

    /// Runs a future, and meanwhile reads the results of the statements, as long results that are
    /// not read keep the connection from reading those that follow. The first statement opens the
    /// transaction, and it is noted when its result has been read.
    ///
    /// If that statement fails, the future is dropped: a statement that it would send next would be
    /// committed on its own.
    async fn run<R>(
        &mut self,
        opening: &mut Opening,
        mut run: impl Future<Output = R> + Unpin,
    ) -> Result<R, tokio_postgres::Error> {
        let mut is_sent = false;
        poll_fn(|context| {
            // At first only the future is polled: that sends its statement.
            if is_sent && let Err(error) = self.read(opening, context) {
                return Poll::Ready(Err(error));
            }
            is_sent = true;
            Pin::new(&mut run).poll(context).map(Ok)
        })
        .await
    }

    /// Reads the results that have arrived. Fails if the first statement has.
    fn read(
        &mut self,
        opening: &mut Opening,
        context: &mut Context<'_>,
    ) -> Result<(), tokio_postgres::Error> {
        let statements = self.0.iter_mut().enumerate();
        let left = statements.filter(|(_, (_, completed))| completed.is_none());
        for (number, (statement, completed)) in left {
            let Poll::Ready(result) = statement.as_mut().poll(context) else {
                break;
            };
            *opening = opening.after(number == 0, &result);
            match result {
                Err(error) if number == 0 => return Err(error),
                result => *completed = Some(result),
            }
        }
        Ok(())
    }

    async fn completed(&mut self, opening: &mut Opening) -> Completions {
        let mut rows = Vec::with_capacity(self.0.len());
        for (number, (statement, completed)) in self.0.iter_mut().enumerate() {
            let completed = match completed.take() {
                Some(completed) => completed,
                None => statement.await,
            };
            *opening = opening.after(number == 0, &completed);
            rows.push(completed?);
        }
        Ok(rows)
    }
}

type Completions = Result<Vec<Vec<Row>>, tokio_postgres::Error>;
type Completed = Result<Vec<Row>, tokio_postgres::Error>;

/// Sends a statement. Returns its result if there is one immediately.
async fn send(statement: &mut QueuedStatement<'_>) -> Option<Completed> {
    poll_fn(|context| {
        Poll::Ready(match statement.as_mut().poll(context) {
            Poll::Ready(completed) => Some(completed),
            Poll::Pending => None,
        })
    })
    .await
}

/// Waits for a statement until `deadline`, and then has the server cancel it.
async fn cancelled_at(
    deadline: Instant,
    link: &Link,
    statement: &mut QueuedStatement<'_>,
) -> Completed {
    if let Ok(completed) = timeout_at(deadline, &mut *statement).await {
        return completed;
    }
    Box::pin(link.cancel(ROLLBACK)).await;
    statement.await
}

async fn pipeline(
    link: &Link,
    cancel: Option<(Instant, usize)>,
    opening: &mut Opening,
    is_opening: bool,
    mut statements: Vec<QueuedStatement<'_>>,
) -> Result<Vec<Vec<Row>>, PipelineError> {
    let mut sent: Vec<Option<Completed>> = Vec::with_capacity(statements.len());
    for statement in &mut statements {
        let completed = send(statement).await;
        let is_held_back = matches!(completed, Some(Err(_)));
        sent.push(completed);
        if is_held_back {
            break;
        }
    }
    // The statement that opens the transaction is one with its guard, and neither is cancelled.
    let guard = usize::from(is_opening);
    let last = statements.len().saturating_sub(1);
    let mut rows = Vec::with_capacity(statements.len());
    let mut failed = None;
    for (index, (statement, completed)) in statements.iter_mut().zip(sent).enumerate() {
        let number = index.saturating_sub(guard);
        let completed = match (completed, cancel) {
            (Some(completed), _) => completed,
            // After a failure, those that follow fail without being cancelled.
            (None, Some((deadline, first)))
                if (first.max(guard)..).contains(&number) && index < last && failed.is_none() =>
            {
                cancelled_at(deadline, link, statement).await
            }
            (None, _) => statement.await,
        };
        *opening = opening.after(is_opening && index == 0, &completed);
        match completed {
            Ok(_) if is_opening && index == guard => {}
            Ok(found) => rows.push(found),
            Err(error) if failed.is_none() => {
                let (statement, cause) = (number, QueryError::Failed(error));
                failed = Some(PipelineError { statement, cause });
            }
            // Statements after a failed one fail as well.
            Err(_) => {}
        }
    }
    match failed {
        None => Ok(rows),
        Some(failed) => Err(failed),
    }
}

#[cfg(test)]
mod tests {
    use tokio::{sync::oneshot, task::yield_now};
    use tokio_postgres::Config;

    use super::*;

    /// A statement that the first poll sends, and whose result arrives after that.
    fn statement(result: Completed) -> QueuedStatement<'static> {
        Box::pin(async move {
            yield_now().await;
            result
        })
    }

    #[tokio::test]
    async fn results_are_read_while_the_function_behind_them_runs() {
        let (read, is_read) = oneshot::channel();
        let last: QueuedStatement<'_> = Box::pin(async move {
            yield_now().await;
            read.send(()).unwrap();
            Ok(Vec::new())
        });
        let statements = vec![statement(Ok(Vec::new())), last];
        let mut sent = Sent::of(statements).await.unwrap();
        let mut opening = Opening::Sent;
        let run = sent.run(&mut opening, Box::pin(is_read));
        let ran = timeout(Duration::from_secs(10), run).await;
        ran.unwrap().unwrap().unwrap();
        assert_eq!(opening, Opening::Read);
        assert_eq!(sent.completed(&mut opening).await.unwrap().len(), 2);
    }

    #[tokio::test]
    async fn a_function_does_not_go_on_if_the_transaction_was_not_opened() {
        let refused = "port=x".parse::<Config>().unwrap_err();
        let mut sent = Sent::of(vec![statement(Err(refused))]).await.unwrap();
        let mut went_on = false;
        let run = async {
            yield_now().await;
            went_on = true;
        };
        let mut opening = Opening::Sent;
        let ran = sent.run(&mut opening, Box::pin(run)).await;
        assert!(ran.is_err());
        assert!(!went_on);
        assert_eq!(opening, Opening::Failed);
    }
}
