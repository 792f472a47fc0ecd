//! The audit log: what operators did, with the details of each entry in words.

use hapax::{Timestamp, admin::AuditEntry};
use serde_json::Value;

use super::list::Listing;
use crate::{
    format::{badge, cell, code, content, none, time},
    html::{Html, el},
    queries::Queries,
    table::Table,
};

/// Members of an entry that only a job needs: the snapshot in which its rows were counted.
const INTERNAL: [&str; 5] = ["seen", "until", "counted_at", "partitions", "deaths"];

pub(super) static ENTRIES: Listing = Listing {
    one: "entry of the audit log",
    empty: "The audit log is empty. An entry appears here when an operator changes something, in \
            the console, with the CLI or with the admin API.",
};

/// A table of the audit log without rows.
pub(super) fn table() -> Table {
    let heads = &["When", "Actor", "Action", "Object", "Outcome", "Details"];
    Table::new("Audit log", heads)
}

/// The row of an entry.
pub(super) fn row(queries: &Queries, it: &AuditEntry, now: Timestamp) -> [Html; 6] {
    [
        cell(time(it.at, now)),
        code(Some(&it.actor)),
        cell(it.action.replace('_', " ")),
        code(Some(&it.object)),
        cell(badge(&it.outcome)),
        details(queries, &it.detail),
    ]
}

/// The details of an entry as names and values.
fn details(queries: &Queries, detail: &Value) -> Html {
    let leaves = leaves(detail);
    if leaves.is_empty() {
        return none();
    }
    let item = |(name, value): (&str, &Value)| el("div").add(said(queries, name, value));
    Html::all(leaves.into_iter().map(item))
}

/// Every value of an entry with its name, without objects around it, and without members that only
/// a job needs.
fn leaves(detail: &Value) -> Vec<(&str, &Value)> {
    let mut found: Vec<(&str, &Value)> = Vec::new();
    let mut rest = vec![("", detail)];
    while let Some((parent, value)) = rest.pop() {
        let Value::Object(members) = value else {
            continue;
        };
        for (name, value) in members {
            let is_internal = parent != "filter" && INTERNAL.contains(&name.as_str());
            let is_known = found.iter().any(|(known, _)| *known == name.as_str());
            let is_unset = value.is_null() || (name == "attempts_min" && *value == 0);
            match value {
                _ if is_internal || is_known || is_unset => {}
                Value::Object(_) if name != "spec" => rest.push((name.as_str(), value)),
                _ => found.push((name.as_str(), value)),
            }
        }
    }
    found
}

fn said(queries: &Queries, name: &str, value: &Value) -> Html {
    match (name, value) {
        ("spec", spec) => {
            let shown = queries.shown(Some("application/json"), spec.to_string().as_bytes());
            let spec = el("details")
                .add(el("summary").add("Declaration"))
                .add(content("Declaration", &shown));
            cell(spec)
        }
        ("since" | "until", Value::Number(_)) => {
            let at = Timestamp::from_millis(value.as_i64().unwrap_or_default());
            named(name, &at.to_string())
        }
        _ => named(name, &text(value)),
    }
}

fn named(name: &str, value: &str) -> Html {
    let title = match name {
        "total" => "matches".to_owned(),
        "from" => "version before".to_owned(),
        "why" => "refused because".to_owned(),
        name => name.replace('_', " "),
    };
    cell(el("span").class("soft").add(title).add(": ")).add(value)
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(text).collect();
            items.join(", ")
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_details_of_a_bulk_action_are_words_without_its_snapshot() {
        let detail = json!({
            "job": 4, "total": 10, "reason": "the receiver is back",
            "arguments": {
                "reason": "the receiver is back",
                "filter": {"type": "order.*", "tenant": null, "attempts_min": 0, "until": 7},
                "seen": "99954:99954: - 7711952969768183909", "until": 99, "counted_at": 5, "deaths": 3,
            },
        });
        let mut names: Vec<&str> = leaves(&detail).into_iter().map(|(name, _)| name).collect();
        names.sort_unstable();
        assert_eq!(names, ["job", "reason", "total", "type", "until"]);
        let (_, until) = leaves(&detail).pop().unwrap();
        assert_eq!(until, 7);
        assert_eq!(text(&json!(["a", 1])), "a, 1");
    }
}
