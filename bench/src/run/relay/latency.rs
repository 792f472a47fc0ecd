//! Target 8: delay from the commit until the receiver of a webhook has the event, at a fixed rate.
//!
//! The harness writes the events; relay and receiver are separate processes. While a transaction
//! that has written an event stays open, the events of all other transactions must arrive as
//! before. Its own event must arrive after its commit.

use std::time::Duration;

use anyhow::ensure;
use hapax_testkit::postgres::Database;

use super::{
    super::{
        Bench,
        folder::Folder,
        plot::{Axis, Line as PlotLine, Plot, Scale},
        report::{Section, Series, Unit, Verdict},
        service::Running,
    },
    parts,
    producer::{Producer, to_f64},
    receiver::{Receiver, delays},
    turns,
};
use crate::histogram::Histogram;

/// Events per second.
const PACE: f64 = 500.0;
/// Number of events before counting starts, while connections are opened and statements prepared.
const WARM_UP: u64 = 200;
/// Shares of the relay's maximum rate, in percent.
const SHARES: [u64; 3] = [10, 50, 90];
/// Time limit for the arrival of the last event.
pub(super) const PATIENCE: Duration = Duration::from_mins(1);

/// A producer, a relay and a receiver after their warm-up.
pub(super) struct Line {
    pub(super) receiver: Receiver,
    pub(super) producer: Producer,
    _relay: Running,
    /// The number of the next event.
    pub(super) next: u64,
    database: Database,
}

/// Median and 99th percentile of the delay.
struct Delay {
    median: Series,
    tail: Series,
}

impl Delay {
    fn new(name: &str) -> Self {
        Self {
            median: Series::new(format!("{name}: p50"), Unit::Millis),
            tail: Series::new(format!("{name}: p99"), Unit::Millis),
        }
    }

    fn push(&mut self, delays: &Histogram) {
        let millis = |thousandths| delays.quantile(thousandths).as_secs_f64() * 1e3;
        self.median.push(millis(500));
        self.tail.push(millis(990));
    }
}

impl Line {
    /// Starts them on an empty database and waits until the first events have arrived.
    pub(super) async fn lay(
        bench: &Bench,
        folder: &Folder,
        events: u64,
        per_second: Option<u32>,
    ) -> anyhow::Result<Self> {
        let database = bench.server().await?.database().await?;
        let url = database.url();
        let producer = Producer::open(&url).await?;
        let receiver = Receiver::start(folder.path(), events + WARM_UP, per_second).await?;
        let webhook = receiver.named("bench");
        let carry = ["relay", "carry", "--database", &url, "--webhook", &webhook];
        let relay = parts::start(folder.path(), "relay", &carry)?;
        producer.paced(0, WARM_UP, PACE).await?;
        receiver.until(WARM_UP, PATIENCE).await?;
        Ok(Self {
            receiver,
            producer,
            _relay: relay,
            next: WARM_UP,
            database,
        })
    }

    /// The URL of the database.
    pub(super) fn url(&self) -> String {
        self.database.url()
    }

    /// Emits `count` events at a fixed rate and returns their delays.
    pub(super) async fn paced(&mut self, per_second: f64, count: u64) -> anyhow::Result<Histogram> {
        let commits = self.producer.paced(self.next, count, per_second).await?;
        self.next += count;
        self.receiver.until(self.next, PATIENCE).await?;
        delays(&commits, &self.receiver.arrivals().await?)
    }
}

