//! `bench run`: runs the measurements and writes the results.
//!
//! Each measurement starts its own processes, with their data in the folder of `--dir`. It
//! alternates between the sides of each ratio. It removes everything that it created, even if it
//! fails or is interrupted. A missed target is reported and is not a failure; a wrong response is.

mod report;
mod page;
mod plot;
mod folder;
mod open_files;
mod service;
mod shop;
mod reference;
mod speed;
mod machine;
mod replay;
mod storm;
mod writes;
mod capacity;
mod growth;
mod idle;
mod gateway;
mod endpoints;
mod backlog;
mod inbox;
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
use shop::build;

/// What to measure, and how long.
#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    /// Rough run of a few minutes; writes the results to the folder of --dir
    #[arg(long)]
    quick: bool,
    /// Measures only these, for example replay,writes
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Measures these parts completely, and keeps the results of the others
    #[arg(long, value_delimiter = ',', conflicts_with = "only")]
    part: Vec<Part>,
    /// Folder for databases, which must be on a real disk
    #[arg(long, default_value = "target/bench")]
    dir: PathBuf,
    /// PostgreSQL server to measure on, with a role that may create databases and run checkpoints;
    /// by default the harness starts one
    #[arg(long, value_name = "URL")]
    postgres: Option<String>,
    /// Program of the shop; by default it is built and found in the folder of this program
    #[arg(long)]
    shop: Option<PathBuf>,
    /// Program `hapax`; by default it is built and found in the folder of this program
    #[arg(long)]
    hapax: Option<PathBuf>,
    /// RabbitMQ server to measure on
    #[arg(
        long,
        value_name = "URL",
        default_value = "amqp://guest:guest@127.0.0.1:5672/%2f"
    )]
    amqp: String,
    /// Leaves out the other queue libraries, which are installed from their registries
    #[arg(long)]
    no_peers: bool,
    /// Number of rounds of each measurement
    #[arg(long)]
    rounds: Option<usize>,
    /// Length of each round in milliseconds
    #[arg(long)]
    window_ms: Option<u64>,
    /// Number of events in the largest backlog, in the database of the console, and of messages in
    /// the inbox
    #[arg(long)]
    events: Option<u64>,
    /// Number of stored keys up to which `growth` and `postgres-growth` measure [default: 1000000,
    /// or 20000 with --quick, and at most --events]
    #[arg(long)]
    keys: Option<u64>,
    /// Events per second of `endpoints`, each of which goes to ten endpoints [default: half of what
    /// the relay delivers at most]
    #[arg(long, value_name = "EVENTS", value_parser = clap::value_parser!(u32).range(1..))]
    endpoints_pace: Option<u32>,
    /// File for the results [default: bench/RESULTS.md]
    #[arg(long)]
    out: Option<PathBuf>,
}

/// Settings and shared state of the measurements.
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
    /// Number of idle connections to the gateway.
    idle_connections: usize,
    /// Number of first writes before a storm.
    steady: u64,
    backlogs: Vec<u64>,
    /// Number of stored keys.
    keys: u64,
    /// Number of messages in the inbox.
    messages: u64,
    relay: relay::Sizes,
    console: console::Sizes,
    endpoints: endpoints::Sizes,
    postgres: Option<String>,
    // Declared before the server, so that it is dropped first: its database is on the server.
    deep: OnceCell<relay::Deep>,
    server: OnceCell<Server>,
    logical: OnceCell<Server>,
}

/// The store of a shop.
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

    /// The PostgreSQL server, which is started on first use.
    async fn server(&self) -> anyhow::Result<&Server> {
        let start = || Server::start(&self.dir, self.postgres.as_deref());
        self.server.get_or_try_init(start).await
    }

    /// A PostgreSQL server with logical decoding, which is started on first use.
    async fn logical(&self) -> anyhow::Result<&Server> {
        let start = || Server::logical(&self.dir, self.postgres.as_deref());
        self.logical.get_or_try_init(start).await
    }

    /// The program of the shop, which is built on first use.
    fn shop(&self) -> anyhow::Result<&Path> {
        built(&self.shop, "shop", "shop")
    }

    /// The program `hapax`, which is built on first use.
    fn hapax(&self) -> anyhow::Result<&Path> {
        built(&self.hapax, "hapax-server", "hapax")
    }

    /// The results of the deep backlog, which is measured on first use.
    async fn deep(&self) -> anyhow::Result<&relay::Deep> {
        self.deep.get_or_try_init(|| relay::Deep::of(self)).await
    }

    /// Prints that a round is finished.
    fn progress(&self, round: usize) {
        say(&format!("  round {} of {}\n", round + 1, self.rounds));
    }
}

/// A measurement with its part and its name.
type Chosen<'a> = (Part, &'static str, Measurement<'a>);
type Measurement<'a> = Pin<Box<dyn Future<Output = anyhow::Result<Section>> + 'a>>;

