//! Target 5: what groups are worth to the embedded store.
//!
//! The same shop, the same load, SQLite with `synchronous = FULL`; one of them puts every
//! request in a commit of its own.

use crate::load::{self, Keys, Plan, Request};

use super::{
    Bench,
    folder::Folder,
    report::{Section, Series, Unit, Verdict},
    shop::{Shop, TOKEN},
};

/// The setting that turns groups off.
const ALONE: (&str, &str) = ("HAPAX__SQLITE__GROUP_MAX", "1");

/// Runs both shops in turns.
pub(super) async fn writes(bench: &Bench) -> anyhow::Result<Section> {
    let mut grouped = Side::new("POST /orders, in groups", &[]);
    let mut alone = Side::new("POST /orders, groups of one", &[ALONE]);
    for round in 0..bench.rounds {
        let mut sides = [&mut grouped, &mut alone];
        if round % 2 == 1 {
            sides.reverse();
        }
        for side in sides {
            side.measure(bench).await?;
        }
        bench.progress(round);
    }
    let ratio = Series::ratio("in groups / groups of one", &grouped.rate, &alone.rate);
    let verdicts = vec![
        Verdict::at_least("5", &ratio, 3.0),
        Verdict::at_least("5", &grouped.rate, 15_000.0),
    ];
    Ok(Section {
        title: "Target 5: embedded writes".to_owned(),
        how: format!(
            "`POST /orders` with a fresh key each time over {} connections; {} rounds of {:?} \
             after {:?} of warm-up, each on a new shop with an empty database. A write is the \
             key, the stored answer, the order and its event, and it is on disk before it is \
             answered. The one setting that differs is `{}={}`. The target's 15,000/s is for the \
             reference machine of two cores.",
            bench.connections, bench.rounds, bench.window, bench.warm_up, ALONE.0, ALONE.1
        ),
        series: vec![
            grouped.rate,
            alone.rate,
            ratio,
            grouped.median,
            grouped.tail,
            alone.median,
            alone.tail,
            grouped.memory,
        ],
        verdicts,
    })
}

struct Side {
    settings: &'static [(&'static str, &'static str)],
    rate: Series,
    median: Series,
    tail: Series,
    memory: Series,
}

impl Side {
    fn new(name: &str, settings: &'static [(&'static str, &'static str)]) -> Self {
        Self {
            settings,
            rate: Series::new(name, Unit::PerSecond),
            median: Series::new(format!("{name}: p50"), Unit::Millis),
            tail: Series::new(format!("{name}: p99"), Unit::Millis),
            memory: Series::new(format!("{name}: memory at the end"), Unit::Mebibytes),
        }
    }

    async fn measure(&mut self, bench: &Bench) -> anyhow::Result<()> {
        let folder = Folder::make(&bench.dir, "writes")?;
        let shop = Shop::bare(&bench.shop, folder, self.settings).await?;
        let plan = Plan {
            address: shop.address(),
            connections: bench.connections,
            threads: 1,
            request: Request::post("/orders", TOKEN, crate::ORDER, 5),
            keys: Keys::Fresh,
            until: bench.window(),
        };
        let tally = load::run(&plan).await?;
        tally.only(201)?;
        anyhow::ensure!(tally.replayed == 0, "a fresh key was replayed");
        self.rate.push(tally.per_second());
        self.median
            .push(tally.latency.quantile(500).as_secs_f64() * 1e3);
        self.tail
            .push(tally.latency.quantile(990).as_secs_f64() * 1e3);
        self.memory.push(shop.service.resident()?);
        Ok(())
    }
}
