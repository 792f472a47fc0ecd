//! A short random run on each store, in which no invariant may be violated and a process must have been
//! killed; and some power losses, in which nothing may be lost unless the disk ignores flushes.
//!
//! The run is too short for every kind of fault, so its verdict may be UNKNOWN; `cargo x torture` makes
//! long runs. `HAPAX_TORTURE_SECONDS` sets its length.

use crate::{holds, torture};

/// The exit codes of a verdict that is not VIOLATED.
const NOT_VIOLATED: [i32; 2] = [0, 3];

#[test]
fn a_short_run_on_sqlite_violates_nothing() {
    check("sqlite");
}

#[test]
fn a_short_run_on_postgresql_violates_nothing() {
    check("postgres");
}

#[test]
fn sqlite_has_what_it_acknowledged_before_a_power_loss() {
    check_power("sqlite");
}

#[test]
fn postgresql_has_what_it_acknowledged_before_a_power_loss() {
    check_power("postgres");
}

#[test]
fn a_fleet_causes_no_waves_in_an_outage_and_every_order_exists_once() {
    holds(&["scenario", "fleet", "--seconds", "5"]);
}

#[test]
fn every_committed_event_arrives_at_every_broker_and_has_its_effect_once() {
    holds(&["scenario", "brokers", "--seconds", "20"]);
}

#[track_caller]
fn check_power(store: &str) {
    torture(
        &["power", "--store", store, "--instants", "4"],
        &NOT_VIOLATED,
    );
    // On a disk that ignores flushes the run must be violated.
    torture(
        &["power", "--store", store, "--instants", "2", "--lying"],
        &[1],
    );
}

/// A run with few faults may have no kill: then it is repeated, three times at most.
#[track_caller]
fn check(store: &str) {
    let runs: Vec<_> = (0..3).map_while(|_| run(store).err()).collect();
    assert!(runs.len() < 3, "nothing was killed:\n{}", runs.join("\n"));
}

/// Makes one run, which must not be violated; returns its output if no process was killed.
#[track_caller]
fn run(store: &str) -> Result<(), String> {
    #[expect(clippy::disallowed_methods, reason = "tests have no configuration")]
    let seconds = std::env::var("HAPAX_TORTURE_SECONDS").unwrap_or_else(|_| "20".to_owned());
    let printed = torture(
        &["run", "--store", store, "--seconds", &seconds],
        &NOT_VIOLATED,
    );
    let kills = printed
        .lines()
        .find_map(|line| line.strip_prefix("| kills, "));
    let kills = kills.and_then(|line| line.split('|').nth(1)?.trim().parse::<u32>().ok());
    match kills {
        Some(1..) => Ok(()),
        _ => Err(printed),
    }
}
