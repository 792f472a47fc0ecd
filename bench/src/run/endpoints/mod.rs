//! Endpoints of tenants at scale: the delay at the healthy ones while some are slow or down, and the
//! memory of the relay.
//!
//! One relay runs for all rounds. Between two of them the queue is emptied and the relay forgets
//! which endpoints have failed, so that every round begins in the same state.

mod plan;
mod ledger;
mod receivers;
mod stage;

use std::{collections::BTreeMap, time::Duration};

use super::{
    Bench,
    folder::Folder,
    open_files::raise_limit,
    relay::{counted, to_f64},
    report::{Section, Series, Unit, Verdict},
    say,
};

use ledger::Delays;
use plan::{EACH, ONE_OF, Plan, tenant_of};
use stage::{Rows, Stage};

/// The target in the table of targets.
const TARGET: &str = "endpoints";
/// Open files of the harness: the connections of the relay, for deliveries in flight and for the
/// endpoints that were used last.
const OPEN_FILES: u64 = 4_096;
/// Time limit for the arrival of the last event, and for the rows of the queue.
const PATIENCE: Duration = Duration::from_mins(2);
/// Duration of the part of a round that is not counted.
const WARM_UP: Duration = Duration::from_secs(2);
/// A rate that no writer reaches.
const AT_ONCE: f64 = 1e6;

/// The amount of work.
#[derive(Clone, Debug)]
pub(super) struct Sizes {
    rounds: usize,
    tenants: usize,
    /// Number of events that are delivered at once, to find the maximum rate.
    burst: u64,
    window: Duration,
    /// Events per second, if they are given.
    pace: Option<f64>,
}

impl Sizes {
    /// The sizes for the flags of the harness.
    pub(super) fn new(
        quick: bool,
        rounds: usize,
        window: Option<Duration>,
        pace: Option<u32>,
    ) -> Self {
        Self {
            rounds: if quick { rounds.min(2) } else { rounds },
            tenants: if quick { 50 } else { 1_000 },
            burst: if quick { 200 } else { 4_000 },
            // An attempt that gets no response takes 30 s.
            window: window.unwrap_or(Duration::from_secs(if quick { 3 } else { 60 })),
            pace: pace.map(f64::from),
        }
    }
}

/// The result of a round.
struct Round {
    delays: Delays,
    rows: Rows,
    resident: f64,
}

/// Runs with all endpoints healthy and with some sick alternately.
pub(super) async fn endpoints(bench: &Bench) -> anyhow::Result<Section> {
    let sizes = &bench.endpoints;
    raise_limit(OPEN_FILES)?;
    let folder = Folder::make(&bench.dir, "endpoints")?;
    let plan = Plan {
        tenants: sizes.tenants,
    };
    let stage = Stage::start(bench, &folder, plan).await?;
    say(&format!(
        "  {} endpoints inserted in {:.1?}\n",
        plan.endpoints(),
        stage.inserted_in
    ));
    let mut next = 0;
    let mut most = Series::new("deliveries at most, all healthy", Unit::PerSecond);
    let burst = (sizes.burst, AT_ONCE, Duration::ZERO);
    most.push(round(&stage, &mut next, burst, false).await?.delays.rate);
    let pace = sizes
        .pace
        .unwrap_or(most.median() / to_f64(EACH as u64) / 2.0);
    let pace = pace.max(1.0);
    say(&format!("  {pace:.0} events per second\n"));
    let mut conditions = ["alone", "1 % sick"].map(Side::new);
    for number in 0..sizes.rounds {
        for turn in order(number) {
            let count = counted(pace, WARM_UP.min(sizes.window) + sizes.window);
            let run = (count, pace, WARM_UP.min(sizes.window));
            conditions[turn].push(&round(&stage, &mut next, run, turn == 1).await?);
        }
        bench.progress(number);
    }
    section(sizes, &stage, pace, most, conditions)
}

/// The order of the conditions in a round; every second round has the reverse order.
fn order(round: usize) -> [usize; 2] {
    if round.is_multiple_of(2) {
        [0, 1]
    } else {
        [1, 0]
    }
}

/// Emits events at a rate, waits until the healthy endpoints have all of them and the queue has the
/// others, and removes what is left. The first events, for the time of the warm-up, are not counted.
async fn round(
    stage: &Stage,
    next: &mut u64,
    (count, pace, warm_up): (u64, f64, Duration),
    is_sick: bool,
) -> anyhow::Result<Round> {
    let (plan, first) = (stage.plan, *next);
    *next += count;
    let (from, events) = (usize::try_from(first)?, usize::try_from(count)?);
    stage.receivers.turn(is_sick).await?;
    stage.receivers.ledger().begin(from, events, is_sick);
    let tenant = move |event| tenant_of(plan, event);
    let emitted = stage.producer.paced_of(first, count, pace, tenant).await?;
    stage.receivers.complete(PATIENCE).await?;
    if is_sick {
        let expected = (from..from + events).map(|event| plan.sick_of(event));
        stage.queued(expected.sum(), PATIENCE).await?;
    }
    let skipped = if warm_up.is_zero() {
        0
    } else {
        counted(pace, warm_up).min(count - 1)
    };
    let mut commits = BTreeMap::new();
    for (event, at) in emitted {
        if event >= first + skipped {
            commits.insert(usize::try_from(event)?, at);
        }
    }
    let delays = stage.receivers.ledger().delays(&commits)?;
    let round = Round {
        delays,
        rows: stage.rows().await?,
        resident: stage.resident()?,
    };
    stage.clear().await?;
    Ok(round)
}

