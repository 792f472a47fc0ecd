//! Target 3: the cost of a replay.
//!
//! A replay from the cache is compared with axum and a constant response. A replay without the
//! cache is compared with a service that runs one primary-key SELECT. All of them send the same
//! bytes.

use anyhow::ensure;

use crate::load::{self, Keys, Plan, Request, Until};

use super::{
    Bench, Store,
    folder::Folder,
    postgres::{Reference, fastest_pool},
    reference::{self, Recorded},
    report::{Section, Series, Verdict},
    service::Service,
    shop::{Shop, TOKEN},
    speed::Speed,
};

/// Number of keys that are replayed in a cycle. Their responses fit into the default cache.
const KEYS: u64 = 4_096;
/// The setting that turns the replay cache off.
const NO_CACHE: (&str, &str) = ("HAPAX__IDEMPOTENCY__CACHE_BYTES", "0");

/// Measures replays from the cache.
pub(super) async fn cached(bench: &Bench, store: Store) -> anyhow::Result<Section> {
    let folder = Folder::make(&bench.dir, "replay")?;
    let place = Folder::make(folder.path(), "shop")?;
    let shop = Shop::bare(bench, store, place, &[]).await?;
    let answer = Recorded::replay(shop.address(), &folder).await?;
    let constant = reference::start(&answer, &folder, &["constant"]).await?;

    let mut sides = [
        Side::new("shop, replay from the cache", &shop.service),
        Side::new("axum, constant", &constant),
    ];
    alternate(bench, &mut sides).await?;
    let [shop, constant] = &sides;
    let name = "replay from the cache / constant";
    let ratio = Series::ratio(name, &shop.speed.rate, &constant.speed.rate);
    Ok(Section {
        title: format!("Target 3: replay from the cache, {store}"),
        how: how(
            bench,
            &answer,
            "`bench serve constant` sends the same bytes.",
        ),
        verdicts: vec![Verdict::at_least("3", &ratio, 0.85)],
        series: figures(&sides, [ratio]),
        ..Section::default()
    })
}

/// Measures replays from SQLite.
pub(super) async fn uncached(bench: &Bench) -> anyhow::Result<Section> {
    let folder = Folder::make(&bench.dir, "replay")?;
    let place = Folder::make(folder.path(), "shop")?;
    let shop = Shop::bare(bench, Store::Sqlite, place, &[NO_CACHE]).await?;
    let answer = Recorded::replay(shop.address(), &folder).await?;
    let pooled = reference::start(&answer, &folder, &["select"]).await?;
    let inline = reference::start(&answer, &folder, &["select", "--inline"]).await?;

    let mut sides = [
        Side::new("shop, replay without the cache", &shop.service),
        Side::new("axum + SELECT on a pool of readers", &pooled),
        Side::new("axum + SELECT in the task of the request", &inline),
    ];
    alternate(bench, &mut sides).await?;
    let [shop, pooled, inline] = &sides;
    let name = "replay without the cache / SELECT";
    let ratio = Series::ratio(name, &shop.speed.rate, &pooled.speed.rate);
    let name = format!("{name} that blocks the runtime");
    let bound = Series::ratio(name, &shop.speed.rate, &inline.speed.rate);
    let references = "The SELECT service keeps key and body in SQLite and reads by primary key: \
                      with a pool of three readers on blocking threads, to which the target \
                      applies, or in the task of the request, which blocks the runtime and gives \
                      an upper bound.";
    Ok(Section {
        title: format!("Target 3: replay without the cache, {}", Store::Sqlite),
        how: how(bench, &answer, references),
        verdicts: vec![Verdict::at_least("3", &ratio, 0.9)],
        series: figures(&sides, [ratio, bound]),
        ..Section::default()
    })
}

/// Measures replays from PostgreSQL.
pub(super) async fn uncached_on_a_server(bench: &Bench) -> anyhow::Result<Section> {
    let folder = Folder::make(&bench.dir, "replay")?;
    let place = Folder::make(folder.path(), "shop")?;
    let shop = Shop::bare(bench, Store::Postgres, place, &[NO_CACHE]).await?;
    let answer = Recorded::replay(shop.address(), &folder).await?;
    let of = (&answer, &folder);
    let pool = fastest_pool(bench, of, "postgres-select").await?;
    let select = Reference::start(bench, of, "postgres-select", pool).await?;

    let mut sides = [
        Side::new("shop, replay without the cache", &shop.service),
        Side::new("axum + SELECT by primary key", &select.service),
    ];
    alternate(bench, &mut sides).await?;
    let [shop, select] = &sides;
    let name = "replay without the cache / SELECT";
    let ratio = Series::ratio(name, &shop.speed.rate, &select.speed.rate);
    let reference = format!(
        "The SELECT service keeps key and body in PostgreSQL and reads by primary key, prepared. \
         Its pool has {pool} connections, which was the fastest of 8, 16 and 32."
    );
    Ok(Section {
        title: format!("Target 3: replay without the cache, {}", Store::Postgres),
        how: how(bench, &answer, &reference),
        verdicts: vec![Verdict::at_least("3", &ratio, 0.9)],
        series: figures(&sides, [ratio]),
        ..Section::default()
    })
}

fn how(bench: &Bench, answer: &Recorded, reference: &str) -> String {
    format!(
        "{} keys are replayed in a cycle over {} connections, with a response of {} bytes each; \
         {} rounds of {:?} after {:?} of warm-up. {reference}",
        KEYS, bench.connections, answer.size, bench.rounds, bench.window, bench.warm_up
    )
}

/// One of the services that are compared.
struct Side<'a> {
    service: &'a Service,
    speed: Speed,
}

impl<'a> Side<'a> {
    fn new(name: &str, service: &'a Service) -> Self {
        Self {
            service,
            speed: Speed::new(name),
        }
    }

    fn plan(&self, bench: &Bench, until: Until) -> Plan {
        Plan {
            address: self.service.address,
            connections: bench.connections,
            threads: 1,
            request: Request::post("/orders", TOKEN, crate::ORDER, 3),
            keys: Keys::Cycle(KEYS),
            pace: None,
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
        for turn in 0..sides.len() {
            // Every second round has the reverse order.
            let turn = if round % 2 == 0 {
                turn
            } else {
                sides.len() - 1 - turn
            };
            let side = &mut sides[turn];
            let tally = load::run(&side.plan(bench, bench.window())).await?;
            tally.only(201)?;
            ensure!(
                tally.replayed == tally.count(),
                "a response was not a replay: {tally}"
            );
            side.speed.push(&tally);
        }
        bench.progress(round);
    }
    Ok(())
}

fn figures<const N: usize>(sides: &[Side<'_>], ratios: [Series; N]) -> Vec<Series> {
    let rates = sides.iter().map(|side| side.speed.rate.clone());
    let latencies = sides.iter().flat_map(|side| side.speed.latencies());
    rates.chain(ratios).chain(latencies).collect()
}
