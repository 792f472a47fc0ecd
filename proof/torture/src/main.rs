//! Torture tests: kill every process repeatedly under load, and then check the results.
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
mod conflict;
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
mod separate_run;
mod minimize;
mod mutants;
mod bugs;
mod power;

use std::process::ExitCode;

use clap::Parser as _;

use report::Verdict;

/// Kills every process repeatedly under load, and checks the results
#[derive(Debug, clap::Parser)]
#[command(name = "torture")]
enum Command {
    /// Runs a new cluster under random faults, and checks the result
    Run(run::Flags),
    /// Checks the artifacts of a run again
    Check(run::Check),
    /// Runs a build with each seeded bug until the bug is found
    Bugs(bugs::Flags),
    /// Repeats a violated run with fewer and fewer faults
    Minimize(minimize::Flags),
    /// Runs a scenario: chosen faults in a chosen order, and the checks
    Scenario(scenarios::Flags),
    /// Simulates power losses at random instants, and checks the store after each
    Power(power::Flags),
    /// Runs client operations until SIGTERM; a part of a run
    #[command(hide = true)]
    Clients(clients::Flags),
    /// Writes by the SQL contract until SIGTERM; a part of a run
    #[command(hide = true)]
    SqlClient(sql_contract_client::Flags),
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
        Command::SqlClient(flags) => sql_contract_client::run(flags)
            .await
            .map(|()| Verdict::Holds),
    };
    match ended {
        Ok(Verdict::Holds) => ExitCode::SUCCESS,
        Ok(Verdict::Violated) => ExitCode::FAILURE,
        Ok(Verdict::Unknown) => ExitCode::from(3),
        Err(error) => {
            report::print(&format!("torture failed: {error:#}"));
            ExitCode::from(2)
        }
    }
}
