//! Target 2: a database with a round trip of one millisecond.
//!
//! The cost of a remote database is its round trips. The atomic write is compared with the bare
//! transaction that its handler would have opened anyway: begin, insert, commit in turn. The target is
//! for a handler that touches nothing but its transaction, whose claim is optimistic.

use std::{
    net::{SocketAddr, TcpStream},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use tokio::time::sleep;

use super::{
    super::{
        Bench,
        folder::Folder,
        reference::Recorded,
        report::{Section, Series, Unit, Verdict},
        service::{Running, free_address},
        speed::Speed,
    },
    server::connect,
    side::{posted, start},
};

/// Round trip to the database in microseconds.
const ROUND_TRIP_US: u64 = 1_000;
/// Few connections, so that no request waits for a core or a database connection.
const CONNECTIONS: usize = 4;
/// The reference service.
const BARE: &str = "postgres-transaction";
/// Connections of each pool.
const POOL: usize = 8;
/// Number of statements with which the delay itself is measured.
const PINGS: usize = 200;
/// Time limit for the proxy to start.
const READY: Duration = Duration::from_secs(10);

/// Runs the services alternately through the proxy.
pub(in crate::run) async fn round_trip(bench: &Bench) -> anyhow::Result<Section> {
    let folder = Folder::make(&bench.dir, "postgres-round-trip")?;
    let answer = Recorded::of(bench, &folder).await?;
    let mut wire = Series::new("a statement through the proxy: p50", Unit::Millis);
    let mut atomic = Speed::new("axum + Hapax, an arbitrary handler");
    let mut riding = Speed::new("the same, pipelined claim");
    let mut optimistic = Speed::new("the same, optimistic claim");
    let mut bare = Speed::new("axum + begin, insert, commit");
    for round in 0..bench.rounds {
        for turn in 0..4 {
            // Each has a new database, because a key that another service has stored would be
            // replayed.
            let database = bench.server().await?.database().await?;
            let address = free_address()?;
            let _wire = lay(address, &database.address(), &folder).await?;
            let url = database.url();
            let url = url.replace(&database.address(), &address.to_string());
            wire.push(ping(&url).await?);
            // Each service is the first in every fourth round.
            let (kind, speed) = match (round + turn) % 4 {
                0 => ("postgres-atomic", &mut atomic),
                1 => (BARE, &mut bare),
                2 => ("postgres-riding", &mut riding),
                _ => ("postgres-optimistic", &mut optimistic),
            };
            let service = start(&answer, folder.path(), kind, &url, POOL).await?;
            let tally = posted(bench, service.address, CONNECTIONS).await?;
            // The bare service sends the recorded headers, which are those of a replay.
            let fresh = kind == BARE || tally.replayed == 0;
            ensure!(fresh, "a fresh key was replayed");
            speed.push(&tally);
        }
        bench.progress(round);
    }
    let ratio = |claim: &str, speed: &Speed| {
        let name = format!("p50 of a handler, {claim} / p50 of begin, insert, commit");
        Series::ratio(name, &speed.median, &bare.median)
    };
    let ratios = [
        ratio("optimistic claim", &optimistic),
        ratio("pipelined claim", &riding),
        ratio("claim first", &atomic),
    ];
    let verdicts = vec![Verdict::at_most("2", &ratios[0], 0.85)];
    let latencies = [&atomic, &riding, &optimistic, &bare]
        .into_iter()
        .flat_map(Speed::latencies);
    let series = ratios.into_iter().chain(latencies).chain([wire]);
    Ok(Section {
        title: "Target 2: a database one millisecond away".to_owned(),
        how: format!(
            "An order with a new key each time over {CONNECTIONS} connections, through `bench \
             delay` with a round trip of {ROUND_TRIP_US} microseconds; {} rounds of {:?} after \
             {:?} of warm-up, each on new processes with an empty database. The duration of a \
             `SELECT 1` through the proxy is shown too.",
            bench.rounds, bench.window, bench.warm_up
        ),
        series: series.collect(),
        verdicts,
        ..Section::default()
    })
}

/// Starts the proxy and waits until it listens.
async fn lay(address: SocketAddr, to: &str, folder: &Folder) -> anyhow::Result<Running> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["delay", "--listen", &address.to_string(), "--to", to]);
    command.args(["--round-trip-us", &ROUND_TRIP_US.to_string()]);
    let running = Running::start(command, &folder.path().join("delay.log"))?;
    let start = Instant::now();
    while TcpStream::connect(address).is_err() {
        if start.elapsed() > READY {
            bail!("bench delay does not listen on {address}");
        }
        sleep(Duration::from_millis(1)).await;
    }
    Ok(running)
}

/// The median duration of a statement that does nothing, in milliseconds.
async fn ping(url: &str) -> anyhow::Result<f64> {
    let client = connect(url).await.context("through bench delay")?;
    let statement = client.prepare("SELECT 1").await?;
    let mut took = Vec::new();
    for _ in 0..PINGS {
        let start = Instant::now();
        client.query(&statement, &[]).await?;
        took.push(start.elapsed());
    }
    took.sort();
    Ok(took[PINGS / 2].as_secs_f64() * 1e3)
}
