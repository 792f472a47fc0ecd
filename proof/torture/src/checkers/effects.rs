//! Effects checker: every acknowledged effect exists exactly once, and there are no other effects.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{Violation, violated};
use crate::{
    artifacts::{Artifacts, OperationRecord, OperatorRecord},
    clients::{Kind, body, digest},
};

/// The number of thumbnails of each upload.
const THUMBNAILS: u64 = 2;

pub(super) fn violations(artifacts: &Artifacts) -> Vec<Violation> {
    let mut found = orders(artifacts);
    found.extend(once(artifacts, "users", "email", Kind::Signup, |record| {
        text(&record.operation.body["email"])
    }));
    for (table, kind) in [("messages", Kind::Message), ("market", Kind::Market)] {
        let charge = |record: &OperationRecord| text(&record.operation.body["data"]["charge_id"]);
        found.extend(once(artifacts, table, "charge_id", kind, charge));
    }
    found.extend(uploads(artifacts));
    found.extend(altered(artifacts));
    found
}

fn orders(artifacts: &Artifacts) -> Vec<Violation> {
    let note = |record: &OperationRecord| text(&record.operation.body["note"]);
    let mut found = once(artifacts, "orders", "note", Kind::Order, note);
    let versions: BTreeMap<_, _> = artifacts
        .rows("orders")
        .iter()
        .map(|row| {
            (
                text(&row["id"]),
                row["version"].as_u64().unwrap_or_default(),
            )
        })
        .collect();
    let mut updates: BTreeMap<String, u64> = BTreeMap::new();
    for (name, outcome) in changes(artifacts) {
        let id = text(&outcome["id"]);
        *updates.entry(id.clone()).or_default() += 1;
        let version = outcome["version"].as_u64().unwrap_or_default();
        if versions.get(&id).is_none_or(|stored| *stored < version) {
            found.push(violated(2, format!("{name} is lost: {outcome}")));
        }
    }
    let unknown = unknown_changes(artifacts);
    for (id, version) in versions {
        if unknown.contains(&id) {
            continue;
        }
        let acknowledged = updates.get(&id).copied().unwrap_or_default();
        if version != acknowledged + 1 && version > 0 {
            let what = format!(
                "order {id} was changed {} times, and {acknowledged} changes were acknowledged",
                version - 1
            );
            found.push(violated(1, what));
        }
    }
    found
}

/// The acknowledged changes of orders, each with the client of the operation, and its key.
fn changes(artifacts: &Artifacts) -> impl Iterator<Item = (String, Value)> {
    let clients = artifacts.of(Kind::Update);
    let clients = clients.filter_map(|it| Some((it.name(), it.acknowledged()?)));
    let operator = operator_changes(artifacts);
    clients.chain(operator.filter_map(|it| Some((it.name(), outcome(it)?))))
}

/// The orders that the operator may have changed: it got no final response.
fn unknown_changes(artifacts: &Artifacts) -> BTreeSet<String> {
    let unknown = operator_changes(artifacts).filter(|it| outcome(it).is_none());
    unknown.filter_map(|it| it.operation.of.clone()).collect()
}

fn operator_changes(artifacts: &Artifacts) -> impl Iterator<Item = &OperatorRecord> {
    let records = artifacts.operator_records.iter();
    records.filter(|it| it.operation.kind == Kind::Update)
}

/// The changed order, as the first response to the change has it.
fn outcome(change: &OperatorRecord) -> Option<Value> {
    let (_, _, response) = change.responses().next()?;
    Some(body(response))
}

/// Each upload has its complete file, and each thumbnail once.
fn uploads(artifacts: &Artifacts) -> Vec<Violation> {
    let name = |record: &OperationRecord| text(&record.operation.body["name"]);
    let mut found = once(artifacts, "uploads", "name", Kind::Upload, name);
    let file =
        |record: &OperationRecord| Some((name(record), digest(&record.operation.file().ok()?)));
    let sent: BTreeMap<_, _> = artifacts.of(Kind::Upload).filter_map(file).collect();
    for row in artifacts.rows("uploads") {
        let content = row["content"].as_u64();
        let sent = sent.get(&text(&row["name"]));
        let is_other = content.zip(sent).is_some_and(|(it, sent)| it != *sent);
        if row["kept"] != row["bytes"] || is_other {
            found.push(violated(2, format!("the file of an upload is lost: {row}")));
        }
        if row["state"] != "ready" || row["thumbnails"] != THUMBNAILS {
            found.push(violated(
                8,
                format!("an upload has not each thumbnail once: {row}"),
            ));
        }
    }
    found
}

/// Each acknowledged operation has one row, and each row an operation.
fn once(
    artifacts: &Artifacts,
    table: &str,
    column: &str,
    kind: Kind,
    name: impl Fn(&OperationRecord) -> String,
) -> Vec<Violation> {
    let mut rows: BTreeMap<String, usize> = BTreeMap::new();
    for row in artifacts.rows(table) {
        *rows.entry(text(&row[column])).or_default() += 1;
    }
    let mut found = Vec::new();
    let mut wanted = BTreeSet::new();
    for record in artifacts.of(kind) {
        let name = name(record);
        let count = rows.get(&name).copied().unwrap_or_default();
        let is_acknowledged = record.acknowledged().is_some();
        if is_acknowledged && count == 0 {
            // It was mistaken for a message of the other source.
            let of = if kind == Kind::Market { 8 } else { 2 };
            found.push(violated(
                of,
                format!("{} was acknowledged and does not exist", record.name()),
            ));
        }
        let is_rejected = record.final_attempt().is_some_and(|it| it.end == "fail");
        if is_rejected && count > 0 {
            found.push(violated(
                2,
                format!("{} was rejected and exists", record.name()),
            ));
        }
        if count > 1 {
            let is_message = matches!(kind, Kind::Message | Kind::Market);
            let of = if is_message { 8 } else { 1 };
            found.push(violated(
                of,
                format!("{} has {count} effects", record.name()),
            ));
        }
        wanted.insert(name);
    }
    // Operations of the operator are checked separately.
    let operators = artifacts.operator_records.iter().map(|it| &it.operation);
    let operators = operators.filter(|it| it.kind == kind);
    wanted.extend(operators.map(|it| text(&it.body["note"])));
    let unexpected = rows.keys().filter(|it| !wanted.contains(*it));
    found.extend(unexpected.map(|it| violated(1, format!("no client requested {it} in {table}"))));
    found
}

/// No row and no ledger has an amount that only an altered request has.
fn altered(artifacts: &Artifacts) -> Vec<Violation> {
    let tables = ["orders", "charges", "refunds", "messages", "market"];
    let rows = tables.iter().flat_map(|table| artifacts.rows(table));
    let paid = ["charge", "refund"].map(|kind| artifacts.paid(kind));
    let all = rows.chain(paid.into_iter().flatten());
    let altered = all.filter(|row| row["amount"].as_u64().unwrap_or_default() % 10 == 1);
    altered
        .map(|row| violated(4, format!("an altered request had an effect: {row}")))
        .collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
