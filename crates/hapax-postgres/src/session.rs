//! A connection with a transaction open on it, and the flights that it makes.
//!
//! However a session ends, nothing of it stays: a future that is dropped in the middle leaves the
//! rollback to a task of its own, and a connection that does not answer is closed, never given
//! back. What happened to a flight whose answer is lost is not known here; see `resolve`.

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

/// How long a connection has to take a rollback before it is closed.
const ROLLBACK: Duration = Duration::from_secs(2);

/// One statement on its way.
pub(crate) type Leg<'a> =
    Pin<Box<dyn Future<Output = Result<Vec<Row>, tokio_postgres::Error>> + Send + 'a>>;

/// A connection on which a transaction is open, or about to be.
#[derive(Debug)]
pub(crate) struct Session {
    /// `None` only once it has ended.
    link: Option<Link>,
    /// What opens the transaction: it travels with the first flight.
    begin: Option<Cow<'static, str>>,
    /// Whether a flight is on the wire.
    flying: bool,
    max: Duration,
}

/// A flight that did not land: which leg failed, and why.
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

    /// Opens a transaction with the first flight, and not before.
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

    /// Runs something on the connection; dropped in the middle, its query is cancelled.
    pub(crate) async fn run<R>(
        &mut self,
        run: impl AsyncFnOnce(&Link) -> Result<R, tokio_postgres::Error>,
    ) -> Result<R, Flight> {
        self.flying = true;
        let begin = self.begin.take();
        let ran = within(self.max, first(self.link(), begin, run)).await;
        self.landed(ran)
    }

    /// Runs something behind legs that are sent first, without waiting for them.
    ///
    /// A leg ahead that fails is the failure; what comes behind it says for itself what came of it.
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

    /// Makes statements of our own ready, before anything of the next flight is sent.
    pub(crate) async fn ready(&mut self, sql: &[&'static str]) -> Result<Vec<Ready>, Flight> {
        self.flying = true;
        let ready = within(self.max, self.link().ready_all(sql)).await;
        self.landed(ready)
    }

    /// Sends all legs at once, in order, and waits for all of them.
    ///
    /// A leg that cannot even be sent keeps back those behind it: a commit never overtakes the
    /// statement it is to commit.
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

    /// The transaction is over and well ended: the connection goes back.
    pub(crate) fn end(mut self) {
        drop(self.link.take());
    }

    /// Nobody knows what state the connection is in: it is closed.
    pub(crate) fn discard(mut self) {
        if let Some(link) = self.link.take() {
            link.discard();
        }
    }

    /// Rolls back and gives the connection back.
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

/// Ends whatever is open; a connection that does not say so in time is closed.
async fn roll_back(link: Link, flying: bool) {
    if flying {
        return link.abandon(ROLLBACK).await;
    }
    match timeout(ROLLBACK, link.run("ROLLBACK")).await {
        Ok(Ok(())) => drop(link),
        _ => link.discard(),
    }
}

/// Runs something behind what opens its transaction, without waiting in between.
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

/// Legs that are on the wire.
struct Sent<'a>(Vec<(Leg<'a>, Option<Landed>)>);

impl<'a> Sent<'a> {
    /// Sends them in order; the first that cannot be sent keeps back the others.
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

/// Sends a leg; what is known about it at once, if anything is.
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
            // The one ahead has no rows; what comes behind a failure fails with it.
            Ok(_) | Err(_) => {}
        }
    }
    match crash {
        None => Ok(rows),
        Some(crash) => Err(crash),
    }
}
