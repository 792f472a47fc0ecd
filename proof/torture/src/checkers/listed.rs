//! Listing checker: the API returns each stored row once and to its tenant, and each order with the
//! content of its last acknowledged change.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Violation, violated};
use crate::{
    artifacts::{Artifacts, OperationRecord},
    clients::Kind,
};

pub(super) fn violations(artifacts: &Artifacts) -> Vec<Violation> {
    if artifacts.listed.is_null() {
        return Vec::new();
    }
    let mut found = orders(artifacts);
    let ids = |rows: &[Value]| rows.iter().map(|row| row["id"].to_string()).collect();
    let orders: Vec<_> = list(artifacts, "orders")
        .iter()
        .map(|it| it["order"].clone())
        .collect();
    found.extend(differences(
        "orders",
        ids(&orders),
        ids(artifacts.rows("orders")),
    ));
    let entry = |row: &Value| format!("{} of {}", row["amount"], row["charge_id"]);
    let stored = ["ledger", "messages", "market"].into_iter();
    let stored = stored
        .flat_map(|table| artifacts.rows(table))
        .map(entry)
        .collect();
    let shown = list(artifacts, "ledger").iter().map(entry).collect();
    found.extend(differences("the ledger", shown, stored));
    found
}

fn list<'a>(artifacts: &'a Artifacts, name: &str) -> &'a [Value] {
    artifacts.listed[name].as_array().map_or(&[], Vec::as_slice)
}

/// Orders that are returned to another tenant, or with other content than the response that
/// acknowledged their version.
fn orders(artifacts: &Artifacts) -> Vec<Violation> {
    let version = |order: &Value| (order["id"].to_string(), order["version"].as_u64());
    let made = artifacts.of(Kind::Order).chain(artifacts.of(Kind::Update));
    let made = made.filter_map(OperationRecord::acknowledged);
    let acknowledged: BTreeMap<_, _> = made.map(|order| (version(&order), order)).collect();
    let mut found = Vec::new();
    for row in list(artifacts, "orders") {
        let (order, tenant) = (&row["order"], row["tenant"].as_str().unwrap_or_default());
        let note = order["note"].as_str().unwrap_or_default();
        if !note.starts_with(&format!("{tenant}/")) {
            found.push(violated(
                2,
                format!("an order is returned to {tenant}: {order}"),
            ));
        }
        if let Some(expected) = acknowledged.get(&version(order))
            && expected != order
        {
            let what = format!("an order is {order}, and {expected} was acknowledged");
            found.push(violated(2, what));
        }
        let single = &artifacts.listed["read"][order["id"].as_str().unwrap_or_default()];
        if !single.is_null() && single != order {
            let what = format!("an order is listed as {order}, and requested alone it is {single}");
            found.push(violated(2, what));
        }
    }
    found
}

/// Entries whose number differs between a list and the store.
fn differences(name: &str, shown: Vec<String>, stored: Vec<String>) -> Vec<Violation> {
    let mut balance: BTreeMap<String, i64> = BTreeMap::new();
    for entry in shown {
        *balance.entry(entry).or_default() += 1;
    }
    for entry in stored {
        *balance.entry(entry).or_default() -= 1;
    }
    let wrong = balance.into_iter().filter(|(_, more)| *more != 0);
    wrong
        .map(|(entry, more)| violated(2, format!("{name} has {more:+} times {entry}")))
        .collect()
}
