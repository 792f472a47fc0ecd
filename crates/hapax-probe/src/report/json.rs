//! The report as JSON, version 1.
//!
//! It contains neither times nor the number of requests, so that two runs with the same seed against
//! the same server have the same bytes. The number of requests depends on how long the server takes.

use serde::Serialize;

use crate::{
    profile::Source,
    report::{Finding, Report},
    verdict::Verdict,
};

/// The version of the format. A member may be added without a new version.
const VERSION: u32 = 1;

#[derive(Serialize)]
struct Document<'a> {
    version: u32,
    profile: &'static str,
    source: Source,
    seed: u64,
    checks: &'a [Finding],
    counts: Counts,
}

#[derive(Serialize)]
struct Counts {
    pass: usize,
    fail: usize,
    unknown: usize,
    skipped: usize,
    note: usize,
}

pub(super) fn render(report: &Report) -> String {
    let document = Document {
        version: VERSION,
        profile: report.profile.name,
        source: report.profile.source,
        seed: report.seed,
        checks: &report.findings,
        counts: Counts {
            pass: report.count(Verdict::Pass),
            fail: report.count(Verdict::Fail),
            unknown: report.count(Verdict::Unknown),
            skipped: report.count(Verdict::Skipped),
            note: report.count(Verdict::Note),
        },
    };
    let mut text = serde_json::to_string_pretty(&document)
        .expect("strings and numbers can be written as JSON");
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::report::sample;

    #[test]
    fn the_document_has_each_check_and_the_counts() {
        let text = render(&sample::report());
        let document: serde_json::Value = serde_json::from_str(&text).expect("valid JSON");
        assert_eq!(document["version"], 1);
        assert_eq!(document["profile"], "ietf");
        assert_eq!(
            document["source"]["version"],
            "draft 07, October 2025, expired in April 2026"
        );
        assert_eq!(document["seed"], 7);
        assert_eq!(
            document["checks"][1],
            serde_json::json!({
                "operation": "/orders",
                "id": "replay.body",
                "group": "replay",
                "asks": "A retry has the first body.",
                "verdict": "fail",
                "seen": "the retry got 201 <\"a\" & \u{1b}[1m>",
                "source": "The source",
                "source_url": "https://example.org/source",
                "commands": ["curl -i -X POST 'http://localhost/orders'"],
            })
        );
        let counts =
            serde_json::json!({"pass": 1, "fail": 1, "unknown": 1, "skipped": 1, "note": 1});
        assert_eq!(document["counts"], counts);
    }

    #[test]
    fn the_time_and_the_number_of_requests_do_not_change_the_document() {
        let one = sample::report();
        let mut other = sample::report();
        other.elapsed += Duration::from_secs(3);
        other.requests += 1;
        assert_eq!(render(&one), render(&other));
    }
}
