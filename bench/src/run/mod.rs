//! `bench run`: measures, and writes down what came of it.
//!
//! Each measurement starts its own processes on the disk it is told, takes turns between the
//! sides of each ratio, and removes what it made, also when it fails or is interrupted. A target
//! that is missed is reported and is no failure; an answer that is wrong is one.

mod report;
mod page;
mod folder;
mod service;
mod shop;
mod reference;
mod speed;
mod machine;
mod replay;
mod storm;
mod writes;
mod capacity;
mod idle;
mod backlog;
mod postgres;
mod relay;
mod console;

use std::{
    collections::BTreeSet,
    fmt, fs,
    future::Future,
    io::{Write as _, stdout},
    path::{Path, PathBuf},
    pin::Pin,
    sync::OnceLock,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use tokio::sync::OnceCell;

use crate::load::Until;

use machine::Machine;
use page::{Part, Written, page};
use postgres::Server;
use report::{Section, summary};
pub(crate) use service::mebibytes;
use shop::build;

/// What is measured, and how thoroughly.
#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    /// Takes a minute or two; the figures are for a first look, and go to the folder of --dir
    #[arg(long)]
    quick: bool,
    /// Measures only these, such as replay,writes
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Measures the whole of these parts, and leaves the others of the page as they are
    #[arg(long, value_delimiter = ',', conflicts_with = "only")]
    part: Vec<Part>,
    /// Where databases are made: a folder on a real disk
    #[arg(long, default_value = "target/bench")]
    dir: PathBuf,
    /// The PostgreSQL server to measure on, as a role that may make databases and checkpoints;
    /// one is started for this when absent
    #[arg(long, value_name = "URL")]
    postgres: Option<String>,
    /// The shop to measure; built and found beside this program when absent
    #[arg(long)]
    shop: Option<PathBuf>,
    /// The `hapax` program to start; built and found beside this program when absent
    #[arg(long)]
    hapax: Option<PathBuf>,
    /// The RabbitMQ server to measure on
    #[arg(
        long,
        value_name = "URL",
        default_value = "amqp://guest:guest@127.0.0.1:5672/%2f"
    )]
    amqp: String,
    /// Leaves out the queues of others, which are installed from their registries
    #[arg(long)]
    no_peers: bool,
    /// Rounds of each measurement
    #[arg(long)]
    rounds: Option<usize>,
    /// Milliseconds of each round
    #[arg(long)]
    window_ms: Option<u64>,
    /// Events of the largest backlog, and of the database that the console looks at
    #[arg(long)]
    events: Option<u64>,
    /// Where the figures are written [default: bench/RESULTS.md]
    #[arg(long)]
    out: Option<PathBuf>,
}

/// What each measurement is told.
#[derive(Debug)]
struct Bench {
    dir: PathBuf,
    shop: OnceLock<PathBuf>,
    hapax: OnceLock<PathBuf>,
    amqp: String,
    rounds: usize,
    connections: usize,
    warm_up: Duration,
    window: Duration,
    idle: Duration,
    /// First writes before a storm.
    steady: u64,
    backlogs: Vec<u64>,
    relay: relay::Sizes,
    console: console::Sizes,
    postgres: Option<String>,
    // Dropped before the server that its database is on.
    deep: OnceCell<relay::Deep>,
    server: OnceCell<Server>,
}

/// What a shop stands on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Store {
    Sqlite,
    Postgres,
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sqlite => "SQLite",
            Self::Postgres => "PostgreSQL",
        })
    }
}

impl Bench {
    fn window(&self) -> Until {
        Until::Elapsed {
            warm_up: self.warm_up,
            window: self.window,
        }
    }

    /// The PostgreSQL server, which is there once somebody asks for it.
    async fn server(&self) -> anyhow::Result<&Server> {
        let start = || Server::start(&self.dir, self.postgres.as_deref());
        self.server.get_or_try_init(start).await
    }

    /// The shop, which is built once somebody asks for it.
    fn shop(&self) -> anyhow::Result<&Path> {
        built(&self.shop, "shop", "shop")
    }

    /// The `hapax` program, likewise.
    fn hapax(&self) -> anyhow::Result<&Path> {
        built(&self.hapax, "hapax-server", "hapax")
    }

    /// What came of the deep backlog, once for all who ask.
    async fn deep(&self) -> anyhow::Result<&relay::Deep> {
        self.deep.get_or_try_init(|| relay::Deep::of(self)).await
    }

