//! `hapax completions`: prints shell completions.

use std::process::ExitCode;

use clap::CommandFactory as _;
use clap_complete::Shell;

use super::{Cli, Failure};
use crate::output::Output;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

pub(crate) fn run(args: &Args, output: Output) -> Result<ExitCode, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "hapax", &mut text);
    output.text(&String::from_utf8_lossy(&text))?;
    Ok(ExitCode::SUCCESS)
}
