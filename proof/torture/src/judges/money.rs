//! The providers' own ledgers agree with the shop's.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Violation, violated};
use crate::{
    clients::Kind,
    evidence::{Evidence, Wished},
};

pub(super) fn violations(evidence: &Evidence) -> Vec<Violation> {
    let mut found = payments(evidence);
    found.extend(refunds(evidence));
    found.extend(checkouts(evidence));
    found
}

/// A payment is one charge at the provider, one at the shop, and one entry of its ledger.
fn payments(evidence: &Evidence) -> Vec<Violation> {
    let mut found = Vec::new();
    let taken = by_amount(evidence.paid("charge"));
    let kept = by_amount(evidence.rows("charges").iter().collect());
    for wished in evidence.of(Kind::Payment) {
        let amount = wished.wish.body["amount"].as_i64().unwrap_or_default();
        let counts = [&taken, &kept].map(|it| it.get(&amount).copied().unwrap_or_default());
        let wanted = usize::from(wished.granted().is_some());
        let is_open = wished.lasting().is_none();
        if counts != [wanted; 2] && !is_open {
            let [taken, kept] = counts;
            let name = wished.name();
            found.push(violated(
                11,
                format!("{name} was charged {taken} times and is kept {kept} times"),
            ));
        }
    }
    found
}

/// What was given back at the provider is what the shop says, and never too much.
fn refunds(evidence: &Evidence) -> Vec<Violation> {
    let mut found = Vec::new();
    let sums = |rows: Vec<&Value>, member: &str| {
        let mut sums: BTreeMap<String, i64> = BTreeMap::new();
        for row in rows {
            let of = row[member].as_str().unwrap_or_default().to_owned();
            *sums.entry(of).or_default() += row["amount"].as_i64().unwrap_or_default();
        }
        sums
    };
    let returned = sums(evidence.paid("refund"), "charge");
    let kept = sums(evidence.rows("refunds").iter().collect(), "charge_id");
    let mut granted: BTreeMap<String, i64> = BTreeMap::new();
    for wished in evidence
        .of(Kind::Refund)
        .filter(|it| it.granted().is_some())
    {
        let of = wished.wish.of.clone().unwrap_or_default();
        *granted.entry(of).or_default() += wished.wish.body["amount"].as_i64().unwrap_or_default();
    }
    for row in evidence.rows("charges") {
        let id = row["id"].as_str().unwrap_or_default();
        let sum = |sums: &BTreeMap<String, i64>| sums.get(id).copied().unwrap_or_default();
        let [returned, kept, granted] = [&returned, &kept, &granted].map(sum);
        let (refunded, amount) = (row["refunded"].as_i64(), row["amount"].as_i64());
        if returned != kept || kept != granted || refunded != Some(kept) || Some(returned) > amount
        {
            let what = format!(
                "of {id} ({amount:?}) {returned} came back, {kept} is kept, {granted} was granted, \
                 its row says {refunded:?}"
            );
            found.push(violated(11, what));
        }
    }
    found
}

/// A checkout is shipped and captured, or nothing and voided.
fn checkouts(evidence: &Evidence) -> Vec<Violation> {
    let mut found = Vec::new();
    let in_state = |state: &str| {
        evidence
            .rows("sagas")
            .iter()
            .filter(|it| it["state"] == state)
            .count()
    };
    let completed = in_state("completed");
    for row in evidence.rows("sagas") {
        if !matches!(row["state"].as_str(), Some("completed" | "failed")) {
            found.push(violated(11, format!("a checkout has not ended: {row}")));
        }
    }
    let started = evidence.rows("sagas").len();
    let wanted = evidence
        .of(Kind::Checkout)
        .filter(|it| it.lasting().is_some())
        .count();
    if started != wanted {
        found.push(violated(
            1,
            format!("{wanted} checkouts were answered, {started} were started"),
        ));
    }
    let paid = |kind: &str| evidence.paid(kind).len();
    let shipped = evidence.shipped("shipment").len() - evidence.shipped("cancellation").len();
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
    found.extend(unlike(evidence));
    found
}

/// Checkouts whose end is not the one that their address asks for.
fn unlike(evidence: &Evidence) -> Vec<Violation> {
    let states: BTreeMap<_, _> = evidence
        .rows("sagas")
        .iter()
        .map(|row| (row["id"].as_str().unwrap_or_default(), &row["state"]))
        .collect();
    let state = |wished: &Wished| {
        let told = wished.granted()?;
        states.get(told["id"].as_str()?).copied()
    };
    let answered = evidence
        .of(Kind::Checkout)
        .filter(|it| it.granted().is_some());
    let mut found = Vec::new();
    for wished in answered {
        let is_shippable = wished.wish.body["address"]["country"] != "ZZ";
        match state(wished) {
            None => found.push(violated(
                2,
                format!("{} was granted and is not there", wished.name()),
            )),
            Some(end) if is_shippable && end != "completed" && end != "failed" => {
                found.push(violated(11, format!("{} is {end}", wished.name())));
            }
            Some(end) if !is_shippable && end == "completed" => {
                found.push(violated(
                    11,
                    format!("{} was shipped to nowhere", wished.name()),
                ));
            }
            Some(_) => {}
        }
    }
    found
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
