//! A connection with an open transaction, and the pipelines that are sent on it.
//!
//! However a session ends, no transaction stays open. If a future is dropped while it runs, a
//! separate task rolls back: it has the server cancel the statement, unless that may be the one
//! that opens the transaction. Then it only closes the connection, and the server rolls back. A
//! connection that does not respond is closed and never returned to the pool. If the result of a
//! pipeline is lost, its outcome is not known here; see `commit_recovery`.

use std::{
    borrow::Cow,
    future::{Future, poll_fn},
    pin::Pin,
    task::Poll,
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
};

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

    /// Sends the statements `ahead`, of which the first opens the transaction, and then runs a
    /// function without waiting for their results.
    ///
    /// If one of these statements fails, its error is returned. The result of the function is
    /// returned separately.
    pub(crate) async fn run_behind<'a, R>(
        &'a mut self,
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
        let flight = async {
            let mut sent = Sent::of(ahead(link)).await?;
            let ran = sent.run(opening, Box::pin(run(link))).await;
            Ok((sent.completed().await?, ran))
        };
        let results = within(*max, flight).await;
        if let Ok((_, Err(error))) | Err(QueryError::Failed(error)) = &results {
            link.hear(error);
        }
        *in_flight = match &results {
            Ok((_, Err(error))) | Err(QueryError::Failed(error)) => {
                link.hear(error);
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
        self.in_flight = true;
        if self.opening == Opening::Unsent {
            self.opening = Opening::Sent;
        }
        let Self {
            link,
            begin,
            in_flight,
            opening,
            max,
            cancel,
        } = self;
        let link = link
            .as_ref()
            .expect("a session has its connection until it ends");
        let max = cancel.map_or(*max, |(deadline, _)| {
            (*max).min(deadline.saturating_duration_since(Instant::now()) + ROLLBACK)
        });
        let begin = begin.take();
        let begin = begin
            .map(|begin| Box::pin(async move { link.none(&begin).await }) as QueuedStatement<'_>);
        let flight = pipeline(link, *cancel, opening, begin, statements(link));
        let results = timeout(max, flight).await;
        let results = results.unwrap_or(Err(PipelineError {
            statement: 0,
            cause: QueryError::Lost,
        }));
        if let Err(PipelineError {
            cause: QueryError::Failed(error),
            ..
        }) = &results
        {
            link.hear(error);
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
            self.link().hear(error);
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
        if self.begin.is_none() {
            roll_back(link, self.in_flight, self.opening).await;
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let Some(link) = self.link.take() else { return };
        if self.begin.is_some() {
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
/// It is closed at once if the statement that opens the transaction may be running: without it, each
/// of the statements that were sent with it would be committed on its own.
async fn roll_back(link: Link, in_flight: bool, opening: Opening) {
    if in_flight && opening == Opening::Sent {
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
    let ahead: QueuedStatement<'_> = Box::pin(link.none(&begin));
    let mut sent = Sent::of(vec![ahead]).await?;
    let ran = sent.run(opening, Box::pin(run(link))).await;
    sent.completed().await?;
    ran
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

    /// Runs a future, and meanwhile notes when the result of the first statement, which opens the
    /// transaction, has been read.
    async fn run<R>(
        &mut self,
        opening: &mut Opening,
        mut run: impl Future<Output = R> + Unpin,
    ) -> R {
        poll_fn(|context| {
            // The future is polled first, because that sends its statement.
            let ran = Pin::new(&mut run).poll(context);
            if let Some((statement, completed)) = self.0.first_mut() {
                if completed.is_none()
                    && let Poll::Ready(result) = statement.as_mut().poll(context)
                {
                    *completed = Some(result);
                }
                if completed.is_some() {
                    *opening = Opening::Read;
                }
            }
            ran
        })
        .await
    }

    async fn completed(&mut self) -> Completions {
        let mut rows = Vec::with_capacity(self.0.len());
        for (statement, completed) in &mut self.0 {
            rows.push(match completed.take() {
                Some(completed) => completed?,
                None => statement.await?,
            });
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
    begin: Option<QueuedStatement<'_>>,
    statements: Vec<QueuedStatement<'_>>,
) -> Result<Vec<Vec<Row>>, PipelineError> {
    let ahead = usize::from(begin.is_some());
    let mut statements: Vec<QueuedStatement<'_>> = begin.into_iter().chain(statements).collect();
    let mut sent: Vec<Option<Completed>> = Vec::with_capacity(statements.len());
    for statement in &mut statements {
        let completed = send(statement).await;
        let is_held_back = matches!(completed, Some(Err(_)));
        sent.push(completed);
        if is_held_back {
            break;
        }
    }
    let last = statements.len().saturating_sub(1);
    let mut rows = Vec::with_capacity(statements.len());
    let mut failed = None;
    for (number, (statement, completed)) in statements.iter_mut().zip(sent).enumerate() {
        let completed = match (completed, cancel) {
            (Some(completed), _) => completed,
            // After a failure, those that follow fail without being cancelled.
            (None, Some((deadline, first)))
                if (ahead + first..last).contains(&number) && failed.is_none() =>
            {
                cancelled_at(deadline, link, statement).await
            }
            (None, _) => statement.await,
        };
        *opening = Opening::Read;
        match completed {
            Ok(found) if number >= ahead => rows.push(found),
            Err(error) if failed.is_none() => {
                let (statement, cause) = (number.saturating_sub(ahead), QueryError::Failed(error));
                failed = Some(PipelineError { statement, cause });
            }
            // The statement that opens the transaction has no rows. Statements after a failed one
            // fail as well.
            Ok(_) | Err(_) => {}
        }
    }
    match failed {
        None => Ok(rows),
        Some(failed) => Err(failed),
    }
}
