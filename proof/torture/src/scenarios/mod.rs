//! Scenarios: runs with chosen faults in a chosen order.
//!
//! Each file is one scenario: the deployment, its load, the faults, and the gates, which are what
//! must have happened for the run to prove anything. The checkers are those of every run. A random
//! run needs a long time for all kinds of faults; a scenario has one kind from the start, and is
//! short enough for a test.

mod failpoints;
mod deaths;
mod crashes;
mod money;
mod fleet;
#[expect(
    clippy::unwrap_used,
    reason = "a run that cannot continue reports where"
)]
mod brokers;

use std::{path::PathBuf, time::Duration};

use hapax_testkit::wait::pace;

use crate::{
    deployment::Store,
    nemesis::{Injection, Nemesis, Who},
    report::Verdict,
    run::{Setup, deploy, fresh, play, seed},
};

/// Time between the last kill and the orderly stop: a kill explains no later duplicates.
const CALM: Duration = Duration::from_secs(4);

/// The scenario to run.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Flags {
    #[command(subcommand)]
    scenario: Scenario,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Scenario {
    /// Kills a shop at named failpoints
    Failpoints(failpoints::Flags),
    /// Kills shops repeatedly at random times
    Deaths(deaths::Flags),
    /// Crashes the database server repeatedly
    Crashes(crashes::Flags),
    /// Kills a shop and fails its providers at every step of payments, refunds and checkouts
    Money(money::Flags),
    /// Stops the shop of a hundred clients for a while
    Fleet(fleet::Flags),
    /// Kills relays that deliver to every kind of broker, whose consumers omit acknowledgements
    Brokers(brokers::Flags),
}

/// Arguments of every scenario.
#[derive(Clone, Debug, clap::Args)]
struct Common {
    /// Which store the rows are in
    #[arg(long, value_enum, default_value = "sqlite")]
    store: Store,
    /// Seed of the random choices [default: another one each time]
    #[arg(long)]
    seed: Option<u64>,
    /// Where the files of the run go [default: target/torture/SCENARIO-STORE-SEED]
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Activates this seeded bug, in a build that contains them
    #[arg(long, env = "HAPAX_SEEDED")]
    bug: Option<String>,
}

/// Runs a scenario, and checks it.
pub(crate) async fn scenario(flags: Flags) -> anyhow::Result<Verdict> {
    match flags.scenario {
        Scenario::Failpoints(flags) => failpoints::run(flags).await,
        Scenario::Deaths(flags) => deaths::run(flags).await,
        Scenario::Crashes(flags) => crashes::run(flags).await,
        Scenario::Money(flags) => money::run(flags).await,
        Scenario::Fleet(flags) => fleet::run(flags).await,
        Scenario::Brokers(flags) => brokers::run(flags).await,
    }
}

impl Common {
    /// A run of the scenario `name` with these additional flags, in which all gates must be passed.
    fn setup(&self, name: &str, flags: &str, gates: Vec<String>) -> anyhow::Result<Setup> {
        let (store, seed) = (self.store, seed(self.seed));
        let on = store.name();
        let command = "cargo x torture scenario";
        let command = format!("{command} {name} {flags} --store {on} --seed {seed}");
        Ok(Setup {
            store,
            seed,
            folder: fresh(self.folder.as_deref(), &format!("{name}-{on}-{seed}"))?,
            previous: None,
            bug: self.bug.clone(),
            command,
            gates: Some(gates),
        })
    }
}

/// Injects faults under the load of the clients, and then stops each shop with SIGTERM.
async fn under_load(
    setup: &Setup,
    faults: impl AsyncFnOnce(&mut Nemesis) -> anyhow::Result<()>,
) -> anyhow::Result<Verdict> {
    let mut deployment = deploy(setup).await?;
    deployment.add_demo();
    play(setup, deployment, async |nemesis| {
        nemesis.deployment.begin().await?;
        faults(nemesis).await?;
        nemesis.deployment.up().await?;
        pace(CALM).await;
        for shop in 0..nemesis.deployment.shops.len() {
            let stop = Injection::Term(Who::Shop(shop), None);
            nemesis.inject(0, &stop).await?;
        }
        Ok(())
    })
    .await
}

fn gates(names: &[&str]) -> Vec<String> {
    names.iter().map(|&it| it.to_owned()).collect()
}
