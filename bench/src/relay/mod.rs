//! `bench relay`: the relay on PostgreSQL. Each part runs as a separate process.
//!
//! `fill` writes the events of a backlog, `drain` delivers them to a sink that accepts everything,
//! `carry` runs a relay with webhooks as in production, and `purge` deletes events that all
//! destinations have settled. The harness parses their output.

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
    /// Delivers them to a sink that accepts everything
    Drain(drain::Flags),
    /// Delivers them to webhooks until SIGTERM
    Carry(carry::Flags),
    /// Deletes events that no destination needs
    Purge(purge::Flags),
}

/// The database.
#[derive(Debug, clap::Args)]
struct Outbox {
    /// The database, as postgres://USER@HOST:PORT/NAME; missing tables are created
    #[arg(long, value_name = "URL")]
    database: String,
}

/// The name of the relay.
#[derive(Clone, Debug, clap::Args)]
struct Who {
    /// Node name, which is required if several relays use this database
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
    /// Runs the part and returns the text to print.
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
