//! `cargo x ci`: the checks that a change has to pass.
//!
//! Quick steps come first and the tests last, so that a small mistake is found within seconds.
//! `cargo x test` runs only the tests; it needs the toolchain and the servers of the README.

use std::{path::Path, process::Command, thread};

use anyhow::{Context as _, anyhow, bail};
use serde_json::Value;

use crate::{
    fuzz, instructions,
    metadata::metadata,
    package, packages, postgres, publish, sdk, services,
    step::{Steps, call, call_with, from_a_shell},
    tidy,
    tool::{self, NEXTEST},
    torture, walkthrough,
};

/// The longest tests: the benchmarks, the correctness run, the torture runs with the fleet, and a hundred
/// thousand events for consumers that are killed. Each has a separate task, such as `cargo x bench`, or is
/// run by its name, and the gate runs a short form of it.
const LONG: &str = "(package(bench)&test(smoke::))|(package(torture)&test(/^long::/))|(package(probe-bugs)&test(/^long::/))|(package(shop)&test(/^promise::the_contract/))|(package(hapax-server)&test(/^polling::kills::long::/))";
/// The tests of `cargo x probe`: every bug of the toy server, and every profile of the shop.
const WHOLE: &str =
    "(package(probe-bugs)&test(/^whole::/))|(package(shop)&test(/^promise::whole::/))";
/// The tests of `cargo x gateway`: loads with kills and other faults, a cut at every byte on PostgreSQL
/// too, a gibibyte.
const GATEWAY: &str = "package(gateway-proof)&(test(/^long::/)|test(/^kills::load::/))";
/// The packages of `cargo x test --embedded`.
const EMBEDDED: [&str; 7] = [
    "hapax",
    "hapax-sqlite",
    "hapax-http",
    "hapax-client",
    "hapax-otlp",
    "hapax-probe",
    "hapax-runtime",
];
/// Their tests on PostgreSQL, as names and as a filter.
const SKIPPED: [&str; 2] = ["postgresql", "conflicts::"];
const ON_A_SERVER: &str = "test(postgresql)|test(conflicts::)";
const ADVISORIES: &str = "https://github.com/rustsec/advisory-db";

/// Runs the gate.
pub(crate) fn ci(steps: &mut Steps, root: &Path) -> anyhow::Result<()> {
    steps.run("tools", || tool::require(tool::ALL))?;
    fmt(steps, "--check")?;
    steps.run("tidy", || tidy::tidy(root))?;
    steps.call("typos", "typos")?;
    steps.call("machete", "cargo-machete")?;
    steps.run("deny", || {
        call("cargo deny check bans licenses sources")?;
        call("cargo deny --manifest-path proof/fuzz/Cargo.toml check bans licenses sources")
    })?;
    steps.run("advisories", advisories)?;
    steps.call(
        "clippy",
        "cargo clippy --workspace --all-targets --all-features -- -D warnings",
    )?;
    steps.run("mutants", || torture::check_mutants(root))?;
    steps.run("doc", || {
        let line = "cargo doc --workspace --no-deps --all-features";
        call_with(line, &[("RUSTDOCFLAGS", "-D warnings".to_owned())])
    })?;
    run_tests(steps, root, true)?;
    // The checks of the package use one core, and the number of instructions does not depend on the load.
    meanwhile(
        steps,
        "package",
        || {
            package::check(root)?;
            package::check_kubernetes(root).context("kubernetes")
        },
        |steps| steps.run("instructions", || instructions::check(root)),
    )?;
    steps.run("publish", || publish::check(root))?;
    // `cargo x fuzz` alone takes a minute for each target.
    steps.run("fuzz", fuzz::check)
}

/// Formats every file, or checks the format. The fuzzers are a separate workspace.
pub(crate) fn fmt(steps: &mut Steps, check: &str) -> anyhow::Result<()> {
    steps.run("fmt", || {
        call(&format!("cargo fmt --all {check}"))?;
        call(&format!(
            "cargo fmt --manifest-path proof/fuzz/Cargo.toml {check}"
        ))
    })
}

/// Runs every test except the longest.
pub(crate) fn test(steps: &mut Steps, root: &Path, arguments: &[String]) -> anyhow::Result<()> {
    match arguments {
        [] => run_tests(steps, root, false),
        [embedded] if embedded == "--embedded" => test_embedded(steps),
        [other, ..] => bail!("`cargo x test` takes --embedded only, not `{other}`"),
    }
}

