//! Target 8: from the commit until a webhook has the event, at a fixed pace.
//!
//! The writer is the harness, the relay and the receiver are processes of their own. While a
//! transaction stays open that has written an event, everybody else's events must come as before,
//! and its own once it has committed.

use std::time::Duration;

use anyhow::ensure;
use hapax_testkit::postgres::Database;

use super::{
    super::{
        Bench,
        folder::Folder,
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
/// Events before anything is counted: connections are opened, statements are prepared.
const WARM_UP: u64 = 200;
/// Shares of what the relay can do, in percent.
const SHARES: [u64; 3] = [10, 50, 90];
/// How long the last event may take.
pub(super) const PATIENCE: Duration = Duration::from_mins(1);

/// A relay that carries to one receiver, warm.
pub(super) struct Line {
    pub(super) receiver: Receiver,
    pub(super) producer: Producer,
    _relay: Running,
    /// The number of the next event.
    pub(super) next: u64,
    database: Database,
}

/// Half of the delays, and 99 of 100 of them.
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
    /// Starts them on an empty database and has the first events arrive.
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

    /// Its database.
    pub(super) fn url(&self) -> String {
        self.database.url()
    }

    /// Emits at a pace for a while; returns how late each event came.
    pub(super) async fn paced(&mut self, per_second: f64, count: u64) -> anyhow::Result<Histogram> {
        let commits = self.producer.paced(self.next, count, per_second).await?;
        self.next += count;
        self.receiver.until(self.next, PATIENCE).await?;
        delays(&commits, &self.receiver.arrivals().await?)
    }
}

/// Runs both in turns, and then a share of the capacity.
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
    let delays = [alone, beside].into_iter().chain(shares);
    let delays = delays.flat_map(|delay| [delay.median, delay.tail]);
    Ok(Section {
        title: "Target 8: from the commit until a webhook has it".to_owned(),
        how: format!(
            "One event of about 100 bytes to a transaction, {PACE} a second for {:?}, over 8 \
             connections, after {WARM_UP} that are not counted; {} rounds in turns, each on new \
             processes with an empty database. A delay is from the moment when the writer hears \
             of its commit until the receiver has read the request; every event must have come, \
             under one id. Then what the relay carries with all its connections to the receiver, \
             and 10, 50 and 90 % of that at a fixed pace.",
            given.window, given.rounds
        ),
        series: delays.chain([own, capacity]).collect(),
        verdicts,
        ..Section::default()
    })
}

/// What the relay can do, one event to a transaction, and the delays at a part of that.
async fn growing(bench: &Bench, folder: &Folder) -> anyhow::Result<(Series, [Delay; 3])> {
    let given = &bench.relay;
    let mut capacity = Series::new("capacity, one event to a transaction", Unit::PerSecond);
    let mut delays = SHARES.map(|share| Delay::new(&format!("commit to delivered, at {share} %")));
    for round in 0..given.rounds.min(3) {
        let some = given.webhooks / 4;
        // Room for whatever a machine can do.
        let most = some + counted(20_000.0, given.window) * SHARES.len() as u64;
        let mut line = Line::lay(bench, folder, most, None).await?;
        let rate = capacity_of(&mut line, some).await?;
        ensure!(
            rate < 20_000.0,
            "{rate} a second is more than was thought of"
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
pub(super) fn counted(per_second: f64, window: Duration) -> u64 {
    (per_second * window.as_secs_f64()).max(1.0) as u64
}
