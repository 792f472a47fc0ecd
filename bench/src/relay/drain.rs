//! Drains an outbox into a sink that accepts everything, or into a broker.
//!
//! The time is measured from the start of the relay until every event is delivered and settled.
//! Each destination starts at the first event, so one outbox can be drained many times.

use std::{
    fs::{self, File},
    os::unix::fs::FileExt as _,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use futures_util::future::{BoxFuture, FutureExt as _, ready};
use hapax::{
    relay::{Destination, Order, Relay},
    sink::{Offer, Outcome, Receipt, Sink},
    store::Settlements as _,
};
use serde::{Deserialize, Serialize};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::Notify,
};

use crate::{publish::Broker, status::mebibytes};

use super::{Outbox, Who};

/// Maximum number of events in a batch.
const BATCH: usize = 1_000;
/// Number of parts of a run whose durations are reported.
const PARTS: u64 = 10;

/// The outbox, and how it is drained.
#[derive(Debug, clap::Args)]
pub(super) struct Flags {
    #[command(flatten)]
    outbox: Outbox,
    /// Name of the destination; a new destination receives every event
    #[arg(long)]
    destination: String,
    /// Number of events in the outbox
    #[arg(long, default_value_t = 1_000_000)]
    events: u64,
    /// Keeps the order of each aggregate
    #[arg(long)]
    ordered: bool,
    #[command(flatten)]
    who: Who,
    /// Number of partitions that relays share
    #[arg(long, default_value_t = 1)]
    partitions: u8,
    /// Runs until SIGTERM, and writes the number of delivered events to this file: 8 bytes, little
    /// endian
    #[arg(long)]
    tell: Option<PathBuf>,
    /// Delivers the events to this broker instead
    #[arg(long, requires = "to")]
    into: Option<Broker>,
    /// URL of the broker
    #[arg(long, value_name = "URL")]
    to: Option<String>,
}

/// The result of a drain.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Drained {
    /// The duration, in seconds.
    pub(crate) seconds: f64,
    /// The time at which each tenth of the events was delivered, in seconds from the start.
    pub(crate) tenths: Vec<f64>,
    /// The peak memory of the process, in mebibytes.
    pub(crate) peak: f64,
}

impl Drained {
    /// Parses the output of `drain`.
    pub(crate) fn read(text: &str) -> anyhow::Result<Self> {
        let read: Self =
            serde_json::from_str(text.trim()).context("cannot parse the output of relay drain")?;
        ensure!(
            read.tenths.len() as u64 == PARTS,
            "the output of relay drain has not ten tenths"
        );
        Ok(read)
    }

    /// The speed of the last tenth divided by that of the second.
    pub(crate) fn decline(&self) -> f64 {
        let took = |part: usize| {
            let before = part
                .checked_sub(1)
                .map_or(0.0, |before| self.tenths[before]);
            self.tenths[part] - before
        };
        let last = self.tenths.len() - 1;
        // Connections are opened during the first tenth, so it is slower.
        took(1) / took(last)
    }
}

impl Flags {
    pub(super) async fn run(self) -> anyhow::Result<String> {
        // The harness may send SIGTERM as soon as it has read the file, so the handler comes first.
        let terminate = self.tell.as_ref();
        let terminate = terminate.map(|_| signal(SignalKind::terminate()));
        let terminate = terminate.transpose()?;
        let store = self.outbox.open().await?;
        let start = Instant::now();
        let outcome = self.tell.as_ref().map(File::create).transpose()?;
        let into = self.into.zip(self.to.as_deref());
        let into = into.map(|(broker, to)| broker.sink(to)).transpose()?;
        let sink = Arc::new(Null::new(self.events, start, outcome, into));
        let order = if self.ordered {
            Order::Key
        } else {
            Order::None
        };
        let destination = Destination::new(&self.destination, sink.clone()).order(order);
        let destination = destination.partitions(self.partitions)?;
        let settings = self.who.settings();
        let relay = Relay::spawn(&store, vec![destination], &settings, &store.notifier());
        if let Some(mut terminate) = terminate {
            terminate.recv().await;
            relay.drain().await;
            store.close();
            return Ok(sink.taken().to_string());
        }
        sink.all.notified().await;
        relay.drain().await;
        let seconds = start.elapsed().as_secs_f64();
        let standing = store.backlog(&self.destination).await?;
        store.close();
        ensure!(
            standing.events == 0,
            "{} events were not settled",
            standing.events
        );
        let status =
            fs::read_to_string("/proc/self/status").context("cannot read /proc/self/status")?;
        let drained = Drained {
            seconds,
            tenths: sink.tenths(self.events)?,
            peak: mebibytes(&status, "VmHWM")?,
        };
        Ok(serde_json::to_string(&drained)?)
    }
}

/// A sink that accepts everything, or passes it to the sink of a broker, and records when each part
/// was delivered.
struct Null {
    progress: Mutex<Progress>,
    wanted: u64,
    start: Instant,
    all: Notify,
    told: Option<File>,
    into: Option<Arc<dyn Sink>>,
}

#[derive(Default)]
struct Progress {
    taken: u64,
    reached: Vec<Duration>,
}

impl Null {
    fn new(wanted: u64, start: Instant, told: Option<File>, into: Option<Arc<dyn Sink>>) -> Self {
        Self {
            progress: Mutex::default(),
            wanted,
            start,
            all: Notify::new(),
            told,
            into,
        }
    }

    fn taken(&self) -> u64 {
        let progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        progress.taken
    }

    fn took(&self, count: usize) {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        progress.taken += count as u64;
        while (progress.reached.len() as u64) < PARTS
            && progress.taken * PARTS >= self.wanted * (progress.reached.len() as u64 + 1)
        {
            progress.reached.push(self.start.elapsed());
        }
        if let Some(told) = &self.told {
            // If a write fails, the next one replaces it.
            let _ = told.write_all_at(&progress.taken.to_le_bytes(), 0);
        }
        if progress.taken >= self.wanted {
            self.all.notify_one();
        }
    }

    /// The time at which each part was delivered. Fails if the number of deliveries is wrong.
    fn tenths(&self, events: u64) -> anyhow::Result<Vec<f64>> {
        let progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        ensure!(
            progress.taken == events,
            "{} events were delivered of {events}",
            progress.taken
        );
        Ok(progress.reached.iter().map(Duration::as_secs_f64).collect())
    }
}

impl Sink for Null {
    fn kind(&self) -> &'static str {
        "null"
    }

    fn deliver<'a>(&'a self, offers: &'a [Offer]) -> BoxFuture<'a, Vec<Outcome>> {
        let Some(into) = &self.into else {
            self.took(offers.len());
            return ready(offers.iter().map(|_| Ok(Receipt::default())).collect()).boxed();
        };
        Box::pin(async move {
            let outcomes = into.deliver(offers).await;
            self.took(outcomes.iter().filter(|outcome| outcome.is_ok()).count());
            outcomes
        })
    }

    fn batch_max(&self) -> usize {
        self.into.as_ref().map_or(BATCH, |into| into.batch_max())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drain_is_read_as_it_is_printed_and_its_decline_is_of_the_last_tenth() {
        let tenths = (1..=10).map(f64::from).collect();
        let drained = Drained {
            seconds: 10.0,
            tenths,
            peak: 1.0,
        };
        let text = serde_json::to_string(&drained).unwrap();
        let mut read = Drained::read(&text).unwrap();
        assert!((read.decline() - 1.0).abs() < 1e-9);
        read.tenths[9] = 11.0;
        assert!((read.decline() - 0.5).abs() < 1e-9);
        assert!(Drained::read("{}").is_err());
    }
}
