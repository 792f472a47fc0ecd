//! The report as `JUnit` XML: a test suite for each operation, a test case for each check.
//!
//! A failed check is a failure. A check that could not be judged is an error, so that a CI system does
//! not show it as passed. Skipped checks and notes are skipped test cases with their reason.

use std::fmt::Write as _;

use crate::{
    report::{Finding, Report},
    verdict::Verdict,
};

pub(super) fn render(report: &Report) -> String {
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let _ = writeln!(
        xml,
        "<testsuites name=\"hapax-probe\" {}>",
        counts(&report.findings)
    );
    // The findings of one operation follow each other.
    for suite in report
        .findings
        .chunk_by(|one, next| one.operation == next.operation)
    {
        let name = suite.first().map_or("", |it| it.operation.as_str());
        let _ = writeln!(
            xml,
            "  <testsuite name=\"{}\" {}>",
            escaped(name),
            counts(suite)
        );
        let _ = writeln!(
            xml,
            "    <properties>\n      <property name=\"profile\" value=\"{}\"/>\n      <property name=\"seed\" \
             value=\"{}\"/>\n    </properties>",
            report.profile.name, report.seed
        );
        for finding in suite {
            case(&mut xml, finding);
        }
        xml.push_str("  </testsuite>\n");
    }
    xml.push_str("</testsuites>\n");
    xml
}

/// Returns the attributes with the number of test cases, failures, errors and skipped ones.
fn counts(findings: &[Finding]) -> String {
    let count = |verdicts: &[Verdict]| {
        let counted = findings.iter().filter(|it| verdicts.contains(&it.verdict));
        counted.count()
    };
    format!(
        "tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\"",
        findings.len(),
        count(&[Verdict::Fail]),
        count(&[Verdict::Unknown]),
        count(&[Verdict::Skipped, Verdict::Note]),
    )
}

fn case(xml: &mut String, finding: &Finding) {
    let seen = escaped(&finding.seen);
    let start = format!(
        "    <testcase classname=\"{}\" name=\"{}\"",
        escaped(finding.group),
        escaped(finding.id)
    );
    let result = match finding.verdict {
        Verdict::Pass => {
            let _ = writeln!(xml, "{start}/>");
            return;
        }
        Verdict::Fail => format!(
            "<failure type=\"fail\" message=\"{seen}\">{}</failure>",
            escaped(&details(finding))
        ),
        Verdict::Unknown => format!(
            "<error type=\"unknown\" message=\"{seen}\">{}</error>",
            escaped(&details(finding))
        ),
        Verdict::Skipped => format!("<skipped message=\"{seen}\"/>"),
        Verdict::Note => format!("<skipped message=\"note: {seen}\"/>"),
    };
    let _ = writeln!(xml, "{start}>\n      {result}\n    </testcase>");
}

/// Returns what the check asks, what was seen, the source of the rule, and the commands, in lines.
fn details(finding: &Finding) -> String {
    let mut text = format!(
        "{}\nseen: {}\nrule: {}, {}",
        finding.asks, finding.seen, finding.source, finding.source_url
    );
    for command in &finding.commands {
        let _ = write!(text, "\n$ {command}");
    }
    text
}

/// Escapes a text for an attribute or an element. XML 1.0 cannot contain most control characters, not
/// even escaped: they become U+FFFD.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&apos;"),
            // As characters they would become spaces in an attribute.
            '\t' => escaped.push_str("&#9;"),
            '\n' => escaped.push_str("&#10;"),
            '\r' => escaped.push_str("&#13;"),
            '\0'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            character => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn each_operation_is_a_suite_and_each_check_a_case() {
        let expected = r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="hapax-probe" tests="5" failures="1" errors="1" skipped="2">
  <testsuite name="/orders" tests="3" failures="1" errors="1" skipped="0">
    <properties>
      <property name="profile" value="ietf"/>
      <property name="seed" value="7"/>
    </properties>
    <testcase classname="replay" name="replay.status"/>
    <testcase classname="replay" name="replay.body">
      <failure type="fail" message="the retry got 201 &lt;&quot;a&quot; &amp; �[1m&gt;">A retry has the first body.&#10;seen: the retry got 201 &lt;&quot;a&quot; &amp; �[1m&gt;&#10;rule: The source, https://example.org/source&#10;$ curl -i -X POST &apos;http://localhost/orders&apos;</failure>
    </testcase>
    <testcase classname="replay" name="replay.effect">
      <error type="unknown" message="the plan has no count of effects">A request and a retry have one effect.&#10;seen: the plan has no count of effects&#10;rule: The source, https://example.org/source</error>
    </testcase>
  </testsuite>
  <testsuite name="/refunds" tests="2" failures="0" errors="0" skipped="2">
    <properties>
      <property name="profile" value="ietf"/>
      <property name="seed" value="7"/>
    </properties>
    <testcase classname="mismatch" name="mismatch.numbers">
      <skipped message="the payload is not JSON"/>
    </testcase>
    <testcase classname="replay" name="replay.cookies">
      <skipped message="note: the replay sets no cookie"/>
    </testcase>
  </testsuite>
</testsuites>
"#;
        assert_eq!(render(&sample::report()), expected);
    }

    #[test]
    fn what_xml_forbids_is_replaced_and_line_ends_are_kept() {
        assert_eq!(
            escaped("a\0b\u{b}c\u{ffff}\r\n\td"),
            "a\u{fffd}b\u{fffd}c\u{fffd}&#13;&#10;&#9;d"
        );
    }
}
