//! First writes by the size of the connection pool, on PostgreSQL.

use super::{
    super::{
        Bench, Store,
        capacity::first_writes,
        folder::Folder,
        plot::{Axis, Line, Plot, Scale},
        report::Unit,
        shop::Shop,
        speed::Speed,
    },
    Figures, plan,
};

/// The setting for the number of connections to PostgreSQL.
const CONNECTIONS: &str = "HAPAX__STORE__CONNECTIONS";
/// Sizes of the pool.
const POOLS: [u32; 3] = [4, 16, 64];
/// Seed of the keys.
const SEED: u64 = 1;

/// The figures with this number of connections.
struct Pool {
    connections: u32,
    writes: Speed,
}

/// Measures with each pool alternately.
pub(super) async fn pools(bench: &Bench) -> anyhow::Result<Figures> {
    let folder = Folder::make(&bench.dir, "growth-pools")?;
    let mut pools: Vec<Pool> = POOLS.into_iter().map(Pool::new).collect();
    for round in 0..bench.rounds {
        // Every second round has the reverse order.
        pools.reverse();
        for pool in &mut pools {
            let connections = pool.connections.to_string();
            let settings = [(CONNECTIONS, connections.as_str())];
            let place = Folder::make(folder.path(), "shop")?;
            let shop = Shop::bare(bench, Store::Postgres, place, &settings).await?;
            let plan = plan(bench, shop.address(), SEED, bench.window());
            pool.writes.push(&first_writes(&plan).await?);
        }
        bench.progress(round);
    }
    pools.sort_by_key(|pool| pool.connections);
    let rates = pools.iter().map(|pool| pool.writes.rate.clone());
    let latencies = pools.iter().flat_map(|pool| pool.writes.latencies());
    Ok(Figures {
        how: format!(
            "Pools of 4, 16 and 64 connections to PostgreSQL, with `POST /orders` over {} \
             connections: {} rounds of {:?} after {:?} of warm-up, alternately, each on a new shop \
             with an empty database.",
            bench.connections, bench.rounds, bench.window, bench.warm_up
        ),
        series: rates.chain(latencies).collect(),
        plot: plot(&pools),
    })
}

impl Pool {
    fn new(connections: u32) -> Self {
        let name = format!("first writes, {connections} connections to PostgreSQL");
        Self {
            connections,
            writes: Speed::new(&name),
        }
    }
}

/// The rates by the size of the pool.
fn plot(pools: &[Pool]) -> Plot {
    let rates = pools
        .iter()
        .map(|pool| (f64::from(pool.connections), &pool.writes.rate));
    Plot {
        name: "pools",
        title: "Rate of first writes by the size of the pool, PostgreSQL".to_owned(),
        across: Axis {
            name: "connections in the pool",
            unit: Unit::Count,
            scale: Scale::Log,
        },
        up: Axis {
            name: "requests",
            unit: Unit::PerSecond,
            scale: Scale::Linear,
        },
        lines: vec![Line::new("first writes", rates)],
    }
}
