//! Drains an outbox into a sink that accepts everything.
//!
//! The time is measured from the start of the relay until every event is delivered and settled.
//! Each destination starts at the first event, so one outbox can be drained many times.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use futures_util::future::{BoxFuture, FutureExt as _, ready};
use hapax::{
    relay::{Destination, Order, Relay, Settings},
    sink::{Offer, Outcome, Receipt, Sink},
    store::Settlements as _,
};
use tokio::sync::Notify;

use crate::{
    sources::{clock, random},
    status::mebibytes,
};

use super::Backlog;

/// Maximum number of events in a batch.
const BATCH: usize = 1_000;

/// The outbox and the name of the destination.
#[derive(Debug, clap::Args)]
pub(super) struct Flags {
    #[command(flatten)]
    backlog: Backlog,
    /// Name of the destination; a new destination receives every event
    #[arg(long)]
    destination: String,
    /// Keeps the order of each aggregate
    #[arg(long)]
    ordered: bool,
}

/// The result of a drain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Drained {
    /// The duration of the drain.
    pub(crate) took: Duration,
    /// The peak memory of the process, in mebibytes.
    pub(crate) peak: f64,
}

impl Drained {
    /// Parses the output of `drain`.
    pub(crate) fn read(text: &str) -> anyhow::Result<Self> {
        let (seconds, peak) = text
            .trim()
            .split_once(' ')
            .context("expected two figures")?;
        let took = Duration::try_from_secs_f64(seconds.parse()?)?;
        Ok(Self {
            took,
            peak: peak.parse()?,
        })
    }
}

impl Flags {
    pub(super) async fn run(self) -> anyhow::Result<String> {
        let store = self.backlog.open()?;
        let sink = Arc::new(Null::new(self.backlog.events));
        let order = if self.ordered {
            Order::Key
        } else {
            Order::None
        };
        let destination = Destination::new(&self.destination, sink.clone()).order(order);
        let settings = Settings::new(clock(), random());
        let start = Instant::now();
        let relay = Relay::spawn(&store, vec![destination], &settings, &store.notifier());
        sink.all.notified().await;
        relay.drain().await;
        let took = start.elapsed();
        let standing = store.backlog(&self.destination).await?;
        store.close().await?;
        let taken = sink.taken.load(Ordering::Relaxed);
        ensure!(
            taken == self.backlog.events,
            "{taken} events were delivered of {}",
            self.backlog.events
        );
        ensure!(
            standing.events == 0,
            "{} events were not settled",
            standing.events
        );
        let status =
            fs::read_to_string("/proc/self/status").context("cannot read /proc/self/status")?;
        let peak = mebibytes(&status, "VmHWM")?;
        Ok(format!("{} {peak}", took.as_secs_f64()))
    }
}

/// A sink that accepts everything.
struct Null {
    taken: AtomicU64,
    wanted: u64,
    all: Notify,
}

impl Null {
    fn new(wanted: u64) -> Self {
        Self {
            taken: AtomicU64::new(0),
            wanted,
            all: Notify::new(),
        }
    }
}

impl Sink for Null {
    fn kind(&self) -> &'static str {
        "null"
    }

    fn deliver<'a>(&'a self, offers: &'a [Offer]) -> BoxFuture<'a, Vec<Outcome>> {
        let count = offers.len() as u64;
        if self.taken.fetch_add(count, Ordering::Relaxed) + count >= self.wanted {
            self.all.notify_one();
        }
        ready(offers.iter().map(|_| Ok(Receipt::default())).collect()).boxed()
    }

    fn batch_max(&self) -> usize {
        BATCH
    }
}
