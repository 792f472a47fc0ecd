//! Orders: the effects of the server, and what each payload leads to.
//!
//! [`plan`] decides the response and the effect of a payload without changing anything; the caller
//! commits them. The member `item` chooses the outcome, so that a client can reach all of them.

use std::time::Duration;

use serde_json::{Value, json};

use crate::{
    bugs::Bug,
    clock,
    fingerprint::decimal,
    json::Json,
    profile::Rules,
    response::Response,
    route::{Kind, Operation},
};

/// The work of an order.
const WORK: Duration = Duration::from_millis(25);
/// The work of `"item": "slow"`.
const SLOW_WORK: Duration = Duration::from_millis(1500);
/// A header value with bytes that are not ASCII.
const OPAQUE: &[u8] = b"opaque \x80\x9F\xA0\xE9\xFE\xFF end";

/// An effect.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Order {
    pub(crate) id: String,
    pub(crate) kind: Kind,
    pub(crate) principal: String,
    /// The number, as sent.
    amount: String,
    item: Option<String>,
    /// The query.
    query: String,
    parent: Option<String>,
    /// Different for each execution.
    made_at: String,
}

/// How a request ended, as far as the key is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Success,
    /// A refusal of the business, after execution began.
    Refusal,
    Validation,
    RateLimit,
    ServerError,
}

/// The response and effect of a request.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) response: Response,
    pub(crate) order: Option<Order>,
    pub(crate) class: Class,
    /// How long the work takes.
    pub(crate) work: Duration,
}

/// A request to an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work<'a> {
    pub(crate) operation: &'a Operation,
    pub(crate) principal: &'a str,
    pub(crate) query: &'a str,
    /// `None` if the content type is not JSON.
    pub(crate) payload: Option<&'a Json>,
}

impl Order {
    /// The order as it is listed.
    pub(crate) fn listed(&self) -> Value {
        json!({
            "id": self.id,
            "kind": format!("{:?}", self.kind).to_lowercase(),
            "amount": self.amount,
            "item": self.item,
            "query": self.query,
            "order": self.parent,
            "made_at": self.made_at,
        })
    }

    fn new(work: &Work<'_>, amount: &str, item: Option<&str>) -> Self {
        Self {
            id: format!("{}-{}", prefix(work.operation.kind), random()),
            kind: work.operation.kind,
            principal: work.principal.to_owned(),
            amount: amount.to_owned(),
            item: item.map(str::to_owned),
            query: work.query.to_owned(),
            parent: work.operation.parent.clone(),
            made_at: random(),
        }
    }

    fn location(&self) -> String {
        match &self.parent {
            Some(parent) => format!("/orders/{parent}/notes/{}", self.id),
            None => format!("/{}s/{}", prefix(self.kind), self.id),
        }
    }

    /// The body of a success: JSON with white space that a serialiser would not write.
    fn body(&self) -> String {
        let item = self.item.as_ref().map(|item| json!(item).to_string());
        format!(
            "{{ \"id\": \"{}\",  \"amount\": {},\n  \"item\": {}, \"made_at\": \"{}\" }}\n",
            self.id,
            self.amount,
            item.as_deref().unwrap_or("null"),
            self.made_at
        )
    }
}

/// Decides what a request leads to. `is_first_try` says whether the key is new; it is asked only by
/// the outcomes that differ the second time.
pub(crate) fn plan(
    work: &Work<'_>,
    rules: &Rules,
    bug: Option<Bug>,
    is_first_try: impl Fn() -> bool,
) -> Plan {
    let Some(payload) = work.payload else {
        let detail = "the content type is not JSON";
        return refused(Class::Validation, 415, "VALIDATION.content_type", detail);
    };
    let (amount, item) = match read(payload) {
        Ok(read) => read,
        Err(wrong) => {
            let status = rules.validation_status;
            return refused(Class::Validation, status, "VALIDATION.payload", wrong);
        }
    };
    let order = Order::new(work, amount, item);
    match item {
        Some("declined") => refused(
            Class::Refusal,
            402,
            "card_declined",
            "the card was declined",
        ),
        Some("missing") => refused(Class::Refusal, 404, "item_missing", "there is no such item"),
        Some("busy") => refused(Class::Refusal, 409, "item_busy", "the item is reserved"),
        Some("limited") if is_first_try() => {
            let detail = "too many requests for this item";
            let mut plan = refused(Class::RateLimit, 429, "RATE_LIMIT.exceeded", detail);
            plan.response = plan.response.header("Retry-After", "1");
            plan
        }
        Some("crash") if is_first_try() => {
            let detail = "the work failed";
            let mut plan = refused(Class::ServerError, 500, "TRANSIENT.crash", detail);
            plan.order = (bug == Some(Bug::ServerErrorKeepsEffect)).then_some(order);
            plan
        }
        _ => Plan {
            response: success(&order),
            work: if item == Some("slow") {
                SLOW_WORK
            } else {
                WORK
            },
            class: Class::Success,
            order: Some(order),
        },
    }
}

