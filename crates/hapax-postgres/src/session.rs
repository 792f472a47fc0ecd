//! A connection with an open transaction, and the pipelines that are sent on it.
//!
//! However a session ends, no transaction stays open. If a future is dropped while it runs, a
//! separate task rolls back. A connection that does not respond is closed and never returned to the
//! pool. If the result of a pipeline is lost, its outcome is not known here; see `resolve`.

use std::{
    borrow::Cow,
    future::{Future, poll_fn},
    pin::Pin,
    task::Poll,
    time::Duration,
};

use hapax::store::StoreError;
use tokio::{runtime::Handle, time::timeout};
use tokio_postgres::Row;

use crate::{
    connection::{Flight, Link, Ready, within},
    error::is_wire,
    postgres::Postgres,
};

/// How long a rollback may take before the connection is closed.
const ROLLBACK: Duration = Duration::from_secs(2);

/// One statement of a pipeline.
pub(crate) type Leg<'a> =
    Pin<Box<dyn Future<Output = Result<Vec<Row>, tokio_postgres::Error>> + Send + 'a>>;

/// A connection on which a transaction is open, or will be opened by the first pipeline.
#[derive(Debug)]
pub(crate) struct Session {
    /// `None` only after the session has ended.
    link: Option<Link>,
    /// The statement that opens the transaction, until it is sent with the first pipeline.
    begin: Option<Cow<'static, str>>,
    /// Whether a pipeline was sent and has not completed.
    flying: bool,
    max: Duration,
}

/// A pipeline that failed: the index of the failed statement, and the cause.
#[derive(Debug)]
pub(crate) struct Crash {
    pub(crate) leg: usize,
    pub(crate) cause: Flight,
}

impl Session {
    pub(crate) async fn open(store: &Postgres) -> Result<Self, StoreError> {
        Ok(Self {
            link: Some(store.link().await?),
            begin: None,
            flying: false,
            max: store.settings().statement_max,
        })
    }

    /// Sets the statement that opens the transaction. It is sent with the first pipeline.
    pub(crate) fn begin(&mut self, begin: Cow<'static, str>) {
        self.begin = Some(begin);
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

    /// Runs a function on the connection. If the future is dropped, its query is cancelled.
    pub(crate) async fn run<R>(
        &mut self,
        run: impl AsyncFnOnce(&Link) -> Result<R, tokio_postgres::Error>,
    ) -> Result<R, Flight> {
        self.flying = true;
        let begin = self.begin.take();
        let ran = within(self.max, first(self.link(), begin, run)).await;
        self.landed(ran)
    }

    /// Sends the statements `ahead` and then runs a function without waiting for their results.
    ///
    /// If one of these statements fails, its error is returned. The result of the function is
    /// returned separately.
    pub(crate) async fn run_behind<'a, R>(
        &'a mut self,
        ahead: impl FnOnce(&'a Link) -> Vec<Leg<'a>>,
        run: impl AsyncFnOnce(&Link) -> Result<R, tokio_postgres::Error>,
    ) -> Result<(Vec<Vec<Row>>, Result<R, tokio_postgres::Error>), Flight> {
        self.flying = true;
        let Self {
            link, flying, max, ..
        } = self;
        let link = link
            .as_ref()
            .expect("a session has its connection until it ends");
        let flight = async {
            let mut sent = Sent::of(ahead(link)).await?;
            let ran = run(link).await;
            Ok((sent.landed().await?, ran))
        };
        let flown = within(*max, flight).await;
        if let Ok((_, Err(error))) | Err(Flight::Failed(error)) = &flown {
            link.hear(error);
        }
        *flying = match &flown {
            Ok((_, Err(error))) | Err(Flight::Failed(error)) => {
                link.hear(error);
                is_wire(error)
            }
            Ok(_) => false,
            Err(Flight::Lost) => true,
        };
        flown
    }

    /// Prepares statements of this crate before the next pipeline is sent.
    pub(crate) async fn ready(&mut self, sql: &[&'static str]) -> Result<Vec<Ready>, Flight> {
        self.flying = true;
        let ready = within(self.max, self.link().ready_all(sql)).await;
        self.landed(ready)
    }

    /// Sends all statements at once, in order, and waits for all of them.
    ///
    /// If a statement cannot be sent, those after it are not sent either: a commit is never sent
    /// without the statements that it commits.
    pub(crate) async fn fly<'a>(
        &'a mut self,
        legs: impl FnOnce(&'a Link) -> Vec<Leg<'a>>,
    ) -> Result<Vec<Vec<Row>>, Crash> {
        self.flying = true;
        let Self {
            link,
            begin,
            flying,
            max,
        } = self;
        let link = link
            .as_ref()
            .expect("a session has its connection until it ends");
        let begin = begin.take();
        let begin = begin.map(|begin| Box::pin(async move { link.none(&begin).await }) as Leg<'_>);
        let flown = timeout(*max, fly(begin, legs(link))).await;
        let flown = flown.unwrap_or(Err(Crash {
            leg: 0,
            cause: Flight::Lost,
        }));
        if let Err(Crash {
            cause: Flight::Failed(error),
            ..
        }) = &flown
        {
            link.hear(error);
        }
        if !flown.as_ref().is_err_and(|crash| crash.cause.is_unknown()) {
            *flying = false;
        }
        flown
    }

    fn landed<R>(&mut self, ran: Result<R, Flight>) -> Result<R, Flight> {
        if let Err(Flight::Failed(error)) = &ran {
            self.link().hear(error);
        }
        if !ran.as_ref().is_err_and(Flight::is_unknown) {
            self.flying = false;
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
            roll_back(link, self.flying).await;
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
                let flying = self.flying;
                drop(handle.spawn(roll_back(link, flying)));
            }
            Err(_) => link.discard(),
        }
    }
}

/// Rolls back an open transaction. If this takes too long, the connection is closed.
async fn roll_back(link: Link, flying: bool) {
    if flying {
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
    run: impl AsyncFnOnce(&Link) -> Result<R, tokio_postgres::Error>,
) -> Result<R, tokio_postgres::Error> {
    let Some(begin) = begin else {
        return run(link).await;
    };
    let mut ahead: Leg<'_> = Box::pin(link.none(&begin));
    let sent = send(&mut ahead).await;
    if let Some(Err(error)) = sent {
        return Err(error);
    }
    let ran = run(link).await;
    if sent.is_none() {
        ahead.await?;
    }
    ran
}

/// Statements that were sent.
struct Sent<'a>(Vec<(Leg<'a>, Option<Landed>)>);

impl<'a> Sent<'a> {
    /// Sends statements in order, and stops at the first one that cannot be sent.
    async fn of(legs: Vec<Leg<'a>>) -> Result<Self, tokio_postgres::Error> {
        let mut sent = Vec::with_capacity(legs.len());
        for mut leg in legs {
            let landed = match send(&mut leg).await {
                Some(Err(error)) => return Err(error),
                landed => landed,
            };
            sent.push((leg, landed));
        }
        Ok(Self(sent))
    }