/// Runs the tests that need the toolchain alone: the library, the embedded store, the HTTP layer
/// and the client, without a server, a browser or Python.
fn test_embedded(steps: &mut Steps) -> anyhow::Result<()> {
    let packages: Vec<String> = EMBEDDED
        .iter()
        .map(|it| format!("--package {it}"))
        .collect();
    let packages = packages.join(" ");
    steps.run("doctests", || {
        call(&format!("cargo test --doc --all-features {packages}"))
    })?;
    let line = if NEXTEST.is_there() {
        format!("cargo nextest run --all-features {packages} -E all()-({ON_A_SERVER})")
    } else {
        let skipped: Vec<String> = SKIPPED.iter().map(|it| format!("--skip {it}")).collect();
        let skipped = skipped.join(" ");
        format!("cargo test --all-targets --all-features {packages} -- {skipped}")
    };
    steps.run("tests", || call(&line))
}

fn run_tests(steps: &mut Steps, root: &Path, long: bool) -> anyhow::Result<()> {
    build_all(steps, root)?;
    let server = postgres::for_tests()?;
    // The tests of the packages mostly wait: for pip, for processes that start, and for locks.
    meanwhile(
        steps,
        "sdk",
        || sdk::check(root, server.as_ref()),
        |steps| steps.run("walkthrough", || walkthrough::walk(root)),
    )?;
    if let Some(server) = &server {
        server.stock(&packages::target()?.join("debug/hapax"))?;
    }
    let _services = services::for_tests()?;
    let environment = postgres::environment(server.as_ref());
    steps.run("doctests", || {
        call_with("cargo test --doc --workspace --all-features", &environment)
    })?;
    if !NEXTEST.is_there() {
        println!(
            "cargo-nextest is missing ({}): cargo test runs the tests",
            NEXTEST.install
        );
        let line = "cargo test --workspace --all-targets --all-features";
        return steps.run("tests", || call_with(line, &environment));
    }
    let some = |which: &str| {
        format!("cargo nextest run --workspace --all-targets --all-features -E {which}")
    };
    let most = some(&format!(
        "all()-({LONG})-({WHOLE})-({GATEWAY})-({})",
        sdk::WHOLE
    ));
    steps.run("tests", || call_with(&most, &environment))?;
    if long {
        let rest = some(LONG);
        steps.run("long tests", || call_with(&rest, &environment))?;
    }
    Ok(())
}

/// Probes the toy server with each of its bugs, and the shop in every profile on both stores.
pub(crate) fn probe(steps: &mut Steps) -> anyhow::Result<()> {
    let server = postgres::for_tests()?;
    let environment = postgres::environment(server.as_ref());
    let line = format!("cargo nextest run --workspace --all-targets --all-features -E {WHOLE}");
    steps.run("whole runs of the probe", || call_with(&line, &environment))
}

/// Runs the long forms of the tests of the gateway.
pub(crate) fn gateway(steps: &mut Steps, root: &Path) -> anyhow::Result<()> {
    build_all(steps, root)?;
    let server = postgres::for_tests()?;
    let environment = postgres::environment(server.as_ref());
    let line = format!("cargo nextest run --workspace --all-targets --all-features -E {GATEWAY}");
    steps.run("long tests of the gateway", || {
        call_with(&line, &environment)
    })
}

/// Builds the workspace, and meanwhile installs the packages: npm and pip mostly wait for the network and
/// the disk.
fn build_all(steps: &mut Steps, root: &Path) -> anyhow::Result<()> {
    meanwhile(
        steps,
        "packages",
        || install(root),
        |steps| {
            steps.call(
                "build",
                "cargo build --workspace --all-targets --all-features",
            )
        },
    )
}

/// Runs other steps while a step runs in a thread. The printed duration of the step is what it takes longer.
fn meanwhile(
    steps: &mut Steps,
    name: &str,
    act: impl FnOnce() -> anyhow::Result<()> + Send,
    others: impl FnOnce(&mut Steps) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    thread::scope(|scope| {
        let acting = scope.spawn(act);
        others(steps)?;
        steps.run(name, || {
            let outcome = acting.join();
            outcome.unwrap_or_else(|_| Err(anyhow!("{name} panicked")))
        })
    })
}

/// Installs the packages that the tests need, and those of this project.
pub(crate) fn packages(steps: &mut Steps, root: &Path) -> anyhow::Result<()> {
    steps.run("packages", || install(root))
}

fn install(root: &Path) -> anyhow::Result<()> {
    packages::install(root)?;
    sdk::install(root)
}