/// Runs with and without an open writer alternately, and then at shares of the maximum rate.
pub(in crate::run) async fn latency(bench: &Bench) -> anyhow::Result<Section> {
    let given = &bench.relay;
    let folder = Folder::make(&bench.dir, "relay-latency")?;
    let count = counted(PACE, given.window);
    let mut alone = Delay::new("commit to delivered, 500/s");
    let mut beside = Delay::new("the same, a writer open");
    let mut own = Series::new(
        "the open writer's own event, after its commit",
        Unit::Millis,
    );
    for round in 0..given.rounds {
        for turn in turns(2, round) {
            let mut line = Line::lay(bench, &folder, count + 1, None).await?;
            if turn == 0 {
                alone.push(&line.paced(PACE, count).await?);
                continue;
            }
            let last = line.next + count;
            let open = line.producer.hold_open(last).await?;
            beside.push(&line.paced(PACE, count).await?);
            let committed = open.commit().await?;
            line.receiver.until(last + 1, PATIENCE).await?;
            let arrivals = line.receiver.arrivals().await?;
            own.push(delays(&[(last, committed)], &arrivals)?.max().as_secs_f64() * 1e3);
        }
        bench.progress(round);
    }
    let (capacity, shares) = growing(bench, &folder).await?;
    let verdicts = vec![
        Verdict::at_most("8", &alone.median, 3.0),
        Verdict::at_most("8", &alone.tail, 10.0),
        Verdict::at_most("8", &beside.median, 3.0),
        Verdict::at_most("8", &beside.tail, 10.0),
    ];
    let plot = plot(&shares);
    let delays = [alone, beside].into_iter().chain(shares);
    let delays = delays.flat_map(|delay| [delay.median, delay.tail]);
    Ok(Section {
        title: "Target 8: from the commit to the webhook".to_owned(),
        how: format!(
            "One event of about 100 bytes per transaction, {PACE} per second for {:?}, over 8 \
             connections, after {WARM_UP} events of warm-up; {} rounds alternately, each on new \
             processes with an empty database. A delay is measured from the time at which the \
             writer knows that its commit has succeeded until the receiver has read the request. \
             Every event must arrive, always under the same id. After that, the maximum rate of \
             the relay with all its connections, and 10, 50 and 90 % of it at a fixed rate.",
            given.window, given.rounds
        ),
        series: delays.chain([own, capacity]).collect(),
        plots: vec![plot],
        verdicts,
        ..Section::default()
    })
}

/// The delays by share of the maximum rate.
fn plot(delays: &[Delay; 3]) -> Plot {
    let shares = SHARES.map(to_f64);
    let medians = delays.iter().map(|delay| &delay.median);
    let tails = delays.iter().map(|delay| &delay.tail);
    Plot {
        name: "",
        title: "From the commit to the webhook as the load grows, PostgreSQL".to_owned(),
        across: Axis {
            name: "share of the maximum rate",
            unit: Unit::Percent,
            scale: Scale::Linear,
        },
        up: Axis {
            name: "delay",
            unit: Unit::Millis,
            scale: Scale::Log,
        },
        lines: vec![
            PlotLine::new("p50", shares.into_iter().zip(medians)),
            PlotLine::new("p99", shares.into_iter().zip(tails)),
        ],
    }
}

/// The maximum rate of the relay with one event per transaction, and the delays at shares of it.
async fn growing(bench: &Bench, folder: &Folder) -> anyhow::Result<(Series, [Delay; 3])> {
    let given = &bench.relay;
    let mut capacity = Series::new("capacity, one event to a transaction", Unit::PerSecond);
    let mut delays = SHARES.map(|share| Delay::new(&format!("commit to delivered, at {share} %")));
    for round in 0..given.rounds.min(3) {
        let some = given.webhooks / 4;
        // Enough numbers for any rate below the limit that is checked below.
        let most = some + counted(20_000.0, given.window) * SHARES.len() as u64;
        let mut line = Line::lay(bench, folder, most, None).await?;
        let rate = capacity_of(&mut line, some).await?;
        ensure!(
            rate < 20_000.0,
            "{rate} events per second is more than the benchmark supports"
        );
        capacity.push(rate);
        for (share, delay) in SHARES.into_iter().zip(&mut delays) {
            let pace = rate * to_f64(share) / 100.0;
            let count = counted(pace, given.window / 2);
            delay.push(&line.paced(pace, count).await?);
        }
        bench.progress(round);
    }
    Ok((capacity, delays))
}

/// Events per second from the first emit to the last arrival, one event to a transaction.
async fn capacity_of(line: &mut Line, events: u64) -> anyhow::Result<f64> {
    let start = std::time::Instant::now();
    line.producer.burst(line.next, events, (16, 1)).await?;
    line.next += events;
    line.receiver.until(line.next, PATIENCE).await?;
    Ok(to_f64(events) / start.elapsed().as_secs_f64())
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a number of events"
)]
pub(in crate::run) fn counted(per_second: f64, window: Duration) -> u64 {
    (per_second * window.as_secs_f64()).max(1.0) as u64
}
