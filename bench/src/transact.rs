//! Business transactions on PostgreSQL without HTTP, to measure the cost of an event or a message.
//!
//! All transactions insert an order, through the store and its connection pool. They differ only in
//! the event that they emit or the message that they accept. The command prints
//! `RATE P50_MS P99_MS`.

use std::{
    future::Future,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use hapax::{
    event::{Headers, NewEvent, Payload},
    inbox::{Acceptance, Message},
    store::{Keys as _, Transaction as _},
};
use hapax_postgres::{Postgres, Settings, Tx};
use tokio::task::JoinSet;

use crate::{
    histogram::Histogram,
    serve::postgres::{ORDER_INSERT, Order, Stated, make_tables},
    sources,
};

/// Runs business transactions in one process.
#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    /// The database, as postgres://USER@HOST:PORT/NAME; missing tables are created
    #[arg(long, value_name = "URL")]
    database: String,
    /// Number of tasks that run transactions
    #[arg(long, default_value_t = 64)]
    tasks: usize,
    /// Connections that the tasks share
    #[arg(long, default_value_t = 16)]
    connections: usize,
    /// Milliseconds of warm-up, which are not counted
    #[arg(long, default_value_t = 1_000)]
    warm_up_ms: u64,
    /// Milliseconds that are counted
    #[arg(long, default_value_t = 5_000)]
    window_ms: u64,
    /// The work of a transaction in addition to its order
    kind: Kind,
}

/// The work of a transaction in addition to its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    /// Nothing
    Effect,
    /// Emits an event
    Emit,
    /// Accepts a message first
    Accept,
    /// Accepts a message at its commit
    AcceptAtCommit,
}

/// The result of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transacted {
    /// Transactions per second.
    pub(crate) rate: f64,
    /// The median duration, in milliseconds.
    pub(crate) median: f64,
    /// The 99th percentile of the duration, in milliseconds.
    pub(crate) tail: f64,
}

impl Transacted {
    /// Parses the output of a run.
    pub(crate) fn read(text: &str) -> anyhow::Result<Self> {
        let figures = text.split_whitespace().map(str::parse);
        let figures: Vec<f64> = figures.collect::<Result<_, _>>()?;
        let [rate, median, tail] = figures[..] else {
            anyhow::bail!("expected three figures, got {text:?}");
        };
        Ok(Self { rate, median, tail })
    }
}

impl Flags {
    /// Runs the part and returns the text to print.
    pub(crate) async fn run(self) -> anyhow::Result<String> {
        make_tables(&self.database).await?;
        let mut settings = Settings::new(&self.database, sources::clock(), sources::random());
        settings.connections = self.connections;
        let store = Postgres::open(settings).await;
        let store = store.context("cannot open the store")?;
        let warm_up = Duration::from_millis(self.warm_up_ms);
        let window = Duration::from_millis(self.window_ms.max(1));
        let kind = self.kind;
        measured(self.tasks, warm_up, window, move || {
            let store = store.clone();
            async move { transact(begin(&store, kind).await?, kind).await }
        })
        .await
    }
}

/// Repeats `work` in some tasks. Returns the rate, the median duration and its 99th percentile, as
/// [`Transacted`] reads them.
pub(crate) async fn measured<F>(
    tasks: usize,
    warm_up: Duration,
    window: Duration,
    work: impl Fn() -> F + Clone + Send + 'static,
) -> anyhow::Result<String>
where
    F: Future<Output = anyhow::Result<()>> + Send + 'static,
{
    let from = Instant::now() + warm_up;
    let mut running = JoinSet::new();
    for _ in 0..tasks {
        running.spawn(again_and_again(work.clone(), from, window));
    }
    let mut whole = Histogram::new();
    while let Some(ended) = running.join_next().await {
        whole.merge(&ended.context("a task panicked")??);
    }
    let millis = |thousandths| whole.quantile(thousandths).as_secs_f64() * 1e3;
    let rate = to_f64(whole.count()) / window.as_secs_f64();
    Ok(format!("{rate} {} {}", millis(500), millis(990)))
}

async fn again_and_again<F>(
    work: impl Fn() -> F,
    from: Instant,
    window: Duration,
) -> anyhow::Result<Histogram>
where
    F: Future<Output = anyhow::Result<()>>,
{
    let mut took = Histogram::new();
    loop {
        let start = Instant::now();
        let work = work();
        work.await?;
        let end = Instant::now();
        if end >= from + window {
            return Ok(took);
        }
        if end >= from {
            took.record(end - start);
        }
    }
}

async fn begin(store: &Postgres, kind: Kind) -> anyhow::Result<Tx> {
    if kind == Kind::AcceptAtCommit {
        let message = message()?;
        let opened = store.accept_at_commit(None, Headers::new(), &message);
        let opened = opened.await?;
        return opened.context("the store accepts no messages at a commit");
    }
    Ok(store.begin(None, Headers::new()).await?)
}

async fn transact(mut tx: Tx, kind: Kind) -> anyhow::Result<()> {
    if kind == Kind::Accept {
        let accepted = tx.accept(&message()?).await?;
        ensure!(
            accepted == Acceptance::First,
            "a new message was already accepted"
        );
    }
    let order = Order::of(serde_json::from_str::<Stated>(crate::ORDER)?);
    tx.execute(ORDER_INSERT, &order.row()).await?;
    if kind == Kind::Emit {
        let event = NewEvent::new("order.created", Payload::Json(crate::ORDER.to_owned()));
        tx.emit(event.about("order", order.id).sequence(1))?;
    }
    Ok(tx.commit().await?)
}

fn message() -> anyhow::Result<Message> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let id = format!("msg_{number:012x}{:016x}", sources::bits());
    Ok(Message::new("shop", "bench", id, crate::ORDER.as_bytes())?)
}

#[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
pub(crate) fn to_f64(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_figures_are_read_and_nothing_else() {
        let read = Transacted::read("1234.5 0.5 2\n").unwrap();
        assert!((read.rate - 1234.5).abs() < 1e-9 && (read.tail - 2.0).abs() < 1e-9);
        for text in ["", "1 2", "1 2 3 4", "1 2 x"] {
            assert!(Transacted::read(text).is_err(), "{text}");
        }
    }
}
