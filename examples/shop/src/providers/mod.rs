//! The foreign systems that the shop calls: a payment provider and a shipping provider.
//!
//! Every call goes out under a key of the shop's own, and has three outcomes
//! ([`Outcome`]): what was made, a refusal that stands, or nobody knows.
//! `desk` speaks HTTP and makes outcomes of answers, `payment` and `shipping`
//! name the operations, and `settle` asks until an outcome is known or time is
//! up. What was made counts only where it is what was asked for. Nothing here
//! writes a row.

mod desk;
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

/// The code of a refusal that says that a key of ours was used for something else: a bug of ours.
pub(crate) const KEY_REUSED: &str = "key_reused";

/// The providers that the shop was told of.
#[derive(Clone, Debug, Default)]
pub(crate) struct Providers {
    pub(crate) payment: Option<Payments>,
    pub(crate) shipping: Option<Shipping>,
}

impl Providers {
    /// The ways to the providers at these places.
    pub(crate) fn at(places: &config::Providers) -> Self {
        Self {
            payment: places.payment.as_ref().map(Payments::at),
            shipping: places.shipping.as_ref().map(Shipping::at),
        }
    }

    /// Both, where the shop was told of both.
    pub(crate) fn both(&self) -> Option<(&Payments, &Shipping)> {
        self.payment.as_ref().zip(self.shipping.as_ref())
    }
}

/// What stands on a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Label<'a> {
    /// The key that it goes out under: the same for every attempt.
    pub(crate) key: &'a str,
    /// What travels along: the `traceparent` of whoever calls.
    pub(crate) headers: &'a Headers,
}

impl<'a> From<&'a Call> for Label<'a> {
    fn from(call: &'a Call) -> Self {
        let Call { key, headers, .. } = call;
        Self { key, headers }
    }
}

/// What a call is to make, and what a look-up of its key is to show.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    kind: &'static str,
    /// How much is to be moved, where anything is.
    amount: Option<i64>,
    /// The currency, where the call names it.
    currency: Option<&'a str>,
}

impl Wanted<'_> {
    /// Something that moves no money.
    const fn thing(kind: &'static str) -> Self {
        Self {
            kind,
            amount: None,
            currency: None,
        }
    }

    /// So much of what a call before has moved or set aside.
    const fn part(kind: &'static str, amount: i64) -> Self {
        Self {
            amount: Some(amount),
            ..Self::thing(kind)
        }
    }

    /// What was made, if it is this: anything else may be anything, and nobody knows.
    fn check(self, made: Made) -> Result<Made, CallError> {
        let is_this = made.kind == self.kind
            && (self.amount.is_none() || made.amount == self.amount)
            && (self.currency.is_none() || made.currency.as_deref() == self.currency);
        is_this.then_some(made).ok_or_else(|| {
            let asked = self.kind;
            CallError::open(format!("the provider made another thing than this {asked}"))
        })
    }
}

/// What a provider has made under a key.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Made {
    pub(crate) id: String,
    /// Such as `charge` or `shipment`.
    pub(crate) kind: String,
    pub(crate) amount: Option<i64>,
    pub(crate) currency: Option<String>,
    /// The provider called the request a duplicate, and showed what there was.
    #[serde(skip)]
    pub(crate) is_duplicate: bool,
}

impl Made {
    /// As the row of a step keeps it.
    pub(crate) fn kept(&self) -> Bytes {
        let kept = serde_json::to_vec(self).expect("plain members can be written as JSON");
        kept.into()
    }
}

/// How a call ended of which nobody knows what it did.
#[derive(Debug, thiserror::Error)]
#[error("{error_chain}")]
pub(crate) struct CallError {
    error_chain: String,
    /// Whether nothing of the call is on its way any more.
    is_over: bool,
    #[source]
    source: Option<BoxError>,
}

impl CallError {
    /// A call that ended: the provider itself said so, or it never went out.
    fn over(error_chain: impl Into<String>) -> Self {
        Self {
            error_chain: error_chain.into(),
            is_over: true,
            source: None,
        }
    }

    /// A call that may still be at work: it was given up, or whatever ended it was not the provider.
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

    /// Whether a call that failed like this is not on its way any more.
    fn is_over(error: &BoxError) -> bool {
        error.downcast_ref::<Self>().is_some_and(|it| it.is_over)
    }

    /// A refusal of which nobody knows whether it speaks for the calls before it.
    fn of_this_call_alone() -> Self {
        Self::open("the provider refused a call, and one before it may have done it")
    }
}

/// What a call comes to that is not the first under its key.
///
/// A refusal may be of this call alone: the one before may be at work, or done. So the key is asked.
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