/// Runs the commands of the pages.
pub(crate) fn walk(steps: &mut Steps, root: &Path) -> anyhow::Result<()> {
    steps.call("build", "cargo build --package shop")?;
    steps.run("walkthrough", || walkthrough::walk(root))
}

/// Runs the benchmarks.
pub(crate) fn bench(arguments: &[String]) -> anyhow::Result<()> {
    let status = from_a_shell("cargo")
        .args(["run", "--profile", "dist", "--package", "bench"])
        .args(["--", "run"])
        .args(arguments)
        .status()
        .context("cannot run cargo")?;
    if !status.success() {
        bail!("bench ended with {status}");
    }
    Ok(())
}

/// Checks the dependencies against the advisory database, if it can be reached.
fn advisories() -> anyhow::Result<()> {
    let reached = Command::new("timeout")
        .args(["15", "git", "ls-remote", "--quiet", ADVISORIES, "HEAD"])
        .env("GIT_TERMINAL_PROMPT", "0")
        .output()
        .is_ok_and(|output| output.status.success());
    if !reached {
        println!("    SKIPPED: the advisory database cannot be reached from here");
        return Ok(());
    }
    call("cargo deny check advisories")
}

/// Checks every package alone: without features, and with each single feature.
///
/// In a build of the whole workspace, a feature that one package enables hides that another package
/// forgot to enable it. This task rebuilds most dependencies for every line, so it is not part of
/// the gate.
pub(crate) fn features(steps: &mut Steps) -> anyhow::Result<()> {
    steps.run("features", || check_alone(&feature_lines(&metadata()?)))
}

fn check_alone(lines: &[String]) -> anyhow::Result<()> {
    for line in lines {
        println!("    {line}");
        call(line)?;
    }
    Ok(())
}

fn feature_lines(metadata: &Value) -> Vec<String> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let mut lines = Vec::new();
    for package in packages {
        lines.extend(alone(package, None));
        for feature in package["features"].as_object().into_iter().flatten() {
            if feature.0 != "default" {
                lines.extend(alone(package, Some(feature.0)));
            }
        }
    }
    lines.sort();
    lines
}

/// The command that checks a package alone, and fails on a warning.
fn alone(package: &Value, feature: Option<&str>) -> Option<String> {
    let name = package["name"].as_str()?;
    let feature = feature.map(|feature| format!(" --features {feature}"));
    Some(format!(
        "cargo clippy --quiet --no-deps --package {name} --no-default-features{} -- -D warnings",
        feature.unwrap_or_default()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_in_a_thread_fails_the_task_under_its_name() {
        type Act = fn() -> anyhow::Result<()>;
        let outcome = |act: Act, other: Act| {
            let mut steps = Steps::default();
            let ended = meanwhile(&mut steps, "slow", act, |steps| steps.run("other", other));
            ended.map_err(|error| format!("{error:#}"))
        };
        let (passes, fails): (Act, Act) = (|| Ok(()), || bail!("broken"));
        assert_eq!(outcome(passes, passes), Ok(()));
        assert_eq!(outcome(fails, passes), Err("step slow: broken".to_owned()));
        assert_eq!(outcome(passes, fails), Err("step other: broken".to_owned()));
        let panics = outcome(|| panic!("a bug"), passes);
        assert_eq!(panics, Err("step slow: slow panicked".to_owned()));
    }

    #[test]
    fn each_package_is_checked_bare_and_with_each_feature_alone() {
        let expected = ["core", "server", "sinks", "sinks webhook"];
        assert_eq!(checked(&feature_lines(&workspace())), expected);
    }

    fn workspace() -> Value {
        let lib = serde_json::json!([{"kind": ["lib"]}]);
        let bin = serde_json::json!([{"kind": ["bin"]}]);
        serde_json::json!({"packages": [
            {"name": "sinks", "targets": lib, "publish": null,
             "features": {"default": [], "webhook": []}},
            {"name": "core", "targets": lib, "publish": null, "features": {}},
            {"name": "server", "targets": bin, "publish": [], "features": {}},
        ]})
    }

    /// The package of each line, and its feature.
    fn checked(lines: &[String]) -> Vec<String> {
        let word = |line: &str, option: &str| {
            let mut words = line.split_whitespace().skip_while(|word| *word != option);
            words.nth(1).map(str::to_owned)
        };
        let one = |line: &String| {
            assert!(line.ends_with(" -- -D warnings"), "{line}");
            let feature = word(line, "--features").map(|feature| format!(" {feature}"));
            word(line, "--package").unwrap_or_default() + &feature.unwrap_or_default()
        };
        lines.iter().map(one).collect()
    }
}
