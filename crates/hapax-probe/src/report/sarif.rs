//! The report as SARIF 2.1.0, the format of results of code analysis (OASIS).
//!
//! Each check is a rule. Failures are results of the level `error`, checks that could not be judged
//! of the level `warning`, and notes of the level `note`. Checks that passed or were skipped have no
//! result.

use serde_json::{Value, json};

use crate::{
    report::{Finding, Report},
    verdict::Verdict,
};

/// The JSON Schema that the report follows.
const SCHEMA: &str = "https://json.schemastore.org/sarif-2.1.0.json";
/// The home page of the tool.
const INFORMATION: &str = "https://github.com/hapax-rs/hapax";

pub(super) fn render(report: &Report) -> String {
    let checks = checks(&report.findings);
    let rules: Vec<Value> = checks.iter().map(|finding| rule(finding)).collect();
    let results: Vec<Value> = report
        .findings
        .iter()
        .filter_map(|finding| result(finding, &checks))
        .collect();
    let document = json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": {
                "driver": {
                    "name": "hapax-probe",
                    "version": env!("CARGO_PKG_VERSION"),
                    "informationUri": INFORMATION,
                    "rules": rules,
                },
            },
            "properties": { "profile": report.profile.name, "seed": report.seed },
            "results": results,
        }],
    });
    format!("{document:#}\n")
}

/// Returns the first finding of each check, which describes the check. A check has a finding for
/// each operation.
fn checks(findings: &[Finding]) -> Vec<&Finding> {
    let mut checks: Vec<&Finding> = Vec::new();
    for finding in findings {
        if checks.iter().all(|check| check.id != finding.id) {
            checks.push(finding);
        }
    }
    checks
}

/// Describes the check of a finding.
fn rule(finding: &Finding) -> Value {
    json!({
        "id": finding.id,
        "shortDescription": { "text": finding.asks },
        "help": { "text": format!("The rule is from {}.", finding.source) },
        "helpUri": finding.source_url,
        "properties": { "tags": [finding.group] },
    })
}

/// Returns the result of a finding, or `None` if the check has passed or was skipped. `checks` has
/// the order of the rules.
fn result(finding: &Finding, checks: &[&Finding]) -> Option<Value> {
    let level = match finding.verdict {
        Verdict::Fail => "error",
        Verdict::Unknown => "warning",
        Verdict::Note => "note",
        Verdict::Pass | Verdict::Skipped => return None,
    };
    let index = checks.iter().position(|check| check.id == finding.id)?;
    Some(json!({
        "ruleId": finding.id,
        "ruleIndex": index,
        "level": level,
        "message": { "text": format!("{}: {}", finding.operation, finding.seen) },
        "locations": [{
            // Services that show SARIF reject a result without a file. The operation has none, so its
            // name is the path.
            "physicalLocation": {
                "artifactLocation": { "uri": relative_uri(&finding.operation) },
                "region": { "startLine": 1 },
            },
            "logicalLocations": [{ "fullyQualifiedName": finding.operation }],
        }],
        // A service recognizes the result of an earlier report by this text.
        "partialFingerprints": { "check/v1": format!("{} {}", finding.operation, finding.id) },
        "properties": { "commands": finding.commands },
    }))
}

/// Returns the name of an operation as a relative URI.
fn relative_uri(operation: &str) -> String {
    let mut uri = String::from("operations");
    for segment in operation.split('/').filter(|it| !it.is_empty()) {
        uri.push('/');
        let encoded = url::form_urlencoded::byte_serialize(segment.as_bytes());
        // A form encodes a space as a plus sign, which has no such meaning in a path.
        uri.extend(encoded.map(|part| if part == "+" { "%20" } else { part }));
    }
    uri
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    fn document() -> Value {
        serde_json::from_str(&render(&sample::report())).expect("valid JSON")
    }

    #[test]
    fn failures_are_errors_and_passed_checks_have_no_result() {
        let document = document();
        let results = document["runs"][0]["results"]
            .as_array()
            .expect("a list of results");
        let levels: Vec<(&str, &str)> = results
            .iter()
            .filter_map(|it| Some((it["ruleId"].as_str()?, it["level"].as_str()?)))
            .collect();
        assert_eq!(
            levels,
            [
                ("replay.body", "error"),
                ("replay.effect", "warning"),
                ("replay.cookies", "note"),
            ]
        );
        assert_eq!(
            results[0]["message"]["text"],
            "/orders: the retry got 201 <\"a\" & \u{1b}[1m>"
        );
    }

    #[test]
    fn each_result_points_to_its_rule() {
        let document = document();
        let run = &document["runs"][0];
        let results = run["results"].as_array().expect("a list of results");
        for result in results {
            let index = result["ruleIndex"].as_u64().expect("an index");
            let index = usize::try_from(index).expect("a small number");
            assert_eq!(
                run["tool"]["driver"]["rules"][index]["id"],
                result["ruleId"]
            );
        }
        let rules = run["tool"]["driver"]["rules"].as_array().expect("rules");
        assert_eq!(rules.len(), 5);
    }

    #[test]
    fn the_name_of_an_operation_is_a_relative_uri() {
        assert_eq!(relative_uri("/orders"), "operations/orders");
        assert_eq!(
            relative_uri("a b/c+d?e=1"),
            "operations/a%20b/c%2Bd%3Fe%3D1"
        );
    }
}