    /// Tells whoever waits that a round is over.
    fn progress(&self, round: usize) {
        say(&format!("  round {} of {}\n", round + 1, self.rounds));
    }
}

/// A measurement, its name and its part.
type Chosen<'a> = (Part, &'static str, Measurement<'a>);
type Measurement<'a> = Pin<Box<dyn Future<Output = anyhow::Result<Section>> + 'a>>;

impl Flags {
    /// Measures, prints, writes down.
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let start = Instant::now();
        let bench = self.bench()?;
        let machine = Machine::look(&bench.dir)?;
        say(&format!("{machine}\n"));
        let mut written: Vec<Written> = Vec::new();
        let mut missing = Vec::new();
        for (part, name, measurement) in self.chosen(&bench)? {
            say(&format!("{name}\n"));
            let began = Instant::now();
            match measurement.await {
                Ok(mut section) => {
                    section.name = name;
                    say(&format!("\n{section}\n"));
                    let took = began.elapsed();
                    match written.last_mut().filter(|last| last.part == part) {
                        Some(last) => {
                            last.sections.push(section);
                            last.took += took;
                        }
                        None => written.push(Written {
                            part,
                            sections: vec![section],
                            took,
                        }),
                    }
                }
                Err(error) => {
                    say(&format!("  FAILED: {error:#}\n\n"));
                    missing.push(name);
                }
            }
        }
        let sections = written.iter().flat_map(|it| it.sections.clone());
        let sections: Vec<_> = sections.collect();
        let took = start.elapsed();
        say(&format!("{}\nmeasured in {took:.0?}\n", summary(&sections)));
        if !missing.is_empty() {
            bail!(
                "could not measure {}; nothing is written",
                missing.join(", ")
            );
        }
        let server = bench.server.get().map(ToString::to_string);
        let server = server.unwrap_or_default();
        let texts: Vec<_> = written
            .iter()
            .map(|it| (it.part, self.text(it, &machine.to_string(), &server)))
            .collect();
        let (out, is_kept) = self.out(&bench.dir);
        let kept = match fs::read_to_string(&out) {
            Ok(kept) if is_kept => kept,
            _ => String::new(),
        };
        fs::write(&out, page(&kept, &texts))?;
        say(&format!("written to {}\n", out.display()));
        Ok(())
    }

    /// A part as it is written down, with the server where it has one.
    fn text(&self, written: &Written, machine: &str, server: &str) -> String {
        let kind = if self.quick { " --quick" } else { "" };
        let server = match written.part {
            Part::Embedded => "",
            Part::Postgres | Part::Relay | Part::Console => server,
        };
        written.text(&format!("{machine}{server}"), kind)
    }

    /// The measurements that are asked for, by name.
    fn chosen<'a>(&self, bench: &'a Bench) -> anyhow::Result<Vec<Chosen<'a>>> {
        let parts = [
            embedded(bench),
            on_postgres(bench),
            of_relay(bench),
            console::every(bench),
        ];
        let mut all: Vec<Chosen<'a>> = Part::ALL
            .into_iter()
            .zip(parts)
            .flat_map(|(part, of)| of.into_iter().map(move |(name, it)| (part, name, it)))
            .collect();
        for only in &self.only {
            if all.iter().all(|(_, name, _)| name != only) {
                let names: Vec<_> = all.iter().map(|(_, name, _)| *name).collect();
                bail!(
                    "--only {only}: there is no such measurement, but {}",
                    names.join(", ")
                );
            }
        }
        all.retain(|(part, name, _)| {
            let is_named = self.only.is_empty() || self.only.iter().any(|only| only == name);
            is_named && (self.part.is_empty() || self.part.contains(part))
        });
        Ok(all)
    }

    fn bench(&self) -> anyhow::Result<Bench> {
        let dir = &self.dir;
        fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let given =
            |program: &Option<PathBuf>| program.clone().map(OnceLock::from).unwrap_or_default();
        let rounds = self.rounds.unwrap_or(5).max(1);
        let of = |full, quick| Duration::from_millis(if self.quick { quick } else { full });
        Ok(Bench {
            dir: dir.clone(),
            shop: given(&self.shop),
            hapax: given(&self.hapax),
            amqp: self.amqp.clone(),
            rounds,
            connections: 64,
            warm_up: of(1_000, 200),
            window: self
                .window_ms
                .map_or(of(5_000, 600), |it| Duration::from_millis(it.max(1))),
            idle: of(10_000, 2_000),
            steady: if self.quick { 1_000 } else { 10_000 },
            backlogs: self.backlogs(),
            relay: relay::Sizes::new(
                self.quick,
                self.no_peers,
                rounds,
                self.events,
                self.window_ms.map(Duration::from_millis),
            ),
            console: console::Sizes::new(self.quick, rounds, self.events)?,
            postgres: self.postgres.clone(),
            deep: OnceCell::new(),
            server: OnceCell::new(),
        })
    }

    fn backlogs(&self) -> Vec<u64> {
        match self.events {
            Some(events) => {
                // Each size once: outboxes are named by theirs.
                let sizes = BTreeSet::from([10_000.min(events), (events / 10).max(1), events]);
                sizes.into_iter().collect()
            }
            None if self.quick => vec![10_000, 100_000, 500_000],
            None => vec![10_000, 1_000_000, 10_000_000],
        }
    }

    /// Where the figures go, and whether what stands there is kept: only a run of whole parts
    /// replaces figures that are kept, and those of its parts alone.
    fn out(&self, dir: &Path) -> (PathBuf, bool) {
        match &self.out {
            Some(out) => (out.clone(), false),
            None if self.quick || !self.only.is_empty() => (dir.join("RESULTS.md"), false),
            None => (
                Path::new(env!("CARGO_MANIFEST_DIR")).join("RESULTS.md"),
                true,
            ),
        }
    }
}

