//! The relay on PostgreSQL, and what it is given: each part a process of its own.
//!
//! `fill` writes the events of a backlog, `drain` carries them into a sink that takes everything,
//! `carry` runs a relay as one runs beside a service, `purge` deletes what nobody needs. What
//! they print is for a program to read.

mod fill;
mod drain;
mod carry;
mod purge;

use anyhow::Context as _;
use hapax::relay::{self, Node};
use hapax_postgres::{Postgres, Settings};

pub(crate) use drain::Drained;
pub(crate) use fill::event;

use crate::sources::{clock, random};

/// Fills an outbox on PostgreSQL, or runs a relay on it.
#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    #[command(subcommand)]
    part: Part,
}

#[derive(Debug, clap::Subcommand)]
enum Part {
    /// Writes events to the outbox
    Fill(fill::Flags),
    /// Carries them to a sink that takes everything
    Drain(drain::Flags),
    /// Carries them to webhooks until it is told to end
    Carry(carry::Flags),
    /// Deletes what nobody needs
    Purge(purge::Flags),
}

/// Which database.
#[derive(Debug, clap::Args)]
struct Outbox {
    /// The database, as postgres://USER@HOST:PORT/NAME; the store's tables are made when missing
    #[arg(long, value_name = "URL")]
    database: String,
}

/// Who the relay is.
#[derive(Clone, Debug, clap::Args)]
struct Who {
    /// Its name among other relays on this database; without one there must be no other
    #[arg(long)]
    node: Option<String>,
}

impl Who {
    fn settings(&self) -> relay::Settings {
        let mut settings = relay::Settings::new(clock(), random());
        settings.node = self.node.clone().map(Node::new);
        settings
    }
}

impl Flags {
    /// Runs it; what it says is for a program to read.
    pub(crate) async fn run(self) -> anyhow::Result<String> {
        match self.part {
            Part::Fill(flags) => flags.run().await,
            Part::Drain(flags) => flags.run().await,
            Part::Carry(flags) => flags.run().await,
            Part::Purge(flags) => flags.run().await,
        }
    }
}

impl Outbox {
    async fn open(&self) -> anyhow::Result<Postgres> {
        let settings = Settings::new(&self.database, clock(), random());
        let store = Postgres::open(settings).await;
        store.context("cannot open the store")
    }
}
