//! A short storm on each store: nothing may be violated, and something must have been struck. And
//! the power goes a few times: nothing may be lost, but on a disk that lies.
//!
//! A storm is too short for every kind of fault to bite, so its verdict is allowed to be UNKNOWN;
//! the long ones are `cargo x torture`'s. `HAPAX_TORTURE_SECONDS` makes it longer.

#![expect(clippy::unwrap_used, reason = "a run that cannot go on says where")]

use std::process::Command;

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

#[track_caller]
fn check_power(store: &str) {
    let (code, said) = power(&["--store", store, "--instants", "4"]);
    assert!(code.is_some_and(|it| NOT_VIOLATED.contains(&it)), "{said}");
    let (code, said) = power(&["--store", store, "--instants", "2", "--lying"]);
    assert_eq!(code, Some(1), "a disk that lies was not found out:\n{said}");
}

fn power(flags: &[&str]) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().unwrap();
    let ran = Command::new(env!("CARGO_BIN_EXE_torture"))
        .arg("power")
        .args(flags)
        .arg("--folder")
        .arg(folder.path())
        .output()
        .unwrap();
    let said = [ran.stdout, ran.stderr].concat();
    (
        ran.status.code(),
        String::from_utf8_lossy(&said).into_owned(),
    )
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
    let folder = tempfile::tempdir().unwrap();
    let ran = Command::new(env!("CARGO_BIN_EXE_torture"))
        .args(["run", "--store", store, "--seconds", &seconds, "--folder"])
        .arg(folder.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    let holds = ran
        .status
        .code()
        .is_some_and(|code| NOT_VIOLATED.contains(&code));
    if !holds {
        let kept = folder.keep();
        panic!("what it left is in {}\n{said}", kept.display());
    }
    let kills = said.lines().find_map(|line| line.strip_prefix("| kills, "));
    let kills = kills.and_then(|line| line.split('|').nth(1)?.trim().parse::<u32>().ok());
    match kills {
        Some(1..) => Ok(()),
        _ => Err(said.into_owned()),
    }
}
