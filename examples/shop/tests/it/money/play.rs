//! One case of the crash matrix, from the first request to the comparison of the ledgers.

use std::time::Duration;

use hapax_testkit::{
    http::{HttpAnswer, HttpClient},
    wait::eventually,
};
use serde_json::Value;

use super::{
    cases::{Asked, Case},
    verdict::Line,
};
use crate::{
    shop::{Home, JSON, Shop, Store, command},
    simulated_providers::Providers,
};

/// The maximum time until a case has settled. It is longer than the faults of a provider last.
const REST: Duration = Duration::from_secs(90);
const KEY: &str = "the-one";
const PAYMENT: &str = r#"{"amount":900,"currency":"EUR","card":"tok_ok"}"#;

/// Runs a case, and returns its line of the table.
pub(super) async fn play(on: Store, case: Case) -> Line {
    let home = Home::with_providers(on).await;
    let providers = home.providers();
    let body = prepared(&home, case.asked).await;
    let path = case.asked.path();
    if let Some((operation, mode, count)) = case.blow.fault() {
        providers.misbehave(operation, mode, count).await;
    }
    let mut was_struck = case.blow.failpoint().is_none();
    let first = match case.blow.failpoint() {
        None => Shop::start_in(home.clone(), FLAGS),
        Some(failpoint) => {
            let mut command = command(&home, FLAGS);
            command.env("HAPAX_FAILPOINT", failpoint);
            let mut doomed = Shop::spawn(command, home.clone());
            was_struck = struck(&mut doomed, path, &body).await;
            drop(doomed);
            Shop::start_in(home.clone(), FLAGS)
        }
    };
    let answer = until_answered(&first, path, &body).await;
    at_rest(&first, &providers, case.asked, &answer).await;
    let again = until_answered(&first, path, &body).await;
    let line = Line::of(&case, &first, &providers, &answer, &again, was_struck).await;
    first.stop().await;
    line
}

const FLAGS: &[&str] = &["--lease", "1s"];

impl Asked {
    pub(super) fn path(self) -> &'static str {
        match self {
            Self::Payment => "/payments",
            Self::Refund => "/refunds",
            Self::Checkout | Self::Undeliverable => "/checkouts",
        }
    }

    pub(super) fn is_checkout(self) -> bool {
        matches!(self, Self::Checkout | Self::Undeliverable)
    }
}

/// Returns the body of the request. For a refund, a charge is made first.
async fn prepared(home: &Home, asked: Asked) -> String {
    let checkout = |country| {
        format!(
            r#"{{"items":[{{"sku":"sku_tea","quantity":2}}],"card":"tok_ok","address":{{"name":"Ann","line1":"Way 1","city":"Ulm","postal_code":"89073","country":"{country}"}}}}"#
        )
    };
    match asked {
        Asked::Payment => PAYMENT.to_owned(),
        Asked::Checkout => checkout("DE"),
        Asked::Undeliverable => checkout("ZZ"),
        Asked::Refund => {
            let shop = Shop::start_in(home.clone(), FLAGS);
            let paid = shop.post("/payments", Some("paid"), PAYMENT).await;
            assert_eq!(paid.status, 201, "{}", paid.text());
            let charge = paid.json().unwrap()["id"].clone();
            shop.stop().await;
            format!(r#"{{"charge_id":{charge},"amount":450}}"#)
        }
    }
}

/// Sends the request to a shop with a failpoint, and returns whether the shop was killed.
async fn struck(shop: &mut Shop, path: &str, body: &str) -> bool {
    let client = HttpClient::new();
    let (url, body) = (shop.url(path), body.to_owned());
    let asking = tokio::spawn(async move {
        let headers = [
            JSON,
            ("authorization", "Bearer demo-alice"),
            ("idempotency-key", KEY),
        ];
        let sent = client.send(http::Method::POST, &url, &headers, body.into());
        sent.await.ok()
    });
    // Some failpoints are reached after the response, some are never reached.
    let limit = std::time::Instant::now() + Duration::from_secs(5);
    let mut is_dead = false;
    eventually(Duration::from_secs(10), async || {
        is_dead = shop.is_dead();
        is_dead || (asking.is_finished() && std::time::Instant::now() > limit)
    })
    .await;
    is_dead
}

/// Repeats the request with the same key until the response does not ask for another retry.
async fn until_answered(shop: &Shop, path: &str, body: &str) -> HttpAnswer {
    let mut last = None;
    eventually(REST, async || {
        let answer = shop.post(path, Some(KEY), body).await;
        let is_over = !matches!(answer.status, 409 | 500 | 502 | 503 | 504)
            || (answer.status == 409 && answer.header("retry-after").is_none());
        last = Some(answer);
        is_over
    })
    .await;
    last.unwrap()
}

/// Waits until nothing changes any more.
async fn at_rest(shop: &Shop, providers: &Providers, asked: Asked, answer: &HttpAnswer) {
    // An authorization that still has to be voided is not shown while the provider fails.
    let _ledger = providers.entries().await;
    if !asked.is_checkout() {
        return;
    }
    let Some(location) = answer.header("location") else {
        return;
    };
    let location = location.to_owned();
    eventually(REST, async || {
        let outcome: Value = shop.get(&location).await.json().unwrap();
        outcome["state"] != "running"
    })
    .await;
}