/// Amount and item of a payload; an error says what is wrong with it.
fn read(payload: &Json) -> Result<(&str, Option<&str>), &'static str> {
    let Some(Json::Number(amount)) = payload.member("amount") else {
        return Err("amount: expected a number");
    };
    if amount.starts_with('-') || decimal(amount).is_some_and(|value| value == "0") {
        return Err("amount: expected a number above 0");
    }
    match payload.member("item") {
        None | Some(Json::Null) => Ok((amount.as_str(), None)),
        Some(Json::String(item)) => Ok((amount.as_str(), Some(item.as_str()))),
        Some(_) => Err("item: expected a string"),
    }
}

/// A refusal, with a nonce that shows whether it was evaluated again.
fn refused(class: Class, status: u16, code: &str, detail: &str) -> Plan {
    let nonce = json!(random());
    Plan {
        response: Response::problem_with(status, code, detail, "made_at", &nonce),
        order: None,
        class,
        work: if class == Class::Validation {
            Duration::ZERO
        } else {
            WORK
        },
    }
}

fn success(order: &Order) -> Response {
    let response = |status| {
        Response::new(status)
            .header("Date", clock::http_date())
            .header("Location", order.location())
            .header("Link", "</terms>; rel=\"terms-of-service\"")
            .header("X-Opaque", OPAQUE)
            .header("ETag", format!("\"{}\"", order.made_at))
            .header(
                "Link",
                format!("<{}/history>; rel=\"history\"", order.location()),
            )
            .header("Set-Cookie", format!("session={}; HttpOnly", random()))
    };
    let json = |status| {
        let response = response(status).header("Content-Type", "application/json");
        response.with_body(order.body())
    };
    match order.item.as_deref() {
        Some("empty") => response(204),
        Some("accepted") => json(202),
        Some("chunked") => Response {
            is_chunked: true,
            ..json(201)
        },
        Some("binary") => response(201)
            .header("Content-Type", "application/octet-stream")
            .with_body(binary(order)),
        _ => json(201),
    }
}

/// All bytes there are, and the id of the order.
fn binary(order: &Order) -> Vec<u8> {
    let bytes = (0..=u8::MAX).chain(order.made_at.bytes());
    bytes.collect()
}

fn prefix(kind: Kind) -> &'static str {
    match kind {
        Kind::Order => "order",
        Kind::Refund => "refund",
        Kind::Note => "note",
    }
}

/// Random hexadecimal digits.
fn random() -> String {
    format!("{:016x}", fastrand::Rng::new().u64(..))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{json::Duplicates, profile::Profile};

    fn planned(body: &str, is_first_try: bool) -> Plan {
        let operation = Operation {
            name: "POST /orders",
            kind: Kind::Order,
            parent: None,
        };
        let payload = Json::parse(body.as_bytes(), Duplicates::Refused).expect("valid JSON");
        let work = Work {
            operation: &operation,
            principal: "alice",
            query: "",
            payload: Some(&payload),
        };
        plan(&work, &Profile::Ietf.rules(), None, || is_first_try)
    }

    #[track_caller]
    fn check(body: &str, status: u16, class: Class, has_order: bool) {
        let plan = planned(body, true);
        assert_eq!(plan.response.status, status, "{body}");
        assert_eq!(plan.class, class, "{body}");
        assert_eq!(plan.order.is_some(), has_order, "{body}");
    }

    #[test]
    fn the_item_chooses_the_outcome() {
        check(r#"{"amount":5}"#, 201, Class::Success, true);
        check(r#"{"amount":5,"item":"empty"}"#, 204, Class::Success, true);
        check(
            r#"{"amount":5,"item":"accepted"}"#,
            202,
            Class::Success,
            true,
        );
        check(
            r#"{"amount":5,"item":"declined"}"#,
            402,
            Class::Refusal,
            false,
        );
        check(
            r#"{"amount":5,"item":"missing"}"#,
            404,
            Class::Refusal,
            false,
        );
        check(r#"{"amount":5,"item":"busy"}"#, 409, Class::Refusal, false);
        check(
            r#"{"amount":5,"item":"limited"}"#,
            429,
            Class::RateLimit,
            false,
        );
        check(
            r#"{"amount":5,"item":"crash"}"#,
            500,
            Class::ServerError,
            false,
        );
        check(r#"{"amount":0}"#, 422, Class::Validation, false);
        check(r#"{"amount":"5"}"#, 422, Class::Validation, false);
        check(r#"{"amount":5,"item":7}"#, 422, Class::Validation, false);
        check("[]", 422, Class::Validation, false);
    }

    #[test]
    fn the_second_try_succeeds_after_a_crash_or_a_limit() {
        for item in ["crash", "limited"] {
            let plan = planned(&format!(r#"{{"amount":5,"item":"{item}"}}"#), false);
            assert_eq!(plan.response.status, 201);
        }
    }

    #[test]
    fn two_executions_differ_in_their_bodies() {
        let [a, b] = [(); 2].map(|()| planned(r#"{"amount":5.0}"#, true).response.body);
        assert_ne!(a, b);
        let text = String::from_utf8(a).expect("JSON is UTF-8");
        assert!(text.contains("\"amount\": 5.0,"), "{text}");
    }

    #[test]
    fn a_binary_body_is_not_text() {
        let plan = planned(r#"{"amount":5,"item":"binary"}"#, true);
        assert!(String::from_utf8(plan.response.body).is_err());
    }
}
