//! Comparison of the ledgers of the shop and of the providers at the end of a case.

use std::fmt;

use hapax_testkit::http::HttpAnswer;
use serde_json::Value;

use super::cases::{Asked, Case};
use crate::{shop::Shop, simulated_providers::Providers};

const REFUNDED: &str = "SELECT CAST(coalesce(sum(refunded), 0) AS bigint) FROM shop_charge";
const PENDING: &str = "SELECT count(*) FROM shop_refund WHERE state = 'pending'";

/// One line of the table.
#[derive(Debug)]
pub(super) struct Line {
    asked: Asked,
    blow: String,
    /// Whether the fault happened.
    pub(super) was_struck: bool,
    status: u16,
    /// The state of the checkout, or an empty string for other requests.
    state: String,
    /// The amount of the payment provider's charges and captures. The next two fields are their
    /// number and the amount of its refunds.
    taken: i64,
    captures: usize,
    returned: i64,
    /// The number of authorizations that are neither captured nor voided.
    held: i64,
    /// The number of parcels that were sent and not cancelled.
    parcels: i64,
    /// The balance of the shop's ledger: charges minus refunds. The next field is the number of
    /// entries.
    booked: i64,
    entries: usize,
    /// The refunded amount of the shop's charges. The next field is the number of pending refunds.
    refunded: i64,
    pending: i64,
    /// Whether a repeated request got the same response.
    is_same_again: bool,
}

impl Line {
    pub(super) const HEAD: &'static str = "| asked | blow | struck | answer | state | taken | returned | held | parcels | booked | verdict |\n|---|---|---|---:|---|---:|---:|---:|---:|---:|---|";

    /// Reads all ledgers.
    pub(super) async fn of(
        case: &Case,
        shop: &Shop,
        providers: &Providers,
        answer: &HttpAnswer,
        again: &HttpAnswer,
        was_struck: bool,
    ) -> Self {
        let entries = providers.entries().await;
        let of = |kind: &str| -> Vec<&Value> {
            entries
                .iter()
                .filter(|entry| entry["kind"] == kind)
                .collect()
        };
        let sum = |found: &[&Value]| -> i64 {
            found
                .iter()
                .filter_map(|entry| entry["amount"].as_i64())
                .sum()
        };
        let (charges, captures) = (of("charge"), of("capture"));
        let parcels = providers.shipped("shipment").await;
        let back = providers.shipped("cancellation").await;
        let booked: Value = shop.get("/ledger").await.json().unwrap();
        let booked = booked["entries"].as_array().unwrap();
        let signed = |entry: &Value| match entry["kind"].as_str() {
            Some("refund") => -entry["amount"].as_i64().unwrap(),
            _ => entry["amount"].as_i64().unwrap(),
        };
        let state = match answer.header("location") {
            Some(location) if case.asked.is_checkout() => {
                let outcome: Value = shop.get(location).await.json().unwrap();
                outcome["state"].as_str().unwrap().to_owned()
            }
            _ => String::new(),
        };
        Self {
            asked: case.asked,
            blow: case.blow.words(),
            was_struck,
            status: answer.status,
            state,
            taken: sum(&charges) + sum(&captures),
            captures: charges.len() + captures.len(),
            returned: sum(&of("refund")),
            held: count(of("authorization").len())
                - count(of("void").len())
                - count(captures.len()),
            parcels: count(parcels) - count(back),
            booked: booked.iter().map(signed).sum(),
            entries: booked.len(),
            refunded: shop.home().number(REFUNDED).await,
            pending: shop.home().number(PENDING).await,
            is_same_again: (answer.status, &answer.body) == (again.status, &again.body),
        }
    }

    /// Whether the ledgers agree, and nothing was paid twice or without a delivery.
    pub(super) fn holds(&self) -> bool {
        let agrees = self.taken - self.returned == self.booked
            && self.returned == self.refunded
            && self.pending == 0
            && self.is_same_again;
        agrees
            && match self.asked {
                Asked::Payment => match self.status {
                    201 => self.captures == 1 && self.entries == 1,
                    _ => self.captures == 0 && self.entries == 0,
                },
                Asked::Refund => {
                    self.captures == 1
                        && match self.status {
                            201 => self.returned == 450 && self.entries == 2,
                            _ => self.returned == 0 && self.entries == 1,
                        }
                }
                Asked::Checkout | Asked::Undeliverable => {
                    let is_paid = self.captures == 1 && self.taken == 1_000;
                    let is_whole = is_paid && self.parcels == 1 && self.held == 0;
                    let is_nothing = self.captures == 0 && self.parcels == 0 && self.held == 0;
                    match (self.status, self.state.as_str()) {
                        (_, "completed") => is_whole,
                        (_, "failed") | (402 | 409, "") => is_nothing,
                        _ => false,
                    }
                }
            }
    }
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap()
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.holds() { "holds" } else { "WRONG" };
        write!(
            f,
            "| {:?} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {verdict} |",
            self.asked,
            self.blow,
            if self.was_struck { "yes" } else { "no" },
            self.status,
            self.state,
            self.taken,
            self.returned,
            self.held,
            self.parcels,
            self.booked,
        )
    }
}
