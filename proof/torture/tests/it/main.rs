//! Runs of the program: a death at each named failpoint and the short scenarios by default, and the
//! [`long`] ones.
//!
//! The programs under test are those beside this one, so the workspace has to be built.

#![expect(clippy::unwrap_used, reason = "a run that cannot go on says where")]

mod failpoints;
mod scenarios;
mod receiver;
mod long;

use std::process::Command;

/// Runs `torture`, and expects one of these exit codes; returns its output.
#[track_caller]
fn torture(words: &[&str], expected: &[i32]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let ran = Command::new(env!("CARGO_BIN_EXE_torture"))
        .args(words)
        .arg("--folder")
        .arg(folder.path())
        .output()
        .unwrap();
    let said = [ran.stdout, ran.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    if !ran.status.code().is_some_and(|it| expected.contains(&it)) {
        let kept = folder.keep();
        panic!("{words:?} left its files in {}\n{said}", kept.display());
    }
    said
}

/// Runs `torture`, and expects that everything holds and every fault had its effect.
#[track_caller]
fn holds(words: &[&str]) {
    torture(words, &[0]);
}
