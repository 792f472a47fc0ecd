//! A backlog of events on SQLite, and how fast and with how much memory the relay drains it.
//!
//! `fill` and `drain` run as separate processes, so that the peak memory of the drain is that of
//! the relay alone. The sink accepts everything and keeps nothing.

mod fill;
mod drain;

use std::path::PathBuf;

use anyhow::Context as _;
use hapax_sqlite::{Settings, Sqlite};

pub(crate) use drain::Drained;

use crate::sources::{clock, random};

/// Fills an outbox on SQLite, or drains it.
#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    #[command(subcommand)]
    part: Part,
}

#[derive(Debug, clap::Subcommand)]
enum Part {
    /// Writes events to the outbox
    Fill(Backlog),
    /// Delivers them to a sink that accepts everything
    Drain(drain::Flags),
}

/// The outbox and the number of events.
#[derive(Debug, clap::Args)]
struct Backlog {
    /// The database file, which is created if it is missing
    #[arg(long)]
    database: PathBuf,
    /// Number of events, of about 200 bytes each
    #[arg(long, default_value_t = 10_000_000)]
    events: u64,
}

impl Flags {
    /// Runs the part and returns the text to print.
    pub(crate) async fn run(self) -> anyhow::Result<String> {
        match self.part {
            Part::Fill(backlog) => fill::fill(&backlog).await,
            Part::Drain(flags) => flags.run().await,
        }
    }
}

impl Backlog {
    fn open(&self) -> anyhow::Result<Sqlite> {
        let settings = Settings::new(&self.database, clock(), random());
        Sqlite::open(settings).with_context(|| format!("cannot open {}", self.database.display()))
    }
}