    async fn landed(&mut self) -> Landings {
        let mut rows = Vec::with_capacity(self.0.len());
        for (leg, landed) in &mut self.0 {
            rows.push(match landed.take() {
                Some(landed) => landed?,
                None => leg.await?,
            });
        }
        Ok(rows)
    }
}

type Landings = Result<Vec<Vec<Row>>, tokio_postgres::Error>;
type Landed = Result<Vec<Row>, tokio_postgres::Error>;

/// Sends a statement. Returns its result if there is one immediately.
async fn send(leg: &mut Leg<'_>) -> Option<Landed> {
    poll_fn(|context| {
        Poll::Ready(match leg.as_mut().poll(context) {
            Poll::Ready(landed) => Some(landed),
            Poll::Pending => None,
        })
    })
    .await
}

async fn fly(begin: Option<Leg<'_>>, legs: Vec<Leg<'_>>) -> Result<Vec<Vec<Row>>, Crash> {
    let ahead = usize::from(begin.is_some());
    let mut legs: Vec<Leg<'_>> = begin.into_iter().chain(legs).collect();
    let mut sent: Vec<Option<Landed>> = Vec::with_capacity(legs.len());
    for leg in &mut legs {
        let landed = send(leg).await;
        let is_held_back = matches!(landed, Some(Err(_)));
        sent.push(landed);
        if is_held_back {
            break;
        }
    }
    let mut rows = Vec::with_capacity(legs.len());
    let mut crash = None;
    for (number, (leg, landed)) in legs.iter_mut().zip(sent).enumerate() {
        let landed = match landed {
            Some(landed) => landed,
            None => leg.await,
        };
        match landed {
            Ok(found) if number >= ahead => rows.push(found),
            Err(error) if crash.is_none() => {
                let (leg, cause) = (number.saturating_sub(ahead), Flight::Failed(error));
                crash = Some(Crash { leg, cause });
            }
            // The statement that opens the transaction has no rows. Statements after a failed one
            // fail as well.
            Ok(_) | Err(_) => {}
        }
    }
    match crash {
        None => Ok(rows),
        Some(crash) => Err(crash),
    }
}
