//! Target 7: the speed of the relay with a deep backlog, a pinned snapshot and an open writer.
//!
//! Usual queues on PostgreSQL slow down under each of them, because their queries have to read past
//! dead rows that cannot be removed.

use super::{
    super::{
        Bench,
        folder::Folder,
        postgres::connect,
        report::{Section, Series, Unit, Verdict},
    },
    deep::Space,
    many, parts,
    producer::{Pinned, Producer, to_f64},
    turns,
};
use crate::relay::Drained;

const SIDES: [&str; 3] = ["idle", "a snapshot pinned", "a writer open"];

/// The speed of one side, and its change within the run.
struct Speed {
    rate: Series,
    decline: Series,
}

impl Speed {
    fn new(name: &str) -> Self {
        Self {
            rate: Series::new(format!("drained, {name}"), Unit::PerSecond),
            decline: Series::new(format!("last tenth / second tenth, {name}"), Unit::Ratio),
        }
    }

    fn push(&mut self, events: u64, drained: &Drained) {
        self.rate.push(to_f64(events) / drained.seconds);
        self.decline.push(drained.decline());
    }
}

/// Drains under each condition alternately.
pub(in crate::run) async fn stress(bench: &Bench) -> anyhow::Result<Section> {
    let given = &bench.relay;
    let folder = Folder::make(&bench.dir, "relay-stress")?;
    let database = bench.server().await?.database().await?;
    let url = database.url();
    parts::fill(folder.path(), &url, given.events).await?;
    let producer = Producer::open(&url).await?;
    let client = connect(&url).await?;
    let mut speeds = SIDES.map(Speed::new);
    let mut written = Series::new(
        "kept besides events after a drain, a snapshot pinned",
        Unit::Mebibytes,
    );
    for round in 0..given.rounds {
        for turn in turns(SIDES.len(), round) {
            let before = Space::of(&client).await?;
            let pinned = match turn {
                1 => Some(Pinned::take(&url).await?),
                _ => None,
            };
            let open = match turn {
                2 => Some(producer.hold_open(u64::from(u32::MAX)).await?),
                _ => None,
            };
            let name = format!("round-{round}-{turn}");
            let drained = parts::drain(folder.path(), &url, &name, given.events).await?;
            speeds[turn].push(given.events, &drained);
            if turn == 1 {
                written.push(Space::of(&client).await?.rest - before.rest);
            }
            drop((pinned, open));
        }
        bench.progress(round);
    }
    let deep = bench.deep().await?;
    let mut below = Speed::new(&format!("a backlog of {}", many(deep.events)));
    for drained in &deep.drained {
        below.push(deep.events, drained);
    }
    Ok(section(bench, &speeds, &below, written, deep))
}

fn section(
    bench: &Bench,
    speeds: &[Speed; 3],
    below: &Speed,
    written: Series,
    deep: &super::Deep,
) -> Section {
    let given = &bench.relay;
    let [idle, pinned, open] = speeds;
    let over = |speed: &Speed| {
        let name = format!("{} / idle", speed.rate.name());
        Series::ratio(name, &speed.rate, &idle.rate)
    };
    let ratios = [over(below), over(pinned), over(open)];
    let mut verdicts: Vec<_> = ratios
        .iter()
        .map(|ratio| Verdict::at_least("7", ratio, 0.7))
        .collect();
    let declines = [&below.decline, &pinned.decline, &open.decline];
    verdicts.extend(declines.map(|decline| Verdict::at_least("7", decline, 0.7)));
    let [filled, drained, recycled] = deep.space;
    let space = [
        ("events, filled", filled.outbox),
        ("all else, filled", filled.rest),
        ("events, drained", drained.outbox),
        ("all else, drained", drained.rest),
        ("events, recycled", recycled.outbox),
        ("all else, recycled", recycled.rest),
    ];
    let space = space.map(|(name, mebibytes)| {
        let name = format!("backlog of {}: {name}", many(deep.events));
        let mut series = Series::new(name, Unit::Mebibytes);
        series.push(mebibytes);
        series
    });
    let mut recycling = Series::new("recycling it", Unit::Millis);
    recycling.push(deep.purged.1 * 1e3);
    let rates = speeds.iter().chain([below]);
    let figures: Vec<_> = rates.clone().map(|speed| speed.rate.clone()).collect();
    let declines: Vec<_> = rates.map(|speed| speed.decline.clone()).collect();
    Section {
        title: "Target 7: a deep backlog, a pinned snapshot, an open writer".to_owned(),
        how: format!(
            "As in target 6, {} events, in {} rounds. During the drain a snapshot is kept, or a \
             transaction that has written an event stays open. A backlog of {} is drained {} \
             times. The speed of the last tenth is compared with that of the second, because \
             connections are opened in the first. Sizes include tables and their indexes; \
             \"recycled\" is after `purge_events` without retention.",
            many(given.events),
            given.rounds,
            many(deep.events),
            deep.drained.len()
        ),
        series: figures
            .into_iter()
            .chain(ratios)
            .chain(declines)
            .chain([written])
            .chain(space)
            .chain([recycling])
            .collect(),
        verdicts,
        ..Section::default()
    }
}
