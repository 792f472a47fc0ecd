//! Models of the design, explored through every crash, duplicate and order.
//!
//! Each model is a small state machine whose steps have the names of the code. The checker explores
//! everything that can happen within bounds and checks every state. Then it does so again with a
//! bug, which it must find.
//! `cargo run --release -p models` prints the results, `--large` with wider bounds.
//!
//! A model is not the code: it proves nothing about what it leaves out. See
//! docs/explanation/models.md.

mod conflict;
mod explore;
mod frontier;
mod history;
mod inbox;
mod key;
mod outbox;
mod saga;
mod table;

use std::process::ExitCode;

use clap::Parser;

/// Explores the models of the design, each sound and with every bug, and prints a table.
#[derive(Debug, Parser)]
struct Arguments {
    /// Only models whose name begins so
    #[arg(default_value = "")]
    model: String,
    /// Explores the sound models within wider bounds: minutes, and gigabytes
    #[arg(long)]
    large: bool,
    /// Prints the steps that lead to each violation
    #[arg(long)]
    traces: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let mut table = table::Table::new(arguments.model, arguments.large, arguments.traces);
    table.add::<key::Key>();
    table.add::<conflict::Conflict>();
    table.add::<outbox::Outbox>();
    table.add::<inbox::Inbox>();
    table.add::<frontier::Frontier>();
    table.add::<history::History>();
    table.add::<saga::Sagas>();
    if table.is_as_said() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
