//! Money checker: the ledgers of the providers agree with that of the shop.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{Violation, violated};
use crate::{
    artifacts::{Artifacts, OperationRecord},
    clients::Kind,
};

pub(super) fn violations(artifacts: &Artifacts) -> Vec<Violation> {
    let mut found = payments(artifacts);
    found.extend(refunds(artifacts));
    found.extend(checkouts(artifacts));
    found.extend(stock(artifacts));
    found.extend(ledger(artifacts));
    found
}

/// A payment is one charge at the provider, and one at the shop.
fn payments(artifacts: &Artifacts) -> Vec<Violation> {
    let mut found = Vec::new();
    let charged = by_amount(artifacts.paid("charge"));
    let stored = by_amount(artifacts.rows("charges").iter().collect());
    for record in artifacts.of(Kind::Payment) {
        let amount = record.operation.body["amount"].as_i64().unwrap_or_default();
        let counts = [&charged, &stored].map(|it| it.get(&amount).copied().unwrap_or_default());
        let expected = usize::from(record.acknowledged().is_some());
        let is_open = record.final_attempt().is_none();
        if counts != [expected; 2] && !is_open {
            let [charged, stored] = counts;
            let name = record.name();
            found.push(violated(
                11,
                format!("{name} was charged {charged} times and is stored {stored} times"),
            ));
        }
    }
    found
}

/// Refunds at the provider equal those of the shop and never exceed the charge.
fn refunds(artifacts: &Artifacts) -> Vec<Violation> {
    let mut found = Vec::new();
    let sums = |rows: Vec<&Value>, member: &str| {
        let mut sums: BTreeMap<String, i64> = BTreeMap::new();
        for row in rows {
            let of = row[member].as_str().unwrap_or_default().to_owned();
            *sums.entry(of).or_default() += row["amount"].as_i64().unwrap_or_default();
        }
        sums
    };
    let returned = sums(artifacts.paid("refund"), "charge");
    let stored = sums(artifacts.rows("refunds").iter().collect(), "charge_id");
    let mut acknowledged: BTreeMap<String, i64> = BTreeMap::new();
    for record in artifacts
        .of(Kind::Refund)
        .filter(|it| it.acknowledged().is_some())
    {
        let of = record.operation.of.clone().unwrap_or_default();
        *acknowledged.entry(of).or_default() +=
            record.operation.body["amount"].as_i64().unwrap_or_default();
    }
    let pending = artifacts.rows("refunds").iter();
    let pending = pending.filter(|row| row["state"] == "pending");
    found.extend(pending.map(|row| violated(11, format!("a refund has not ended: {row}"))));
    for row in artifacts.rows("charges") {
        let id = row["id"].as_str().unwrap_or_default();
        let sum = |sums: &BTreeMap<String, i64>| sums.get(id).copied().unwrap_or_default();
        let [returned, stored, acknowledged] = [&returned, &stored, &acknowledged].map(sum);
        let amount = row["amount"].as_i64();
        if returned != stored || stored != acknowledged || Some(returned) > amount {
            let what = format!(
                "{id} ({amount:?}): the provider refunded {returned}, the refunds stored are {stored}, \
                 and those acknowledged {acknowledged}"
            );
            found.push(violated(11, what));
        }
    }
    found
}

/// A checkout is shipped and captured, or not shipped and voided.
fn checkouts(artifacts: &Artifacts) -> Vec<Violation> {
    let mut found = Vec::new();
    let completed = completed(artifacts).count();
    for row in artifacts.rows("sagas") {
        if !has_ended(row) {
            found.push(violated(11, format!("a checkout has not ended: {row}")));
        }
    }
    let started = artifacts.rows("sagas").len();
    let expected = artifacts
        .of(Kind::Checkout)
        .filter(|it| it.final_attempt().is_some())
        .count();
    if started != expected {
        found.push(violated(
            1,
            format!("{expected} checkouts got a response, {started} were started"),
        ));
    }
    let paid = |kind: &str| artifacts.paid(kind).len();
    let shipped = artifacts.shipped("shipment").len() - artifacts.shipped("cancellation").len();
    let captured = paid("capture");
    if [captured, shipped] != [completed; 2] {
        let what =
            format!("{completed} checkouts completed, {captured} captured, {shipped} shipped");
        found.push(violated(11, what));
    }
    let held = paid("authorization").abs_diff(paid("void") + captured);
    if held > 0 {
        found.push(violated(
            11,
            format!("{held} authorizations were neither captured nor voided, or twice"),
        ));
    }
    found.extend(outcomes(artifacts));
    found.extend(captures(artifacts));
    found
}

/// Captures of other amounts than the carts of the completed checkouts.
fn captures(artifacts: &Artifacts) -> Option<Violation> {
    let carts: Vec<_> = completed(artifacts).map(cart).collect();
    let expected = by_amount(carts.iter().collect());
    let captured = by_amount(artifacts.paid("capture"));
    let what = format!("carts of {expected:?} were completed, and {captured:?} captured");
    (captured != expected).then(|| violated(11, what))
}

