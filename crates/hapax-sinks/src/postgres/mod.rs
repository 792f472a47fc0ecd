//! PostgreSQL sink: writes events to another service's inbox and a table there.
//!
//! Each batch is one statement on the receiver's database, so one transaction: the events are
//! accepted in its `hapax.inbox_message`, and the new ones are inserted into the table. An event
//! has one row, even if it is delivered several times. If the table refuses a row, only that event
//! fails. The order within a batch is kept.
//!
//! ```
//! use hapax_sinks::postgres::{Postgres, PostgresError};
//!
//! # fn wire() -> Result<Postgres, PostgresError> {
//! let postgres = Postgres::to("postgres://relay@billing.example.com/billing")
//!     .consumer("billing")
//!     .table("inbox_event")
//!     .build()?;
//! # Ok(postgres)
//! # }
//! ```

use std::{
    collections::{HashMap, HashSet},
    fmt,
    time::Duration,
};

use futures_util::future::BoxFuture;
use hapax::sink::{Offer, Outcome, Receipt, Sink, SinkError};
use tokio::time::{Instant, timeout_at};

use self::{
    answer::Failure,
    link::{Link, Links},
    rows::Row,
};
use crate::limits::ROWS;

mod builder;
mod table;
mod rows;
mod link;
mod answer;

pub use builder::{PostgresBuilder, PostgresError};
pub use table::Field;

/// A sink for an inbox and a table of another PostgreSQL database.
pub struct Postgres {
    links: Links,
    timeout: Duration,
}

impl Postgres {
    /// Starts the builder of a sink for the database at `url`.
    pub fn to(url: impl Into<String>) -> PostgresBuilder {
        PostgresBuilder::new(url.into())
    }

    async fn offer(&self, offers: &[Offer]) -> Vec<Outcome> {
        let mut batch = Batch::new(offers);
        let deadline = Instant::now() + self.timeout;
        let failure = match timeout_at(deadline, self.links.get()).await {
            Ok(Ok(mut used)) => match timeout_at(deadline, batch.write(&used.link)).await {
                Ok(Ok(())) => {
                    used.done = true;
                    None
                }
                // The work in progress is aborted, and the columns of the table are read again next
                // time.
                Ok(Err(failure)) => Some(failure),
                Err(_) => None,
            },
            Ok(Err(failure)) => Some(failure),
            Err(_) => None,
        };
        let failure = failure.unwrap_or(Failure::Silent);
        batch.outcomes(&failure)
    }
}

impl Sink for Postgres {
    fn kind(&self) -> &'static str {
        "postgres"
    }

    fn deliver<'a>(&'a self, offers: &'a [Offer]) -> BoxFuture<'a, Vec<Outcome>> {
        Box::pin(async move {
            match offers {
                [] => Vec::new(),
                _ => self.offer(offers).await,
            }
        })
    }

    fn batch_max(&self) -> usize {
        ROWS
    }
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres")
            .field("database", &self.links)
            .finish_non_exhaustive()
    }
}

/// The events of a batch with their outcomes.
struct Batch<'a> {
    offers: &'a [Offer],
    outcomes: Vec<Option<Outcome>>,
}

impl<'a> Batch<'a> {
    fn new(offers: &'a [Offer]) -> Self {
        let outcomes = offers.iter().map(|_| None).collect();
        Self { offers, outcomes }
    }

    /// Writes all events. An error applies to those that have no outcome by then.
    async fn write(&mut self, link: &Link) -> Result<(), Failure> {
        let (mut rows, mut again, mut ids) = (Vec::new(), Vec::new(), HashSet::new());
        for (index, offer) in self.offers.iter().enumerate() {
            match Row::of(index, offer, link.plan.binary) {
                Ok(row) if ids.insert(row.id.clone()) => rows.push(row),
                // The same event twice in one batch: the second one is looked up after the first
                // one was inserted.
                Ok(row) => again.push(row),
                Err(failure) => self.outcomes[index] = Some(Err(failure.into())),
            }
        }
        let mut known = self.insert(link, rows).await?;
        known.append(&mut again);
        self.look_up(link, known).await
    }

    /// Inserts the rows. If the table refuses rows, they are found by halving. Returns the rows
    /// that were already known.
    async fn insert(&mut self, link: &Link, rows: Vec<Row<'a>>) -> Result<Vec<Row<'a>>, Failure> {
        let mut known = Vec::new();
        let mut parts = vec![rows];
        while let Some(mut part) = parts.pop() {
            if part.is_empty() {
                continue;
            }
            match link.insert(&part).await {
                Ok(taken) => {
                    for row in part {
                        if taken.contains(&row.id) {
                            self.outcomes[row.index] = Some(Ok(Receipt::default()));
                        } else {
                            known.push(row);
                        }
                    }
                }
                Err(failure) if !failure.concerns_a_row() => return Err(failure),
                Err(failure) if part.len() == 1 => {
                    self.outcomes[part[0].index] = Some(Err(failure.into()));
                }
                Err(_) => {
                    let rest = part.split_off(part.len() / 2);
                    parts.extend([rest, part]);
                }
            }
        }
        Ok(known)
    }

    /// Distinguishes duplicates from different events with the same id.
    async fn look_up(&mut self, link: &Link, rows: Vec<Row<'a>>) -> Result<(), Failure> {
        if rows.is_empty() {
            return Ok(());
        }
        let hashes: HashMap<String, Vec<u8>> = link.find(&rows).await?;
        for row in rows {
            let outcome = match hashes.get(&row.id) {
                Some(hash) if *hash == row.hash => Ok(Receipt::default()),
                Some(_) => Err(Failure::Mismatch.into()),
                None => Err(Failure::Forgotten.into()),
            };
            self.outcomes[row.index] = Some(outcome);
        }
        Ok(())
    }

    fn outcomes(self, failure: &Failure) -> Vec<Outcome> {
        let unanswered = || Err(SinkError::from(failure.clone()));
        let outcomes = self.outcomes.into_iter();
        outcomes.map(|it| it.unwrap_or_else(unanswered)).collect()
    }
}
