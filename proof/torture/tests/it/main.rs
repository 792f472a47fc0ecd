//! Runs of the program: by default a kill at each failpoint and the short scenarios; and the [`long`]
//! ones.
//!
//! The programs under test are those beside this one, so the workspace has to be built.

#![expect(
    clippy::unwrap_used,
    reason = "a run that cannot continue reports where"
)]

mod failpoints;
mod scenarios;
mod receiver;
mod long;

use std::process::Command;

/// Runs `torture`, and expects one of these exit codes; returns its output.
#[track_caller]
fn torture(arguments: &[&str], expected: &[i32]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let ran = Command::new(env!("CARGO_BIN_EXE_torture"))
        .args(arguments)
        .arg("--folder")
        .arg(folder.path())
        .output()
        .unwrap();
    let printed = [ran.stdout, ran.stderr].concat();
    let printed = String::from_utf8_lossy(&printed).into_owned();
    if !ran.status.code().is_some_and(|it| expected.contains(&it)) {
        let kept = folder.keep();
        panic!(
            "{arguments:?} left its files in {}\n{printed}",
            kept.display()
        );
    }
    printed
}

/// Runs `torture`, and expects the verdict HOLDS.
#[track_caller]
fn holds(arguments: &[&str]) {
    torture(arguments, &[0]);
}
