//! PostgreSQL sink: writes events to another service's inbox and a table there.
//!
//! Each batch is one statement on the receiver's database, so one transaction: the events are
//! accepted in its `hapax.inbox_message`, and the new ones are inserted into the table. An event
//! has one row, even if it is delivered several times. If the table refuses a row, only that event
//! fails. The order within a batch is kept.
//!
//! ```
//! use hapax_sinks::{
//!     postgres::{Postgres, PostgresSettings},
//!     settings::{DestinationSettings, SettingError},
//! };
//!
//! # fn wire() -> Result<Postgres, SettingError> {
//! let settings = PostgresSettings {
//!     url: "postgres://relay@billing.example.com/billing".into(),
//!     consumer: "billing".into(),
//!     table: "inbox_event".into(),
//!     ..PostgresSettings::default()
//! };
//! Postgres::new(&settings, DestinationSettings::new("/shop"))
//! # }
//! ```

use std::{
    collections::{HashMap, HashSet},
    fmt,
    time::Duration,
};

use futures_util::future::BoxFuture;
use hapax::{
    inbox::Acceptance,
    sink::{Offer, Outcome, Receipt, Sink, SinkError},
};
use tokio::time::{Instant, timeout_at};

use self::{
    link::{Link, Server},
    outcome::Failure,
    rows::Row,
};
pub use crate::settings::{Field, PostgresSettings};
use crate::{
    connection::{Current, Use},
    limits::ROWS,
    settings::{DestinationSettings, SettingError},
};

mod config;
mod table;
mod rows;
mod link;
mod outcome;

/// A sink for an inbox and a table of another PostgreSQL database.
pub struct Postgres {
    server: Server,
    link: Current<Link>,
    timeout: Duration,
}

impl Postgres {
    /// Creates a sink. It connects when it has something to deliver.
    ///
    /// # Errors
    /// Fails if a setting is not valid.
    pub fn new(
        settings: &PostgresSettings,
        destination: DestinationSettings,
    ) -> Result<Self, SettingError> {
        let timeout = destination.timeout;
        Ok(Self {
            server: Server::new(settings, destination)?,
            link: Current::default(),
            timeout,
        })
    }

    async fn offer(&self, offers: &[Offer]) -> Vec<Outcome> {
        let mut batch = Batch::new(offers);
        let deadline = Instant::now() + self.timeout;
        let failure = match timeout_at(deadline, self.link.get(self.server.connect())).await {
            Ok(Ok(link)) => {
                let used = Use::of(link);
                match timeout_at(deadline, batch.write(&used.connection)).await {
                    Ok(Ok(())) => {
                        used.keep();
                        None
                    }
                    // The work in progress is aborted, and the columns of the table are read again
                    // next time.
                    Ok(Err(failure)) => Some(failure),
                    Err(_) => None,
                }
            }
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
            .field("database", &self.server)
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
                            Acceptance::First.count(&link.consumer);
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
            let (acceptance, outcome) = match hashes.get(&row.id) {
                Some(hash) if *hash == row.hash => {
                    (Some(Acceptance::Duplicate), Ok(Receipt::default()))
                }
                Some(_) => (Some(Acceptance::Mismatch), Err(Failure::Mismatch.into())),
                None => (None, Err(Failure::Forgotten.into())),
            };
            if let Some(acceptance) = acceptance {
                acceptance.count(&link.consumer);
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_never_work_is_refused_by_name() {
        for url in ["", "http://h", "postgres://h:x/d", "postgres:///d"] {
            check("url", |it| it.url = url.into());
        }
        check("consumer", |it| it.consumer = String::new());
        for table in ["", "a.", "a.b.c", "a\0", "{columns}", "a}.b"] {
            check("table", |it| it.table = table.to_owned());
        }
        for column in ["", "{values}", "a}"] {
            check("columns.type", |it| {
                it.columns = [(Field::Type, column.to_owned())].into();
            });
        }
        check("without", |it| {
            it.without = Field::ALL.map(|(field, _)| field).into();
        });
        check("ca", |it| it.ca = Some("src/lib.rs".into()));
        let long = DestinationSettings::new("x".repeat(256));
        assert_eq!(Postgres::new(&good(), long).unwrap_err().setting, "source");
        assert!(Postgres::new(&good(), DestinationSettings::default()).is_ok());
    }

    #[test]
    fn debug_shows_no_password() {
        let settings = good();
        let sink = Postgres::new(&settings, DestinationSettings::default());
        let text = format!("{settings:?} {:?}", sink.unwrap());
        assert!(!text.contains("secret"), "{text}");
    }

    fn good() -> PostgresSettings {
        PostgresSettings {
            url: "postgres://shop:secret@h/d".into(),
            consumer: "billing".to_owned(),
            table: "inbox_event".to_owned(),
            ..PostgresSettings::default()
        }
    }

    #[track_caller]
    fn check(setting: &str, change: impl FnOnce(&mut PostgresSettings)) {
        let mut settings = good();
        change(&mut settings);
        let error = Postgres::new(&settings, DestinationSettings::default()).unwrap_err();
        assert_eq!(error.setting, setting);
    }
}
