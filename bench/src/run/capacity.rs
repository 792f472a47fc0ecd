//! Latency of a write at 10, 50 and 90 % of the shop's maximum rate.
//!
//! The load is open: requests are due at a fixed rate, regardless of the responses. If a request is
//! due while every connection is busy, the time that it waits is part of its latency.

use anyhow::ensure;

use crate::load::{self, Keys, Plan, Request};

use super::{
    Bench, Store,
    folder::Folder,
    report::{Section, Series, Unit},
    shop::{Shop, TOKEN},
    speed::Speed,
};

/// Shares of the maximum rate, in percent.
const SHARES: [u32; 3] = [10, 50, 90];

/// Measures the maximum rate in each round, and then the latency at shares of it.
pub(super) async fn capacity(bench: &Bench, store: Store) -> anyhow::Result<Section> {
    let mut capacity = Series::new("capacity of POST /orders, 64 connections", Unit::PerSecond);
    let mut shares = SHARES.map(|share| Speed::new(&format!("POST /orders, at {share} %")));
    for round in 0..bench.rounds {
        let folder = Folder::make(&bench.dir, "capacity")?;
        let shop = Shop::bare(bench, store, folder, &[]).await?;
        let mut plan = Plan {
            address: shop.address(),
            connections: bench.connections,
            threads: 1,
            request: Request::post("/orders", TOKEN, crate::ORDER, 7),
            keys: Keys::Fresh,
            pace: None,
            until: bench.window(),
        };
        let tally = load::run(&plan).await?;
        tally.only(201)?;
        let most = tally.per_second();
        capacity.push(most);
        for (share, speed) in SHARES.into_iter().zip(&mut shares) {
            plan.request = Request::post("/orders", TOKEN, crate::ORDER, 7 + u64::from(share));
            plan.pace = Some((most * f64::from(share) / 100.0).max(1.0));
            let tally = load::run(&plan).await?;
            tally.only(201)?;
            ensure!(tally.replayed == 0, "a fresh key was replayed");
            speed.push(&tally);
        }
        bench.progress(round);
    }
    let rates = shares.iter().map(|speed| speed.rate.clone());
    let latencies = shares.iter().flat_map(Speed::latencies);
    Ok(Section {
        title: format!("Growth: latency of a write as the load grows, {store}"),
        how: format!(
            "{} rounds, each on a new shop with an empty database: the maximum rate over {} \
             connections, then 10, 50 and 90 % of it at a fixed rate, {:?} each. The timer of the \
             runtime has a resolution of a millisecond, so requests that are due in the same \
             millisecond are sent together.",
            bench.rounds, bench.connections, bench.window
        ),
        series: [capacity]
            .into_iter()
            .chain(rates)
            .chain(latencies)
            .collect(),
        verdicts: Vec::new(),
        ..Section::default()
    })
}
