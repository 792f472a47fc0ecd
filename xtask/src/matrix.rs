//! `cargo x matrix`: the PostgreSQL store on every version, over every kind of connection.
//!
//! For each version, the task starts a server with TLS and runs the tests of the store against it.
//! All tests run over a direct connection. The conformance suite also runs through a pooler, as a
//! role that has only the grants of the guide, and over TLS. `cargo x matrix 14 18` tests only
//! these two versions, and `--direct` leaves out the other kinds of connection.

use anyhow::{Context as _, bail};

use crate::{
    postgres::{self, NAME, Programs, Server},
    step::{Steps, call, from_a_shell},
    tool::{self, Tool},
};

const TOOLS: &[Tool] = &[
    Tool::new("pgbouncer --version", "apt-get install pgbouncer"),
    Tool::new("openssl version", "apt-get install openssl"),
];
const WAYS: &[&str] = &["direct", "pooled", "role", "tls"];
const DIRECT: &str = "--direct";
const TESTS: &str = "test --package hapax-postgres --all-features --test it --";
/// Tests that are left out of the first run: `bad_days` needs a standby, which is not available for
/// every version, and `conformance` has separate runs.
const ELSEWHERE: &[&str] = &["--skip", "bad_days::", "--skip", "conformance::"];
/// Tests of failover slots, which not every version has.
const FAILOVER: &[&str] = &["--skip", "feeds::failover::"];

/// Runs the matrix for these versions, or for all.
pub(crate) fn matrix(steps: &mut Steps, arguments: &[String]) -> anyhow::Result<()> {
    let (flags, versions): (Vec<_>, Vec<_>) = arguments
        .iter()
        .cloned()
        .partition(|argument| argument == DIRECT);
    let ways = if flags.is_empty() { WAYS } else { &WAYS[..1] };
    let versions = postgres::asked(&versions)?;
    steps.run("tools", || tool::require(TOOLS))?;
    steps.run("build", || {
        call("cargo test --package hapax-postgres --all-features --test it --no-run")
    })?;
    for version in versions {
        let programs = postgres::programs_of(version)?;
        let server = Server::start(&programs)?;
        let name = |what: &str| format!("PostgreSQL {version}, {what}");
        let mut others = ELSEWHERE.to_vec();
        if !postgres::has_failover_slots(version) {
            others.extend(FAILOVER);
        }
        steps.run(&name("all other tests"), || {
            run(&programs, &server, "direct", &others)
        })?;
        for way in ways {
            let conformance = &["conformance::"];
            steps.run(&name(&format!("conformance suite, {way}")), || {
                run(&programs, &server, way, conformance)
            })?;
        }
    }
    Ok(())
}

fn run(programs: &Programs, server: &Server, way: &str, tests: &[&str]) -> anyhow::Result<()> {
    let status = from_a_shell("cargo")
        .args(TESTS.split_whitespace())
        .args(tests)
        .args(["--format", "terse"])
        .env(NAME, server.url())
        .env("HAPAX_TEST_POSTGRES_BIN", programs.directory())
        .env("HAPAX_TEST_ROOT", server.root())
        .env("HAPAX_TEST_WAY", way)
        .status()
        .context("cannot run cargo")?;
    if !status.success() {
        bail!("the tests ended with {status}");
    }
    Ok(())
}
