//! The `hapax-probe` binary. `hapax probe` is the same command.

use std::process::ExitCode;

use clap::Parser as _;
use hapax_probe::Arguments;

/// Tests whether an HTTP server keeps the promise of Idempotency-Key.
#[derive(Debug, clap::Parser)]
#[command(name = "hapax-probe", version, about, arg_required_else_help = true)]
struct Cli {
    #[command(flatten)]
    arguments: Arguments,
}

fn main() -> ExitCode {
    Cli::parse().arguments.run()
}
