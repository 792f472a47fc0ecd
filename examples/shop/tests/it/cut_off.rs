//! Tests of refunds whose shop is killed around the call to the provider: the refund happens once.

use hapax_testkit::{
    http::{HttpClient, HttpResponse},
    wait::eventually,
};
use http::Method;

use crate::shop::{Home, JSON, PATIENCE, PAYMENT, Shop, Store, command, on_both_stores, problem};

/// The failpoints of a refund: after the amount is reserved, and around the call.
const PLACES: [&str; 3] = [
    "refunds.reserved:1",
    "refunds.call.before:1",
    "refunds.call.after:1",
];

on_both_stores! {
    a_refund_that_was_cut_off_is_finished_by_its_retry,
    a_refund_that_was_cut_off_is_finished_without_its_client,
    a_refund_that_was_cut_off_holds_its_amount,
}

async fn a_refund_that_was_cut_off_is_finished_by_its_retry(on: Store) {
    for place in PLACES {
        let (home, charge) = die_at(on, place).await;
        let shop = Shop::start_in(home, &["--lease", "10s"]);
        let answer = shop
            .until_answered("/refunds", "r", &body(&charge, 400))
            .await;
        assert_eq!(answer.header("idempotency-status"), Some("stored"));
        check_once(&shop, &charge).await;
    }
}

async fn a_refund_that_was_cut_off_is_finished_without_its_client(on: Store) {
    for place in PLACES {
        let (home, charge) = die_at(on, place).await;
        let shop = Shop::start_in(home, &["--lease", "1s"]);
        eventually(PATIENCE, async || shop.count_entries("refund").await == 1).await;
        let answer = shop
            .until_answered("/refunds", "r", &body(&charge, 400))
            .await;
        assert_eq!(answer.header("idempotency-status"), Some("replayed"));
        check_once(&shop, &charge).await;
    }
}

async fn a_refund_that_was_cut_off_holds_its_amount(on: Store) {
    let (home, charge) = die_at(on, PLACES[0]).await;
    let shop = Shop::start_in(home, &["--lease", "1m"]);
    let beyond = refund(&shop, "s", &charge, 501).await;
    problem(&beyond, 409, "CONFLICT.refund.exceeds_charge");
    let rest = refund(&shop, "t", &charge, 500).await;
    assert_eq!(rest.status, 201, "{}", rest.text());
    let answer = shop
        .until_answered("/refunds", "r", &body(&charge, 400))
        .await;
    assert_eq!(answer.status, 201, "{}", answer.text());
}

/// A shop that was killed at this failpoint by its first refund, of 400, and the id of the charge.
pub(crate) async fn die_at(on: Store, place: &str) -> (Home, String) {
    let home = Home::with_providers(on).await;
    let mut command = command(&home, &["--lease", "1s"]);
    command.env("HAPAX_FAILPOINT", place);
    let mut shop = Shop::spawn(command, home.clone());
    let paid = shop.post("/payments", Some("p"), PAYMENT).await;
    let charge = paid.json().unwrap()["id"].as_str().unwrap().to_owned();
    let (client, url, body) = (HttpClient::new(), shop.url("/refunds"), body(&charge, 400));
    let headers = [
        JSON,
        ("authorization", "Bearer demo-alice"),
        ("idempotency-key", "r"),
    ];
    let refunding = client.send(Method::POST, &url, &headers, body.into());
    let (refunded, (status, _)) = tokio::join!(refunding, shop.ended());
    assert!(refunded.is_err(), "the client must get no response");
    assert!(!status.success(), "{place}");
    (home, charge)
}

/// Checks that there is one refund at the provider, one ledger entry and one event.
async fn check_once(shop: &Shop, charge: &str) {
    let made = shop.home().providers().made("refund").await;
    assert_eq!(made.len(), 1, "{made:?}");
    assert_eq!(
        (&made[0]["charge"], &made[0]["amount"]),
        (&charge.into(), &400.into())
    );
    assert_eq!(shop.count_entries("refund").await, 1);
    assert_eq!(shop.received("refund.succeeded", 1).await.len(), 1);
    let rest = refund(shop, "s", charge, 500).await;
    assert_eq!(rest.status, 201, "{}", rest.text());
}

async fn refund(shop: &Shop, key: &str, charge: &str, amount: i64) -> HttpResponse {
    let body = body(charge, amount);
    shop.post("/refunds", Some(key), &body).await
}

fn body(charge: &str, amount: i64) -> String {
    format!(r#"{{"charge_id":"{charge}","amount":{amount}}}"#)
}
