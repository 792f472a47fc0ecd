//! Cost of an event as the backlog grows, and two relays compared with one.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{bail, ensure};
use tokio::time::sleep;

use super::{
    super::{
        Bench,
        folder::Folder,
        plot::{Axis, Line, Plot, Scale},
        report::{Section, Series, Unit},
    },
    latency::PATIENCE,
    many, parts,
    producer::to_f64,
    turns,
};

/// Number of events in the smallest backlog.
const LEAST: u64 = 10_000;
/// Number of partitions, for one relay as well as for two.
const PARTITIONS: &str = "4";

/// Drains backlogs of several sizes, and one with two relays.
pub(in crate::run) async fn growth(bench: &Bench) -> anyhow::Result<Section> {
    let given = &bench.relay;
    let folder = Folder::make(&bench.dir, "relay-growth")?;
    let least = LEAST.min(given.events);
    let title = |events| format!("an event costs, backlog of {}", many(events));
    let mut costs = [least, given.events].map(|events| Series::new(title(events), Unit::Micros));
    let mut databases = Vec::new();
    for events in [least, given.events] {
        let database = bench.server().await?.database().await?;
        parts::fill(folder.path(), &database.url(), events).await?;
        databases.push((database, events));
    }
    let mut relays = ["one relay, 4 partitions", "two relays, 4 partitions"]
        .map(|name| Series::new(format!("drained, {name}"), Unit::PerSecond));
    for round in 0..given.rounds {
        for turn in turns(2, round) {
            let (database, events) = &databases[turn];
            let name = format!("round-{round}");
            let drained = parts::drain(folder.path(), &database.url(), &name, *events).await?;
            costs[turn].push(micros(&drained, *events));
        }
        for turn in turns(2, round) {
            let (database, events) = &databases[1];
            let name = format!("shared-{round}-{turn}");
            let url = database.url();
            let seconds = shared(folder.path(), &url, &name, (*events, turn + 1)).await?;
            relays[turn].push(to_f64(*events) / seconds);
        }
        bench.progress(round);
    }
    let deep = bench.deep().await?;
    let mut deepest = Series::new(title(deep.events), Unit::Micros);
    for drained in &deep.drained {
        deepest.push(micros(drained, deep.events));
    }
    let ratio = Series::ratio("two relays / one", &relays[1], &relays[0]);
    let sizes = [least, given.events, deep.events].map(to_f64);
    let plot = plot(sizes.into_iter().zip(costs.iter().chain([&deepest])));
    Ok(Section {
        title: "Growth: cost of an event, and two relays".to_owned(),
        how: format!(
            "Drains as in target 6, {} rounds alternately; the deepest backlog is that of \
             target 7. Two relays share the partitions of one destination, on the same cores as \
             one relay, so this shows the cost of sharing. The time is measured from the start \
             of their processes until the last event is delivered.",
            given.rounds
        ),
        series: costs
            .into_iter()
            .chain([deepest])
            .chain(relays)
            .chain([ratio])
            .collect(),
        plots: vec![plot],
        ..Section::default()
    })
}

/// The cost of an event by the size of the backlog.
fn plot<'a>(costs: impl Iterator<Item = (f64, &'a Series)>) -> Plot {
    Plot {
        name: "",
        title: "Cost of an event as the backlog grows, PostgreSQL".to_owned(),
        across: Axis {
            name: "events in the backlog",
            unit: Unit::Count,
            scale: Scale::Log,
        },
        up: Axis {
            name: "cost of an event",
            unit: Unit::Micros,
            scale: Scale::Linear,
        },
        lines: vec![Line::new("drained by one relay", costs)],
    }
}

fn micros(drained: &crate::relay::Drained, events: u64) -> f64 {
    drained.seconds * 1e6 / to_f64(events)
}

/// Lets several relays deliver the partitions of one destination, and returns the duration in
/// seconds.
async fn shared(
    folder: &Path,
    url: &str,
    destination: &str,
    (events, relays): (u64, usize),
) -> anyhow::Result<f64> {
    let count = events.to_string();
    let start = Instant::now();
    let mut running = Vec::new();
    for relay in 0..relays {
        let outcome = folder.join(format!("{destination}-{relay}.told"));
        let (node, path) = (format!("node-{relay}"), outcome.display().to_string());
        let of = [
            "--destination",
            destination,
            "--node",
            &node,
            "--partitions",
            PARTITIONS,
        ];
        let drain = ["relay", "drain", "--database", url, "--events", &count];
        let arguments = [&drain[..], &of[..], &["--tell", &path]].concat();
        running.push((parts::start(folder, &node, &arguments)?, outcome));
    }
    let took = loop {
        let taken = running
            .iter()
            .map(|(_, outcome)| taken(outcome))
            .sum::<u64>();
        if taken >= events {
            break start.elapsed();
        }
        if start.elapsed() > PATIENCE * 5 {
            bail!("{taken} events of {events} were delivered");
        }
        sleep(Duration::from_millis(2)).await;
    };
    let mut delivered = 0;
    for (relay, outcome) in running {
        // A relay that found no event left may still be starting.
        while !outcome.exists() {
            ensure!(
                start.elapsed() < PATIENCE * 5,
                "a relay did not start in time"
            );
            sleep(Duration::from_millis(2)).await;
        }
        delivered += relay.told_to_end().await?.trim().parse::<u64>()?;
    }
    ensure!(
        delivered == events,
        "{delivered} events were delivered of {events}"
    );
    Ok(took.as_secs_f64())
}

/// The number of delivered events that a relay has written to its file.
fn taken(outcome: &Path) -> u64 {
    let outcome = fs::read(outcome).ok();
    let outcome = outcome.and_then(|bytes| <[u8; 8]>::try_from(bytes).ok());
    outcome.map_or(0, u64::from_le_bytes)
}
