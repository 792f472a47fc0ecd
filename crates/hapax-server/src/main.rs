//! The `hapax` binary: the relay, which runs next to the database of any service, and the commands
//! for its operators.
//!
//! The modules are listed in the order in which they are used: configuration, output, wiring,
//! commands.

mod config;
mod output;
mod environment;
mod open_files;
mod database;
mod destination;
mod catalogue;
mod wiring;
mod destination_set;
mod listeners;
mod polling;
mod portal;
mod endpoints;
mod operational;
mod health;
mod gateway;
mod retention;
mod admin;
mod command;

use std::{io::Write as _, process::ExitCode};

use clap::Parser as _;

use crate::{
    command::{Cli, Failure},
    output::{CLOSED, USAGE},
};

/// Events cause many small allocations that one thread makes and another one frees.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(USAGE));
        }
    };
    match command::run(cli, std::env::vars_os()) {
        Ok(code) => code,
        Err(Failure { code: CLOSED, .. }) => ExitCode::SUCCESS,
        Err(Failure { code, error_chain }) => {
            let _ = writeln!(std::io::stderr(), "hapax: {error_chain}");
            ExitCode::from(code)
        }
    }
}
