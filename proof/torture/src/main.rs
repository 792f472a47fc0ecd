//! Torture: everything is killed, again and again, and then the books are compared.
//!
//! `torture run` builds a town of real processes, lets clients want things of it while a storm of
//! faults rages, lets everything settle, and judges what was promised by what is there. All that a
//! judge reads stands in files of the run's folder, which `torture check` reads again, and so can
//! anybody else: ledgers and history are JSON Lines, the history in Jepsen's shape.
//!
//! A run holds, or is violated, or is unknown: where a kind of fault never bit, nothing is proven.

mod lines;
mod preload;
mod clients;
mod sql_contract_client;
mod deployment;
mod nemesis;
mod artifacts;
mod checkers;
mod fault_coverage;
mod report;
mod stored_rows;
mod run;
mod trial;
mod minimize;
mod bugs;
mod power;

use std::process::ExitCode;

use clap::Parser as _;

use report::Verdict;

/// Kills everything there is, again and again, and compares the books
#[derive(Debug, clap::Parser)]
#[command(name = "torture")]
enum Command {
    /// Runs a storm over a fresh town, and judges it
    Run(run::Flags),
    /// Judges what a run has left in its folder
    Check(run::Check),
    /// Runs storms over builds with bugs, until each is caught
    Bugs(bugs::Flags),
    /// Repeats a run that was violated with ever fewer blows
    Minimize(minimize::Flags),
    /// Cuts the power at random instants, and boots what is left
    Power(power::Flags),
    /// Wants things until SIGTERM; a part of a run
    #[command(hide = true)]
    Clients(clients::Flags),
    /// Writes beside the shops until SIGTERM; a part of a run
    #[command(hide = true)]
    Neighbour(sql_contract_client::Flags),
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    let ended = match Command::parse() {
        Command::Run(flags) => Box::pin(run::run(flags)).await,
        Command::Check(check) => run::check(&check),
        Command::Bugs(flags) => bugs::bugs(&flags),
        Command::Minimize(flags) => minimize::minimize(&flags),
        Command::Power(flags) => Box::pin(power::power(flags)).await,
        Command::Clients(flags) => clients::run(flags).await.map(|()| Verdict::Holds),
        Command::Neighbour(flags) => sql_contract_client::run(flags)
            .await
            .map(|()| Verdict::Holds),
    };
    match ended {
        Ok(Verdict::Holds) => ExitCode::SUCCESS,
        Ok(Verdict::Violated) => ExitCode::FAILURE,
        Ok(Verdict::Unknown) => ExitCode::from(3),
        Err(error) => {
            report::say(&format!("torture cannot go on: {error:#}"));
            ExitCode::from(2)
        }
    }
}
