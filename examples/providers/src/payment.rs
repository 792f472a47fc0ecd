//! The payment provider: authorizations, captures, voids, charges, refunds.
//!
//! The card token selects the provider's behavior, such as `tok_declined`. Charges and captures can
//! be refunded up to their amount. An authorization can be captured or voided, once.

use std::{collections::HashMap, io, path::Path, sync::Arc};

use axum::{
    Router,
    extract::{self, Request, State},
    routing::post,
};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    decisions::{Made, Trade},
    faults::Mode,
    provider::{Habit, Provider, read},
    reply::{Refusal, Reply},
};

/// The largest amount of one operation.
const AMOUNT_MAX: u64 = 1 << 53;

/// The state that the payment provider computes from its ledger.
#[derive(Debug, Default)]
pub(crate) struct Payments {
    authorizations: HashMap<String, Authorization>,
    /// Charges and captures, by id.
    taken: HashMap<String, Taken>,
}

#[derive(Debug)]
struct Authorization {
    amount: u64,
    currency: String,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Open,
    Captured,
    Voided,
}

/// A charge or capture, and the total refunded from it.
#[derive(Debug)]
struct Taken {
    is_capture: bool,
    amount: u64,
    currency: String,
    refunded: u64,
}

/// A requested operation with its arguments.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "operation")]
pub(crate) enum Operation {
    Authorize(Order),
    Capture { authorization: String, amount: u64 },
    Void { authorization: String },
    Charge(Order),
    Refund { charge: String, amount: u64 },
    RefundCapture { capture: String, amount: u64 },
}

/// An amount to authorize on a card or to charge it with.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Order {
    card: String,
    amount: u64,
    currency: String,
}

/// The body of an authorization or a charge.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ordered {
    card: String,
    amount: u64,
    currency: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Amount {
    amount: u64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

type Till = State<Arc<Provider<Payments>>>;

/// Returns the routes of the provider, which keeps its ledger at `ledger`.
pub(crate) fn routes(ledger: &Path) -> io::Result<Router> {
    let provider = Provider::<Payments>::open(ledger)?;
    let routes = Provider::<Payments>::routes()
        .route("/authorizations", post(authorize))
        .route("/authorizations/{id}/capture", post(capture))
        .route("/authorizations/{id}/void", post(void))
        .route("/charges", post(charge))
        .route("/charges/{id}/refunds", post(refund))
        .route("/captures/{id}/refunds", post(refund_capture));
    Ok(routes.with_state(provider))
}

async fn authorize(State(provider): Till, request: Request) -> Reply {
    order(provider, request, Operation::Authorize).await
}

async fn charge(State(provider): Till, request: Request) -> Reply {
    order(provider, request, Operation::Charge).await
}

async fn order(
    provider: Arc<Provider<Payments>>,
    request: Request,
    ask: fn(Order) -> Operation,
) -> Reply {
    let (headers, ordered) = match read::<Ordered>(request).await {
        Ok(read) => read,
        Err(reply) => return reply,
    };
    let Ordered {
        card,
        amount,
        currency,
    } = ordered;
    let is_code = currency.len() == 3 && currency.bytes().all(|byte| byte.is_ascii_uppercase());
    if !is_code || !(1..=AMOUNT_MAX).contains(&amount) {
        return Reply::invalid("amount must be 1 to 2^53, currency three capital letters");
    }
    let habit = match card.as_str() {
        "tok_ok" | "tok_declined" => None,
        "tok_slow" => Some(Habit::Always(Mode::Slow)),
        "tok_timeout_applied" => Some(Habit::Always(Mode::AppliedThenLost)),
        "tok_5xx" => Some(Habit::Always(Mode::ErrorBefore)),
        "tok_timeout_not_applied" => Some(Habit::LostOnce),
        _ => return Reply::invalid("this card token is unknown"),
    };
    let order = Order {
        card,
        amount,
        currency,
    };
    provider.ask(&headers, ask(order), habit).await
}

async fn capture(
    State(provider): Till,
    extract::Path(authorization): extract::Path<String>,
    request: Request,
) -> Reply {
    amount(provider, request, |amount| Operation::Capture {
        authorization,
        amount,
    })
    .await
}

async fn refund(
    State(provider): Till,
    extract::Path(charge): extract::Path<String>,
    request: Request,
) -> Reply {
    amount(provider, request, |amount| Operation::Refund {
        charge,
        amount,
    })
    .await
}

async fn refund_capture(
    State(provider): Till,
    extract::Path(capture): extract::Path<String>,
    request: Request,
) -> Reply {
    amount(provider, request, |amount| Operation::RefundCapture {
        capture,
        amount,
    })
    .await
}

async fn amount(
    provider: Arc<Provider<Payments>>,
    request: Request,
    ask: impl FnOnce(u64) -> Operation,
) -> Reply {
    match read::<Amount>(request).await {
        Ok((headers, Amount { amount })) if (1..=AMOUNT_MAX).contains(&amount) => {
            provider.ask(&headers, ask(amount), None).await
        }
        Ok(_) => Reply::invalid("amount must be 1 to 2^53"),
        Err(reply) => reply,
    }
}

async fn void(
    State(provider): Till,
    extract::Path(authorization): extract::Path<String>,
    request: Request,
) -> Reply {
    match read::<Nothing>(request).await {
        Ok((headers, Nothing {})) => {
            provider
                .ask(&headers, Operation::Void { authorization }, None)
                .await
        }
        Err(reply) => reply,
    }
}

impl Trade for Payments {
    type Operation = Operation;
    const OPERATIONS: &'static [&'static str] =
        &["charge", "refund", "authorize", "capture", "void"];

    fn operation(asked: &Operation) -> &'static str {
        match asked {
            Operation::Authorize(_) => "authorize",
            Operation::Capture { .. } => "capture",
            Operation::Void { .. } => "void",
            Operation::Charge(_) => "charge",
            Operation::Refund { .. } | Operation::RefundCapture { .. } => "refund",
        }
    }

    fn evaluate(&self, asked: &Operation) -> Result<Made, Refusal> {
        match asked {
            Operation::Authorize(order) => order.evaluate("authorization", "auth"),
            Operation::Charge(order) => order.evaluate("charge", "ch"),
            Operation::Capture {
                authorization,
                amount,
            } => {
                let found = self.open(authorization)?;
                if *amount > found.amount {
                    return Err(EXCEEDS);
                }
                Ok(found.made("capture", "cap", authorization, *amount))
            }
            Operation::Void { authorization } => {
                let found = self.open(authorization)?;
                Ok(found.made("void", "void", authorization, found.amount))
            }
            Operation::Refund { charge, amount } => self.refund("charge", charge, *amount),
            Operation::RefundCapture { capture, amount } => {
                self.refund("capture", capture, *amount)
            }
        }
    }

    fn take(&mut self, asked: &Operation, id: &str) {
        match asked {
            Operation::Authorize(order) => {
                let authorization = Authorization {
                    amount: order.amount,
                    currency: order.currency.clone(),
                    stage: Stage::Open,
                };
                self.authorizations.insert(id.to_owned(), authorization);
            }
            Operation::Charge(order) => self.took(id, false, order.amount, order.currency.clone()),
            Operation::Capture {
                authorization,
                amount,
            } => {
                if let Some(found) = self.authorizations.get_mut(authorization) {
                    found.stage = Stage::Captured;
                    let currency = found.currency.clone();
                    self.took(id, true, *amount, currency);
                }
            }
            Operation::Void { authorization } => {
                if let Some(found) = self.authorizations.get_mut(authorization) {
                    found.stage = Stage::Voided;
                }
            }
            Operation::Refund { charge: of, amount }
            | Operation::RefundCapture {
                capture: of,
                amount,
            } => {
                if let Some(taken) = self.taken.get_mut(of) {
                    taken.refunded += amount;
                }
            }
        }
    }
}

