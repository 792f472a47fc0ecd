//! Target 3: what a replay costs.
//!
//! From the cache it is held against axum answering a constant; without the cache, against a
//! service that does one primary-key SELECT. All of them send the same bytes.

use std::{path::Path, process::Command};

use crate::load::{self, Keys, Plan, Request, Until};

use super::{
    Bench,
    folder::Folder,
    report::{Section, Series, Unit, Verdict},
    service::{Service, free_address},
    shop::{self, Shop, TOKEN},
};

/// Keys that are replayed round and round: their answers fit the default cache.
const KEYS: u64 = 4_096;
/// The setting that turns the replay cache off.
const NO_CACHE: (&str, &str) = ("HAPAX__IDEMPOTENCY__CACHE_BYTES", "0");

/// From the cache.
pub(super) async fn cached(bench: &Bench) -> anyhow::Result<Section> {
    let folder = Folder::make(&bench.dir, "replay")?;
    let shop = Shop::bare(&bench.shop, Folder::make(folder.path(), "shop")?, &[]).await?;
    let (answer, size) = record(&shop, folder.path()).await?;
    let constant = reference(&answer, folder.path(), &["constant"]).await?;

    let mut sides = [
        Side::new("shop, replay from the cache", &shop.service),
        Side::new("axum, constant", &constant),
    ];
    alternate(bench, &mut sides).await?;
    let [shop, constant] = &sides;
    let ratio = Series::ratio(
        "replay from the cache / constant",
        &shop.rate,
        &constant.rate,
    );
    Ok(Section {
        title: "Target 3: replay from the cache".to_owned(),
        how: how(
            bench,
            size,
            "`bench serve constant` answers the same bytes.",
        ),
        verdicts: vec![Verdict::at_least("3", &ratio, 0.85)],
        series: figures(&sides, [ratio]),
    })
}

/// From the store.
pub(super) async fn uncached(bench: &Bench) -> anyhow::Result<Section> {
    let folder = Folder::make(&bench.dir, "replay")?;
    let shop = Shop::bare(
        &bench.shop,
        Folder::make(folder.path(), "shop")?,
        &[NO_CACHE],
    )
    .await?;
    let (answer, size) = record(&shop, folder.path()).await?;
    let database = folder.path().join("pooled.db").display().to_string();
    let arguments = ["select", "--database", &database];
    let pooled = reference(&answer, folder.path(), &arguments).await?;
    let database = folder.path().join("inline.db").display().to_string();
    let arguments = ["select", "--inline", "--database", &database];
    let inline = reference(&answer, folder.path(), &arguments).await?;

    let mut sides = [
        Side::new("shop, replay without the cache", &shop.service),
        Side::new("axum + SELECT on a pool of readers", &pooled),
        Side::new("axum + SELECT in the request's own task", &inline),
    ];
    alternate(bench, &mut sides).await?;
    let [shop, pooled, inline] = &sides;
    let name = "replay without the cache / SELECT";
    let ratio = Series::ratio(name, &shop.rate, &pooled.rate);
    let bound = Series::ratio(
        format!("{name} that blocks the runtime"),
        &shop.rate,
        &inline.rate,
    );
    let references = "The SELECT service keeps key and body in SQLite and reads by primary key: \
                      from a pool of three readers on blocking threads, which is what the target \
                      is judged by, or in the request's own task, which blocks the runtime and \
                      bounds what one could do.";
    Ok(Section {
        title: "Target 3: replay without the cache".to_owned(),
        how: how(bench, size, references),
        verdicts: vec![Verdict::at_least("3", &ratio, 0.9)],
        series: figures(&sides, [ratio, bound]),
    })
}

fn how(bench: &Bench, size: usize, reference: &str) -> String {
    format!(
        "{} keys are replayed round and round over {} connections, an answer of {size} bytes \
         each; {} rounds of {:?} after {:?} of warm-up. {reference}",
        KEYS, bench.connections, bench.rounds, bench.window, bench.warm_up
    )
}

async fn record(shop: &Shop, folder: &Path) -> anyhow::Result<(String, usize)> {
    let file = folder.join("answer");
    let request = Request::post("/orders", TOKEN, crate::ORDER, 0);
    let size = shop::record_replay(shop.address(), &request, &file).await?;
    Ok((file.display().to_string(), size))
}

async fn reference(answer: &str, folder: &Path, which: &[&str]) -> anyhow::Result<Service> {
    let address = free_address()?;
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args([
            "serve",
            "--listen",
            &address.to_string(),
            "--answer",
            answer,
        ])
        .args(which);
    Service::start(command, address, &folder.join("log")).await
}

/// One of the services that take turns.
struct Side<'a> {
    service: &'a Service,
    rate: Series,
    median: Series,
    tail: Series,
}

impl<'a> Side<'a> {
    fn new(name: &str, service: &'a Service) -> Self {
        Self {
            service,
            rate: Series::new(name, Unit::PerSecond),
            median: Series::new(format!("{name}: p50"), Unit::Millis),
            tail: Series::new(format!("{name}: p99"), Unit::Millis),
        }
    }

    fn plan(&self, bench: &Bench, until: Until) -> Plan {
        Plan {
            address: self.service.address,
            connections: bench.connections,
            threads: 1,
            request: Request::post("/orders", TOKEN, crate::ORDER, 3),
            keys: Keys::Cycle(KEYS),
            until,
        }
    }
}

async fn alternate(bench: &Bench, sides: &mut [Side<'_>]) -> anyhow::Result<()> {
    for side in &*sides {
        load::run(&side.plan(bench, Until::Count(KEYS)))
            .await?
            .only(201)?;
    }
    for round in 0..bench.rounds {
        // Whoever went first goes last the next time.
        sides.reverse();
        for side in &mut *sides {
            let tally = load::run(&side.plan(bench, bench.window())).await?;
            tally.only(201)?;
            anyhow::ensure!(
                tally.replayed == tally.count(),
                "an answer was no replay: {tally}"
            );
            side.rate.push(tally.per_second());
            side.median
                .push(tally.latency.quantile(500).as_secs_f64() * 1e3);
            side.tail
                .push(tally.latency.quantile(990).as_secs_f64() * 1e3);
        }
        bench.progress(round);
    }
    if bench.rounds % 2 == 1 {
        sides.reverse();
    }
    Ok(())
}

fn figures<const N: usize>(sides: &[Side<'_>], ratios: [Series; N]) -> Vec<Series> {
    let rates = sides.iter().map(|side| side.rate.clone());
    let times = sides
        .iter()
        .flat_map(|side| [side.median.clone(), side.tail.clone()]);
    rates.chain(ratios).chain(times).collect()
}
