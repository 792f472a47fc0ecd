//! Tasks of the project: `cargo x TASK`.
//!
//! A task is a short list of steps. Each step prints its name and how many seconds it took. The
//! first step that fails ends the task with one line that names the step. Nothing here is needed to
//! build or to use Hapax.
#![expect(clippy::print_stdout, reason = "a task prints its progress")]

mod gate;
mod metadata;
mod postgres;
mod matrix;
mod mutants;
mod torture;
mod fuzz;
mod services;
#[path = "../../crates/hapax-testkit/src/port.rs"]
#[expect(
    unreachable_pub,
    reason = "the file belongs to the testkit, where it is public"
)]
mod port;
#[path = "../../crates/hapax-testkit/src/guard.rs"]
#[expect(
    unreachable_pub,
    reason = "the file belongs to the testkit, where it is public"
)]
mod guard;
#[expect(unreachable_pub, reason = "the file is a public module of the testkit")]
#[path = "../../crates/hapax-testkit/src/certify.rs"]
mod certify;
mod step;
mod tool;
mod tree;
mod tidy;
mod walkthrough;
mod packages;
mod sdk;
mod instructions;
mod peers;
mod probe;
mod package;
mod publish;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context as _, bail};

use crate::step::Steps;

const TASKS: &str = "\
cargo x TASK
  ci        the gate: the linters and all tests, with the longest of them shortened
  test      every test: unit tests, integration tests, doctests and the commands of the pages, but
            not the longest ones: brokers, fleet, fuzz and bench; test --embedded: those that need
            no server, no browser and no Python
  walk      only the commands of the README and the tutorial, against a running shop
  sdk       the packages for TypeScript and Python: their linters and tests, their archives, and
            services with them under the probe, kills and faults; sdk --all: with every framework
            and every driver
  packages  installs what the tests need from PyPI and npm
  features  checks each package alone, without features and with each single feature; not part of
            the gate
  matrix    tests the PostgreSQL store on every version and over every kind of connection;
            matrix 14 18: only these two versions
  brokers   the correctness run, five minutes; brokers --seconds 20 --sinks webhook,nats
  money     the crash matrix of payments, refunds and checkouts, on both stores, as a table
  fleet     a hundred clients against a shop that is down for 30 s; fleet --short, --release
  torture   kills all processes under load and checks their records;
            torture --store postgres --seconds 60: on this store, for a minute;
            torture bugs: with each seeded bug, as a table; torture power: with power failures;
            torture scenario failpoints: a kill at each failpoint; scenario --help lists the others;
            torture upgrade v0.1.0: upgrades from that release and back, under load;
            torture minimize FOLDER: finds the faults that a violation needs
  fuzz      the fuzzers, a minute each; fuzz --seconds 300 key filter: only these, for longer;
            --keep adds the inputs that reach more code to the corpus
  instructions  counts instructions and allocations of hot paths, and fails if one costs more than is
            recorded in bench/instructions.txt; instructions --record writes that file
  peers     installs public packages for idempotency keys, probes an app with each, and writes
            docs/explanation/peers.md; peers --only NAME: prints the page for one package
  gateway   the long forms of the tests of the gateway: 500 faults, a cut at every byte, a gibibyte
  probe     probes a server with each of 76 bugs, and the shop in every profile on both stores;
            probe bugs: the shop with each seeded bug that its clients can see, as a table; --all:
            also with the others; --postgres: also on PostgreSQL; probe bugs NAME: only with this one
  package   builds and checks the Debian package, in the profile dist; --check: checks the package of
            the existing build and the containers, as the gate does
  kubernetes  validates the manifests and the Helm chart, with the existing build
  publish   packs every crate that is to be published, as `cargo publish --dry-run` does, and builds
            a program outside the workspace against the packed crates; publishes nothing
  fmt       formats the tree
  tidy      checks the conventions that no other tool knows
  bench     runs the benchmarks and writes bench/RESULTS.md; --quick for a rough run";

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
    std::env::set_current_dir(&root).context("cannot change to the root of the project")?;
    let (task, rest) = match arguments.split_first() {
        Some((task, rest)) => (task.as_str(), rest),
        None => ("help", &[][..]),
    };
    if !rest.is_empty()
        && ![
            "bench",
            "brokers",
            "fleet",
            "fuzz",
            "instructions",
            "matrix",
            "package",
            "peers",
            "probe",
            "sdk",
            "test",
            "torture",
        ]
        .contains(&task)
    {
        bail!("`cargo x {task}` takes no arguments");
    }
    let mut steps = Steps::default();
    match task {
        "ci" => gate::ci(&mut steps, &root)?,
        "features" => gate::features(&mut steps)?,
        "test" => gate::test(&mut steps, &root, rest)?,
        "walk" => gate::walk(&mut steps, &root)?,
        "sdk" => sdk::sdk(&mut steps, &root, rest)?,
        "gateway" => gate::gateway(&mut steps, &root)?,
        "packages" => gate::packages(&mut steps, &root)?,
        "matrix" => matrix::matrix(&mut steps, rest)?,
        "brokers" => torture::brokers(&root, rest)?,
        "money" => torture::money(&root)?,
        "fleet" => torture::fleet(&root, rest)?,
        "torture" => torture::torture(&root, rest)?,
        "package" => steps.run("package", || package::package(&root, rest))?,
        "peers" => steps.run("peers", || peers::peers(&root, rest))?,
        "probe" => probe::probe(&mut steps, &root, rest)?,
        "kubernetes" => steps.run("kubernetes", || package::check_kubernetes(&root))?,
        "publish" => steps.run("publish", || publish::check(&root))?,
        "fuzz" => fuzz::fuzz(rest)?,
        "instructions" => steps.run("instructions", || instructions::instructions(&root, rest))?,
        "fmt" => gate::fmt(&mut steps, "")?,
        "tidy" => steps.run("tidy", || tidy::tidy(&root))?,
        "bench" => gate::bench(rest)?,
        "help" | "--help" | "-h" => println!("{TASKS}"),
        other => bail!("unknown task `{other}`\n\n{TASKS}"),
    }
    steps.close();
    Ok(())
}

/// The root of the project: the parent of this package's folder.
fn root() -> anyhow::Result<PathBuf> {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .map(Path::to_owned)
        .context("the folder of xtask has no parent")
}