impl Flags {
    /// Runs the measurements, prints the results and writes them to the file.
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
                    for refused in section.draw(&machine.measured()) {
                        say(&format!("  no plot: {refused:#}\n"));
                    }
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
        let texts: Vec<_> = written
            .iter()
            .map(|it| (it.part, self.text(it, &machine, &bench)))
            .collect();
        self.write(&bench.dir, &texts, &sections)
    }

    /// Writes the page and the plots of the sections.
    fn write(
        &self,
        dir: &Path,
        texts: &[(Part, String)],
        sections: &[Section],
    ) -> anyhow::Result<()> {
        let (out, is_kept) = self.out(dir);
        let kept = match fs::read_to_string(&out) {
            Ok(kept) if is_kept => kept,
            _ => String::new(),
        };
        let pictures = sections.iter().flat_map(|section| &section.pictures);
        plot::write(&out, &page(&kept, texts), pictures)?;
        say(&format!("written to {}\n", out.display()));
        Ok(())
    }

    /// The text of a part, with the PostgreSQL server if the part uses one.
    fn text(&self, written: &Written, machine: &Machine, bench: &Bench) -> String {
        let kind = if self.quick { " --quick" } else { "" };
        let server = match written.part {
            Part::Embedded => None,
            Part::Postgres | Part::Relay | Part::Console | Part::Gateway | Part::Endpoints => {
                bench.server.get()
            }
            Part::Feed => bench.logical.get(),
        };
        let server = server.map(ToString::to_string).unwrap_or_default();
        written.text(&format!("{machine}{server}"), kind)
    }

    /// The selected measurements.
    fn chosen<'a>(&self, bench: &'a Bench) -> anyhow::Result<Vec<Chosen<'a>>> {
        let parts = [
            embedded(bench),
            on_postgres(bench),
            of_relay(bench),
            of_feeds(bench),
            console::every(bench),
            of_gateway(bench),
            of_endpoints(bench),
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
                    "--only {only}: unknown measurement, expected one of {}",
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
        fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
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
            idle_connections: if self.quick { 1_000 } else { 10_000 },
            steady: if self.quick { 1_000 } else { 10_000 },
            backlogs: self.backlogs(),
            keys: self.keys(),
            messages: self
                .events
                .unwrap_or(if self.quick { 200_000 } else { 10_000_000 })
                .max(1),
            relay: relay::Sizes::new(
                self.quick,
                self.no_peers,
                rounds,
                self.events,
                self.window_ms.map(Duration::from_millis),
            ),
            console: console::Sizes::new(self.quick, rounds, self.events)?,
            endpoints: endpoints::Sizes::new(
                self.quick,
                rounds,
                self.window_ms.map(Duration::from_millis),
                self.endpoints_pace,
            ),
            postgres: self.postgres.clone(),
            deep: OnceCell::new(),
            server: OnceCell::new(),
            logical: OnceCell::new(),
        })
    }

    fn keys(&self) -> u64 {
        let keys = if self.quick { 20_000 } else { 1_000_000 };
        let keys = keys.min(self.events.unwrap_or(keys));
        self.keys.unwrap_or(keys).max(1)
    }

    fn backlogs(&self) -> Vec<u64> {
        match self.events {
            Some(events) => {
                // Each size only once, because the outboxes are named by their size.
                let sizes = BTreeSet::from([10_000.min(events), (events / 10).max(1), events]);
                sizes.into_iter().collect()
            }
            None if self.quick => vec![10_000, 100_000, 500_000],
            None => vec![10_000, 1_000_000, 10_000_000],
        }
    }

    /// The file for the results, and whether it keeps the results of other parts. Only a run of
    /// whole parts writes to `RESULTS.md`, and it replaces only the results of its parts.
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

/// The measurements of the embedded store.
fn embedded(bench: &Bench) -> Vec<(&'static str, Measurement<'_>)> {
    let store = Store::Sqlite;
    vec![
        ("replay", Box::pin(replay::cached(bench, store))),
        ("replay-uncached", Box::pin(replay::uncached(bench))),
        ("storm", Box::pin(storm::storm(bench, store))),
        ("writes", Box::pin(writes::writes(bench))),
        ("capacity", Box::pin(capacity::capacity(bench, store))),
        ("growth", Box::pin(growth::growth(bench, store))),
        ("idle", Box::pin(idle::idle(bench))),
        ("backlog", Box::pin(backlog::backlog(bench))),
        ("inbox", Box::pin(inbox::inbox(bench, store))),
    ]
}

/// The measurements of the relay.
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

/// The measurements of feeds.
fn of_feeds(bench: &Bench) -> Vec<(&'static str, Measurement<'_>)> {
    vec![("feed", Box::pin(relay::feeds(bench)))]
}

/// The measurements of the gateway.
fn of_gateway(bench: &Bench) -> Vec<(&'static str, Measurement<'_>)> {
    vec![
        ("gateway", Box::pin(gateway::gateway(bench, Store::Sqlite))),
        (
            "postgres-gateway",
            Box::pin(gateway::gateway(bench, Store::Postgres)),
        ),
        ("gateway-idle", Box::pin(gateway::idle(bench))),
    ]
}

/// The measurement of endpoints.
fn of_endpoints(bench: &Bench) -> Vec<(&'static str, Measurement<'_>)> {
    vec![("endpoints", Box::pin(endpoints::endpoints(bench)))]
}

/// The path of a program of this project. If it was not given, it is built into the folder of this
/// program.
fn built<'a>(place: &'a OnceLock<PathBuf>, package: &str, name: &str) -> anyhow::Result<&'a Path> {
    if let Some(known) = place.get() {
        return Ok(known);
    }
    let program = build(package, name)?;
    Ok(place.get_or_init(|| program))
}

/// The measurements on PostgreSQL.
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
        ("postgres-growth", Box::pin(growth::growth(bench, store))),
        ("postgres-nodes", Box::pin(postgres::nodes(bench))),
        ("postgres-inbox", Box::pin(inbox::inbox(bench, store))),
    ]
}

/// Prints without buffering. Errors are ignored, because a closed terminal must not stop the run.
fn say(text: &str) {
    let mut stdout = stdout().lock();
    let _ = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush());
}
