//! `bench feed`: an outbox table that nothing reads, that a feed reads or that a table source moves,
//! and `hapax.emit` in its place.
//!
//! Writers, reader and a relay whose sink keeps nothing share one process. Rows are committed at a
//! low rate, for the delay from the commit to the sink; then as fast as possible; then a backlog is
//! committed while nothing reads, and drained. The command prints `RATE BYTES P50_MS P99_MS
//! DRAINED`, where `BYTES` is the WAL of a row, or only the first two if nothing reads.

use std::{
    future::pending,
    iter::repeat_n,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use deadpool_postgres::Pool;
use futures_util::future::{BoxFuture, FutureExt as _, ready};
use hapax::{
    relay::{self, Destination, Relay, RelayHandle},
    sink::{Offer, Outcome, Receipt, Sink},
};
use hapax_postgres::{Change, Feed, FeedTable, Feeder, Imported, Postgres, Settings, TableSource};
use hapax_testkit::wait::eventually;
use tokio::{task::JoinSet, time::sleep_until};

use crate::{
    histogram::Histogram,
    serve::postgres::pool,
    sources::{bits, clock, random},
    transact::{Transacted, measured, to_f64},
};

/// Number of writers, each with a connection.
const WRITERS: usize = 8;
/// Warm-up of the writers, which is not counted.
const WARM_UP: Duration = Duration::from_millis(500);
/// Milliseconds between two rows at the low rate.
const BETWEEN_MS: u64 = 10;
/// Number of rows before counting starts at the low rate, while statements are prepared.
const FIRST: usize = 20;
/// Rows of one transaction of the backlog, and events of one batch of the sink.
const BATCH: usize = 1_000;
/// Time limit for the last event of each phase.
const PATIENCE: Duration = Duration::from_mins(2);
const NAME: &str = "bench";
const TABLE: &str = "\
CREATE TABLE bench_outbox (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    topic        text NOT NULL,
    payload      text NOT NULL,
    published_at timestamptz
);
CREATE PUBLICATION hapax_bench FOR TABLE bench_outbox WITH (publish = 'insert')";
/// Rows of about 100 bytes, with the numbers from `$1` to `$2`.
const ROWS: &str = "\
SELECT 'order.created',
       '{\"n\":' || n || ',\"customer_id\":\"cus_bench\",\"amount\":1299,\"currency\":\"EUR\",'
           || '\"note\":\"two mugs, blue\"}'
FROM generate_series($1::int8, $2::int8) AS n";
const LOG_END: &str = "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::int8";
const STARTED: &str = "SELECT count(*) FROM hapax.feed WHERE confirmed_lsn IS NOT NULL";

/// Writes rows, and reads them as events.
#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    /// An empty database, as postgres://USER@HOST:PORT/NAME, with `wal_level = logical`
    #[arg(long, value_name = "URL")]
    database: String,
    /// Milliseconds at each of the two rates
    #[arg(long, default_value_t = 2_500)]
    window_ms: u64,
    /// Number of rows of the backlog
    #[arg(long, default_value_t = 200_000)]
    rows: u64,
    /// How rows become events
    kind: Kind,
}

/// How rows become events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    /// Nothing reads them
    Nothing,
    /// A feed reads them from the log
    Feed,
    /// A table source moves them
    TableSource,
    /// `hapax.emit` writes events instead
    Emit,
}

impl Flags {
    /// Runs the phases and returns the text to print.
    pub(crate) async fn run(self) -> anyhow::Result<String> {
        let window = Duration::from_millis(self.window_ms.max(1));
        let writer = Arc::new(Writer::open(&self.database, self.kind).await?);
        if self.kind == Kind::Nothing {
            let [rate, bytes] = writer.full_speed(window, ready(Ok(()))).await?;
            return Ok(format!("{rate} {bytes}"));
        }
        let reader = Reader::open(&self.database, self.kind, &writer).await?;
        let (relay, tasks) = reader.start();
        let counted = (self.window_ms / BETWEEN_MS).max(1);
        let [median, tail] = reader.delays(&writer, counted).await?;
        let settled = async {
            reader.sink.until(writer.rows()).await?;
            relay.drain().await;
            anyhow::Ok(())
        };
        let [rate, bytes] = writer.full_speed(window, settled).await?;
        drop(tasks);
        let drained = reader.drained(&writer, self.rows.max(1)).await?;
        Ok(format!("{rate} {bytes} {median} {tail} {drained}"))
    }
}

