//! Tests of many concurrent requests, with the same intent or with different ones.

use hapax_testkit::http::HttpResponse;

use crate::shop::{ORDER, Shop, Store, lasting, on_both_stores};

on_both_stores! {
    two_hundred_requests_with_one_key_are_one_order_and_one_answer,
    two_hundred_requests_with_as_many_keys_are_as_many_orders,
}

async fn two_hundred_requests_with_one_key_are_one_order_and_one_answer(on: Store) {
    let shop = Shop::start(on, &["--wait", "20s"]).await;
    let answers = storm(&shop, |_| "same".to_owned()).await;
    let first = lasting(&answers[0]);
    assert_eq!(first.0, 201);
    assert!(answers.iter().all(|answer| lasting(answer) == first));
    let stored = |answer: &&HttpResponse| answer.header("idempotency-status") == Some("stored");
    assert_eq!(answers.iter().filter(stored).count(), 1);
    let orders = shop.get("/orders").await.json().unwrap();
    assert_eq!(orders["items"].as_array().unwrap().len(), 1);
    let events = shop.received("order.created", 1).await;
    assert_eq!(events.len(), 1);
    assert_eq!(events[0]["effects"], 1);
}

async fn two_hundred_requests_with_as_many_keys_are_as_many_orders(on: Store) {
    let shop = Shop::start(on, &[]).await;
    let answers = storm(&shop, |number| format!("key-{number}")).await;
    assert!(answers.iter().all(|answer| answer.status == 201));
    let orders = shop.get("/orders?limit=200").await.json().unwrap();
    assert_eq!(orders["items"].as_array().unwrap().len(), 200);
    let events = shop.received("order.created", 200).await;
    assert!(events.iter().all(|event| event["effects"] == 1));
}

#[tokio::test]
async fn a_storm_gets_through_two_connections() {
    // Duplicates wait long enough for all requests to be processed.
    let flags = ["--database-connections", "2", "--wait", "20s"];
    let shop = Shop::start(Store::Postgres, &flags).await;
    let answers = storm(&shop, |number| format!("key-{}", number / 2)).await;
    assert!(answers.iter().all(|answer| answer.status == 201));
    assert_eq!(shop.received("order.created", 100).await.len(), 100);
}

/// Sends 200 orders at once, under these keys.
async fn storm(shop: &Shop, key: impl Fn(usize) -> String) -> Vec<HttpResponse> {
    shop.at_once("/orders", (0..200).map(key), ORDER).await
}
