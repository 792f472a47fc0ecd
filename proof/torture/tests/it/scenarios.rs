//! The scenarios that take less than a minute. `HAPAX_TEST_KILLS` and `HAPAX_TEST_CRASHES` change how
//! long they are.

use crate::holds;

/// One in this many cases of the scenario `money` is part of the tests.
const EVERY: &str = "10";

#[test]
fn a_shop_on_sqlite_that_is_killed_repeatedly_loses_nothing_and_does_nothing_twice() {
    deaths("sqlite");
}

#[test]
fn shops_on_postgresql_that_are_killed_repeatedly_lose_nothing_and_do_nothing_twice() {
    deaths("postgres");
}

#[test]
fn a_server_that_crashes_repeatedly_loses_nothing_and_repeats_nothing() {
    let times = variable("HAPAX_TEST_CRASHES", "20");
    holds(&["scenario", "crashes", "--times", &times]);
}

#[test]
fn providers_and_shop_agree_on_sqlite() {
    holds(&["scenario", "money", "--store", "sqlite", "--every", EVERY]);
}

#[test]
fn providers_and_shop_agree_on_postgresql() {
    holds(&[
        "scenario", "money", "--store", "postgres", "--every", EVERY, "--first", "2",
    ]);
}

#[track_caller]
fn deaths(store: &str) {
    let times = variable("HAPAX_TEST_KILLS", "50");
    holds(&["scenario", "deaths", "--store", store, "--times", &times]);
}

fn variable(name: &str, otherwise: &str) -> String {
    #[expect(clippy::disallowed_methods, reason = "tests have no configuration")]
    std::env::var(name).unwrap_or_else(|_| otherwise.to_owned())
}