const EXCEEDS: Refusal = Refusal::conflict("exceeds", "the amount exceeds what is left");
const UNKNOWN: Refusal = Refusal::unknown("no object has this id");

impl Payments {
    /// Returns an authorization that can still be captured or voided.
    fn open(&self, id: &str) -> Result<&Authorization, Refusal> {
        let found = self.authorizations.get(id).ok_or(UNKNOWN)?;
        match found.stage {
            Stage::Open => Ok(found),
            Stage::Captured => Err(Refusal::conflict("captured", "it is already captured")),
            Stage::Voided => Err(Refusal::conflict("voided", "it is already voided")),
        }
    }

    fn refund(&self, of: &str, id: &str, amount: u64) -> Result<Made, Refusal> {
        let is_capture = of == "capture";
        let taken = self.taken.get(id);
        let taken = taken.filter(|taken| taken.is_capture == is_capture);
        let taken = taken.ok_or(UNKNOWN)?;
        if amount > taken.amount - taken.refunded {
            return Err(EXCEEDS);
        }
        let members = [
            (of, Value::from(id)),
            ("amount", amount.into()),
            ("currency", taken.currency.clone().into()),
        ];
        Ok(Made::of("refund", "re", members))
    }

    fn took(&mut self, id: &str, is_capture: bool, amount: u64, currency: String) {
        let taken = Taken {
            is_capture,
            amount,
            currency,
            refunded: 0,
        };
        self.taken.insert(id.to_owned(), taken);
    }
}

impl Authorization {
    fn made(&self, kind: &'static str, prefix: &'static str, id: &str, amount: u64) -> Made {
        let members = [
            ("authorization", Value::from(id)),
            ("amount", amount.into()),
            ("currency", self.currency.clone().into()),
        ];
        Made::of(kind, prefix, members)
    }
}

impl Order {
    fn evaluate(&self, kind: &'static str, prefix: &'static str) -> Result<Made, Refusal> {
        if self.card == "tok_declined" {
            let status = StatusCode::PAYMENT_REQUIRED;
            return Err(Refusal::new(status, "declined", "the card was declined"));
        }
        let members = [
            ("amount", json!(self.amount)),
            ("currency", json!(self.currency)),
        ];
        Ok(Made::of(kind, prefix, members))
    }
}
