//! A simple queue on PostgreSQL, as a reference: rows that are deleted when they are done.
//!
//! Each worker deletes batches of a thousand rows with `FOR UPDATE SKIP LOCKED`, by their `ctid`,
//! and reads their content. The command prints the seconds that it took.

use std::time::Instant;

use anyhow::{Context as _, ensure};
use tokio::task::JoinSet;
use tokio_postgres::{Client, NoTls};

/// Rows of one DELETE.
const BATCH: i64 = 1_000;
const TABLE: &str = "\
CREATE TABLE queue_row (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    aggregate text NOT NULL,
    payload   text NOT NULL
)";
const FILL: &str = "\
INSERT INTO queue_row (aggregate, payload)
SELECT 'ord_' || n % 1000,
       '{\"n\":' || n || ',\"customer_id\":\"cus_bench\",\"amount\":1299,\"currency\":\"EUR\",'
           || '\"note\":\"two mugs, blue\"}'
FROM generate_series(1, $1::int8) AS n";
const TAKE: &str = "\
DELETE FROM queue_row
WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM queue_row ORDER BY id LIMIT $1::int8 FOR UPDATE SKIP LOCKED
))
RETURNING id, aggregate, payload";

/// Fills a queue, or drains it.
#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    /// What to do
    part: Part,
    /// The database, as postgres://USER@HOST:PORT/NAME
    #[arg(long, value_name = "URL")]
    database: String,
    /// Number of rows
    #[arg(long, default_value_t = 1_000_000)]
    events: u64,
    /// Number of workers, each with a connection
    #[arg(long, default_value_t = 1)]
    workers: usize,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Creates the table and its rows
    Fill,
    /// Deletes them
    Drain,
}

impl Flags {
    /// Runs the part and returns the text to print.
    pub(crate) async fn run(self) -> anyhow::Result<String> {
        let client = connect(&self.database).await?;
        let start = Instant::now();
        if self.part == Part::Fill {
            client.batch_execute(TABLE).await?;
            client.execute(FILL, &[&self.events.cast_signed()]).await?;
            return Ok(format!("{}", start.elapsed().as_secs_f64()));
        }
        let mut clients = vec![client];
        while clients.len() < self.workers {
            clients.push(connect(&self.database).await?);
        }
        let start = Instant::now();
        let mut workers: JoinSet<_> = clients.into_iter().map(empty).collect();
        let mut taken = 0;
        while let Some(ended) = workers.join_next().await {
            taken += ended.context("a worker panicked")??;
        }
        let took = start.elapsed();
        ensure!(
            taken == self.events,
            "{taken} rows were deleted, expected {}",
            self.events
        );
        Ok(format!("{}", took.as_secs_f64()))
    }
}

/// Deletes batches until no row is left.
async fn empty(client: Client) -> anyhow::Result<u64> {
    let take = client.prepare(TAKE).await?;
    let (mut taken, mut bytes) = (0, 0);
    loop {
        let rows = client.query(&take, &[&BATCH]).await?;
        if rows.is_empty() {
            ensure!(taken == 0 || bytes > 0, "the deleted rows were empty");
            return Ok(taken);
        }
        taken += rows.len() as u64;
        for row in &rows {
            let (aggregate, payload): (&str, &str) = (row.try_get(1)?, row.try_get(2)?);
            bytes += aggregate.len() + payload.len();
        }
    }
}

async fn connect(url: &str) -> anyhow::Result<Client> {
    let connected = tokio_postgres::connect(url, NoTls).await;
    let (client, connection) = connected.context("cannot connect to the database")?;
    tokio::spawn(connection);
    Ok(client)
}
