//! What an event costs as the backlog grows, and two relays against one.

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
        report::{Section, Series, Unit},
    },
    latency::PATIENCE,
    many, parts,
    producer::to_f64,
    turns,
};

/// Events of the smallest backlog.
const LEAST: u64 = 10_000;
/// Parts that the relays share, with one relay as well.
const PARTS: &str = "4";

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
    let mut relays = ["one relay, 4 parts", "two relays, 4 parts"]
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
    Ok(Section {
        title: "Growth: what an event costs, and two relays".to_owned(),
        how: format!(
            "Drains as in target 6, {} rounds in turns; the deepest backlog is that of target 7. \
             Two relays share the parts of one destination, on the cores of one: what is to be \
             seen is what sharing costs. They are timed from the start of their processes until \
             the last event is with the sink.",
            given.rounds
        ),
        series: costs
            .into_iter()
            .chain([deepest])
            .chain(relays)
            .chain([ratio])
            .collect(),
        ..Section::default()
    })
}

fn micros(drained: &crate::relay::Drained, events: u64) -> f64 {
    drained.seconds * 1e6 / to_f64(events)
}

/// Has so many relays carry the parts of one destination; returns the seconds that it took.
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
        let told = folder.join(format!("{destination}-{relay}.told"));
        let (node, path) = (format!("node-{relay}"), told.display().to_string());
        let of = [
            "--destination",
            destination,
            "--node",
            &node,
            "--parts",
            PARTS,
        ];
        let drain = ["relay", "drain", "--database", url, "--events", &count];
        let arguments = [&drain[..], &of[..], &["--tell", &path]].concat();
        running.push((parts::start(folder, &node, &arguments)?, told));
    }
    let took = loop {
        let taken = running.iter().map(|(_, told)| taken(told)).sum::<u64>();
        if taken >= events {
            break start.elapsed();
        }
        if start.elapsed() > PATIENCE * 5 {
            bail!("{taken} events of {events} were delivered");
        }
        sleep(Duration::from_millis(2)).await;
    };
    let mut delivered = 0;
    for (relay, told) in running {
        // One that found nothing left may still be starting.
        while !told.exists() {
            ensure!(start.elapsed() < PATIENCE * 5, "a relay does not start");
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

/// What a relay wrote down that it has delivered.
fn taken(told: &Path) -> u64 {
    let told = fs::read(told).ok();
    let told = told.and_then(|bytes| <[u8; 8]>::try_from(bytes).ok());
    told.map_or(0, u64::from_le_bytes)
}
