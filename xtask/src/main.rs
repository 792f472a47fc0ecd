//! The chores of the project, as `cargo x CHORE`.
//!
//! A chore is a short list of steps. Each step prints its name and its seconds;
//! the first that fails ends the chore with one line that says which it was.
//! Nothing here is needed to build or to use Hapax.
#![expect(clippy::print_stdout, reason = "a chore talks to whoever runs it")]

mod gate;
mod postgres;
mod matrix;
mod carry;
mod money;
mod fleet;
mod torture;
mod fuzz;
mod services;
#[path = "../../crates/hapax-testkit/src/port.rs"]
#[expect(
    unreachable_pub,
    reason = "the file is the test kit's, where it is public"
)]
mod port;
mod step;
mod tool;
mod tidy;
mod walkthrough;
mod contract;
mod package;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context as _, bail};

use crate::step::Steps;

const CHORES: &str = "\
cargo x CHORE
  ci        the gate: everything below but bench, and the linters
  test      every test: unit, integration, doctests, the pages' own lines; not the longest, which
            are below: carry, fleet, fuzz and bench
  walk      the pages' own lines alone, against a shop
  contract  the examples in other languages alone, on PostgreSQL
  features  every package by itself, bare and with each feature alone; no part of the gate
  matrix    the PostgreSQL store on every version and over every way; matrix 14 18 for two
  carry     the correctness run, five minutes; carry --seconds 20 --sinks webhook,nats
  money     the crash matrix of payments, refunds and checkouts, on both stores, as a table
  fleet     a hundred clients against a shop that is down for 30 s; fleet --short, --release
  torture   kills everything, and compares the books; torture --store postgres --seconds 60;
            torture bugs: with each bug that is planted on purpose, as a table; torture power: the
            power goes; torture upgrade v0.1.0: over to that release and back, under load;
            torture shrink FOLDER: which blows a run takes to be violated
  fuzz      the fuzzers, a minute each; fuzz --seconds 300 key filter; --keep adds what was found to
            what the project keeps
  package   makes the Debian package of an optimised build, and checks it; --check: of the build
            that is there, and the containers, as the gate does
  fmt       formats the tree
  tidy      checks the conventions that no other tool knows
  bench     measures and writes bench/RESULTS.md; --quick for a first look";

fn main() -> ExitCode {
    match run(&std::env::args().skip(1).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("\nFAILED: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> anyhow::Result<()> {
    let root = root()?;
    std::env::set_current_dir(&root).context("cannot enter the root of the project")?;
    let (chore, rest) = match arguments.split_first() {
        Some((chore, rest)) => (chore.as_str(), rest),
        None => ("help", &[][..]),
    };
    if !rest.is_empty()
        && ![
            "bench", "carry", "fleet", "fuzz", "matrix", "package", "torture",
        ]
        .contains(&chore)
    {
        bail!("`cargo x {chore}` takes no arguments");
    }
    let mut steps = Steps::default();
    match chore {
        "ci" => gate::ci(&mut steps, &root)?,
        "features" => gate::features(&mut steps)?,
        "test" => gate::test(&mut steps, &root)?,
        "walk" => gate::walk(&mut steps, &root)?,
        "contract" => gate::contract(&mut steps, &root)?,
        "matrix" => matrix::matrix(&mut steps, rest)?,
        "carry" => carry::carry(rest)?,
        "money" => money::money()?,
        "fleet" => fleet::fleet(rest)?,
        "torture" => torture::torture(&root, rest)?,
        "package" => steps.run("package", || package::package(&root, rest))?,
        "fuzz" => fuzz::fuzz(rest)?,
        "fmt" => gate::fmt(&mut steps, "")?,
        "tidy" => steps.run("tidy", || tidy::tidy(&root))?,
        "bench" => gate::bench(rest)?,
        "help" | "--help" | "-h" => println!("{CHORES}"),
        other => bail!("there is no chore `{other}`\n\n{CHORES}"),
    }
    steps.close();
    Ok(())
}

/// The root of the project: the folder that holds this package's folder.
fn root() -> anyhow::Result<PathBuf> {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .map(Path::to_owned)
        .context("xtask stands in no folder")
}
