//! Clients of the external systems: a payment provider and a shipping provider.
//!
//! Every call has an idempotency key of the shop, and one of three outcomes ([`Outcome`]): an
//! object was created, the call was refused, or the outcome is unknown. `client` is the HTTP client,
//! which turns responses into outcomes. `payment` and `shipping` define the operations. `settle`
//! repeats calls and look-ups until the outcome is known or time is up. A created object counts
//! only if it matches the request. Nothing in this module writes a row.

mod client;
mod payment;
mod shipping;
mod settle;
#[cfg(test)]
mod tests;

use std::future::Future;

pub(crate) use hapax::saga::{Found, Outcome};
use hapax::{event::Headers, saga::Call, sink::BoxError};
use hyper::body::Bytes;
use serde::{Deserialize, Serialize};

use crate::config;

pub(crate) use self::shipping::{Address, Item, Parcel};
pub(crate) use self::{
    payment::{CARDS, Order, Payments},
    settle::{Operation, Settled, settle},
    shipping::Shipping,
};

/// The code of a refusal because the key was used for another request: a bug of the shop.
pub(crate) const KEY_REUSED: &str = "key_reused";

/// The clients of the configured providers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Providers {
    pub(crate) payment: Option<Payments>,
    pub(crate) shipping: Option<Shipping>,
}

impl Providers {
    /// Creates clients of the providers at these URLs.
    pub(crate) fn at(places: &config::Providers) -> Self {
        Self {
            payment: places.payment.as_ref().map(Payments::at),
            shipping: places.shipping.as_ref().map(Shipping::at),
        }
    }

    /// Returns both clients, if both providers are configured.
    pub(crate) fn both(&self) -> Option<(&Payments, &Shipping)> {
        self.payment.as_ref().zip(self.shipping.as_ref())
    }
}

/// The key and the headers of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Label<'a> {
    /// The idempotency key, which is the same for every attempt.
    pub(crate) key: &'a str,
    /// The trace context of the caller, such as `traceparent`.
    pub(crate) headers: &'a Headers,
}

impl<'a> From<&'a Call> for Label<'a> {
    fn from(call: &'a Call) -> Self {
        let Call { key, headers, .. } = call;
        Self { key, headers }
    }
}

/// The expected result of a call, and of a look-up of its key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    kind: &'static str,
    /// The amount, if the operation moves money.
    amount: Option<i64>,
    /// The currency, if the request names it.
    currency: Option<&'a str>,
}

impl Wanted<'_> {
    /// Expects an object that moves no money.
    const fn thing(kind: &'static str) -> Self {
        Self {
            kind,
            amount: None,
            currency: None,
        }
    }

    /// Expects an object for `amount` of an earlier charge or authorization.
    const fn part(kind: &'static str, amount: i64) -> Self {
        Self {
            amount: Some(amount),
            ..Self::thing(kind)
        }
    }

    /// Returns the created object if it matches; otherwise the outcome is unknown.
    fn check(self, made: Made) -> Result<Made, CallError> {
        let is_this = made.kind == self.kind
            && (self.amount.is_none() || made.amount == self.amount)
            && (self.currency.is_none() || made.currency.as_deref() == self.currency);
        is_this.then_some(made).ok_or_else(|| {
            let asked = self.kind;
            CallError::open(format!("the response does not match the {asked} requested"))
        })
    }
}

/// The object that a provider has created under a key.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Made {
    pub(crate) id: String,
    /// The type of the object, such as `charge` or `shipment`.
    pub(crate) kind: String,
    pub(crate) amount: Option<i64>,
    pub(crate) currency: Option<String>,
    /// Whether the provider rejected the request as a duplicate and returned the existing object.
    #[serde(skip)]
    pub(crate) is_duplicate: bool,
}

impl Made {
    /// Returns the JSON that the step's row stores.
    pub(crate) fn kept(&self) -> Bytes {
        let kept = serde_json::to_vec(self).expect("plain members can be serialized");
        kept.into()
    }
}

/// The error of a call whose effect is unknown.
#[derive(Debug, thiserror::Error)]
#[error("{error_chain}")]
pub(crate) struct CallError {
    error_chain: String,
    /// Whether the call has ended, so that it can have no later effect.
    is_over: bool,
    #[source]
    source: Option<BoxError>,
}

impl CallError {
    /// The call has ended: the provider itself responded, or the request was never sent.
    fn over(error_chain: impl Into<String>) -> Self {
        Self {
            error_chain: error_chain.into(),
            is_over: true,
            source: None,
        }
    }

    /// The call may still take effect: it timed out, or the provider did not end it itself.
    fn open(error_chain: impl Into<String>) -> Self {
        Self {
            is_over: false,
            ..Self::over(error_chain)
        }
    }

    fn caused_by(self, source: impl Into<BoxError>) -> Self {
        Self {
            source: Some(source.into()),
            ..self
        }
    }

    /// Returns whether the call that failed with `error` has ended.
    fn is_over(error: &BoxError) -> bool {
        error.downcast_ref::<Self>().is_some_and(|it| it.is_over)
    }

    /// The call was refused, but an earlier call under the key may have succeeded.
    fn of_this_call_alone() -> Self {
        Self::open("the provider refused a repeated call; an earlier one may have succeeded")
    }
}

/// Returns the outcome of a call that is not the first under its key.
///
/// A refusal may concern only this call: an earlier call may be running or may have succeeded.
/// Therefore the function looks up the key before it returns a refusal.
pub(crate) async fn confirmed(
    outcome: Outcome<Made>,
    look_up: impl Future<Output = Found<Made>>,
) -> Outcome<Made> {
    match outcome {
        Outcome::Refused(refusal) if refusal.code != KEY_REUSED => match look_up.await {
            Found::Done(made) => Outcome::Done(made),
            Found::Refused(refusal) => Outcome::Refused(refusal),
            Found::Absent | Found::Unknown(_) => {
                Outcome::Unknown(CallError::of_this_call_alone().into())
            }
        },
        outcome => outcome,
    }
}
