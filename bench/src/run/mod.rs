//! `bench run`: measures the embedded rows and writes them down.
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

use std::{
    fs,
    future::Future,
    io::{Write as _, stdout},
    path::{Path, PathBuf},
    pin::Pin,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};

use crate::load::Until;

use machine::Machine;
use report::{Section, summary};
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
    /// The shop to measure; built and found beside this program when absent
    #[arg(long)]
    shop: Option<PathBuf>,
    /// Rounds of each measurement
    #[arg(long)]
    rounds: Option<usize>,
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
    backlogs: Vec<u64>,
}

impl Bench {
    fn window(&self) -> Until {
        Until::Elapsed {
            warm_up: self.warm_up,
            window: self.window,
        }
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
                Ok(section) => {
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
        fs::write(&out, self.page(&machine, &sections, took))?;
        say(&format!("written to {}\n", out.display()));
        Ok(())
    }

    /// The measurements that are asked for, by name.
    fn chosen<'a>(&self, bench: &'a Bench) -> anyhow::Result<Vec<(&'static str, Measurement<'a>)>> {
        let mut all: Vec<(_, Measurement<'a>)> = vec![
            ("replay", Box::pin(replay::cached(bench))),
            ("replay-uncached", Box::pin(replay::uncached(bench))),
            ("storm", Box::pin(storm::storm(bench))),
            ("writes", Box::pin(writes::writes(bench))),
            ("capacity", Box::pin(capacity::capacity(bench))),
            ("idle", Box::pin(idle::idle(bench))),
            ("backlog", Box::pin(backlog::backlog(bench))),
        ];
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
            window: of(5_000, 600),
            idle: of(10_000, 2_000),
            backlogs: self.backlogs(),
        })
    }

    fn backlogs(&self) -> Vec<u64> {
        match self.events {
            Some(events) => vec![10_000.min(events), (events / 10).max(1), events],
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

    fn page(&self, machine: &Machine, sections: &[Section], took: Duration) -> String {
        let kind = if self.quick { " --quick" } else { "" };
        let details: Vec<_> = sections.iter().map(ToString::to_string).collect();
        format!(
            "# Figures of the embedded store\n\n\
             Written by `cargo run --release -p bench -- run{kind}`, in {took:.0?}. \
             How to repeat and how to read them: [README.md](README.md).\n\n{machine}\n{}\n{}",
            summary(sections),
            details.join("\n")
        )
    }
}

/// Prints at once; a terminal that is gone is no reason to stop measuring.
fn say(text: &str) {
    let mut stdout = stdout().lock();
    let _ = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush());
}
