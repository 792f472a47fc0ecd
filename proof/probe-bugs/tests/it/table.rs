//! The table of bugs: the checks that find each of them.
//!
//! Here only those checks run, so that the test is quick. That no other check fails is a test of the
//! module `whole`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    process::Command,
    sync::Mutex,
};

use hapax_probe::{Report, Verdict};
use serde::Deserialize;

use crate::probed::Probed;

/// How many servers are probed at once. The checks mostly wait.
const AT_ONCE: usize = 12;

/// A row of the table.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Row {
    /// The profile under which server and probe run.
    pub(crate) profile: String,
    /// The checks that fail.
    pub(crate) found_by: BTreeSet<String>,
    /// Checks that fail in some runs only, because they depend on which of two requests is first.
    #[serde(default)]
    pub(crate) sometimes: BTreeSet<String>,
}

/// Returns the table, by the names of the bugs.
pub(crate) fn rows() -> BTreeMap<String, Row> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/bugs.toml");
    let text = fs::read_to_string(path).expect("the table exists");
    toml::from_str(&text).expect("the table is valid")
}

/// Returns the names of all bugs of the server.
fn bugs() -> BTreeSet<String> {
    let output = Command::new(env!("CARGO_BIN_EXE_toy-server"))
        .arg("--list-bugs")
        .output()
        .expect("the server starts");
    let text = String::from_utf8(output.stdout).expect("the list is text");
    let names = text.lines().filter_map(|line| line.split('\t').next());
    names.map(str::to_owned).collect()
}

/// Returns the checks with this verdict.
pub(crate) fn with(report: &Report, verdict: Verdict) -> BTreeSet<String> {
    let found = report.findings().iter().filter(|it| it.verdict == verdict);
    found.map(|it| it.id.to_owned()).collect()
}

/// Probes a server with each bug, several at once, and returns what `judge` complains about.
pub(crate) fn complaints(judge: impl Fn(&str, &Row) -> Option<String> + Sync) -> Vec<String> {
    let waiting = Mutex::new(rows().into_iter().collect::<Vec<_>>());
    let complaints = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let Some((bug, row)) = waiting.lock().expect("no thread panicked").pop() else {
                        return;
                    };
                    let complaint = judge(&bug, &row);
                    complaints
                        .lock()
                        .expect("no thread panicked")
                        .extend(complaint);
                }
            });
        }
    });
    complaints.into_inner().expect("no thread panicked")
}

#[test]
fn the_table_has_every_bug() {
    let rows = rows();
    let named: BTreeSet<String> = rows.keys().cloned().collect();
    assert_eq!(named, bugs());
    assert!(named.len() >= 30);
    let blind: Vec<&String> = rows
        .iter()
        .filter(|(_, row)| row.found_by.is_empty())
        .map(|(bug, _)| bug)
        .collect();
    assert!(blind.is_empty(), "no check finds {blind:?}");
}

#[test]
fn each_bug_is_found_by_the_checks_that_name_it() {
    let complaints = complaints(|bug, row| {
        let only: Vec<String> = row.found_by.iter().cloned().collect();
        let report = Probed::start(&row.profile, Some(bug)).report(&row.profile, &only, &[]);
        let failed = with(&report, Verdict::Fail);
        (failed != row.found_by).then(|| {
            let missed = row.found_by.difference(&failed);
            format!("{bug}: not found by {:?}", missed.collect::<Vec<_>>())
        })
    });
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}