/// Checkouts whose outcome does not fit their address.
fn outcomes(artifacts: &Artifacts) -> Vec<Violation> {
    let rows: BTreeMap<_, _> = artifacts
        .rows("sagas")
        .iter()
        .map(|row| (row["id"].as_str().unwrap_or_default(), row))
        .collect();
    let row = |record: &OperationRecord| {
        let outcome = record.acknowledged()?;
        rows.get(outcome["id"].as_str()?).copied()
    };
    let acknowledged = artifacts
        .of(Kind::Checkout)
        .filter(|it| it.acknowledged().is_some());
    let mut found = Vec::new();
    for record in acknowledged {
        let is_shippable = record.operation.body["address"]["country"] != "ZZ";
        let name = record.name();
        let Some(row) = row(record) else {
            found.push(violated(
                2,
                format!("{name} was acknowledged and does not exist"),
            ));
            continue;
        };
        match (row["state"].as_str().unwrap_or_default(), is_shippable) {
            ("completed", false) => {
                found.push(violated(
                    11,
                    format!("{name} was shipped to an invalid address"),
                ));
            }
            // If a provider never received the call, the final outcome is that nothing happened.
            ("failed", true) if row["reason_code"] != "absent" => {
                let why = &row["reason_code"];
                found.push(violated(
                    2,
                    format!("{name} was acknowledged and failed: {why}"),
                ));
            }
            ("completed" | "failed", _) | (_, false) => {}
            (state, true) => found.push(violated(11, format!("{name} is {state}"))),
        }
    }
    found
}

/// The reserved stock equals what was shipped: a checkout that failed has released its reservation.
fn stock(artifacts: &Artifacts) -> Vec<Violation> {
    // A saga that still runs will release its own reservations; the amount that it holds is
    // unknown.
    if !artifacts.rows("sagas").iter().all(has_ended) {
        return Vec::new();
    }
    let mut shipped: BTreeMap<String, i64> = BTreeMap::new();
    for row in completed(artifacts) {
        for item in cart(row)["items"].as_array().into_iter().flatten() {
            let sku = item["sku"].as_str().unwrap_or_default().to_owned();
            *shipped.entry(sku).or_default() += item["quantity"].as_i64().unwrap_or_default();
        }
    }
    let mut found = Vec::new();
    for row in artifacts.rows("stock") {
        let sku = row["sku"].as_str().unwrap_or_default();
        let (shipped, reserved) = (shipped.remove(sku).unwrap_or_default(), &row["reserved"]);
        if *reserved != shipped {
            let what = format!("{reserved} of {sku} are reserved, {shipped} were shipped");
            found.push(violated(11, what));
        }
    }
    found
}

/// The shop's ledger has one entry of each charge, of each refund, and of each capture.
fn ledger(artifacts: &Artifacts) -> Vec<Violation> {
    if artifacts.rows["ledger"].is_null() {
        return Vec::new();
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let charges = artifacts.rows("charges").iter();
    let charges: BTreeSet<_> = charges.map(|row| text(&row["id"])).collect();
    let mut balance: BTreeMap<(&str, String, i64), i64> = BTreeMap::new();
    let mut captures: BTreeMap<String, usize> = BTreeMap::new();
    for row in artifacts.rows("ledger") {
        let (kind, of) = (
            row["kind"].as_str().unwrap_or_default(),
            text(&row["charge_id"]),
        );
        if kind == "charge" && !charges.contains(&of) {
            *captures.entry(of).or_default() += 1;
        } else {
            let amount = row["amount"].as_i64().unwrap_or_default();
            *balance.entry((kind, of, amount)).or_default() += 1;
        }
    }
    let settled = artifacts.rows("refunds").iter();
    let settled = settled.filter(|row| row["state"] != "pending");
    let charges = artifacts.rows("charges").iter();
    let expected = charges.map(|row| ("charge", "id", row));
    for (kind, member, row) in expected.chain(settled.map(|row| ("refund", "charge_id", row))) {
        let amount = row["amount"].as_i64().unwrap_or_default();
        *balance
            .entry((kind, text(&row[member]), amount))
            .or_default() -= 1;
    }
    let wrong = balance.into_iter().filter(|(_, more)| *more != 0);
    let wrong = wrong.map(|((kind, of, amount), more)| {
        let what = format!("the ledger has {more:+} entries of a {kind} of {amount}, {of}");
        violated(11, what)
    });
    let mut found: Vec<_> = wrong.collect();
    let again = captures.iter().filter(|(_, times)| **times > 1);
    found.extend(
        again.map(|(of, times)| {
            violated(11, format!("the ledger has the capture {of} {times} times"))
        }),
    );
    let completed = completed(artifacts).count();
    let have_ended = artifacts.rows("sagas").iter().all(has_ended);
    if have_ended && captures.len() != completed {
        let entered = captures.len();
        let what = format!("{completed} checkouts completed, {entered} are in the ledger");
        found.push(violated(11, what));
    }
    found
}

fn has_ended(saga: &Value) -> bool {
    matches!(saga["state"].as_str(), Some("completed" | "failed"))
}

/// The cart of a checkout.
fn cart(saga: &Value) -> Value {
    let cart = saga["cart"].as_str().unwrap_or_default();
    serde_json::from_str(cart).unwrap_or_default()
}

fn completed(artifacts: &Artifacts) -> impl Iterator<Item = &Value> {
    let sagas = artifacts.rows("sagas").iter();
    sagas.filter(|row| row["state"] == "completed")
}

fn by_amount(rows: Vec<&Value>) -> BTreeMap<i64, usize> {
    let mut counts = BTreeMap::new();
    for row in rows {
        *counts
            .entry(row["amount"].as_i64().unwrap_or_default())
            .or_default() += 1;
    }
    counts
}