/// Writes rows and numbers them.
struct Writer {
    pool: Pool,
    sql: String,
    last: AtomicU64,
}

impl Writer {
    async fn open(url: &str, kind: Kind) -> anyhow::Result<Self> {
        let sql = if kind == Kind::Emit {
            format!("SELECT hapax.emit(topic, payload) FROM ({ROWS}) AS row (topic, payload)")
        } else {
            format!("INSERT INTO bench_outbox (topic, payload) {ROWS}")
        };
        let (pool, last) = (pool(url, WRITERS)?, AtomicU64::new(0));
        pool.get().await?.batch_execute(TABLE).await?;
        Ok(Self { pool, sql, last })
    }

    /// The number of rows so far.
    fn rows(&self) -> u64 {
        self.last.load(Ordering::Relaxed)
    }

    /// Commits rows in one transaction.
    async fn write(&self, rows: u64) -> anyhow::Result<()> {
        let before = self.last.fetch_add(rows, Ordering::Relaxed);
        let (first, last) = (i64::try_from(before + 1)?, i64::try_from(before + rows)?);
        let client = self.pool.get().await?;
        let statement = client.prepare_cached(&self.sql).await?;
        client.execute(&statement, &[&first, &last]).await?;
        Ok(())
    }

    /// Commits rows as fast as possible, one per transaction. Returns their number per second, and
    /// the bytes that the log has grown by until everything is settled, per row.
    async fn full_speed(
        self: &Arc<Self>,
        window: Duration,
        settled: impl Future<Output = anyhow::Result<()>>,
    ) -> anyhow::Result<[f64; 2]> {
        let (rows, start) = (self.rows(), self.log_end().await?);
        let writer = Arc::clone(self);
        let said = measured(WRITERS, WARM_UP, window, move || {
            let writer = Arc::clone(&writer);
            async move { writer.write(1).await }
        });
        let rate = Transacted::read(&said.await?)?.rate;
        settled.await?;
        let bytes = (self.log_end().await? - start).unsigned_abs();
        Ok([rate, to_f64(bytes) / to_f64(self.rows() - rows)])
    }

    async fn log_end(&self) -> anyhow::Result<i64> {
        let client = self.pool.get().await?;
        Ok(client.query_one(LOG_END, &[]).await?.try_get(0)?)
    }
}

/// Turns rows into events, and delivers them.
struct Reader {
    store: Postgres,
    feeder: Option<Feeder>,
    imported: Option<Imported>,
    sink: Arc<Arrivals>,
}

impl Reader {
    async fn open(url: &str, kind: Kind, writer: &Writer) -> anyhow::Result<Self> {
        let settings = Settings::new(url, clock(), random());
        let store = Postgres::open(settings.clone()).await;
        let store = store.context("cannot open the store")?;
        let mut imported = None;
        if kind == Kind::TableSource {
            let mut table = TableSource::new(NAME, "bench_outbox");
            table.kind = Some("topic".to_owned());
            let source = Imported::open(&store, table).await?;
            let client = writer.pool.get().await?;
            client.batch_execute(source.index()).await?;
            imported = Some(source);
        }
        Ok(Self {
            feeder: (kind == Kind::Feed).then(|| Feeder::new(&store, settings, feed())),
            imported,
            store,
            sink: Arc::default(),
        })
    }

    /// Starts to read and to deliver. Dropping the tasks ends the reading.
    fn start(&self) -> (RelayHandle, JoinSet<()>) {
        let mut tasks = JoinSet::new();
        if let Some(feeder) = self.feeder.clone() {
            tasks.spawn(feeder.run(pending()));
        }
        if let Some(imported) = self.imported.clone() {
            tasks.spawn(imported.run(pending()));
        }
        let destinations = vec![Destination::new(NAME, self.sink.clone())];
        let settings = relay::Settings::new(clock(), random());
        let notifier = self.store.notifier();
        let relay = Relay::spawn(&self.store, destinations, &settings, &notifier);
        (relay, tasks)
    }

