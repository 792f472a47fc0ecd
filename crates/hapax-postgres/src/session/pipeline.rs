//! Statements that are sent before the results of earlier ones have arrived.
//!
//! The statements are sent in order, and none is sent after one that could not be sent. Results are
//! read in the same order. The caller gets the first failure only, because the server rejects the
//! statements after it. A statement that takes too long is cancelled, except the one that opens the
//! transaction, its guard, and the last one, which is the commit.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    task::{Context, Poll},
};

use tokio::time::{Instant, timeout_at};
use tokio_postgres::Row;

use super::{Completed, PipelineError, QueuedStatement, ROLLBACK, opening::Opening};
use crate::connection::{Link, QueryError};

/// Statements that were sent.
pub(super) struct Sent<'a>(Vec<(QueuedStatement<'a>, Option<Completed>)>);

impl<'a> Sent<'a> {
    /// Sends statements in order, and stops at the first one that cannot be sent.
    pub(super) async fn of(
        statements: Vec<QueuedStatement<'a>>,
    ) -> Result<Self, tokio_postgres::Error> {
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
    pub(super) async fn run<R>(
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

    pub(super) async fn completed(&mut self, opening: &mut Opening) -> Completions {
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

/// Sends statements in order, waits for all of them, and returns the rows of each but the guard. A
/// statement that takes longer than `cancel` allows is cancelled.
pub(super) async fn pipeline(
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
    use std::time::Duration;

    use tokio::{sync::oneshot, task::yield_now, time::timeout};
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
