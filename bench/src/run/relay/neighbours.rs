//! Delay at one destination while another is down, and the time in which that one catches up.

use std::time::{Duration, Instant};

use anyhow::ensure;

use super::{
    super::{
        Bench,
        folder::Folder,
        report::{Section, Series, Unit},
        service::free_address,
    },
    latency::{PATIENCE, counted},
    parts,
    producer::{Producer, to_f64},
    receiver::{Receiver, delays, named},
    turns,
};

/// Events per second.
const PACE: f64 = 200.0;
/// Number of events before counting starts.
const WARM_UP: u64 = 50;
const SIDES: [&str; 2] = ["A healthy", "A down"];

/// What is measured.
struct Figures {
    /// Median and 99th percentile of the delay at B, for each of [`SIDES`].
    sides: [[Series; 2]; 2],
    half: Series,
    all: Series,
}

/// Runs with a healthy and with an unavailable destination alternately.
pub(in crate::run) async fn neighbours(bench: &Bench) -> anyhow::Result<Section> {
    let given = &bench.relay;
    let folder = Folder::make(&bench.dir, "neighbours")?;
    let count = counted(PACE, given.window);
    let rounds = given.rounds.min(3);
    let mut figures = Figures::new();
    for round in 0..rounds {
        for turn in turns(SIDES.len(), round) {
            figures.measure(bench, &folder, count, turn).await?;
        }
        bench.progress(round);
    }
    Ok(figures.section(rounds, given.window, count))
}

impl Figures {
    /// The series without rounds.
    fn new() -> Self {
        let figure = |side: &str, at: &str| {
            Series::new(
                format!("commit to delivered at B, {side}: {at}"),
                Unit::Millis,
            )
        };
        Self {
            sides: SIDES.map(|side| ["p50", "p99"].map(|at| figure(side, at))),
            half: Series::new(
                "A has half of the missed events, after its start",
                Unit::Millis,
            ),
            all: Series::new("A has all of them", Unit::Millis),
        }
    }

    /// Measures once with new processes and an empty database. In the first turn, A is healthy.
    async fn measure(
        &mut self,
        bench: &Bench,
        folder: &Folder,
        count: u64,
        turn: usize,
    ) -> anyhow::Result<()> {
        let database = bench.server().await?.database().await?;
        let url = database.url();
        let producer = Producer::open(&url).await?;
        let events = WARM_UP + count;
        let address = free_address()?;
        let start = || Receiver::start_on(address, folder.path(), events, None);
        let healthy = match turn {
            0 => Some(start().await?),
            _ => None,
        };
        let neighbour = Receiver::start(folder.path(), events, None).await?;
        let (a, b) = (named("a", address), neighbour.named("b"));
        let carry = [
            "relay",
            "carry",
            "--database",
            &url,
            "--webhook",
            &a,
            "--webhook",
            &b,
        ];
        let _relay = parts::start(folder.path(), "relay", &carry)?;
        producer.paced(0, WARM_UP, PACE).await?;
        neighbour.until(WARM_UP, PATIENCE).await?;
        let commits = producer.paced(WARM_UP, count, PACE).await?;
        neighbour.until(events, PATIENCE).await?;
        let delays = delays(&commits, &neighbour.arrivals().await?)?;
        for (series, thousandths) in self.sides[turn].iter_mut().zip([500, 990]) {
            series.push(delays.quantile(thousandths).as_secs_f64() * 1e3);
        }
        if let Some(healthy) = healthy {
            healthy.until(events, PATIENCE).await?;
            return Ok(());
        }
        let up = start().await?;
        let began = Instant::now();
        up.until(events / 2, PATIENCE).await?;
        self.half.push(millis(began.elapsed()));
        up.until(events, PATIENCE).await?;
        self.all.push(millis(began.elapsed()));
        let seen = up.seen().await?;
        ensure!(seen.events == events, "A has {} events", seen.events);
        Ok(())
    }

    /// The section of the report.
    fn section(self, rounds: usize, window: Duration, count: u64) -> Section {
        let [healthy, down] = &self.sides;
        let ratio = Series::ratio("p99 at B, A down / A healthy", &down[1], &healthy[1]);
        Section {
            title: "Neighbours: an unavailable destination".to_owned(),
            how: format!(
                "Two webhooks, A and B, receive every event, {PACE} per second for {window:?}. \
                 The receiver of A runs all the time, or starts only after the last event has \
                 arrived at B. {rounds} rounds alternately, each on new processes with an empty \
                 database. A failed event is retried after a second, and an open breaker tries \
                 every ten seconds, so A waits for the next try after its start. It misses {} \
                 events.",
                to_f64(WARM_UP + count)
            ),
            series: self
                .sides
                .into_iter()
                .flatten()
                .chain([ratio, self.half, self.all])
                .collect(),
            ..Section::default()
        }
    }
}

fn millis(took: Duration) -> f64 {
    took.as_secs_f64() * 1e3
}