    /// Commits the first rows, at the low rate. Returns the median and the 99th percentile of the
    /// delay until they are offered, in milliseconds.
    async fn delays(&self, writer: &Writer, counted: u64) -> anyhow::Result<[f64; 2]> {
        if self.feeder.is_some() {
            // Rows before the position of a new feed never become events.
            let client = writer.pool.get().await?;
            eventually(PATIENCE, async || {
                let started = client.query_one(STARTED, &[]).await;
                started.is_ok_and(|row| row.get::<_, i64>(0) > 0)
            })
            .await;
        }
        let mut commits = Vec::new();
        let mut due = Instant::now();
        for _ in 0..counted + FIRST as u64 {
            sleep_until(due.into()).await;
            due += Duration::from_millis(BETWEEN_MS);
            writer.write(1).await?;
            commits.push(Instant::now());
        }
        self.sink.until(writer.rows()).await?;
        let mut delays = Histogram::new();
        // One row after the other is committed, so events arrive in this order.
        for (committed, arrived) in commits.iter().zip(&*self.sink.times()).skip(FIRST) {
            // The sink may have the event before the writer knows that its commit has succeeded.
            delays.record(arrived.saturating_duration_since(*committed));
        }
        Ok([500, 990].map(|thousandths| delays.quantile(thousandths).as_secs_f64() * 1e3))
    }

    /// Commits a backlog while nothing reads. Returns the events per second at which it is drained.
    async fn drained(&self, writer: &Writer, backlog: u64) -> anyhow::Result<f64> {
        let mut left = backlog;
        while left > 0 {
            let rows = left.min(BATCH as u64);
            writer.write(rows).await?;
            left -= rows;
        }
        // The work of autovacuum and the checkpointer is done now, so that it disturbs nothing.
        let client = writer.pool.get().await?;
        client.batch_execute("VACUUM ANALYZE").await?;
        client.batch_execute("CHECKPOINT").await?;
        let start = Instant::now();
        let (relay, _tasks) = self.start();
        self.sink.until(writer.rows()).await?;
        let last = self.sink.times().last().copied();
        relay.drain().await;
        let took = last.context("no event was offered")? - start;
        Ok(to_f64(backlog) / took.as_secs_f64())
    }
}

/// A sink that accepts everything, and records the time of each offer.
#[derive(Default)]
struct Arrivals(Mutex<Vec<Instant>>);

impl Arrivals {
    fn times(&self) -> MutexGuard<'_, Vec<Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until all rows were offered. Fails if there are more offers than rows.
    async fn until(&self, rows: u64) -> anyhow::Result<()> {
        eventually(PATIENCE, async || self.times().len() as u64 >= rows).await;
        let offers = self.times().len() as u64;
        ensure!(offers == rows, "{rows} rows were offered {offers} times");
        Ok(())
    }
}

impl Sink for Arrivals {
    fn kind(&self) -> &'static str {
        "null"
    }

    fn deliver<'a>(&'a self, offers: &'a [Offer]) -> BoxFuture<'a, Vec<Outcome>> {
        self.times().extend(repeat_n(Instant::now(), offers.len()));
        ready(offers.iter().map(|_| Ok(Receipt::default())).collect()).boxed()
    }

    fn batch_max(&self) -> usize {
        BATCH
    }
}

fn feed() -> Feed {
    Feed {
        name: NAME.to_owned(),
        // The name of a slot is unique on its server.
        slot: format!("hapax_bench_{:016x}", bits()),
        publication: "hapax_bench".to_owned(),
        failover: false,
        tables: vec![FeedTable {
            schema: "public".to_owned(),
            table: "bench_outbox".to_owned(),
            on: vec![Change::Insert],
            kind: Some("topic".to_owned()),
            payload: Some("payload".to_owned()),
            ..FeedTable::default()
        }],
        message_prefix: None,
    }
}
