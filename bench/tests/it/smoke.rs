//! Runs the whole harness as a user would, with as little load as possible.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

#[test]
fn the_figures_of_the_embedded_store_are_measured_and_written_down() {
    let page = run(&[
        "replay",
        "replay-uncached",
        "storm",
        "writes",
        "capacity",
        "growth",
        "backlog",
        "inbox",
    ]);
    assert!(page.contains("duplicates of the newest"), "{page}");
    assert!(page.contains("log merged by commits"), "{page}");
    for plot in [
        "capacity",
        "growth",
        "growth-payloads",
        "backlog",
        "backlog-memory",
    ] {
        check_linked(&page, plot);
    }
    for target in ["| 3 |", "| 4 |", "| 5 |", "| 12 |", "| 14 |"] {
        assert!(page.contains(target), "{target} is missing:\n{page}");
    }
}

#[test]
fn the_figures_of_postgresql_are_measured_and_written_down() {
    let page = run(&[
        "postgres-writes",
        "postgres-round-trip",
        "postgres-replay-uncached",
        "postgres-storm",
        "postgres-transactions",
        "postgres-capacity",
        "postgres-growth",
        "postgres-nodes",
        "postgres-inbox",
    ]);
    for target in ["1a", "1b", "2", "3", "4", "10", "13"] {
        let target = format!("| {target} |");
        assert!(page.contains(&target), "{target} is missing:\n{page}");
    }
    assert!(page.contains("fsync = on"), "{page}");
    for plot in [
        "postgres-capacity",
        "postgres-growth",
        "postgres-growth-pools",
    ] {
        check_linked(&page, plot);
    }
}

/// Leaves out `neighbours`, because an open breaker waits ten seconds before it tries again.
#[test]
fn the_figures_of_the_relay_are_measured_and_written_down() {
    let page = run(&[
        "relay-drain",
        "relay-stress",
        "relay-latency",
        "webhooks",
        "relay-growth",
        "tenants",
    ]);
    for target in ["6", "7", "8", "9"] {
        let target = format!("| {target} |");
        assert!(page.contains(&target), "{target} is missing:\n{page}");
    }
    assert!(page.starts_with("# Relay\n"), "{page}");
    for plot in ["relay-latency", "relay-growth"] {
        check_linked(&page, plot);
    }
}

#[test]
fn the_figures_of_feeds_are_measured_and_written_down() {
    let page = run(&["feed"]);
    assert!(page.starts_with("# Feed\n"), "{page}");
    for line in [
        "wal_level = logical",
        "| rows committed, no reader |",
        "| bytes of WAL per event, a table source |",
        "| commit to offer, 100/s: p99, `hapax.emit` |",
        "| drained, a feed |",
    ] {
        assert!(page.contains(line), "{line} is missing:\n{page}");
    }
}

#[test]
fn the_pages_of_the_console_are_measured_and_written_down() {
    let page = run(&["console"]);
    assert!(page.starts_with("# Console\n"), "{page}");
    for line in [
        "| pages |",
        "| Overview |",
        "| Events | `its second page` |",
        "| Timeline |",
    ] {
        assert!(page.contains(line), "{line} is missing:\n{page}");
    }
}

#[test]
fn the_figures_of_the_gateway_are_measured_and_written_down() {
    let page = run(&["gateway", "postgres-gateway", "gateway-idle"]);
    assert!(page.starts_with("# Gateway\n"), "{page}");
    assert!(page.contains("fsync = on"), "{page}");
    for line in [
        "| 14 | first time / direct, INSERT |",
        "| 14 | replay / direct, INSERT |",
        "| 14 | gateway: added p99 at half load |",
        "| 14 | memory with 1000 idle connections, PostgreSQL |",
        "| haproxy / direct, no work |",
    ] {
        assert!(page.contains(line), "{line} is missing:\n{page}");
    }
}

#[test]
fn the_figures_of_endpoints_are_measured_and_written_down() {
    let page = run(&["endpoints"]);
    assert!(page.starts_with("# Endpoints\n"), "{page}");
    for line in [
        "| endpoints | p99, 1 % sick / alone |",
        "| endpoints | peak memory of the relay |",
        "| commit to delivered: p99, alone |",
        "| commit to delivered: p99, 1 % sick |",
        "| deliveries that wait at the end, 1 % sick |",
        "500 endpoints of 50 tenants",
    ] {
        assert!(page.contains(line), "{line} is missing:\n{page}");
    }
}

#[test]
fn a_measurement_that_there_is_not_is_refused_with_the_names_of_those_there_are() {
    let directory = fresh("refused");
    let output = bench(&directory, &["nothing"]).output().unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("postgres-writes"), "{said}");
}

/// Requires that the page shows a plot.
#[track_caller]
fn check_linked(page: &str, plot: &str) {
    let link = format!("](plots/{plot}.svg)");
    assert!(page.contains(&link), "{link} is missing:\n{page}");
}

/// Requires that the page links every plot in the folder beside it, and no other one.
#[track_caller]
fn check_plots(page: &str, directory: &Path) {
    let linked = page.split("](plots/").skip(1);
    let linked = linked.filter_map(|after| after.split_once(')'));
    let linked: BTreeSet<String> = linked.map(|(file, _)| file.to_owned()).collect();
    // Without plots there is no folder.
    let entries = fs::read_dir(directory.join("plots")).ok();
    let names = entries.into_iter().flatten().map(|entry| {
        let name = entry.expect("the folder can be read").file_name();
        name.to_string_lossy().into_owned()
    });
    assert_eq!(names.collect::<BTreeSet<_>>(), linked);
}

/// Runs these measurements and returns the page with the results.
#[track_caller]
fn run(only: &[&str]) -> String {
    let directory = fresh(only[0]);
    let output = bench(&directory, only).output().expect("bench starts");
    let said = String::from_utf8_lossy(&output.stdout);
    let erred = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{erred}");
    let page = fs::read_to_string(directory.join("page")).expect("a page is written");
    check_plots(&page, &directory);
    fs::remove_dir_all(&directory).expect("the folder can be removed");
    page
}

fn bench(directory: &Path, only: &[&str]) -> Command {
    let program = Path::new(env!("CARGO_BIN_EXE_bench"));
    let mut command = Command::new(program);
    command
        .args(["run", "--quick", "--rounds", "1", "--window-ms", "1000"])
        .arg("--no-peers")
        .args(["--events", "2000", "--only", &only.join(",")])
        .arg("--shop")
        .arg(built("shop", "shop"))
        .arg("--hapax")
        .arg(built("hapax", "hapax-server"))
        .arg("--dir")
        .arg(directory)
        .arg("--out")
        .arg(directory.join("page"));
    command
}

/// A new folder on the disk of the build, because a folder for temporary files may be in memory.
fn fresh(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    // A failed run may have left it.
    let _left = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).expect("a folder can be created");
    directory
}

/// A program from the build of the whole workspace. A separate build would take minutes.
#[track_caller]
fn built(name: &str, package: &str) -> PathBuf {
    let program = Path::new(env!("CARGO_BIN_EXE_bench")).with_file_name(name);
    assert!(
        program.is_file(),
        "no {name} to measure: cargo build --package {package}"
    );
    program
}
