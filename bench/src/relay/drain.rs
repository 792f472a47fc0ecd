//! Drains an outbox into a sink that takes everything.
//!
//! Measured is from the start of the relay until every event is delivered and written down.
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
    store::Deliveries as _,
};
use serde::{Deserialize, Serialize};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::Notify,
};

use crate::{publish::Broker, run::mebibytes};

use super::{Outbox, Who};

/// Events that one offer may hold.
const BATCH: usize = 1_000;
/// Parts of a run whose speed is told apart.
const PARTS: u64 = 10;

/// Which outbox, and under which name.
#[derive(Debug, clap::Args)]
pub(super) struct Flags {
    #[command(flatten)]
    outbox: Outbox,
    /// The destination: a name that was never used sees every event
    #[arg(long)]
    destination: String,
    /// How many events there are
    #[arg(long, default_value_t = 1_000_000)]
    events: u64,
    /// Keeps the order of each aggregate
    #[arg(long)]
    ordered: bool,
    #[command(flatten)]
    who: Who,
    /// Parts that relays share
    #[arg(long, default_value_t = 1)]
    parts: u8,
    /// Runs until it is told to end, and writes down here how many events it has delivered: 8
    /// bytes, little end first
    #[arg(long)]
    tell: Option<PathBuf>,
    /// Carries them into a broker instead
    #[arg(long, requires = "to")]
    into: Option<Broker>,
    /// Where the broker listens
    #[arg(long, value_name = "URL")]
    to: Option<String>,
}

/// What came of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Drained {
    /// How long it took, in seconds.
    pub(crate) seconds: f64,
    /// When each tenth of the events was delivered, in seconds from the start.
    pub(crate) tenths: Vec<f64>,
    /// The most memory that the process ever held, in mebibytes.
    pub(crate) peak: f64,
}

impl Drained {
    /// Reads what `drain` printed.
    pub(crate) fn read(text: &str) -> anyhow::Result<Self> {
        let read: Self = serde_json::from_str(text.trim()).context("no figures of a drain")?;
        ensure!(read.tenths.len() as u64 == PARTS, "tenths are missing");
        Ok(read)
    }

    /// The speed of the last tenth over that of the first.
    pub(crate) fn decline(&self) -> f64 {
        let took = |part: usize| {
            let before = part
                .checked_sub(1)
                .map_or(0.0, |before| self.tenths[before]);
            self.tenths[part] - before
        };
        let last = self.tenths.len() - 1;
        // The first tenth begins with connections that are opened.
        took(1) / took(last)
    }
}

impl Flags {
    pub(super) async fn run(self) -> anyhow::Result<String> {
        // Whoever is told what was taken may say at once that it is enough.
        let terminate = self.tell.as_ref();
        let terminate = terminate.map(|_| signal(SignalKind::terminate()));
        let terminate = terminate.transpose()?;
        let store = self.outbox.open().await?;
        let start = Instant::now();
        let told = self.tell.as_ref().map(File::create).transpose()?;
        let into = self.into.zip(self.to.as_deref());
        let into = into.map(|(broker, to)| broker.sink(to)).transpose()?;
        let sink = Arc::new(Null::new(self.events, start, told, into));
        let order = if self.ordered {
            Order::Key
        } else {
            Order::None
        };
        let destination = Destination::new(&self.destination, sink.clone()).order(order);
        let destination = destination.parts(self.parts)?;
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
        let standing = store.standing(&self.destination).await?;
        store.close();
        ensure!(
            standing.backlog == 0,
            "{} events were not written down",
            standing.backlog
        );
        let status = fs::read_to_string("/proc/self/status").context("no /proc")?;
        let drained = Drained {
            seconds,
            tenths: sink.tenths(self.events)?,
            peak: mebibytes(&status, "VmHWM")?,
        };
        Ok(serde_json::to_string(&drained)?)
    }
}

/// A sink that takes everything, or hands it to a broker's, and remembers when each part was there.
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
            // Whoever looks sees the next one.
            let _ = told.write_all_at(&progress.taken.to_le_bytes(), 0);
        }
        if progress.taken >= self.wanted {
            self.all.notify_one();
        }
    }

    /// When each part was there; fails when more came than there is.
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
