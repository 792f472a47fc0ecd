//! The memory of the gateway with many idle connections.
//!
//! The connections have been used: a connection that has sent nothing costs a fraction of that, because its buffers
//! do not exist yet. A client that keeps connections open has used them.

use anyhow::{Context as _, ensure};

use crate::{
    load::{Connection, Request},
    run::{
        Bench, Store,
        folder::Folder,
        open_files::raise_limit,
        reference::{self, Recorded},
        report::{Section, Series, Unit, Verdict},
    },
};

use super::proxy::Gateway;

/// Open files of the harness and of the gateway, besides the connections.
const OTHERS: u64 = 500;

/// Measures the memory on both stores, in a new process for each round.
pub(in crate::run) async fn idle(bench: &Bench) -> anyhow::Result<Section> {
    let count = bench.idle_connections;
    raise_limit(count as u64 + OTHERS)?;
    let folder = Folder::make(&bench.dir, "gateway-idle")?;
    let answer = Recorded::plain(&folder)?;
    let service = reference::start(&answer, &folder, &["constant"]).await?;
    let (mut series, mut verdicts) = (Vec::new(), Vec::new());
    for store in [Store::Sqlite, Store::Postgres] {
        let mebibytes = |name: String| Series::new(name, Unit::Mebibytes);
        let mut without = mebibytes(format!("memory without connections, {store}"));
        let mut with = mebibytes(format!("memory with {count} idle connections, {store}"));
        for round in 0..bench.rounds {
            let gateway = Gateway::start(bench, store, &folder, service.address).await?;
            without.push(gateway.resident()?);
            with.push(held(&gateway, count).await?);
            bench.progress(round);
        }
        verdicts.push(Verdict::below("14", &with, 200.0));
        series.extend([without, with]);
    }
    Ok(Section {
        title: "Target 14: idle connections of the gateway".to_owned(),
        how: format!(
            "VmRSS of `hapax gateway`, a new process in each of {} rounds: once it is ready, and with {count} \
             connections, each of which has sent one request and has its response. It is checked that all of them \
             are still open afterwards.",
            bench.rounds
        ),
        series,
        verdicts,
        ..Section::default()
    })
}

/// Opens the connections, and returns the memory while they are idle.
async fn held(gateway: &Gateway, count: usize) -> anyhow::Result<f64> {
    let request = Request::get("/readyz", None);
    let mut connections = Vec::with_capacity(count);
    for number in 0..count {
        let opened = Connection::open(gateway.address()).await;
        let mut connection = opened.with_context(|| format!("connection {number}"))?;
        ask(&mut connection, &request, number).await?;
        connections.push(connection);
    }
    let memory = gateway.resident()?;
    for (number, connection) in connections.iter_mut().enumerate() {
        ask(connection, &request, number).await?;
    }
    Ok(memory)
}

async fn ask(connection: &mut Connection, request: &Request, number: usize) -> anyhow::Result<()> {
    let head = connection.exchange(request.bytes()).await;
    let head = head.with_context(|| format!("connection {number}"))?;
    ensure!(head.status == 200, "connection {number}: {head:?}");
    Ok(())
}
