//! Target 4: a thousand simultaneous requests with one key.
//!
//! They are compared with a thousand simultaneous requests with different keys. The latency of
//! first writes under steady load is shown as well. The run fails unless there is exactly one
//! effect and all responses are equal.

use std::{pin::pin, time::Duration};

use anyhow::{Context as _, ensure};
use tokio::time::sleep;

use crate::load::{self, Keys, Plan, Request, Tally, Until, burst};

use super::{
    Bench, Store,
    folder::Folder,
    postgres::connect,
    report::{Section, Series, Unit, Verdict},
    shop::{Shop, TOKEN, count_orders},
    speed::Speed,
};

/// Number of simultaneous requests.
const STORM: u64 = 1_000;
/// Interval at which the connections of the shop are counted.
const LOOK: Duration = Duration::from_millis(1);
/// Counts the connections of the shop that are not idle.
const AT_WORK: &str = "\
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND application_name = 'hapax' AND state <> 'idle'";

/// What is measured.
struct Figures {
    replays: Series,
    effects: Series,
    steady: Speed,
    distinct: Speed,
    same: Speed,
    taken: Series,
    contrast: Series,
}

/// Runs the storms.
pub(super) async fn storm(bench: &Bench, store: Store) -> anyhow::Result<Section> {
    let mut figures = Figures::new();
    for round in 0..bench.rounds {
        figures.measure(bench, store, round).await?;
        bench.progress(round);
    }
    let (series, verdicts) = figures.judge(store);
    Ok(Section {
        title: format!("Target 4: a duplicate storm, {store}"),
        how: how(bench, store),
        series,
        verdicts,
        ..Section::default()
    })
}

impl Figures {
    /// The series without rounds.
    fn new() -> Self {
        Self {
            replays: Series::new("replays among 1,000 requests with one key", Unit::Count),
            effects: Series::new("effects of 1,000 requests with one key", Unit::Count),
            steady: Speed::new("first writes, 64 connections"),
            distinct: Speed::new("1,000 at once, a key each"),
            same: Speed::new("1,000 at once, one key"),
            taken: Series::new("connections at work at once, one key", Unit::Count),
            contrast: Series::new("connections at work at once, a key each", Unit::Count),
        }
    }

    /// Measures one round, on new shops with empty databases.
    async fn measure(&mut self, bench: &Bench, store: Store, round: usize) -> anyhow::Result<()> {
        let folder = Folder::make(&bench.dir, "storm")?;
        let shop = Shop::bare(bench, store, folder, &[]).await?;
        self.first_writes(bench, &shop).await?;
        // The order changes in every second round, because the second storm finds the shop warm.
        for kind in if round.is_multiple_of(2) {
            [false, true]
        } else {
            [true, false]
        } {
            if kind {
                let tally = one_key(&shop).await?;
                self.same.push(&tally);
                self.replays.push(to_f64(tally.replayed));
            } else {
                self.distinct.push(&many_keys(&shop).await?);
            }
        }
        let orders = count_orders(shop.address(), "cus_storm").await?;
        ensure!(orders == 1, "one key created {orders} orders");
        self.effects.push(to_f64(orders));
        drop(shop);
        if store == Store::Postgres {
            self.taken.push(connections(bench, true).await?);
            self.contrast.push(connections(bench, false).await?);
        }
        Ok(())
    }

    /// Measures the latency of first writes under steady load.
    async fn first_writes(&mut self, bench: &Bench, shop: &Shop) -> anyhow::Result<()> {
        let plan = Plan {
            address: shop.address(),
            connections: bench.connections,
            threads: 1,
            request: Request::post("/orders", TOKEN, crate::ORDER, 1),
            keys: Keys::Fresh,
            pace: None,
            until: Until::Count(bench.steady),
        };
        let tally = load::run(&plan).await?;
        tally.only(201)?;
        self.steady.push(&tally);
        Ok(())
    }

