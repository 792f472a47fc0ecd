//! Checker of money: the shop's ledger has one entry for each acknowledged charge, refund and
//! message, and the ledger of the payment provider has one for each charge and refund.

use std::collections::{BTreeMap, BTreeSet};

use super::Violation;
use crate::kill::{evidence::Evidence, journal::Operation};

/// The tenant, the charge and the kind of an entry.
type Account = (&'static str, String, &'static str);

pub(super) fn violations(evidence: &Evidence) -> Vec<Violation> {
    let (acknowledged, found) = (acknowledged(evidence), found(evidence));
    let accounts: BTreeSet<&Account> = acknowledged.keys().chain(found.keys()).collect();
    let amounts = |book: &BTreeMap<Account, Vec<i64>>, account| {
        book.get(account).cloned().unwrap_or_default()
    };
    let mut violations = Vec::new();
    for account in accounts {
        let (found, acknowledged) = (amounts(&found, account), amounts(&acknowledged, account));
        if found != acknowledged {
            let (_, charge_id, kind) = account.clone();
            violations.push(Violation::WrongEntries {
                charge_id,
                kind,
                found,
                acknowledged,
            });
        }
    }
    violations.extend(refunded_too_much(&found));
    violations.extend(wrong_at_provider(evidence, acknowledged));
    violations
}

/// Finds charges and refunds of the provider that were never acknowledged, and acknowledged ones
/// that the provider does not have.
fn wrong_at_provider(
    evidence: &Evidence,
    acknowledged: BTreeMap<Account, Vec<i64>>,
) -> Vec<Violation> {
    type Moved = BTreeMap<(String, &'static str), Vec<i64>>;
    let (mut promised, mut moved): (Moved, Moved) = Default::default();
    for ((_, charge_id, kind), amounts) in acknowledged {
        if kind != "message" {
            promised.insert((charge_id, kind), amounts);
        }
    }
    for entry in &evidence.provider {
        let (member, kind) = match entry["kind"].as_str() {
            Some("charge") => ("id", "charge"),
            Some("refund") => ("charge", "refund"),
            _ => ("id", "unknown"),
        };
        let charge_id = entry[member].as_str().unwrap_or_default().to_owned();
        let amounts = moved.entry((charge_id, kind)).or_default();
        amounts.extend(entry["amount"].as_i64());
        amounts.sort_unstable();
    }
    let accounts: BTreeSet<_> = promised.keys().chain(moved.keys()).collect();
    let amounts = |book: &Moved, account| book.get(account).cloned().unwrap_or_default();
    let wrong = accounts.into_iter().filter_map(|account| {
        let (found, acknowledged) = (amounts(&moved, account), amounts(&promised, account));
        let (charge_id, kind) = account.clone();
        (found != acknowledged).then_some(Violation::WrongAtProvider {
            charge_id,
            kind,
            found,
            acknowledged,
        })
    });
    wrong.collect()
}

fn refunded_too_much(found: &BTreeMap<Account, Vec<i64>>) -> Vec<Violation> {
    let sum = |tenant, charge_id: &String, kind| -> i64 {
        found
            .get(&(tenant, charge_id.clone(), kind))
            .map_or(0, |amounts| amounts.iter().sum())
    };
    let refunds = found.keys().filter(|(_, _, kind)| *kind == "refund");
    let beyond = refunds.filter_map(|(tenant, charge_id, _)| {
        let amount = sum(tenant, charge_id, "charge");
        let refunded = sum(tenant, charge_id, "refund");
        let charge_id = charge_id.clone();
        (refunded > amount).then_some(Violation::RefundedTooMuch {
            charge_id,
            amount,
            refunded,
        })
    });
    beyond.collect()
}

fn acknowledged(evidence: &Evidence) -> BTreeMap<Account, Vec<i64>> {
    let mut book: BTreeMap<Account, Vec<i64>> = BTreeMap::new();
    for acknowledged in evidence.acknowledged() {
        let (intent, outcome) = (acknowledged.intent, acknowledged.answer.json());
        let body = &intent.body;
        let (tenant, charge_id, kind, amount) = match intent.operation {
            Operation::Order | Operation::Signup => continue,
            Operation::Payment => (intent.tenant, &outcome["id"], "charge", &body["amount"]),
            Operation::Refund => (intent.tenant, &body["charge_id"], "refund", &body["amount"]),
            // The charge of such a message does not exist, so the entry belongs to the first
            // tenant.
            Operation::Message => (
                "alice",
                &body["data"]["charge_id"],
                "message",
                &body["data"]["amount"],
            ),
        };
        let charge_id = charge_id.as_str().unwrap_or_default().to_owned();
        let amounts = book.entry((tenant, charge_id, kind)).or_default();
        amounts.extend(amount.as_i64());
        amounts.sort_unstable();
    }
    book
}

fn found(evidence: &Evidence) -> BTreeMap<Account, Vec<i64>> {
    let mut book: BTreeMap<Account, Vec<i64>> = BTreeMap::new();
    for (tenant, entry) in &evidence.entries {
        let kind = match (entry["source"].as_str(), entry["kind"].as_str()) {
            (Some("provider"), _) => "message",
            (_, Some("charge")) => "charge",
            (_, Some("refund")) => "refund",
            _ => "unknown",
        };
        let charge_id = entry["charge_id"].as_str().unwrap_or_default().to_owned();
        let amounts = book.entry((*tenant, charge_id, kind)).or_default();
        amounts.extend(entry["amount"].as_i64());
        amounts.sort_unstable();
    }
    book
}
