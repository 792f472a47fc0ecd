//! The operations of the payment provider, each under a key of the caller.

use hapax::saga::Outcome;
use http::Uri;
use serde::Serialize;

use super::{Found, Label, Made, Wanted, client::ProviderClient};

/// The card tokens that the provider knows; each selects a behavior.
pub(crate) const CARDS: [&str; 6] = [
    "tok_ok",
    "tok_declined",
    "tok_slow",
    "tok_timeout_applied",
    "tok_timeout_not_applied",
    "tok_5xx",
];
/// The prefix of a capture's id.
const CAPTURE: &str = "cap_";

/// The client of the payment provider.
#[derive(Clone, Debug)]
pub(crate) struct Payments(ProviderClient);

/// An amount to authorize on a card or to charge it with.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Order<'a> {
    pub(crate) card: &'a str,
    pub(crate) amount: i64,
    pub(crate) currency: &'a str,
}

#[derive(Serialize)]
struct Amount {
    amount: i64,
}

#[derive(Serialize)]
struct Nothing {}

impl Payments {
    /// Creates a client of the provider at `base`.
    pub(crate) fn at(base: &Uri) -> Self {
        Self(ProviderClient::at(base))
    }

    /// Charges a card.
    pub(crate) async fn charge(&self, label: Label<'_>, order: Order<'_>) -> Outcome<Made> {
        let wanted = Wanted::charge(order);
        self.0.post("/charges", label, wanted, &order).await
    }

    /// Refunds a part of a charge or of a capture.
    pub(crate) async fn refund(&self, label: Label<'_>, of: &str, amount: i64) -> Outcome<Made> {
        let what = if of.starts_with(CAPTURE) {
            "captures"
        } else {
            "charges"
        };
        let path = format!("/{what}/{of}/refunds");
        let wanted = Wanted::refund(amount);
        self.0.post(&path, label, wanted, &Amount { amount }).await
    }

    /// Looks up the outcome of a key that was used for this request.
    pub(crate) async fn look_up(&self, label: Label<'_>, wanted: Wanted<'_>) -> Found<Made> {
        self.0.look_up(label, wanted).await
    }
}

impl Payments {
    /// Authorizes an amount on a card.
    pub(crate) async fn authorize(&self, label: Label<'_>, order: Order<'_>) -> Outcome<Made> {
        let wanted = Wanted::authorization(order);
        self.0.post("/authorizations", label, wanted, &order).await
    }

    /// Captures an amount of an authorization.
    pub(crate) async fn capture(
        &self,
        label: Label<'_>,
        authorization: &str,
        amount: i64,
    ) -> Outcome<Made> {
        let path = format!("/authorizations/{authorization}/capture");
        let wanted = Wanted::capture(amount);
        self.0.post(&path, label, wanted, &Amount { amount }).await
    }

    /// Voids an authorization of `amount`.
    pub(crate) async fn void(
        &self,
        label: Label<'_>,
        authorization: &str,
        amount: i64,
    ) -> Outcome<Made> {
        let path = format!("/authorizations/{authorization}/void");
        self.0
            .post(&path, label, Wanted::void(amount), &Nothing {})
            .await
    }
}

impl<'a> Wanted<'a> {
    pub(crate) const fn charge(order: Order<'a>) -> Self {
        Self::order("charge", order)
    }

    pub(crate) const fn authorization(order: Order<'a>) -> Self {
        Self::order("authorization", order)
    }

    pub(crate) const fn refund(amount: i64) -> Self {
        Self::part("refund", amount)
    }

    pub(crate) const fn capture(amount: i64) -> Self {
        Self::part("capture", amount)
    }

    pub(crate) const fn void(amount: i64) -> Self {
        Self::part("void", amount)
    }

    const fn order(kind: &'static str, order: Order<'a>) -> Self {
        Self {
            kind,
            amount: Some(order.amount),
            currency: Some(order.currency),
        }
    }
}
