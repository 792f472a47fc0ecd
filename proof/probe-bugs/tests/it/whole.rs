//! Whole runs against the server with each bug. They take some minutes, and `cargo x probe` runs them.

use std::collections::BTreeSet;

use hapax_probe::Verdict;

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
