//! What one tenant's flood does to another tenant's single events.

use std::time::Duration;

use hapax::key::Tenant;
use tokio::time::{Instant, sleep_until};

use super::{
    super::{
        Bench,
        folder::Folder,
        report::{Section, Series, Unit},
    },
    latency::{Line, counted},
    many, parts,
    producer::to_f64,
    turns,
};
use crate::{histogram::Histogram, receive::nanoseconds};

/// What the receiver takes per second, of everybody together.
const SPEED: u32 = 5_000;
/// Between two events of the small tenant.
const BETWEEN: Duration = Duration::from_millis(100);
const SIDES: [&str; 2] = ["alone", "beside a flood"];

/// Runs both in turns.
pub(in crate::run) async fn tenants(bench: &Bench) -> anyhow::Result<Section> {
    let given = &bench.relay;
    let folder = Folder::make(&bench.dir, "tenants")?;
    let flood = given.events;
    let window = given.window.saturating_mul(2);
    let rounds = given.rounds.min(3);
    let figure = |side: &str, at: &str| {
        Series::new(
            format!("the small tenant's delay, {side}: {at}"),
            Unit::Millis,
        )
    };
    let mut sides = SIDES.map(|side| ["p50", "p99", "max"].map(|at| figure(side, at)));
    let mut waiting = Series::new(
        "events that had not come at the end, beside a flood",
        Unit::Count,
    );
    for round in 0..rounds {
        for turn in turns(SIDES.len(), round) {
            let count = counted(1.0 / BETWEEN.as_secs_f64(), window);
            let line = Line::lay(bench, &folder, count + flood, Some(SPEED)).await?;
            if turn == 1 {
                let first = (line.next + count).to_string();
                let url = line.url();
                let flood = flood.to_string();
                let spread = ["--first", &first, "--events", &flood, "--tenant", "flood"];
                let fill = ["relay", "fill", "--database", &url];
                parts::run(folder.path(), &[&fill[..], &spread[..]].concat()).await?;
            }
            let (delays, missing) = small(&line, count, window).await?;
            for (series, thousandths) in sides[turn].iter_mut().zip([500, 990, 1_000]) {
                series.push(delays.quantile(thousandths).as_secs_f64() * 1e3);
            }
            if turn == 1 {
                waiting.push(to_f64(missing));
            }
        }
        bench.progress(round);
    }
    let [alone, beside] = &sides;
    let ratio = Series::ratio("p99 beside a flood / alone", &beside[1], &alone[1]);
    Ok(Section {
        title: "Tenants: one floods, another has a single event now and then".to_owned(),
        how: format!(
            "A receiver that takes {SPEED} a second is owed {} events of one tenant, which were \
             committed at once; another tenant then emits one every {BETWEEN:?} for {window:?}. \
             An event that has not come as long after counts as late as it is then, so that such a \
             figure means that it waits for the whole flood. {rounds} rounds in \
             turns, each on new processes with an empty database.",
            many(flood)
        ),
        series: sides
            .into_iter()
            .flatten()
            .chain([ratio, waiting])
            .collect(),
        ..Section::default()
    })
}

/// Emits the small tenant's events; says how late they came, and how many did not within as long
/// again.
async fn small(line: &Line, count: u64, window: Duration) -> anyhow::Result<(Histogram, u64)> {
    let tenant = Tenant::new("small")?;
    let mut commits = Vec::new();
    let mut due = Instant::now();
    for number in line.next..line.next + count {
        sleep_until(due).await;
        due += BETWEEN;
        let committed = line.producer.one(number, Some(&tenant)).await?;
        commits.push((number, committed));
    }
    let last = due + window;
    loop {
        sleep_until(due).await;
        due += BETWEEN;
        let (arrivals, end) = (line.receiver.arrivals().await?, nanoseconds());
        let (mut delays, mut missing) = (Histogram::new(), 0);
        for (number, committed) in &commits {
            let arrived = arrivals[usize::try_from(*number)?];
            missing += u64::from(arrived == 0);
            let until = if arrived == 0 { end } else { arrived };
            delays.record(Duration::from_nanos(until.saturating_sub(*committed)));
        }
        if missing == 0 || due > last {
            return Ok((delays, missing));
        }
    }
}
