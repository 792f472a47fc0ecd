//! Tests of the worked example: a refund API whose retries are all safe.

use serde_json::Value;

use crate::shop::{Shop, Store, check_replays, on_both_stores, problem, refuses};

on_both_stores! {
    a_refund_happens_once_per_key_and_never_beyond_the_charge,
    refunds_at_once_share_what_is_left_of_the_charge,
    a_charge_that_is_not_the_tenants_is_not_there,
    bad_members_of_a_refund_are_refused_by_name,
}

async fn a_refund_happens_once_per_key_and_never_beyond_the_charge(on: Store) {
    let shop = Shop::start(on, &[]).await;
    let charge = charge(&shop, 1000).await;
    let refund = |amount: i64| format!(r#"{{"charge_id":"{charge}","amount":{amount}}}"#);

    let first = shop.post("/refunds", Some("r-1"), &refund(400)).await;
    assert_eq!(first.status, 201, "{}", first.text());
    assert!(
        first.json().unwrap()["id"]
            .as_str()
            .unwrap()
            .starts_with("rf_")
    );
    let again = shop.post("/refunds", Some("r-1"), &refund(400)).await;
    check_replays(&again, &first);
    assert_eq!(refunds(&shop, &charge).await.len(), 1);

    let other = shop.post("/refunds", Some("r-1"), &refund(500)).await;
    problem(&other, 409, "CONFLICT.idempotency.payload_mismatch");
    assert_eq!(
        shop.post("/refunds", Some("r-2"), &refund(600))
            .await
            .status,
        201
    );

    let beyond = shop.post("/refunds", Some("r-3"), &refund(1)).await;
    problem(&beyond, 409, "CONFLICT.refund.exceeds_charge");
    assert_eq!(beyond.header("idempotency-status"), Some("stored"));
    let replayed = shop.post("/refunds", Some("r-3"), &refund(1)).await;
    assert_eq!(replayed.header("idempotency-status"), Some("replayed"));
    assert_eq!(replayed.body, beyond.body);

    let entries = refunds(&shop, &charge).await;
    let total: i64 = entries
        .iter()
        .map(|entry| entry["amount"].as_i64().unwrap())
        .sum();
    assert_eq!((entries.len(), total), (2, 1000));
    assert_eq!(shop.received("refund.succeeded", 2).await.len(), 2);
}

async fn refunds_at_once_share_what_is_left_of_the_charge(on: Store) {
    let shop = Shop::start(on, &[]).await;
    let charge = charge(&shop, 1000).await;
    let body = format!(r#"{{"charge_id":"{charge}","amount":300}}"#);
    let keys = (0..20).map(|number| format!("r-{number}"));
    let answers = shop.at_once("/refunds", keys, &body).await;
    let statuses: Vec<_> = answers.iter().map(|it| it.status).collect();
    assert_eq!(
        statuses.iter().filter(|status| **status == 201).count(),
        3,
        "{statuses:?}"
    );
    assert_eq!(
        statuses.iter().filter(|status| **status == 409).count(),
        17,
        "{statuses:?}"
    );
    assert_eq!(refunds(&shop, &charge).await.len(), 3);
}

async fn a_charge_that_is_not_the_tenants_is_not_there(on: Store) {
    let shop = Shop::start(on, &[]).await;
    let charge = charge(&shop, 1000).await;
    let body = format!(r#"{{"charge_id":"{charge}","amount":1}}"#);
    let stranger = shop.post_as("demo-bob", "/refunds", Some("r"), &body).await;
    problem(&stranger, 404, "NOT_FOUND");
    let unknown = shop
        .post(
            "/refunds",
            Some("r"),
            r#"{"charge_id":"ch_none","amount":1}"#,
        )
        .await;
    problem(&unknown, 404, "NOT_FOUND");
    assert_eq!(unknown.header("idempotency-status"), Some("stored"));
    assert!(refunds(&shop, &charge).await.is_empty());
}

async fn bad_members_of_a_refund_are_refused_by_name(on: Store) {
    let shop = Shop::start(on, &[]).await;
    for (body, member) in [
        (r#"{"amount":1}"#, "charge_id"),
        (r#"{"charge_id":"ch","amount":0}"#, "amount"),
        (r#"{"charge_id":"c h","amount":1}"#, "charge_id"),
        (r#"{"charge_id":"ch","amount":1,"why":"x"}"#, "why"),
    ] {
        refuses(&shop.post("/refunds", Some("r"), body).await, member);
    }
}

async fn charge(shop: &Shop, amount: i64) -> String {
    let body = format!(r#"{{"amount":{amount},"currency":"EUR","card":"tok_ok"}}"#);
    let paid = shop
        .post("/payments", Some("p"), &body)
        .await
        .json()
        .unwrap();
    paid["id"].as_str().unwrap().to_owned()
}

async fn refunds(shop: &Shop, charge: &str) -> Vec<Value> {
    let ledger = shop
        .get(&format!("/ledger?charge_id={charge}"))
        .await
        .json()
        .unwrap();
    let entries = ledger["entries"].as_array().unwrap().iter();
    entries
        .filter(|entry| entry["kind"] == "refund")
        .cloned()
        .collect()
}