/// What the embedded store is measured by.
fn embedded(bench: &Bench) -> Vec<(&'static str, Measurement<'_>)> {
    let store = Store::Sqlite;
    vec![
        ("replay", Box::pin(replay::cached(bench, store))),
        ("replay-uncached", Box::pin(replay::uncached(bench))),
        ("storm", Box::pin(storm::storm(bench, store))),
        ("writes", Box::pin(writes::writes(bench))),
        ("capacity", Box::pin(capacity::capacity(bench, store))),
        ("idle", Box::pin(idle::idle(bench))),
        ("backlog", Box::pin(backlog::backlog(bench))),
    ]
}

/// What the relay is measured by.
fn of_relay(bench: &Bench) -> Vec<(&'static str, Measurement<'_>)> {
    vec![
        ("relay-drain", Box::pin(relay::drain(bench))),
        ("relay-stress", Box::pin(relay::stress(bench))),
        ("relay-latency", Box::pin(relay::latency(bench))),
        ("webhooks", Box::pin(relay::webhooks(bench))),
        ("broker-sinks", Box::pin(relay::broker_sinks(bench))),
        ("relay-memory", Box::pin(relay::memory(bench))),
        ("relay-growth", Box::pin(relay::growth(bench))),
        ("neighbours", Box::pin(relay::neighbours(bench))),
        ("tenants", Box::pin(relay::tenants(bench))),
    ]
}

/// A program of this project: where it is, or where a build has put it, beside this very program.
fn built<'a>(place: &'a OnceLock<PathBuf>, package: &str, name: &str) -> anyhow::Result<&'a Path> {
    if let Some(known) = place.get() {
        return Ok(known);
    }
    let program = build(package, name)?;
    Ok(place.get_or_init(|| program))
}

/// What PostgreSQL is measured by.
fn on_postgres(bench: &Bench) -> Vec<(&'static str, Measurement<'_>)> {
    let store = Store::Postgres;
    vec![
        ("postgres-writes", Box::pin(postgres::writes(bench))),
        ("postgres-round-trip", Box::pin(postgres::round_trip(bench))),
        ("postgres-replay", Box::pin(replay::cached(bench, store))),
        (
            "postgres-replay-uncached",
            Box::pin(replay::uncached_on_a_server(bench)),
        ),
        ("postgres-storm", Box::pin(storm::storm(bench, store))),
        (
            "postgres-transactions",
            Box::pin(postgres::transactions(bench)),
        ),
        (
            "postgres-capacity",
            Box::pin(capacity::capacity(bench, store)),
        ),
        ("postgres-nodes", Box::pin(postgres::nodes(bench))),
    ]
}

/// Prints at once; a terminal that is gone is no reason to stop measuring.
fn say(text: &str) {
    let mut stdout = stdout().lock();
    let _ = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush());
}
