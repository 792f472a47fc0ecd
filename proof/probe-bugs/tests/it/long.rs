//! Whole runs against the server without a bug: every check of every profile holds.

use hapax_probe::{Verdict, profiles};

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
