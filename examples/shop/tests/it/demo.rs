//! Tests of the demo's receiver: retries, and the inbox that makes them safe.

use hapax_testkit::wait::eventually;
use http::Method;

use crate::shop::{JSON, ORDER, PATIENCE, Shop, Store, on_both_stores};

on_both_stores! {
    a_delivery_that_fails_is_offered_again,
    a_lost_answer_is_two_deliveries_and_one_effect,
    a_receiver_that_is_gone_gets_nothing_until_it_is_back,
    a_slow_receiver_takes_the_event_once,
    an_unknown_fault_is_refused,
}

async fn a_delivery_that_fails_is_offered_again(on: Store) {
    let shop = Shop::start(on, &["--webhook-schedule", "0s,50ms,50ms,50ms"]).await;
    shop.misbehave(r#"{"mode":"fail","count":2}"#).await;
    shop.post("/orders", Some("k"), ORDER).await;
    check(&shop, 3, 1).await;
}

async fn a_lost_answer_is_two_deliveries_and_one_effect(on: Store) {
    let shop = Shop::start(on, &["--webhook-schedule", "0s,50ms,50ms"]).await;
    shop.misbehave(r#"{"mode":"ack_lost","count":1}"#).await;
    shop.post("/orders", Some("k"), ORDER).await;
    check(&shop, 2, 1).await;
    // The duplicate is counted after the commit.
    let duplicates = "hapax_inbox_messages_total{consumer=\"demo_receiver\",outcome=\"duplicate\"";
    eventually(PATIENCE, async || shop.metric(duplicates).await > 0.0).await;
}

async fn a_receiver_that_is_gone_gets_nothing_until_it_is_back(on: Store) {
    let shop = Shop::start(on, &["--webhook-schedule", "0s,50ms,50ms"]).await;
    shop.misbehave(r#"{"mode":"gone"}"#).await;
    shop.post("/orders", Some("1"), ORDER).await;
    eventually(PATIENCE, async || shop.log().contains("disabled")).await;
    shop.post("/orders", Some("2"), ORDER).await;
    assert_eq!(shop.received_now("order.created").await.len(), 1);
    shop.misbehave(r#"{"mode":"ok"}"#).await;
    let events = shop.received("order.created", 2).await;
    eventually(PATIENCE, async || {
        shop.received_now("order.created")
            .await
            .iter()
            .all(|event| event["effects"] == 1)
    })
    .await;
    assert_eq!(events.len(), 2);
}

async fn a_slow_receiver_takes_the_event_once(on: Store) {
    let shop = Shop::start(on, &[]).await;
    shop.misbehave(r#"{"mode":"slow","count":1}"#).await;
    shop.post("/orders", Some("k"), ORDER).await;
    check(&shop, 1, 1).await;
}

async fn an_unknown_fault_is_refused(on: Store) {
    let shop = Shop::start(on, &[]).await;
    for fault in [
        r#"{"mode":"explode"}"#,
        "{}",
        r#"{"mode":"ok","count":-1}"#,
        r#"{"mode":"ok","x":1}"#,
    ] {
        let answer = shop
            .send(Method::POST, "/demo/receiver/fault", &[JSON], fault)
            .await;
        assert_eq!(answer.status, 400, "{fault}");
    }
    assert_eq!(shop.get("/demo/receiver?limit=0").await.status, 400);
}

async fn check(shop: &Shop, deliveries: u64, effects: u64) {
    eventually(PATIENCE, async || {
        let events = shop.received_now("order.created").await;
        let counted = |event: &serde_json::Value| {
            event["deliveries"] == deliveries && event["effects"] == effects
        };
        events.len() == 1 && counted(&events[0])
    })
    .await;
}
