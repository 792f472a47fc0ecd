//! `bench run`: measures, and writes down what came of it.
//!
//! Each measurement starts its own processes on the disk it is told, takes turns between the
//! sides of each ratio, and removes what it made, also when it fails or is interrupted. A target
//! that is missed is reported and is no failure; an answer that is wrong is one.

mod report;
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

use std::{
    collections::BTreeSet,
    fmt, fs,
    future::Future,
    io::{Write as _, stdout},
    path::{Path, PathBuf},
    pin::Pin,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use tokio::sync::OnceCell;

use crate::load::Until;

use machine::Machine;
use postgres::Server;
use report::{COMMAND, Section, summary};
pub(crate) use service::mebibytes;

/// What is measured, and how thoroughly.
#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    /// Takes a minute or two; the figures are for a first look, and go to the folder of --dir
    #[arg(long)]
    quick: bool,
    /// Measures only these, such as replay,writes
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
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
    /// Rounds of each measurement
    #[arg(long)]
    rounds: Option<usize>,
    /// Milliseconds of each round
    #[arg(long)]
    window_ms: Option<u64>,
    /// Events of the largest backlog
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
    shop: PathBuf,
    rounds: usize,
    connections: usize,
    warm_up: Duration,
    window: Duration,
    idle: Duration,
    /// First writes before a storm.
    steady: u64,
    backlogs: Vec<u64>,
    postgres: Option<String>,
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

    /// Tells whoever waits that a round is over.
    fn progress(&self, round: usize) {
        say(&format!("  round {} of {}\n", round + 1, self.rounds));
    }
}

type Measurement<'a> = Pin<Box<dyn Future<Output = anyhow::Result<Section>> + 'a>>;

impl Flags {
    /// Measures, prints, writes down.
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let start = Instant::now();
        let bench = self.bench()?;
        let machine = Machine::look(&bench.dir)?;
        say(&format!("{machine}\n"));
        let (mut sections, mut missing) = (Vec::new(), Vec::new());
        for (name, measurement) in self.chosen(&bench)? {
            say(&format!("{name}\n"));
            match measurement.await {
                Ok(mut section) => {
                    section.name = name;
                    say(&format!("\n{section}\n"));
                    sections.push(section);
                }
                Err(error) => {
                    say(&format!("  FAILED: {error:#}\n\n"));
                    missing.push(name);
                }
            }
        }
        let took = start.elapsed();
        say(&format!("{}\nmeasured in {took:.0?}\n", summary(&sections)));
        if !missing.is_empty() {
            bail!(
                "could not measure {}; nothing is written",
                missing.join(", ")
            );
        }
        let out = self.out(&bench.dir);
        let server = bench.server.get().map(ToString::to_string);
        let machine = format!("{machine}{}", server.unwrap_or_default());
        fs::write(&out, self.page(&machine, &sections, took))?;
        say(&format!("written to {}\n", out.display()));
        Ok(())
    }

    /// The measurements that are asked for, by name.
    fn chosen<'a>(&self, bench: &'a Bench) -> anyhow::Result<Vec<(&'static str, Measurement<'a>)>> {
        let mut all: Vec<(_, Measurement<'a>)> = vec![
            ("replay", Box::pin(replay::cached(bench, Store::Sqlite))),
            ("replay-uncached", Box::pin(replay::uncached(bench))),
            ("storm", Box::pin(storm::storm(bench, Store::Sqlite))),
            ("writes", Box::pin(writes::writes(bench))),
            (
                "capacity",
                Box::pin(capacity::capacity(bench, Store::Sqlite)),
            ),
            ("idle", Box::pin(idle::idle(bench))),
            ("backlog", Box::pin(backlog::backlog(bench))),
        ];
        all.extend(on_postgres(bench));
        for only in &self.only {
            if all.iter().all(|(name, _)| name != only) {
                let names: Vec<_> = all.iter().map(|(name, _)| *name).collect();
                bail!(
                    "--only {only}: there is no such measurement, but {}",
                    names.join(", ")
                );
            }
        }
        all.retain(|(name, _)| self.only.is_empty() || self.only.iter().any(|only| only == name));
        Ok(all)
    }

    fn bench(&self) -> anyhow::Result<Bench> {
        let dir = &self.dir;
        fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let shop = match &self.shop {
            Some(shop) => shop.clone(),
            None => shop::build()?,
        };
        let of = |full, quick| Duration::from_millis(if self.quick { quick } else { full });
        Ok(Bench {
            dir: dir.clone(),
            shop,
            rounds: self.rounds.unwrap_or(5).max(1),
            connections: 64,
            warm_up: of(1_000, 200),
            window: self
                .window_ms
                .map_or(of(5_000, 600), |it| Duration::from_millis(it.max(1))),
            idle: of(10_000, 2_000),
            steady: if self.quick { 1_000 } else { 10_000 },
            backlogs: self.backlogs(),
            postgres: self.postgres.clone(),
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

    /// Only a whole run of the whole list replaces the figures that are kept.
    fn out(&self, dir: &Path) -> PathBuf {
        match &self.out {
            Some(out) => out.clone(),
            None if self.quick || !self.only.is_empty() => dir.join("RESULTS.md"),
            None => Path::new(env!("CARGO_MANIFEST_DIR")).join("RESULTS.md"),
        }
    }

    fn page(&self, machine: &str, sections: &[Section], took: Duration) -> String {
        let kind = if self.quick { " --quick" } else { "" };
        let details: Vec<_> = sections.iter().map(ToString::to_string).collect();
        format!(
            "# Figures\n\nWritten by `{COMMAND}{kind}`, in {took:.0?}. \
             How to repeat and how to read them: [README.md](README.md).\n\n{machine}\n{}\n{}",
            summary(sections),
            details.join("\n")
        )
    }
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
