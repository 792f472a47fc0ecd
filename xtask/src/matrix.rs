//! Every version of PostgreSQL, over every way to it: `cargo x matrix`.
//!
//! For each version a server of its own is started, with TLS, and the tests of the store run
//! against it: all of them directly, and the law once more behind a pooler, as a role with the
//! guide's grants alone, and over TLS. `cargo x matrix 14 18` goes through those two versions, and
//! `--direct` leaves the other ways out.

use anyhow::{Context as _, bail};

use crate::{
    postgres::{self, NAME, Programs, Server},
    step::{Steps, call, from_a_shell},
    tool::{self, Tool},
};

const TOOLS: &[Tool] = &[
    Tool {
        probe: "pgbouncer --version",
        install: "apt-get install pgbouncer",
    },
    Tool {
        probe: "openssl version",
        install: "apt-get install openssl",
    },
];
const WAYS: &[&str] = &["direct", "pooled", "role", "tls"];
const DIRECT: &str = "--direct";
const TESTS: &str = "test --package hapax-postgres --all-features --test it --";
/// What needs programs that not every version comes with here: standbys, and other languages.
const ELSEWHERE: &[&str] = &["--skip", "bad_days::", "--skip", "law::"];

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
        let programs = Programs::of(version)?;
        let server = Server::start(&programs)?;
        let name = |what: &str| format!("PostgreSQL {version}, {what}");
        steps.run(&name("everything else"), || {
            run(&programs, &server, "direct", ELSEWHERE)
        })?;
        for way in ways {
            let law = &["law::"];
            steps.run(&name(&format!("the law, {way}")), || {
                run(&programs, &server, way, law)
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
