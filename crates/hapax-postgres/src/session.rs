//! A connection with a transaction open on it, and the flights that it makes.
//!
//! However a session ends, nothing of it stays: a future that is dropped in the middle leaves the
//! rollback to a task of its own, and a connection that does not answer is closed, never given
//! back. What happened to a flight whose answer is lost is not known here; see `resolve`.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    task::Poll,
    time::Duration,
};

use hapax::store::StoreError;
use tokio::{runtime::Handle, time::timeout};
use tokio_postgres::Row;

use crate::{
    connection::{Flight, Link, within},
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
            flying: false,
            max: store.settings().statement_max,
        })
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
        let ran = within(self.max, run(self.link())).await;
        self.landed(ran)
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
        let Self { link, flying, max } = self;
        let link = link
            .as_ref()
            .expect("a session has its connection until it ends");
        let flown = timeout(*max, fly(legs(link))).await;
        let flown = flown.unwrap_or(Err(Crash {
            leg: 0,
            cause: Flight::Lost,
        }));
        if !flown.as_ref().is_err_and(|crash| crash.cause.is_unknown()) {
            *flying = false;
        }
        flown
    }

    fn landed<R>(&mut self, ran: Result<R, Flight>) -> Result<R, Flight> {
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
        roll_back(link, self.flying).await;
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let Some(link) = self.link.take() else { return };
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
        // Best effort: what runs on is bounded by the statement's own timeout.
        let _asked = timeout(ROLLBACK, link.cancel()).await;
    }
    match timeout(ROLLBACK, link.run("ROLLBACK")).await {
        Ok(Ok(())) => drop(link),
        _ => link.discard(),
    }
}

async fn fly(mut legs: Vec<Leg<'_>>) -> Result<Vec<Vec<Row>>, Crash> {
    let mut landed: Vec<Option<Result<Vec<Row>, tokio_postgres::Error>>> = Vec::new();
    poll_fn(|context| {
        for leg in &mut legs {
            let sent = match leg.as_mut().poll(context) {
                Poll::Ready(result) => Some(result),
                Poll::Pending => None,
            };
            let held_back = matches!(sent, Some(Err(_)));
            landed.push(sent);
            if held_back {
                break;
            }
        }
        Poll::Ready(())
    })
    .await;
    let mut rows = Vec::with_capacity(landed.len());
    let mut crash = None;
    for (number, (leg, landed)) in legs.iter_mut().zip(landed).enumerate() {
        let result = match landed {
            Some(result) => result,
            None => leg.await,
        };
        match result {
            Ok(found) => rows.push(found),
            Err(error) if crash.is_none() => {
                let cause = Flight::Failed(error);
                crash = Some(Crash { leg: number, cause });
            }
            // What comes behind a failure fails with it.
            Err(_) => {}
        }
    }
    match crash {
        None => Ok(rows),
        Some(crash) => Err(crash),
    }
}
