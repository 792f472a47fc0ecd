//! Tests of payments: a charge is made once, and a rejection is stored once.

use crate::shop::{ORDER, PAYMENT, Shop, Store, check_replays, on_both_stores, problem, refuses};

on_both_stores! {
    a_payment_is_one_charge_one_entry_and_one_event,
    a_payment_may_name_an_order_of_its_tenant,
    a_declined_card_is_a_refusal_that_is_remembered_and_has_no_effect,
    bad_members_of_a_payment_are_refused_by_name,
}

async fn a_payment_is_one_charge_one_entry_and_one_event(on: Store) {
    let shop = Shop::start(on, &[]).await;
    let first = shop.post("/payments", Some("p"), PAYMENT).await;
    assert_eq!(first.status, 201, "{}", first.text());
    let again = shop.post("/payments", Some("p"), PAYMENT).await;
    check_replays(&again, &first);

    let charge = first.json().unwrap()["id"].as_str().unwrap().to_owned();
    assert!(charge.starts_with("ch_"));
    let entries = shop.entries(&format!("?charge_id={charge}")).await;
    assert_eq!(entries.len(), 1, "{entries:?}");
    assert_eq!(entries[0]["kind"], "charge");
    assert_eq!(entries[0]["amount"], 900);
    assert_eq!(entries[0]["source"], "shop");
    assert_eq!(shop.received("payment.succeeded", 1).await.len(), 1);
}

async fn a_payment_may_name_an_order_of_its_tenant(on: Store) {
    let shop = Shop::start(on, &[]).await;
    let order = shop.post("/orders", Some("o"), ORDER).await.json().unwrap();
    let id = order["id"].as_str().unwrap();
    let body = format!(r#"{{"order_id":"{id}","amount":500,"currency":"EUR","card":"tok_ok"}}"#);
    let paid = shop.post("/payments", Some("p"), &body).await;
    assert_eq!(paid.json().unwrap()["order_id"], id);
    let stranger = shop
        .post_as("demo-bob", "/payments", Some("p"), &body)
        .await;
    assert_eq!(problem(&stranger, 404, "NOT_FOUND")["member"], "order_id");
}

async fn a_declined_card_is_a_refusal_that_is_remembered_and_has_no_effect(on: Store) {
    let shop = Shop::start(on, &[]).await;
    let body = PAYMENT.replace("tok_ok", "tok_declined");
    let first = shop.post("/payments", Some("p"), &body).await;
    problem(&first, 402, "PROVIDER.card.declined");
    assert_eq!(first.header("idempotency-status"), Some("stored"));
    let again = shop.post("/payments", Some("p"), &body).await;
    assert_eq!(again.header("idempotency-status"), Some("replayed"));
    assert_eq!(again.body, first.body);
    let other = shop.post("/payments", Some("p"), PAYMENT).await;
    problem(&other, 409, "CONFLICT.idempotency.payload_mismatch");
    assert!(shop.entries("").await.is_empty());
}

async fn bad_members_of_a_payment_are_refused_by_name(on: Store) {
    let shop = Shop::start(on, &[]).await;
    for (valid, bad, member) in [
        ("tok_ok", "4242", "card"),
        ("900", "0", "amount"),
        ("EUR", "E", "currency"),
        ("card", "kard", "kard"),
    ] {
        let body = PAYMENT.replace(valid, bad);
        refuses(&shop.post("/payments", Some("p"), &body).await, member);
    }
    assert_eq!(shop.post("/payments", None, PAYMENT).await.status, 400);
}
