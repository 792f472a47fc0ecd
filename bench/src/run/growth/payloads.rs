//! Transactions with one event, by the size of its payload.
//!
//! They run in separate processes without HTTP, because the bodies of the shop are small.

use std::process::Command;

use hapax_testkit::postgres::Database;

use crate::transact::Transacted;

use super::{
    super::{
        Bench, Store,
        folder::Folder,
        plot::{Axis, Line, Plot, Scale},
        report::Unit,
        service::Running,
        speed::Speed,
    },
    Figures,
};

/// Sizes of the payload in bytes, with their names.
const SIZES: [(u32, &str); 4] = [
    (100, "100 B"),
    (1_000, "1 kB"),
    (10_000, "10 kB"),
    (100_000, "100 kB"),
];

/// The figures with a payload of this size.
struct Size {
    bytes: u32,
    speed: Speed,
}

/// Measures each size alternately.
pub(super) async fn payloads(bench: &Bench, store: Store) -> anyhow::Result<Figures> {
    let mut sizes: Vec<Size> = SIZES.into_iter().map(Size::new).collect();
    for round in 0..bench.rounds {
        // Every second round has the reverse order.
        sizes.reverse();
        for size in &mut sizes {
            let transacted = transact(bench, store, size.bytes).await?;
            size.speed.push_transacted(&transacted);
        }
        bench.progress(round);
    }
    sizes.sort_by_key(|size| size.bytes);
    let rates = sizes.iter().map(|size| size.speed.rate.clone());
    let latencies = sizes.iter().flat_map(|size| size.speed.latencies());
    Ok(Figures {
        how: format!(
            "`bench payload`: 64 tasks emit one event per transaction, with a payload of random \
             digits; {} rounds of {:?} after {:?} of warm-up, alternately, each in a new process \
             with an empty database.",
            bench.rounds, bench.window, bench.warm_up
        ),
        series: rates.chain(latencies).collect(),
        plot: plot(store, &sizes),
    })
}

/// Runs `bench payload` on an empty database.
async fn transact(bench: &Bench, store: Store, bytes: u32) -> anyhow::Result<Transacted> {
    let folder = Folder::make(&bench.dir, "growth-payloads")?;
    let server = match store {
        Store::Sqlite => None,
        Store::Postgres => Some(bench.server().await?.database().await?),
    };
    let file = folder.path().join("payload.db").display().to_string();
    let database = server.as_ref().map_or(file, Database::url);
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["payload", "--database", &database]);
    for (flag, value) in [
        ("--bytes", u128::from(bytes)),
        ("--warm-up-ms", bench.warm_up.as_millis()),
        ("--window-ms", bench.window.as_millis()),
    ] {
        command.args([flag, &value.to_string()]);
    }
    let said = Running::start(command, &folder.path().join("payload.log"))?;
    Transacted::read(&said.ended().await?)
}

impl Size {
    fn new((bytes, name): (u32, &str)) -> Self {
        Self {
            bytes,
            speed: Speed::new(&format!("transactions, event of {name}")),
        }
    }
}

/// The rates by the size of the payload.
fn plot(store: Store, sizes: &[Size]) -> Plot {
    let rates = sizes
        .iter()
        .map(|size| (f64::from(size.bytes), &size.speed.rate));
    Plot {
        name: "payloads",
        title: format!("Rate of transactions by the size of their event, {store}"),
        across: Axis {
            name: "bytes of payload",
            unit: Unit::Count,
            scale: Scale::Log,
        },
        up: Axis {
            name: "transactions",
            unit: Unit::PerSecond,
            scale: Scale::Log,
        },
        lines: vec![Line::new("transactions with one event", rates)],
    }
}
