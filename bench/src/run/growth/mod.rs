//! Growth on both stores: stored keys, sizes of payloads, and on PostgreSQL sizes of the connection
//! pool.
//!
//! The figures have no targets. They show how rates and latencies change with one quantity, and
//! each has a plot.

mod keys;
mod payloads;
mod pools;

use std::net::SocketAddr;

use crate::load::{Keys, Plan, Request, Until};

use super::{
    Bench, Store,
    plot::Plot,
    report::{Section, Series},
    shop::TOKEN,
};

/// The figures by one quantity.
struct Figures {
    how: String,
    series: Vec<Series>,
    plot: Plot,
}

/// Measures one quantity after the other.
pub(super) async fn growth(bench: &Bench, store: Store) -> anyhow::Result<Section> {
    let mut all = vec![
        keys::keys(bench, store).await?,
        payloads::payloads(bench, store).await?,
    ];
    if store == Store::Postgres {
        all.push(pools::pools(bench).await?);
    }
    let mut section = Section {
        title: format!("Growth: stored keys, payloads and connections, {store}"),
        ..Section::default()
    };
    let mut how = Vec::new();
    for figures in all {
        how.push(figures.how);
        section.series.extend(figures.series);
        section.plots.push(figures.plot);
    }
    section.how = how.join(" ");
    Ok(section)
}

/// Orders with new keys of the sequence `seed`.
fn plan(bench: &Bench, address: SocketAddr, seed: u64, until: Until) -> Plan {
    Plan {
        address,
        connections: bench.connections,
        threads: 1,
        request: Request::post("/orders", TOKEN, crate::ORDER, seed),
        keys: Keys::Fresh,
        pace: None,
        until,
    }
}
