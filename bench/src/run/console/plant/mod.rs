//! The rows of a service that is not small, written by the database itself.
//!
//! Every row follows from the number of an event, `n`: ten events are of one request, with one key
//! and about one order. What the numbers mean stands in `numbers.sql`; each file beside it writes one
//! kind of row, for the events from one number up to another. The last hour is full of them, and
//! its last minute is written last, so that something has happened lately when somebody looks.

use std::fmt;

use tokio_postgres::Client;

use crate::run::say;

/// Events of a batch, which is a transaction for each kind of row.
const BATCH: i64 = 80_000;
/// Turns of the ring that have events: the eighth segment is the one that comes next.
const TURNS: i64 = 7;
/// Events that are settled together, of which each of four parts has a quarter.
const RUN: i64 = 80;
/// What is written of a batch, in this order: some read what others wrote.
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
/// What numbers mean; it names the sizes.
const NUMBERS: &str = include_str!("numbers.sql");
/// Destinations, who carries them, and the turns of the ring.
const STANDING: &str = include_str!("standing.sql");

/// How many events there are, and where they lie.
#[derive(Clone, Copy, Debug)]
pub(super) struct Planted {
    pub(super) events: i64,
    /// Events of a turn.
    turn: i64,
    /// The first of the last minute.
    lately: i64,
    /// How many events the destination `search` is behind.
    lag: i64,
}

impl Planted {
    /// About so many.
    pub(super) fn of(events: i64) -> Self {
        let events = (events / RUN).max(25) * RUN;
        Self {
            events,
            turn: (events / TURNS / RUN + 1) * RUN,
            lately: (events - events / 60) / RUN * RUN,
            lag: events / 10 / RUN * RUN,
        }
    }

    /// Writes all but the last minute.
    pub(super) async fn until_lately(&self, client: &Client) -> anyhow::Result<()> {
        client
            .batch_execute("CREATE SCHEMA plant; SET synchronous_commit = off; SET jit = off")
            .await?;
        self.number(client).await?;
        self.batches(client, 0, self.lately).await
    }

    /// Writes the last minute, which ends now, and how everything stands then.
    pub(super) async fn lately(&self, client: &Client) -> anyhow::Result<()> {
        self.number(client).await?;
        self.batches(client, self.lately, self.events).await?;
        Ok(client.batch_execute(STANDING).await?)
    }

    /// Where an event is in the outbox.
    pub(super) fn position(&self, number: i64) -> i64 {
        ((number / self.turn) << 36) + number % self.turn + 1
    }

    /// Of which request an event is.
    pub(super) fn request(number: i64) -> i64 {
        number / 80 * 8 + number % 8
    }

    /// Says what numbers mean; the last event is of this moment.
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
            "A database with {events} events of the last hour in {TURNS} turns of the ring, {} keys of 100 \
             tenants, {} parked deliveries, {} dead letters and {} that arrived after a retry, {} \
             attempts, {} rows of first offers that arrived, {} inbox messages, {} sagas of three \
             steps, {} lines of the audit log, {} jobs. Three destinations, of which one has four \
             parts and one is {lag} events behind.",
            in_all(10),
            in_all(500),
            in_all(2_000),
            in_all(500),
            in_all(100),
            // Of each destination one row in twenty events; one of them lags.
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