    /// The series of the report, and the verdicts about them.
    fn judge(self, store: Store) -> (Vec<Series>, Vec<Verdict>) {
        let name = "p99 of the storm / p50 of 1,000 first writes at once";
        let like = Series::ratio(name, &self.same.tail, &self.distinct.median);
        let name = "p99 of the storm / p50 of a first write, 64 connections";
        let against_steady = Series::ratio(name, &self.same.tail, &self.steady.median);
        let mut series = vec![self.effects, self.replays, like, against_steady];
        let mut verdicts = vec![
            Verdict::always("4", &series[0], 1.0),
            Verdict::always("4", &series[1], to_f64(STORM - 1)),
            Verdict::below("4", &series[2], 5.0),
        ];
        if store == Store::Postgres {
            verdicts.push(Verdict::at_most("4", &self.taken, 1.0));
            series.extend([self.taken, self.contrast]);
        }
        series.extend(
            [self.same, self.distinct, self.steady]
                .into_iter()
                .flat_map(|it| it.latencies()),
        );
        (series, verdicts)
    }
}

/// How the storms are measured.
fn how(bench: &Bench, store: Store) -> String {
    format!(
        "{} rounds, each on a new shop with an empty database: {} first writes over {} \
         connections, then {STORM} simultaneous requests with a key each, and {STORM} with \
         one key, in alternating order. Every connection was used before. Effects are counted \
         with `GET /orders`, and every body of the storm must be the same, byte for byte. The \
         target compares a thousand simultaneous requests with a thousand others.{}",
        bench.rounds,
        bench.steady,
        bench.connections,
        match store {
            Store::Sqlite => "",
            Store::Postgres => {
                " Connections are those that are not idle in `pg_stat_activity`, counted about \
                 every millisecond, on another new shop for each kind of storm."
            }
        },
    )
}

async fn one_key(shop: &Shop) -> anyhow::Result<Tally> {
    let body = crate::ORDER.replace("cus_bench", "cus_storm");
    let request = Request::post("/orders", TOKEN, &body, 2);
    let requests = vec![request; usize::try_from(STORM)?];
    let (tally, bodies) = burst(shop.address(), &greeting(), requests).await?;
    tally.only(201)?;
    ensure!(
        bodies.iter().all(|body| *body == bodies[0]),
        "one key has two different responses"
    );
    Ok(tally)
}

/// The maximum number of busy connections of a new shop in a storm with one key, or with many.
async fn connections(bench: &Bench, one: bool) -> anyhow::Result<f64> {
    let folder = Folder::make(&bench.dir, "storm")?;
    let shop = Shop::bare(bench, Store::Postgres, folder, &[]).await?;
    let database = shop
        .database()
        .context("the shop does not use PostgreSQL")?;
    let client = connect(&database.url()).await?;
    let at_work = client.prepare(AT_WORK).await?;
    let storm = async {
        if one {
            one_key(&shop).await
        } else {
            many_keys(&shop).await
        }
    };
    let mut storm = pin!(storm);
    let mut most = 0;
    loop {
        tokio::select! {
            ended = &mut storm => return ended.map(|_| to_f64(most)),
            () = sleep(LOOK) => {
                let now: i64 = client.query_one(&at_work, &[]).await?.try_get(0)?;
                most = most.max(u64::try_from(now)?);
            }
        }
    }
}

async fn many_keys(shop: &Shop) -> anyhow::Result<Tally> {
    let mut request = Request::post("/orders", TOKEN, crate::ORDER, 3);
    let requests = (0..STORM).map(|number| {
        request.take_key(number);
        request.clone()
    });
    let (tally, _) = burst(shop.address(), &greeting(), requests.collect()).await?;
    tally.only(201)?;
    ensure!(tally.replayed == 0, "a fresh key was replayed");
    Ok(tally)
}

fn greeting() -> Request {
    Request::get("/healthz", None)
}

#[expect(clippy::cast_precision_loss, reason = "a few thousand requests")]
fn to_f64(count: u64) -> f64 {
    count as f64
}
