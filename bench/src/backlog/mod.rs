//! A backlog of events, and how fast and in how much memory the relay carries it away.
//!
//! `fill` and `drain` are processes of their own: what the drain holds at its most is then the
//! relay's and nobody else's. The sink takes everything and keeps nothing.

mod fill;
mod drain;

use std::path::PathBuf;

use anyhow::Context as _;
use hapax_sqlite::{Settings, Sqlite};

pub(crate) use drain::Drained;

use crate::sources::{clock, random};

/// Fills an outbox, or drains it.
#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    #[command(subcommand)]
    part: Part,
}

#[derive(Debug, clap::Subcommand)]
enum Part {
    /// Writes events to the outbox
    Fill(Backlog),
    /// Carries them to a sink that takes everything
    Drain(drain::Flags),
}

/// Which outbox, and how many events.
#[derive(Debug, clap::Args)]
struct Backlog {
    /// The database file; made when missing
    #[arg(long)]
    database: PathBuf,
    /// Events, of about 200 bytes each
    #[arg(long, default_value_t = 10_000_000)]
    events: u64,
}

impl Flags {
    /// Runs it; what it says is for a program to read.
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
