//! Parser of the files in `monitoring/`, for the tests.

use std::{collections::BTreeSet, fs, path::PathBuf};

use serde_json::Value;

pub(super) const ALERTS: &str = "monitoring/alerts.yml";
pub(super) const ALERT_TESTS: &str = "monitoring/alerts.test.yml";
pub(super) const GUIDE: &str = "docs/guides/monitor.md";
const DASHBOARD: &str = "monitoring/dashboard.json";

/// The variables of Grafana, with values that select everything.
const VARIABLES: [(&str, &str); 3] = [
    ("$job", ".*"),
    ("$destination", ".*"),
    ("$__rate_interval", "1m"),
];

/// A query of a panel.
#[derive(Debug)]
pub(super) struct Panel {
    #[expect(dead_code, reason = "it is printed by a failed test")]
    title: String,
    pub(super) query: String,
}

/// An alert rule.
#[derive(Debug)]
pub(super) struct Alert {
    pub(super) name: String,
    pub(super) severity: String,
    pub(super) runbook: String,
}

/// The content of a file of the repository.
#[track_caller]
pub(super) fn repository(path: &str) -> String {
    fs::read_to_string(place(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The path of a file of the repository.
pub(super) fn place(path: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join(path)
}

/// All queries of the dashboard, with values for their variables.
pub(super) fn panels() -> Vec<Panel> {
    let mut panels = Vec::new();
    for panel in dashboard()["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            panels.push(Panel {
                title: panel["title"].as_str().unwrap().to_owned(),
                query: filled_in(target["expr"].as_str().unwrap()),
            });
        }
    }
    panels
}

/// The filters of the dashboard: each label, and the series whose values are offered.
pub(super) fn variables() -> Vec<(String, String)> {
    let dashboard = dashboard();
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let queries = variables
        .iter()
        .filter(|variable| variable["type"] == "query");
    queries
        .map(|variable| {
            let query = filled_in(variable["query"].as_str().unwrap());
            let inner = query.strip_prefix("label_values(").unwrap();
            let inner = inner.strip_suffix(')').unwrap();
            let (selector, label) = inner.rsplit_once(", ").unwrap();
            (label.to_owned(), selector.to_owned())
        })
        .collect()
}

/// The alert rules, parsed line by line.
pub(super) fn alerts() -> Vec<Alert> {
    let text = repository(ALERTS);
    let rules = text.split("- alert: ").skip(1);
    let alerts: Vec<_> = rules
        .map(|rule| Alert {
            name: rule.lines().next().unwrap().to_owned(),
            severity: value(rule, "severity: "),
            runbook: value(rule, "runbook: "),
        })
        .collect();
    assert!(!alerts.is_empty(), "{ALERTS} has no rules");
    alerts
}

/// The alert rules that have test cases, each with whether it fires in the case.
pub(super) fn tried() -> BTreeSet<(String, bool)> {
    let text = repository(ALERT_TESTS);
    let cases = text.split("- alertname: ").skip(1);
    cases
        .map(|case| {
            let name = case.lines().next().unwrap().to_owned();
            (name, value(case, "exp_alerts:").is_empty())
        })
        .collect()
}

/// The metrics that a query names, without the suffixes of histograms.
pub(super) fn names(query: &str) -> BTreeSet<String> {
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let words = query.split(|letter| !is_name(letter));
    let metrics = words.filter(|word| word.starts_with("hapax_"));
    metrics.map(str::to_owned).collect()
}

fn dashboard() -> Value {
    serde_json::from_str(&repository(DASHBOARD)).unwrap()
}

fn filled_in(query: &str) -> String {
    let mut query = query.to_owned();
    for (name, value) in VARIABLES {
        query = query.replace(name, value);
    }
    assert!(!query.contains('$'), "{query} has an unknown variable");
    query
}

/// The text after `key` in the first line that begins with it.
fn value(text: &str, key: &str) -> String {
    let line = text.lines().find_map(|line| line.trim().strip_prefix(key));
    line.unwrap_or_else(|| panic!("no {key:?} in {text}"))
        .trim()
        .to_owned()
}
