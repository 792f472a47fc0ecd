//! A short storm on each store: nothing may be violated, and something must have been struck. And
//! the power goes a few times: nothing may be lost, but on a disk that lies.
//!
//! A storm is too short for every kind of fault to bite, so its verdict is allowed to be UNKNOWN;
//! the long ones are `cargo x torture`'s. `HAPAX_TORTURE_SECONDS` makes it longer.

use crate::{holds, torture};

/// The exit codes of a verdict that is not VIOLATED.
const NOT_VIOLATED: [i32; 2] = [0, 3];

#[test]
fn a_short_storm_over_sqlite_violates_nothing() {
    check("sqlite");
}

#[test]
fn a_short_storm_over_postgresql_violates_nothing() {
    check("postgres");
}

#[test]
fn sqlite_knows_what_it_acknowledged_before_the_power_went() {
    check_power("sqlite");
}

#[test]
fn postgresql_knows_what_it_acknowledged_before_the_power_went() {
    check_power("postgres");
}

#[test]
fn a_fleet_gets_through_an_outage_without_waves_and_every_order_is_there_once() {
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
    // A disk that lies is found out.
    torture(
        &["power", "--store", store, "--instants", "2", "--lying"],
        &[1],
    );
}

/// A storm of a few blows may have no kill among them: then another one has.
#[track_caller]
fn check(store: &str) {
    let storms: Vec<_> = (0..3).map_while(|_| storm(store).err()).collect();
    assert!(
        storms.len() < 3,
        "nothing was killed:\n{}",
        storms.join("\n")
    );
}

/// What a storm said in which nothing was killed; none may be violated.
#[track_caller]
fn storm(store: &str) -> Result<(), String> {
    #[expect(clippy::disallowed_methods, reason = "tests have no configuration")]
    let seconds = std::env::var("HAPAX_TORTURE_SECONDS").unwrap_or_else(|_| "20".to_owned());
    let said = torture(
        &["run", "--store", store, "--seconds", &seconds],
        &NOT_VIOLATED,
    );
    let kills = said.lines().find_map(|line| line.strip_prefix("| kills, "));
    let kills = kills.and_then(|line| line.split('|').nth(1)?.trim().parse::<u32>().ok());
    match kills {
        Some(1..) => Ok(()),
        _ => Err(said),
    }
}
