//! Whole runs against the server without a bug: every check of every profile holds.

use hapax_probe::{ReportFormat, Verdict, profiles};

use crate::{probed::Probed, table::with};

#[test]
fn without_a_bug_every_check_of_every_profile_holds() {
    std::thread::scope(|scope| {
        for profile in profiles() {
            scope.spawn(move || {
                let report = Probed::start(profile.name, None).report(profile.name, &[], &[]);
                let name = profile.name;
                for verdict in [Verdict::Fail, Verdict::Unknown] {
                    let found = with(&report, verdict);
                    assert!(found.is_empty(), "{name}: {verdict:?} {found:?}");
                }
                assert!(report.count(Verdict::Pass) >= 50, "{name}");
            });
        }
    });
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
