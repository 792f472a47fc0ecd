//! Generates the rows of a large service, inside the database.
//!
//! Every row is derived from the number of an event, `n`. Ten events belong to one request, which
//! has one key and one order. `numbers.sql` defines functions for these numbers; each other file
//! writes one kind of row, for a range of event numbers. All rows are of the last hour. The last
//! minute is written last, so that there are recent events when the pages are requested.

use std::fmt;

use tokio_postgres::Client;

use crate::run::say;

/// Number of events per batch. A batch has a transaction for each kind of row.
const BATCH: i64 = 80_000;
/// Number of segments that contain events. The eighth segment is the next one and is empty.
const TURNS: i64 = 7;
/// Number of events that are settled together. Each of four partitions has a quarter of them.
const RUN: i64 = 80;
/// The statements for a batch, in this order, because some read the rows of others.
const KINDS: [&str; 10] = [
    include_str!("events.sql"),
    include_str!("keys.sql"),
    include_str!("deliveries.sql"),
    include_str!("attempts.sql"),
    include_str!("arrivals.sql"),
    include_str!("messages.sql"),
    include_str!("sagas.sql"),
    include_str!("steps.sql"),
    include_str!("acts.sql"),
    include_str!("jobs.sql"),
];
/// The functions for numbers, with placeholders for the sizes.
const NUMBERS: &str = include_str!("numbers.sql");
/// Destinations, the relay that owns them, and the segments.
const STANDING: &str = include_str!("standing.sql");

/// The number of events and their places.
#[derive(Clone, Copy, Debug)]
pub(super) struct Planted {
    pub(super) events: i64,
    /// Number of events per segment.
    turn: i64,
    /// The first event of the last minute.
    lately: i64,
    /// How many events the destination `search` has not read yet.
    lag: i64,
}

impl Planted {
    /// Sizes for about `events` events.
    pub(super) fn of(events: i64) -> Self {
        let events = (events / RUN).max(25) * RUN;
        Self {
            events,
            turn: (events / TURNS / RUN + 1) * RUN,
            lately: (events - events / 60) / RUN * RUN,
            lag: events / 10 / RUN * RUN,
        }
    }

    /// Writes everything except the last minute.
    pub(super) async fn until_lately(&self, client: &Client) -> anyhow::Result<()> {
        client
            .batch_execute("CREATE SCHEMA plant; SET synchronous_commit = off; SET jit = off")
            .await?;
        self.number(client).await?;
        self.batches(client, 0, self.lately).await
    }

    /// Writes the last minute, which ends now, and the current state of the destinations.
    pub(super) async fn lately(&self, client: &Client) -> anyhow::Result<()> {
        self.number(client).await?;
        self.batches(client, self.lately, self.events).await?;
        Ok(client.batch_execute(STANDING).await?)
    }

    /// The position of an event in the outbox.
    pub(super) fn position(&self, number: i64) -> i64 {
        ((number / self.turn) << 36) + number % self.turn + 1
    }

    /// The request of an event.
    pub(super) fn request(number: i64) -> i64 {
        number / 80 * 8 + number % 8
    }

    /// Creates the functions for numbers. The last event has the current time.
    async fn number(&self, client: &Client) -> anyhow::Result<()> {
        let now = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::int8";
        let now: i64 = client.query_one(now, &[]).await?.get(0);
        let sizes = [
            ("$events", self.events),
            ("$turn", self.turn),
            ("$lag", self.lag),
            ("$between", 3_600_000_000 / self.events),
            ("$now", now),
        ];
        let numbers = sizes
            .iter()
            .fold(NUMBERS.to_owned(), |text, (name, value)| {
                text.replace(name, &value.to_string())
            });
        Ok(client.batch_execute(&numbers).await?)
    }

    async fn batches(&self, client: &Client, from: i64, until: i64) -> anyhow::Result<()> {
        let mut next = from;
        while next < until {
            let end = until.min(next + BATCH);
            for kind in KINDS {
                client.execute(kind, &[&next, &end]).await?;
            }
            if end / (BATCH * 25) > next / (BATCH * 25) {
                say(&format!("  {end} events are written\n"));
            }
            next = end;
        }
        Ok(())
    }
}

impl fmt::Display for Planted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { events, lag, .. } = self;
        let in_all = |one_in: i64| events / one_in;
        write!(
            f,
            "A database with {events} events of the last hour in {TURNS} segments, {} keys of 100 \
             tenants, {} parked deliveries, {} dead letters and {} that arrived after a retry, {} \
             attempts, {} rows of first offers that arrived, {} inbox messages, {} sagas of three \
             steps, {} lines of the audit log, {} jobs. Three destinations, of which one has four \
             partitions and one lags by {lag} events.",
            in_all(10),
            in_all(500),
            in_all(2_000),
            in_all(500),
            in_all(100),
            // One row per twenty events for each destination, one of which lags.
            (3 * events - lag) / 20,
            in_all(10),
            in_all(200),
            in_all(100),
            in_all(5_000),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_settled_together_lies_in_one_turn() {
        for events in [0, 2_000, 300_000, 10_000_000] {
            let planted = Planted::of(events);
            let Planted {
                events,
                turn,
                lately,
                lag,
            } = planted;
            assert_eq!([turn % RUN, lately % RUN, lag % RUN, events % 10], [0; 4]);
            assert!(turn * TURNS >= events && lately < events && lag > 0);
            assert_eq!(planted.position(turn), (1 << 36) + 1);
        }
    }
}
