//! Target 6: speed of draining a backlog, compared with other queues on PostgreSQL.
//!
//! All of them use the same server. Their jobs are inserted in the fastest way that they offer, and
//! this time is not measured. The jobs do nothing. The best parallelism of each is found
//! beforehand.

use std::path::Path;

use super::{
    super::{
        Bench,
        folder::Folder,
        report::{Section, Series, Unit, Verdict},
    },
    many, parts,
    peers::{self, Peer},
    producer::to_f64,
    turns,
};

/// Numbers of workers of the queue table.
const WORKERS: [u32; 2] = [1, 4];

/// A side of the comparison.
enum Who {
    Hapax,
    /// The queue table with this number of workers.
    Queue(u32),
    /// Another queue library with its best parallelism.
    Peer(Peer, u32),
}

struct Side {
    who: Who,
    rate: Series,
}

/// Drains with each side alternately.
pub(in crate::run) async fn drain(bench: &Bench) -> anyhow::Result<Section> {
    let given = &bench.relay;
    let folder = Folder::make(&bench.dir, "relay-drain")?;
    let mut sides = vec![Side::new("Hapax", Who::Hapax)];
    if !given.alone {
        sides.push(others(bench, &folder, "graphile-worker 0.18").await?);
        sides.push(others(bench, &folder, "graphile_worker (Rust) 0.14").await?);
        sides.push(others(bench, &folder, "pg-boss 12").await?);
    }
    for workers in WORKERS {
        let name = match workers {
            1 => "SKIP LOCKED + DELETE, 1 worker".to_owned(),
            _ => format!("SKIP LOCKED + DELETE, {workers} workers"),
        };
        sides.push(Side::new(name, Who::Queue(workers)));
    }
    let ours = bench.server().await?.database().await?;
    parts::fill(folder.path(), &ours.url(), given.events).await?;
    let mut fastest = Series::new("the fastest of the three", Unit::PerSecond);
    let mut raw = Series::new("SKIP LOCKED + DELETE, the better one", Unit::PerSecond);
    for round in 0..given.rounds {
        let (mut peer, mut row) = (0.0_f64, 0.0_f64);
        for turn in turns(sides.len(), round) {
            let side = &mut sides[turn];
            let rate = match &side.who {
                Who::Hapax => {
                    let name = format!("round-{round}");
                    let url = ours.url();
                    let drained = parts::drain(folder.path(), &url, &name, given.events).await?;
                    to_f64(given.events) / drained.seconds
                }
                Who::Queue(workers) => {
                    let rate = queue(bench, folder.path(), *workers).await?;
                    row = row.max(rate);
                    rate
                }
                Who::Peer(program, choice) => {
                    let of = (program, *choice);
                    let rate = jobs(bench, folder.path(), of, given.jobs).await?;
                    peer = peer.max(rate);
                    rate
                }
            };
            side.rate.push(rate);
        }
        fastest.push(peer);
        raw.push(row);
        bench.progress(round);
    }
    Ok(section(bench, &sides, &fastest, &raw))
}

impl Side {
    fn new(name: impl Into<String>, who: Who) -> Self {
        Self {
            who,
            rate: Series::new(name, Unit::PerSecond),
        }
    }
}

/// Another queue library, after its best parallelism was found.
async fn others(bench: &Bench, folder: &Folder, name: &str) -> anyhow::Result<Side> {
    let peer = match name.split_once(' ') {
        Some(("graphile-worker", _)) => peers::node(&bench.dir, "graphile-worker", [1, 2])?,
        Some(("pg-boss", _)) => peers::node(&bench.dir, "pg-boss", [1, 4])?,
        _ => peers::cargo(&bench.dir, "graphile-worker-rs", [1, 4])?,
    };
    let few = (bench.relay.jobs / 4).max(1);
    let mut best = (0.0, peer.choices[0]);
    for choice in peer.choices {
        let rate = jobs(bench, folder.path(), (&peer, choice), few).await?;
        if rate > best.0 {
            best = (rate, choice);
        }
    }
    super::super::say(&format!("  {name}: x {} is the fastest\n", best.1));
    let title = format!("{name} (x {})", best.1);
    Ok(Side::new(title, Who::Peer(peer, best.1)))
}

async fn jobs(
    bench: &Bench,
    folder: &Path,
    (peer, choice): (&Peer, u32),
    jobs: u64,
) -> anyhow::Result<f64> {
    let database = bench.server().await?.database().await?;
    let url = database.url();
    peer.fill(folder, &url, jobs).await?;
    let seconds = peer.drain(folder, &url, jobs, choice).await?;
    Ok(to_f64(jobs) / seconds)
}

async fn queue(bench: &Bench, folder: &Path, workers: u32) -> anyhow::Result<f64> {
    let database = bench.server().await?.database().await?;
    let (url, events) = (database.url(), bench.relay.events);
    let (count, workers) = (events.to_string(), workers.to_string());
    let of = ["--database", &url, "--events", &count];
    parts::run(folder, &[&["queue", "fill"], &of[..]].concat()).await?;
    parts::settle(&url).await?;
    let drain = [&["queue", "drain", "--workers", &workers], &of[..]].concat();
    let seconds: f64 = parts::run(folder, &drain).await?.trim().parse()?;
    Ok(to_f64(events) / seconds)
}

fn section(bench: &Bench, sides: &[Side], fastest: &Series, raw: &Series) -> Section {
    let given = &bench.relay;
    let ours = &sides[0].rate;
    let against_raw = Series::ratio("Hapax / SKIP LOCKED + DELETE, the better one", ours, raw);
    let mut ratios = vec![against_raw];
    let mut verdicts = vec![Verdict::at_least("6", &ratios[0], 1.5)];
    if !given.alone {
        let against = Series::ratio("Hapax / the fastest of the three", ours, fastest);
        verdicts.insert(0, Verdict::at_least("6", &against, 4.0));
        ratios.insert(0, against);
    }
    let rates = sides.iter().map(|side| side.rate.clone());
    Section {
        title: "Target 6: draining a backlog".to_owned(),
        how: format!(
            "Hapax delivers {} events of 1,000 aggregates to a sink that takes batches of a \
             thousand and keeps nothing, in a separate process, to a new destination each time. \
             The queue table deletes as many rows, a thousand at a time. The three libraries run \
             {} jobs that do nothing, which is the number of their own benchmarks: \
             graphile-worker and graphile_worker (Rust) with the settings of those benchmarks, \
             pg-boss with batches of 1,000 and no pause. The best number of processes, local \
             queues or workers (x) was found beforehand. Payloads are the same. {} rounds \
             alternately, the libraries and the queue table on a new database each time, after \
             VACUUM ANALYZE and a checkpoint. The time is measured from the first fetch until \
             everything is done and committed, without the start of processes.",
            many(given.events),
            many(given.jobs),
            given.rounds
        ),
        series: rates.chain(ratios).collect(),
        verdicts,
        ..Section::default()
    }
}
