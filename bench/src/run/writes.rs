//! Target 5: the gain of commit groups on the embedded store.
//!
//! The same shop runs under the same load on SQLite with `synchronous = FULL`, with groups and with
//! a separate commit for every request. A bare INSERT with a commit for each request, which is
//! unsafe to retry, is shown for comparison.

use anyhow::ensure;

use crate::load::{self, Keys, Plan, Request};

use super::{
    Bench, Store,
    folder::Folder,
    reference::{self, Recorded},
    report::{Section, Series, Unit, Verdict},
    service::Service,
    shop::{Shop, TOKEN},
    speed::Speed,
};

/// The setting that turns groups off.
const ALONE: (&str, &str) = ("HAPAX__STORE__GROUP_MAX", "1");

/// Runs the services alternately.
pub(super) async fn writes(bench: &Bench) -> anyhow::Result<Section> {
    let folder = Folder::make(&bench.dir, "writes")?;
    let answer = Recorded::of(bench, &folder).await?;
    let mut grouped = Speed::new("POST /orders, in groups");
    let mut alone = Speed::new("POST /orders, groups of one");
    let mut bare = Speed::new("axum + bare INSERT, a commit each");
    let mut memory = Series::new(
        "POST /orders, in groups: memory at the end",
        Unit::Mebibytes,
    );
    for round in 0..bench.rounds {
        for turn in 0..3 {
            // Every second round has the reverse order.
            match if round % 2 == 0 { turn } else { 2 - turn } {
                0 => {
                    let shop = shop(bench, &folder, &[]).await?;
                    let replayed = measure(bench, &shop.service, &mut grouped).await?;
                    ensure!(replayed == 0, "a fresh key was replayed");
                    memory.push(shop.service.resident()?);
                }
                1 => {
                    let shop = shop(bench, &folder, &[ALONE]).await?;
                    let replayed = measure(bench, &shop.service, &mut alone).await?;
                    ensure!(replayed == 0, "a fresh key was replayed");
                }
                _ => {
                    let service = reference::start(&answer, &folder, &["insert"]).await?;
                    measure(bench, &service, &mut bare).await?;
                }
            }
        }
        bench.progress(round);
    }
    let ratio = Series::ratio("in groups / groups of one", &grouped.rate, &alone.rate);
    let against = Series::ratio("in groups / bare INSERT", &grouped.rate, &bare.rate);
    let verdicts = vec![
        Verdict::at_least("5", &ratio, 3.0),
        Verdict::at_least("5", &grouped.rate, 15_000.0),
    ];
    let speeds = [&grouped, &alone, &bare];
    let rates = speeds.map(|speed| speed.rate.clone());
    let latencies = speeds.into_iter().flat_map(Speed::latencies);
    let series = rates
        .into_iter()
        .chain([ratio, against])
        .chain(latencies)
        .chain([memory]);
    Ok(Section {
        title: "Target 5: embedded writes".to_owned(),
        how: format!(
            "`POST /orders` with a new key each time over {} connections; {} rounds of {:?} \
             after {:?} of warm-up, each on a new process with an empty database. The shop writes \
             the key, the stored response, the order and its event, and syncs them to disk before \
             it responds. `{}={}` turns groups off. The bare INSERT writes and syncs the order \
             alone. The target of 15,000/s is for the reference machine with two cores.",
            bench.connections, bench.rounds, bench.window, bench.warm_up, ALONE.0, ALONE.1
        ),
        series: series.collect(),
        verdicts,
        ..Section::default()
    })
}

async fn shop(bench: &Bench, folder: &Folder, settings: &[(&str, &str)]) -> anyhow::Result<Shop> {
    let place = Folder::make(folder.path(), "shop")?;
    Shop::bare(bench, Store::Sqlite, place, settings).await
}

/// Puts a service under load and returns the number of replayed responses.
async fn measure(bench: &Bench, service: &Service, speed: &mut Speed) -> anyhow::Result<u64> {
    let plan = Plan {
        address: service.address,
        connections: bench.connections,
        threads: 1,
        request: Request::post("/orders", TOKEN, crate::ORDER, 5),
        keys: Keys::Fresh,
        pace: None,
        until: bench.window(),
    };
    let tally = load::run(&plan).await?;
    tally.only(201)?;
    speed.push(&tally);
    Ok(tally.replayed)
}
