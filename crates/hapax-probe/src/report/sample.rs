//! A report with each verdict, for the tests of the formats.
//!
//! It has two operations, and a text with characters that each format has to escape.

use std::time::Duration;

use crate::{
    profile::Profile,
    report::{Finding, Report},
    verdict::Verdict,
};

pub(super) fn report() -> Report {
    let mut failed = finding(
        "/orders",
        "replay.body",
        "A retry has the first body.",
        Verdict::Fail,
        "the retry got 201 <\"a\" & \u{1b}[1m>",
    );
    failed.commands = vec!["curl -i -X POST 'http://localhost/orders'".to_owned()];
    Report {
        profile: Profile::named("ietf").expect("a known profile"),
        seed: 7,
        requests: 12,
        elapsed: Duration::from_millis(1_500),
        findings: vec![
            finding(
                "/orders",
                "replay.status",
                "A retry has the first status.",
                Verdict::Pass,
                "201 twice",
            ),
            failed,
            finding(
                "/orders",
                "replay.effect",
                "A request and a retry have one effect.",
                Verdict::Unknown,
                "the plan has no count of effects",
            ),
            finding(
                "/refunds",
                "mismatch.numbers",
                "Two numbers are two payloads.",
                Verdict::Skipped,
                "the payload is not JSON",
            ),
            finding(
                "/refunds",
                "replay.cookies",
                "A replay sets no cookie.",
                Verdict::Note,
                "the replay sets no cookie",
            ),
        ],
    }
}

fn finding(
    operation: &str,
    id: &'static str,
    asks: &'static str,
    verdict: Verdict,
    seen: &str,
) -> Finding {
    Finding {
        operation: operation.to_owned(),
        id,
        group: id.split('.').next().unwrap_or(id),
        asks,
        verdict,
        seen: seen.to_owned(),
        source: "The source",
        source_url: "https://example.org/source",
        commands: Vec::new(),
    }
}
