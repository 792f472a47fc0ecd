//! Reference services on PostgreSQL, and the best size of their connection pools.

use std::{net::SocketAddr, path::Path};

use hapax_testkit::postgres::Database;

use super::super::{
    Bench,
    folder::Folder,
    reference::{self, Recorded},
    service::Service,
    shop::TOKEN,
};
use crate::load::{self, Keys, Plan, Request, Tally};

/// Pool sizes that are tried; the fastest is used.
const POOLS: [usize; 3] = [8, 16, 32];

/// A reference service on a separate database.
#[derive(Debug)]
pub(in crate::run) struct Reference {
    pub(in crate::run) service: Service,
    pub(in crate::run) database: Database,
}

impl Reference {
    /// Starts the service `kind` on an empty database.
    pub(in crate::run) async fn start(
        bench: &Bench,
        (answer, folder): (&Recorded, &Folder),
        kind: &str,
        pool: usize,
    ) -> anyhow::Result<Self> {
        let database = bench.server().await?.database().await?;
        let url = database.url();
        let service = start(answer, folder.path(), kind, &url, pool).await?;
        Ok(Self { service, database })
    }
}

/// Starts the service `kind` on the database at `url`.
pub(in crate::run) async fn start(
    answer: &Recorded,
    folder: &Path,
    kind: &str,
    url: &str,
    pool: usize,
) -> anyhow::Result<Service> {
    let arguments = [kind, "--database", url, "--pool", &pool.to_string()];
    reference::serve(answer, folder, &arguments.map(Into::into)).await
}

/// The pool size with the highest rate of `kind`, measured in a short run with each.
pub(in crate::run) async fn fastest_pool(
    bench: &Bench,
    of: (&Recorded, &Folder),
    kind: &str,
) -> anyhow::Result<usize> {
    let mut best = (0.0, POOLS[0]);
    for pool in POOLS {
        let reference = Reference::start(bench, of, kind, pool).await?;
        let tally = posted(bench, reference.service.address, bench.connections).await?;
        if tally.per_second() > best.0 {
            best = (tally.per_second(), pool);
        }
    }
    Ok(best.1)
}

/// Posts orders with new keys for one round.
pub(super) async fn posted(
    bench: &Bench,
    address: SocketAddr,
    connections: usize,
) -> anyhow::Result<Tally> {
    let tally = load::run(&plan(bench, address, connections, 5)).await?;
    tally.only(201)?;
    Ok(tally)
}

/// A plan for one round with new keys of the sequence `seed`.
pub(super) fn plan(bench: &Bench, address: SocketAddr, connections: usize, seed: u64) -> Plan {
    Plan {
        address,
        connections,
        threads: 1,
        request: Request::post("/orders", TOKEN, crate::ORDER, seed),
        keys: Keys::Fresh,
        pace: None,
        until: bench.window(),
    }
}
