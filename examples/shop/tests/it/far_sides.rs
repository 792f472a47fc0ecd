//! Tests of external payment providers: how the shop interprets their responses.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use hapax_testkit::{
    http::{HttpReceiver, HttpReply, HttpResponse, Received},
    wait::eventually,
};
use http::Method;

use crate::shop::{CART, PATIENCE, PAYMENT, Shop, Store, bought, on_both_stores, problem};

const CHARGE: &str = r#"{"id":"ch_1","kind":"charge","amount":900,"currency":"EUR"}"#;
const REFUND: &str = r#"{"id":"re_1","kind":"refund","amount":400,"currency":"EUR"}"#;
const UNAUTHORIZED: &str = r#"{"code":"unauthorized","detail":"the credential was revoked"}"#;
const NOT_FOUND: &str = r#"{"code":"not_found","detail":"no such key was used"}"#;

on_both_stores! {
    a_charge_that_is_booked_after_its_connection_closed_is_booked_once,
    a_charge_that_was_made_before_a_call_was_refused_is_a_payment,
    a_charge_or_refund_that_was_made_before_its_retry_was_refused_is_found,
    an_authorization_that_was_made_before_a_call_was_refused_is_captured,
    a_charge_that_the_provider_is_still_at_is_asked_for_again,
    a_refund_of_another_amount_is_not_done_and_holds_what_was_asked,
}

async fn a_charge_that_is_booked_after_its_connection_closed_is_booked_once(on: Store) {
    let far = HttpReceiver::start().await;
    let asked = Mutex::<BTreeSet<String>>::default();
    let is_booked = Arc::new(AtomicBool::new(false));
    let booked = Arc::clone(&is_booked);
    far.reply_with(move |request| {
        let mut asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
        let is_booked = booked.load(Ordering::SeqCst);
        if let Some(key) = request.path.strip_prefix("/operations/") {
            return if is_booked && asked.contains(key) {
                HttpReply::status(200).body(CHARGE)
            } else {
                HttpReply::status(404).body(NOT_FOUND)
            };
        }
        asked.insert(key(request));
        if is_booked {
            HttpReply::status(201).body(CHARGE)
        } else {
            HttpReply::closed()
        }
    });
    let shop = shop(on, &far).await;
    problem(&pay(&shop).await, 504, "DEPENDENCY.timeout");
    is_booked.store(true, Ordering::SeqCst);
    eventually(PATIENCE, async || pay(&shop).await.status == 201).await;
    // With this provider, every key of a call leads to a charge.
    let received = far.received();
    let asked = received.iter().filter(|it| it.method == Method::POST);
    let booked: BTreeSet<_> = asked.map(key).collect();
    assert_eq!(booked.len(), 1, "{booked:?}");
    assert_eq!(shop.count_entries("charge").await, 1);
}

async fn a_charge_that_was_made_before_a_call_was_refused_is_a_payment(on: Store) {
    let far = HttpReceiver::start().await;
    far.reply_next(HttpReply::closed());
    far.reply_next(HttpReply::status(401).body(UNAUTHORIZED));
    far.reply(HttpReply::status(200).body(CHARGE));
    let shop = shop(on, &far).await;
    let paid = pay(&shop).await;
    assert_eq!(paid.status, 201, "{}", paid.text());
    let asked = far.received();
    assert_eq!(asked.len(), 3);
    assert_eq!(asked[2].path, format!("/operations/{}", key(&asked[0])));
}

async fn a_charge_or_refund_that_was_made_before_its_retry_was_refused_is_found(on: Store) {
    let far = HttpReceiver::start().await;
    let shop = shop(on, &far).await;
    let back = r#"{"charge_id":"ch_1","amount":400}"#;
    for (path, body, made) in [("/payments", PAYMENT, CHARGE), ("/refunds", back, REFUND)] {
        far.reply(HttpReply::status(502));
        let unknown = shop.post(path, Some("k"), body).await;
        problem(&unknown, 504, "DEPENDENCY.timeout");
        far.reply_with(move |request| match request.method {
            Method::POST => HttpReply::status(401).body(UNAUTHORIZED),
            _ => HttpReply::status(200).body(made),
        });
        let found = shop.post(path, Some("k"), body).await;
        assert_eq!(found.status, 201, "{}", found.text());
    }
}

async fn an_authorization_that_was_made_before_a_call_was_refused_is_captured(on: Store) {
    let far = HttpReceiver::start().await;
    far.reply_next(HttpReply::closed());
    far.reply_next(HttpReply::status(401).body(UNAUTHORIZED));
    far.reply_with(|request| {
        let kind = match request.path.rsplit('/').next() {
            Some("capture") => "capture",
            Some("shipments") => "shipment",
            _ => "authorization",
        };
        let made = format!(r#"{{"id":"{kind}_1","kind":"{kind}","amount":500,"currency":"EUR"}}"#);
        HttpReply::status(200).body(made)
    });
    let url = far.url("");
    let flags = ["--payment-provider", &url, "--shipping-provider", &url];
    let shop = Shop::start(on, &flags).await;
    let answer = shop.post("/checkouts", Some("c"), CART).await;
    bought(&shop, &answer).await;
    let asked = far.received();
    assert_eq!(asked[2].path, format!("/operations/{}", key(&asked[0])));
}

async fn a_charge_that_the_provider_is_still_at_is_asked_for_again(on: Store) {
    let far = HttpReceiver::start().await;
    let running = r#"{"code":"CONFLICT.idempotency.in_progress","detail":"still at it"}"#;
    let running = HttpReply::status(409)
        .header("retry-after", "1")
        .body(running);
    far.reply_next(running);
    far.reply(HttpReply::status(201).body(CHARGE));
    let shop = shop(on, &far).await;
    let paid = pay(&shop).await;
    assert_eq!(paid.status, 201, "{}", paid.text());
    assert!(far.received().iter().all(|it| it.path == "/charges"));
}

async fn a_refund_of_another_amount_is_not_done_and_holds_what_was_asked(on: Store) {
    let far = HttpReceiver::start().await;
    let shop = shop(on, &far).await;
    far.reply(HttpReply::status(201).body(CHARGE));
    assert_eq!(pay(&shop).await.status, 201);
    far.reply(HttpReply::status(201).body(REFUND.replace("400", "40")));
    let other = refund(&shop, "r", 400).await;
    problem(&other, 504, "DEPENDENCY.timeout");
    assert_eq!(shop.count_entries("refund").await, 0);
    let beyond = refund(&shop, "s", 501).await;
    problem(&beyond, 409, "CONFLICT.refund.exceeds_charge");
}

/// A shop that uses this payment provider.
async fn shop(on: Store, far: &HttpReceiver) -> Shop {
    let flags = ["--lease", "1m", "--payment-provider", &far.url("")];
    Shop::start(on, &flags).await
}

async fn pay(shop: &Shop) -> HttpResponse {
    shop.post("/payments", Some("p"), PAYMENT).await
}

async fn refund(shop: &Shop, key: &str, amount: i64) -> HttpResponse {
    let body = format!(r#"{{"charge_id":"ch_1","amount":{amount}}}"#);
    shop.post("/refunds", Some(key), &body).await
}

fn key(request: &Received) -> String {
    request.header("idempotency-key").unwrap().to_owned()
}