/// The figures of a side.
struct Side {
    median: Series,
    tail: Series,
    rate: Series,
    waiting: Series,
    healthy: Series,
    resident: Series,
}

impl Side {
    fn new(name: &str) -> Self {
        let figure = |what: &str, unit| Series::new(format!("{what}, {name}"), unit);
        Self {
            median: figure("commit to delivered: p50", Unit::Millis),
            tail: figure("commit to delivered: p99", Unit::Millis),
            rate: figure("deliveries to healthy endpoints", Unit::PerSecond),
            waiting: figure("deliveries that wait at the end", Unit::Count),
            healthy: figure(
                "deliveries to healthy endpoints through the queue",
                Unit::Count,
            ),
            resident: figure("memory of the relay at the end", Unit::Mebibytes),
        }
    }

    fn push(&mut self, round: &Round) {
        let millis = |thousandths| round.delays.histogram.quantile(thousandths).as_secs_f64() * 1e3;
        let count = |rows: i64| to_f64(rows.unsigned_abs());
        self.median.push(millis(500));
        self.tail.push(millis(990));
        self.rate.push(round.delays.rate);
        self.waiting.push(count(round.rows.waiting));
        self.healthy.push(count(round.rows.healthy));
        self.resident.push(round.resident);
    }

    fn series(self) -> [Series; 6] {
        [
            self.median,
            self.tail,
            self.rate,
            self.waiting,
            self.healthy,
            self.resident,
        ]
    }
}

fn section(
    sizes: &Sizes,
    stage: &Stage,
    pace: f64,
    most: Series,
    conditions: [Side; 2],
) -> anyhow::Result<Section> {
    let [alone, sick] = &conditions;
    let ratio = Series::ratio("p99, 1 % sick / alone", &sick.tail, &alone.tail);
    let mut peak = Series::new("peak memory of the relay", Unit::Mebibytes);
    peak.push(stage.peak()?);
    let mut repeated = Series::new("deliveries that were repeated", Unit::Count);
    repeated.push(to_f64(stage.receivers.ledger().repeated()));
    let verdicts = vec![
        Verdict::at_most(TARGET, &ratio, 1.5),
        Verdict::below(TARGET, &peak, 256.0),
    ];
    let figures = conditions.into_iter().flat_map(Side::series);
    Ok(Section {
        title: "Endpoints: some are slow or down".to_owned(),
        how: how(sizes, stage, pace),
        series: [ratio, peak]
            .into_iter()
            .chain(figures)
            .chain([most, repeated])
            .collect(),
        verdicts,
        ..Section::default()
    })
}

fn how(sizes: &Sizes, stage: &Stage, pace: f64) -> String {
    let plan = stage.plan;
    let half = match sizes.pace {
        Some(_) => "as given by `--endpoints-pace`",
        None => {
            "half of what the relay has delivered when it got the events of the first line at once"
        }
    };
    format!(
        "`hapax relay` with its defaults, {} endpoints of {} tenants, each event for the {EACH} endpoints of \
         its tenant. One event of about 100 bytes per transaction, {pace:.0} per second, {half} (the line \
         \"deliveries at most\", {} events). {} rounds of {:?} after {WARM_UP:?} of warm-up, alternately with \
         all endpoints healthy and with {} of them sick, one of {ONE_OF}: half of these read the request and never \
         respond, a quarter respond with 500, and a quarter refuse connections. The delay is measured from \
         the time at which the writer knows that its commit has succeeded until the receiver has read the \
         request, at the endpoints that are healthy in all rounds. Every event must arrive at every healthy \
         endpoint of its tenant and at no other tenant's, and every delivery to a sick one must be in the \
         queue. After each round the queue is emptied, and the relay forgets which endpoints have failed. \
         Memory is VmRSS, and VmHWM of all rounds for the peak. The receivers are in the process of the \
         harness.",
        plan.endpoints(),
        plan.tenants,
        sizes.burst,
        sizes.rounds,
        sizes.window,
        plan.sick().count(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_second_round_has_the_reverse_order() {
        assert_eq!([order(0), order(1), order(2)], [[0, 1], [1, 0], [0, 1]]);
    }
}
