//! Torture: kills every process again and again under load, then checks the results.
//!
//! `torture run` builds a deployment of real processes, runs client operations while the nemesis
//! injects faults, waits until everything has settled, and then checks the promises of Hapax
//! against the results. Checkers read only files in the folder of the run, which `torture check`
//! (or any other program) can read again: ledgers and histories are JSON Lines, the histories in
//! the format of Jepsen.
//!
//! A run holds, is violated, or is unknown: if a kind of fault had no effect, the run proves
//! nothing about it.

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
mod listing;
mod settle;
mod run;
mod scenarios;
mod trial;
mod minimize;
mod mutants;
mod bugs;
mod power;

use std::process::ExitCode;

use clap::Parser as _;

use report::Verdict;

/// Kills every process again and again under load, and checks the results
#[derive(Debug, clap::Parser)]
#[command(name = "torture")]
enum Command {
    /// Runs a storm on a new deployment, and checks it
    Run(run::Flags),
    /// Judges what a run has left in its folder
    Check(run::Check),
    /// Runs storms over builds with bugs, until each is caught
    Bugs(bugs::Flags),
    /// Repeats a violated run with fewer and fewer faults
    Minimize(minimize::Flags),
    /// Runs a scenario: these faults, in this order, and the checks
    Scenario(scenarios::Flags),
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
        Command::Scenario(flags) => Box::pin(scenarios::scenario(flags)).await,
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
