//! The report for people: one line for each check, and the details of failures.
//!
//! A line has the verdict, the id, and what the check asks. A check without a verdict has what was
//! seen instead, because that is the reason. Failures are followed by what was seen, the source of the
//! rule, and the requests as `curl` commands.

use std::fmt::Write as _;

use crate::{
    report::{Finding, Report},
    verdict::Verdict,
};

/// The verdicts in the order of the last line.
const COUNTED: [Verdict; 5] = [
    Verdict::Pass,
    Verdict::Fail,
    Verdict::Unknown,
    Verdict::Skipped,
    Verdict::Note,
];
/// The width of the longest verdict.
const VERDICT_WIDTH: usize = 7;
/// The indentation of details.
const INDENT: &str = "        ";

pub(super) fn render(report: &Report) -> String {
    let source = &report.profile.source;
    let mut text = String::new();
    let _ = writeln!(
        text,
        "Profile {}: {} ({}), seed {}",
        report.profile.name, source.title, source.version, report.seed
    );
    let ids = report.findings.iter().map(|it| it.id.len());
    let width = ids.max().unwrap_or_default();
    let mut operation = None;
    for finding in &report.findings {
        if operation != Some(&finding.operation) {
            let _ = writeln!(text, "\n{}", visible(&finding.operation));
            operation = Some(&finding.operation);
        }
        line(&mut text, finding, width);
        if finding.verdict == Verdict::Fail {
            details(&mut text, finding);
        }
    }
    ending(&mut text, report);
    text
}

fn line(text: &mut String, finding: &Finding, width: usize) {
    let verdict = finding.verdict.name().to_uppercase();
    let rest = match finding.verdict {
        Verdict::Pass | Verdict::Fail => finding.asks.to_owned(),
        Verdict::Unknown | Verdict::Skipped | Verdict::Note => visible(&finding.seen),
    };
    let id = finding.id;
    let _ = writeln!(text, "{verdict:VERDICT_WIDTH$} {id:width$} {rest}");
}

fn details(text: &mut String, finding: &Finding) {
    let _ = writeln!(text, "{INDENT}seen: {}", visible(&finding.seen));
    let _ = writeln!(
        text,
        "{INDENT}rule: {}, {}",
        finding.source, finding.source_url
    );
    for command in &finding.commands {
        let _ = writeln!(text, "{INDENT}$ {command}");
    }
}

fn ending(text: &mut String, report: &Report) {
    let counts: Vec<String> = COUNTED
        .iter()
        .map(|it| format!("{} {}", report.count(*it), it.name()))
        .collect();
    let requests = match report.requests {
        1 => "1 request".to_owned(),
        requests => format!("{requests} requests"),
    };
    let _ = writeln!(
        text,
        "\n{}; {requests} in {:.1} s",
        counts.join(", "),
        report.elapsed.as_secs_f64()
    );
}

/// Returns a text of the server without control characters, which could change the terminal.
fn visible(text: &str) -> String {
    let mut visible = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() {
            visible.extend(character.escape_default());
        } else {
            visible.push(character);
        }
    }
    visible
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn each_check_has_a_line_and_a_failure_its_details() {
        assert_eq!(
            render(&sample::report()),
            "\
Profile ietf: draft-ietf-httpapi-idempotency-key-header-07 (draft 07, October 2025, expired in April 2026), seed 7

/orders
PASS    replay.status    A retry has the first status.
FAIL    replay.body      A retry has the first body.
        seen: the retry got 201 <\"a\" & \\u{1b}[1m>
        rule: The source, https://example.org/source
        $ curl -i -X POST 'http://localhost/orders'
UNKNOWN replay.effect    the plan has no count of effects

/refunds
SKIPPED mismatch.numbers the payload is not JSON
NOTE    replay.cookies   the replay sets no cookie

1 pass, 1 fail, 1 unknown, 1 skipped, 1 note; 12 requests in 1.5 s
"
        );
    }
}
