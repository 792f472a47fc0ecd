//! Rows of the audit log: what operators did, with the details of each entry in words.
//!
//! The details of an entry are JSON whose members depend on the action. They are shown as a flat
//! list of names and values, so that an action with new members needs no change here.

use hapax::{Timestamp, admin::AuditEntry};
use serde_json::Value;

use super::list::Listing;
use crate::{
    format::{badge, cell, code, content, none, time},
    html::{Html, el},
    queries::Queries,
    table::Table,
};

/// Members of a job's arguments that only the job needs: the snapshot in which its rows were
/// counted. Other objects may have members with the same names, which are shown: the filter of a job
/// and the replay to an endpoint have an `until` that the operator has chosen.
const INTERNAL: [&str; 5] = ["seen", "until", "counted_at", "partitions", "deaths"];

/// The texts of the list of entries.
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
pub(super) fn row(queries: &Queries, entry: &AuditEntry, now: Timestamp) -> [Html; 6] {
    [
        cell(time(entry.at, now)),
        code(Some(&entry.actor)),
        cell(entry.action.replace('_', " ")),
        code(Some(&entry.object)),
        cell(badge(&entry.outcome)),
        details(queries, &entry.detail),
    ]
}

/// The details of an entry as names and values.
fn details(queries: &Queries, detail: &Value) -> Html {
    let members = members(detail);
    if members.is_empty() {
        return none();
    }
    let line = |(name, value): (&str, &Value)| {
        let title = title(detail, name);
        el("div").add(member(queries, &title, name, value))
    };
    Html::all(members.into_iter().map(line))
}

/// The members of an entry that are shown: those of nested objects too, without the objects around
/// them.
///
/// If a name occurs more than once, the outer member is shown: the arguments of a job repeat its
/// reason.
fn members(detail: &Value) -> Vec<(&str, &Value)> {
    let mut found: Vec<(&str, &Value)> = Vec::new();
    // The objects that are still to be read, each with the name of the member that holds it.
    let mut objects = vec![("", detail)];
    while let Some((parent, object)) = objects.pop() {
        let Value::Object(members) = object else {
            continue;
        };
        for (name, value) in members {
            let is_internal = parent == "arguments" && INTERNAL.contains(&name.as_str());
            let is_found = found.iter().any(|(known, _)| *known == name.as_str());
            let is_unset = value.is_null() || (name == "attempts_min" && *value == 0);
            match value {
                _ if is_internal || is_found || is_unset => {}
                // A declaration is shown in one piece, as JSON.
                Value::Object(_) if name != "spec" => objects.push((name.as_str(), value)),
                _ => found.push((name.as_str(), value)),
            }
        }
    }
    found
}

/// A member as its title and its value.
fn member(queries: &Queries, title: &str, name: &str, value: &Value) -> Html {
    match (name, value) {
        ("spec", spec) => {
            let shown = queries.shown(Some("application/json"), spec.to_string().as_bytes());
            let spec = el("details")
                .add(el("summary").add("Declaration"))
                .add(content("Declaration", &shown));
            cell(spec)
        }
        // The filter of a job has times as milliseconds. Other actions record them as text.
        ("since" | "until", Value::Number(_)) => {
            let at = Timestamp::from_millis(value.as_i64().unwrap_or_default());
            titled(title, &at.to_string())
        }
        _ => titled(title, &text(value)),
    }
}

fn titled(title: &str, value: &str) -> Html {
    cell(el("span").class("soft").add(title).add(": ")).add(value)
}

/// The title of a member in the words of an operator.
fn title(detail: &Value, name: &str) -> String {
    match name {
        "total" => "matches".to_owned(),
        // A change of a declaration records a version, and a seek records a position.
        "from" if detail.get("spec").is_some() => "version before".to_owned(),
        "from" => "position before".to_owned(),
        "why" => "refused because".to_owned(),
        name => name.replace('_', " "),
    }
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
        let mut names: Vec<&str> = members(&detail).into_iter().map(|(name, _)| name).collect();
        names.sort_unstable();
        assert_eq!(names, ["job", "reason", "total", "type", "until"]);
        let (_, until) = members(&detail).pop().unwrap();
        assert_eq!(until, 7);
        assert_eq!(text(&json!(["a", 1])), "a, 1");
    }

    #[test]
    fn the_end_of_a_replay_to_an_endpoint_is_shown() {
        let detail = json!({
            "tenant": "acme", "since": "2026-11-01T00:00:00Z", "until": "2026-11-02T00:00:00Z",
            "dropped": null, "count": 3,
        });
        let names: Vec<&str> = members(&detail).into_iter().map(|(name, _)| name).collect();
        assert!(names.contains(&"until"), "{names:?}");
        assert!(!names.contains(&"dropped"), "{names:?}");
    }

    #[test]
    fn the_title_of_from_says_what_was_before() {
        let change = json!({"from": 1, "version": 2, "spec": {}});
        assert_eq!(title(&change, "from"), "version before");
        let seek = json!({"to": "beginning", "from": 70, "position": 0});
        assert_eq!(title(&seek, "from"), "position before");
    }
}
