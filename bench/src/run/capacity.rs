//! Latency of a write at 10, 50 and 90 % of the shop's maximum rate. Target 14 on the embedded store.
//!
//! The load is open: requests are due at a fixed rate, regardless of the responses. If a request is
//! due while every connection is busy, the time that it waits is part of its latency.
//!
//! The maximum rate falls as the database grows. It is therefore measured again directly before each
//! share, on the same database. A share of the rate of an empty database can be an overload of the
//! grown one, and the latency is then the time since the overload began.

use std::net::SocketAddr;

use anyhow::ensure;

use crate::load::{self, Keys, Plan, Request, Tally};

use super::{
    Bench, Store,
    folder::Folder,
    plot::{Axis, Line, Plot, Scale},
    report::{Section, Series, Unit, Verdict},
    shop::{Shop, TOKEN},
    speed::Speed,
};

/// Shares of the maximum rate, in percent.
const SHARES: [u32; 3] = [10, 50, 90];
/// The share at which the tail of the latency has a target, as its place in `SHARES`.
const HALF: usize = 1;
/// The share at which the median of the latency has a target, as its place in `SHARES`.
const NEARLY_ALL: usize = 2;
/// The setting with which a commit merges SQLite's write-ahead log.
const IN_COMMIT: &[(&str, &str)] = &[("HAPAX__STORE__MERGE_LOG", "commit")];

/// A shop with its settings, and its figures.
#[derive(Debug)]
struct Side {
    /// Added to the names of the figures.
    suffix: &'static str,
    settings: &'static [(&'static str, &'static str)],
    levels: [Level; 3],
}

/// The figures at one share of the maximum rate.
#[derive(Debug)]
struct Level {
    share: u32,
    /// The maximum rate directly before.
    capacity: Series,
    /// The rate of the responses, divided by the rate at which requests were due. Below 1, the load
    /// was an overload.
    kept: Series,
    speed: Speed,
}

/// In each round, measures the maximum rate before each share of it, and the latency at that share.
pub(super) async fn capacity(bench: &Bench, store: Store) -> anyhow::Result<Section> {
    let mut sides = vec![Side::new("", &[])];
    if store == Store::Sqlite {
        sides.push(Side::new(", log merged by commits", IN_COMMIT));
    }
    for round in 0..bench.rounds {
        for turn in 0..sides.len() {
            // Every second round has the reverse order.
            let place = if round % 2 == 0 {
                turn
            } else {
                sides.len() - 1 - turn
            };
            sides[place].measure(bench, store).await?;
        }
        bench.progress(round);
    }
    let half = &sides[0].levels[HALF].speed;
    let spread = Series::ratio(
        format!("{}: p99 / p50", half.rate.name()),
        &half.tail,
        &half.median,
    );
    let nearly_all = &sides[0].levels[NEARLY_ALL].speed.median;
    let verdicts = match store {
        Store::Sqlite => vec![
            Verdict::at_most("14", &spread, 5.0),
            Verdict::at_most("14", nearly_all, 10.0),
        ],
        Store::Postgres => Vec::new(),
    };
    let kind = match store {
        Store::Sqlite => "Target 14",
        Store::Postgres => "Growth",
    };
    let plot = Plot {
        name: "",
        title: format!("Latency of a write as the load grows, {store}"),
        across: Axis {
            name: "share of the maximum rate",
            unit: Unit::Percent,
            scale: Scale::Linear,
        },
        up: Axis {
            name: "latency",
            unit: Unit::Millis,
            scale: Scale::Log,
        },
        lines: sides.iter().flat_map(Side::lines).collect(),
    };
    let levels = sides.iter().flat_map(|side| &side.levels);
    let series = levels.flat_map(Level::series).chain([spread]).collect();
    Ok(Section {
        title: format!("{kind}: latency of a write as the load grows, {store}"),
        how: how(bench),
        series,
        plots: vec![plot],
        verdicts,
        ..Section::default()
    })
}

fn how(bench: &Bench) -> String {
    format!(
        "{} rounds, each on a new shop with an empty database: the maximum rate over {} connections, \
         then 10 % of it at a fixed rate; the maximum rate again, then 50 % of it; and the same with \
         90 %; {:?} each. The maximum rate is measured again because it falls as the database grows. \
         The timer of the runtime has a resolution of a millisecond, so requests that are due in the \
         same millisecond are sent together.",
        bench.rounds, bench.connections, bench.window
    )
}

impl Side {
    fn new(suffix: &'static str, settings: &'static [(&'static str, &'static str)]) -> Self {
        Self {
            suffix,
            settings,
            levels: SHARES.map(|share| Level::new(share, suffix)),
        }
    }

    async fn measure(&mut self, bench: &Bench, store: Store) -> anyhow::Result<()> {
        let folder = Folder::make(&bench.dir, "capacity")?;
        let shop = Shop::bare(bench, store, folder, self.settings).await?;
        for level in &mut self.levels {
            level.measure(bench, shop.address()).await?;
        }
        Ok(())
    }

    /// The latencies by share of the maximum rate.
    fn lines(&self) -> [Line; 2] {
        let at = |level: &Level| f64::from(level.share);
        let medians = self.levels.iter().map(|it| (at(it), &it.speed.median));
        let tails = self.levels.iter().map(|it| (at(it), &it.speed.tail));
        [
            Line::new(format!("p50{}", self.suffix), medians),
            Line::new(format!("p99{}", self.suffix), tails),
        ]
    }
}

impl Level {
    fn new(share: u32, suffix: &str) -> Self {
        let name = format!("POST /orders, at {share} %{suffix}");
        Self {
            share,
            capacity: Series::new(format!("{name}: capacity before"), Unit::PerSecond),
            kept: Series::new(format!("{name}: rate / rate due"), Unit::Ratio),
            speed: Speed::new(&name),
        }
    }

    async fn measure(&mut self, bench: &Bench, address: SocketAddr) -> anyhow::Result<()> {
        let mut plan = Plan {
            address,
            connections: bench.connections,
            threads: 1,
            request: order(2 * self.share),
            keys: Keys::Fresh,
            pace: None,
            until: bench.window(),
        };
        let most = first_writes(&plan).await?.per_second();
        let pace = (most * f64::from(self.share) / 100.0).max(1.0);
        plan.request = order(2 * self.share + 1);
        plan.pace = Some(pace);
        let tally = first_writes(&plan).await?;
        self.capacity.push(most);
        self.kept.push(tally.per_second() / pace);
        self.speed.push(&tally);
        Ok(())
    }

    fn series(&self) -> Vec<Series> {
        let Self {
            capacity,
            kept,
            speed,
            ..
        } = self;
        let rates = [capacity.clone(), speed.rate.clone(), kept.clone()];
        rates.into_iter().chain(speed.latencies()).collect()
    }
}

/// A request whose keys no other seed has.
fn order(seed: u32) -> Request {
    Request::post("/orders", TOKEN, crate::ORDER, u64::from(seed))
}

/// Runs a plan whose keys are all new.
pub(super) async fn first_writes(plan: &Plan) -> anyhow::Result<Tally> {
    let tally = load::run(plan).await?;
    tally.only(201)?;
    ensure!(tally.replayed == 0, "a fresh key was replayed");
    Ok(tally)
}
