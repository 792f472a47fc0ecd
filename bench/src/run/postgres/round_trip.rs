//! Target 2: a database that is one millisecond away.
//!
//! Round trips are what a remote database costs, so the atomic write is held against the bare
//! transaction that its handler would have opened anyway: begin, insert, commit in turn.

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

/// Microseconds to the database and back.
const ROUND_TRIP_US: u64 = 1_000;
/// So few that nothing waits for a core or a connection.
const CONNECTIONS: usize = 4;
/// The reference.
const BARE: &str = "postgres-transaction";
/// Connections of either pool.
const POOL: usize = 8;
/// Statements that the wire itself is judged by.
const PINGS: usize = 200;
/// How long the wire may take to be there.
const READY: Duration = Duration::from_secs(10);

/// Runs both in turns through one wire.
pub(in crate::run) async fn round_trip(bench: &Bench) -> anyhow::Result<Section> {
    let folder = Folder::make(&bench.dir, "postgres-round-trip")?;
    let answer = Recorded::of(bench, &folder).await?;
    let mut wire = Series::new("a statement through the wire: p50", Unit::Millis);
    let mut atomic = Speed::new("axum + Hapax, an arbitrary handler");
    let mut riding = Speed::new("the same, the claim rides");
    let mut bare = Speed::new("axum + begin, insert, commit");
    for round in 0..bench.rounds {
        for turn in 0..3 {
            // A database each: a key that another side has stored would be replayed.
            let database = bench.server().await?.database().await?;
            let address = free_address()?;
            let _wire = lay(address, &database.address(), &folder).await?;
            let url = database.url();
            let url = url.replace(&database.address(), &address.to_string());
            wire.push(ping(&url).await?);
            // Each goes first in its turn.
            let (kind, speed) = match (round + turn) % 3 {
                0 => ("postgres-atomic", &mut atomic),
                1 => (BARE, &mut bare),
                _ => ("postgres-riding", &mut riding),
            };
            let service = start(&answer, folder.path(), kind, &url, POOL).await?;
            let tally = posted(bench, service.address, CONNECTIONS).await?;
            // The bare one says what was recorded, a replay's headers included.
            let fresh = kind == BARE || tally.replayed == 0;
            ensure!(fresh, "a fresh key was replayed");
            speed.push(&tally);
        }
        bench.progress(round);
    }
    let name = "p50 of an arbitrary handler / p50 of begin, insert, commit";
    let ratio = Series::ratio(name, &atomic.median, &bare.median);
    let rides = "p50 of the same, the claim rides / p50 of begin, insert, commit";
    let rides = Series::ratio(rides, &riding.median, &bare.median);
    let verdicts = vec![Verdict::at_most("2", &ratio, 1.0)];
    let latencies = [&atomic, &riding, &bare]
        .into_iter()
        .flat_map(Speed::latencies);
    let series = [ratio, rides].into_iter().chain(latencies).chain([wire]);
    Ok(Section {
        title: "Target 2: a database one millisecond away".to_owned(),
        how: format!(
            "An order with a fresh key each time over {CONNECTIONS} connections, through `bench \
             delay` with {ROUND_TRIP_US} microseconds there and back; {} rounds of {:?} after \
             {:?} of warm-up, each on new processes with an empty database. The wire is timed \
             too: a `SELECT 1` through it and back.",
            bench.rounds, bench.window, bench.warm_up
        ),
        series: series.collect(),
        verdicts,
        ..Section::default()
    })
}

/// Starts the wire and waits until it is there.
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

/// What a statement that does nothing takes, in milliseconds.
async fn ping(url: &str) -> anyhow::Result<f64> {
    let client = connect(url).await.context("through the wire")?;
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
