//! The shop: a small commerce API in which every retry is safe.
//!
//! One process runs the API, the relay, a webhook receiver that misbehaves on demand, a mail
//! catcher and two providers. The shop uses only the public crates of Hapax. The modules are listed
//! in the order of the data flow: configuration, setup, request handling, delivery, shutdown.

mod config;
mod files;
mod secrets;
mod runtime;
mod wiring;
mod catalogue;
mod announce;
mod server;
mod auth;
mod routes;
mod members;
mod ledger;
mod refunds;
mod money;
mod providers;
mod ids;
mod problem;
mod database;
mod uploads;
mod checkout;
mod templates;
mod destinations;
mod relay_handle;
mod polling;
mod customers;
mod console;
mod retention;
mod demo;

use std::{io::Write as _, process::ExitCode};

use anyhow::Context as _;
use hapax_runtime::{environment, telemetry};

use crate::config::{Config, ConfigError};

/// Requests make many small allocations that are freed on another thread; mimalloc is fast at that.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The exit code for wrong settings.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let config = match Config::load(std::env::args_os(), std::env::vars_os()) {
        Ok(config) => config,
        Err(ConfigError::Usage(error)) => {
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(USAGE));
        }
        Err(error @ ConfigError::Setting(_)) => return fail(&error, USAGE),
    };
    match start(config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&format_args!("{error:#}"), 1),
    }
}

fn start(config: Config) -> anyhow::Result<()> {
    let export = config.telemetry.export(environment::time());
    let tracing = telemetry::start(config.log, &["providers", "shop"], export);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .max_blocking_threads(hapax::limits::BLOCKING_THREADS)
        .enable_all()
        .build()
        .context("cannot start the Tokio runtime")?;
    runtime.block_on(wiring::run(config, tracing))
}

/// Prints in one line why the shop cannot run.
fn fail(error: &dyn std::fmt::Display, code: u8) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "shop: {error}");
    ExitCode::from(code)
}
