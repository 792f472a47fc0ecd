//! Growth: two shops on one database, compared with one.
//!
//! One shop already uses the whole machine, so a second one cannot increase the rate. The
//! measurement shows what the second one costs: commit groups are smaller, and claims of both shops
//! are evaluated by the database.

use anyhow::ensure;
use tokio::try_join;

use super::{
    super::{
        Bench, Store,
        folder::Folder,
        report::{Section, Series, Unit},
        shop::Shop,
    },
    side::plan,
};
use crate::load::{self, Tally};

/// Runs one shop and two shops alternately.
pub(in crate::run) async fn nodes(bench: &Bench) -> anyhow::Result<Section> {
    let folder = Folder::make(&bench.dir, "postgres-nodes")?;
    let mut one = Series::new("POST /orders, one shop", Unit::PerSecond);
    let mut two = Series::new("POST /orders, two shops on one database", Unit::PerSecond);
    for round in 0..bench.rounds {
        for turn in 0..2 {
            let place = |name| Folder::make(folder.path(), name);
            let first = Shop::bare(bench, Store::Postgres, place("first")?, &[]).await?;
            // Every second round has the reverse order.
            if (round + turn) % 2 == 0 {
                let plan = plan(bench, first.address(), bench.connections, 5);
                one.push(rate(&load::run(&plan).await?)?);
            } else {
                let second = first.beside(bench, place("second")?).await?;
                let half = bench.connections / 2;
                let plans = [(&first, 5), (&second, 6)]
                    .map(|(shop, seed)| plan(bench, shop.address(), half, seed));
                let (a, b) = try_join!(load::run(&plans[0]), load::run(&plans[1]))?;
                two.push(rate(&a)? + rate(&b)?);
            }
        }
        bench.progress(round);
    }
    let ratio = Series::ratio("two shops / one", &two, &one);
    Ok(Section {
        title: "Growth: two shops on one database".to_owned(),
        how: format!(
            "`POST /orders` with a new key each time over {} connections, to one shop, or half \
             of them to each of two shops; {} rounds of {:?} after {:?} of warm-up, each on new \
             processes with an empty database, on the same cores.",
            bench.connections, bench.rounds, bench.window, bench.warm_up
        ),
        series: vec![one, two, ratio],
        ..Section::default()
    })
}

fn rate(tally: &Tally) -> anyhow::Result<f64> {
    tally.only(201)?;
    ensure!(tally.replayed == 0, "a fresh key was replayed");
    Ok(tally.per_second())
}
