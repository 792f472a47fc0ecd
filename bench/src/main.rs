//! Load generators, the services they are held against, and the harness that compares.
//!
//! `bench run` measures the embedded rows: each figure against its reference, in one run, in
//! alternating rounds. `bench load` and `bench serve` are its parts, for use by hand.

mod histogram;
mod load;
mod serve;

use std::io::Write as _;

use clap::Parser as _;

/// The order that is posted: what a small shop's client sends.
pub(crate) const ORDER: &str =
    r#"{"customer_id":"cus_bench","amount":1299,"currency":"EUR","note":"two mugs, blue"}"#;

/// Measures Hapax.
#[derive(Debug, clap::Parser)]
#[command(name = "bench", args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    part: Option<Part>,
}

#[derive(Debug, clap::Subcommand)]
enum Part {
    /// Puts a service under load
    Load(load::Flags),
    /// Serves one of the references
    Serve(serve::Flags),
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().part {
        Some(Part::Load(flags)) => {
            let tally = runtime(1)?.block_on(flags.run())?;
            Ok(write!(std::io::stdout(), "{tally}")?)
        }
        Some(Part::Serve(flags)) => {
            let runtime = tokio::runtime::Runtime::new()?;
            runtime.block_on(flags.run())
        }
        None => Ok(()),
    }
}

fn runtime(_threads: usize) -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
}
