//! Benchmarks of Hapax: load generators, reference services, and the harness that compares them.
//!
//! `bench run` measures each figure and its reference in one run, in alternating rounds. The other
//! commands, such as `bench load` and `bench serve`, are its parts. The harness starts them as
//! processes; they can also be run by hand.

mod sources;
mod histogram;
mod load;
mod serve;
mod transact;
mod inbox;
mod payload;
mod delay;
mod backlog;
mod relay;
mod queue;
mod feed;
mod receive;
mod publish;
mod run;
mod status;

use std::{
    future::Future,
    io::{Write as _, stderr, stdout},
    process::ExitCode,
};

use anyhow::bail;
use clap::Parser as _;
use tokio::{
    runtime::{Builder, Runtime},
    signal::unix::{SignalKind, signal},
};

/// The order that the load generators post: as small as that of a usual shop.
pub(crate) const ORDER: &str =
    r#"{"customer_id":"cus_bench","amount":1299,"currency":"EUR","note":"two mugs, blue"}"#;

/// Measures Hapax.
#[derive(Debug, clap::Parser)]
#[command(name = "bench", args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    part: Option<Part>,
    #[command(flatten)]
    run: run::Flags,
}

#[derive(Debug, clap::Subcommand)]
enum Part {
    /// Runs the benchmarks and writes the results; this is the default
    Run(run::Flags),
    /// Puts a service under load
    Load(load::Flags),
    /// Runs one of the reference services
    Serve(serve::Flags),
    /// Runs business transactions on PostgreSQL
    Transact(transact::Flags),
    /// Fills an inbox, or accepts messages in it
    Inbox(inbox::Flags),
    /// Runs transactions with one event of a chosen size
    Payload(payload::Flags),
    /// Forwards connections to a server with a delay
    Delay(delay::Flags),
    /// Fills an outbox on SQLite, or drains it
    Backlog(backlog::Flags),
    /// Fills an outbox on PostgreSQL, or runs a relay on it
    Relay(relay::Flags),
    /// Fills or drains a queue table whose rows are deleted when they are done
    Queue(queue::Flags),
    /// Writes rows of an outbox table, and reads them as events
    Feed(feed::Flags),
    /// Publishes to a broker
    Publish(publish::Flags),
    /// Receives webhooks
    Receive(receive::Flags),
}

fn main() -> ExitCode {
    let Cli { part, run } = Cli::parse();
    match start(part.unwrap_or(Part::Run(run))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // If stderr is closed, the error cannot be reported.
            let _ = writeln!(stderr(), "bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn start(part: Part) -> anyhow::Result<()> {
    match part {
        Part::Run(flags) => alone()?.block_on(unless_stopped(flags.run())),
        Part::Load(flags) => {
            let tally = alone()?.block_on(flags.run())?;
            Ok(write!(stdout(), "{tally}")?)
        }
        Part::Serve(flags) => Runtime::new()?.block_on(flags.run()),
        Part::Delay(flags) => flags.run(),
        Part::Transact(flags) => tell(flags.run()),
        Part::Inbox(flags) => tell(flags.run()),
        Part::Payload(flags) => tell(flags.run()),
        Part::Backlog(flags) => tell(flags.run()),
        Part::Relay(flags) => tell(flags.run()),
        Part::Publish(flags) => tell(flags.run()),
        Part::Queue(flags) => tell(flags.run()),
        Part::Feed(flags) => tell(flags.run()),
        Part::Receive(flags) => alone()?.block_on(flags.run()),
    }
}

/// Runs a part on a multi-threaded runtime and prints its result.
fn tell(part: impl Future<Output = anyhow::Result<String>>) -> anyhow::Result<()> {
    let said = Runtime::new()?.block_on(part)?;
    Ok(writeln!(stdout(), "{said}")?)
}

/// A runtime on this thread only, because a load generator must use as little of the machine as
/// possible.
fn alone() -> std::io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

/// Runs to the end, or until SIGTERM or SIGINT. Everything is cleaned up in both cases.
async fn unless_stopped(run: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        ended = run => ended,
        _ = terminate.recv() => bail!("stopped by SIGTERM"),
        _ = interrupt.recv() => bail!("stopped by SIGINT"),
    }
}
