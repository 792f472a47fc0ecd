//! Delay of a tenant's single events while another tenant floods the destination.

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

/// Maximum rate of the receiver, for all tenants together.
const SPEED: u32 = 5_000;
/// Interval between two events of the small tenant.
const BETWEEN: Duration = Duration::from_millis(100);
const SIDES: [&str; 2] = ["alone", "beside a flood"];

/// Runs with and without a flood alternately.
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
        "events that had not arrived at the end, beside a flood",
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
        title: "Tenants: one floods, another emits single events".to_owned(),
        how: format!(
            "One tenant has committed {} events at once for a receiver that takes {SPEED} per \
             second. Another tenant then emits one event every {BETWEEN:?} for {window:?}. If an \
             event has not arrived after as long again, its delay until then is counted; such a \
             figure means that the event waits for the whole flood. {rounds} rounds alternately, \
             each on new processes with an empty database.",
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

/// Emits the events of the small tenant. Returns their delays, and how many had not arrived after
/// as long again.
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
