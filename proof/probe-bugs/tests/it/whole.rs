//! Whole runs against the server with each bug, and three runs with one seed. They take some minutes,
//! and `cargo x probe` runs them.

use std::collections::BTreeSet;

use hapax_probe::{ReportFormat, Verdict};

use crate::{
    probed::Probed,
    table::{complaints, with},
};

#[test]
fn each_bug_is_found_by_no_other_checks() {
    let complaints = complaints(|bug, row| {
        let report = Probed::start(&row.profile, Some(bug)).report(&row.profile, &[], &[]);
        let failed = with(&report, Verdict::Fail);
        let allowed: BTreeSet<String> = row.found_by.union(&row.sometimes).cloned().collect();
        let missed: Vec<_> = row.found_by.difference(&failed).collect();
        let surplus: Vec<_> = failed.difference(&allowed).collect();
        (!missed.is_empty() || !surplus.is_empty())
            .then(|| format!("{bug}: not found by {missed:?}, but by {surplus:?}"))
    });
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[test]
fn three_runs_with_one_seed_have_the_same_report() {
    let server = Probed::start("hapax", None);
    // Expiry is waited for, three times.
    let skip = ["time".to_owned()];
    let run = || {
        let report = server.report("hapax", &[], &skip);
        report.render(ReportFormat::Json)
    };
    let first = run();
    for _ in 0..2 {
        pretty_equal(&first, &run());
    }
}

/// Compares line by line, so that a failure shows the line.
#[track_caller]
fn pretty_equal(one: &str, two: &str) {
    for (one, two) in one.lines().zip(two.lines()) {
        assert_eq!(one, two);
    }
    assert_eq!(one.len(), two.len());
}
