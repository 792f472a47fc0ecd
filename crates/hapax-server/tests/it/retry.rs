//! Tests that a delivery that waits for its next attempt is retried now, by the command and by the
//! admin API.

use hapax_testkit::{
    http::{HttpReceiver, HttpReply},
    wait::eventually,
};
use serde_json::json;

use crate::{
    admin::{Served, check},
    hapax::{PATIENCE, SECRET, run},
    store::{Home, Store, on_both_stores},
};

on_both_stores! {
    a_delivery_is_retried_now_by_command_and_over_http,
}

async fn a_delivery_is_retried_now_by_command_and_over_http(on: Store) {
    let database = Home::migrated(on).await;
    database.emit("order.created", 1).await;
    let receiver = HttpReceiver::start().await;
    receiver.reply(HttpReply::status(503));
    let served = Served::with_tokens(&database).await;
    let body = json!({"name": "orders", "spec": {
        "schedule": ["0s", "1h", "1h"],
        "start": "beginning",
        "sink": {"webhook": {"url": receiver.url("/"), "secret": SECRET, "allow": ["127.0.0.0/8"]}},
    }});
    assert_eq!(served.post("/destinations", &body).await.status, 201);
    let mut position = String::new();
    eventually(PATIENCE, async || {
        let listed = served.get("/deliveries?state=retrying").await;
        position = listed["items"][0]["position"].to_string();
        position != "null"
    })
    .await;
    let url = database.url();
    let retry = ["deliveries", "retry", "orders", &position, "--yes"];
    let call = || run(&[&retry[..], &["--database", &url]].concat());
    assert!(call().ended(0).stdout.contains("is due now"));
    receiver.received_at_least(2).await;
    // A retry has no effect before the outcome of the attempt is recorded, together with the
    // attempt.
    eventually(PATIENCE, async || {
        let event = served.get(&format!("/events/{position}")).await;
        let attempts = event["destinations"][0]["attempts"].as_array();
        attempts.is_some_and(|log| log.len() == 2)
    })
    .await;
    receiver.reply(HttpReply::status(200));
    let path = format!("/deliveries/orders/{position}/retry");
    assert_eq!(served.post(&path, &json!({})).await.status, 204);
    receiver.received_at_least(3).await;
    eventually(PATIENCE, async || {
        let listed = served.get("/deliveries?state=delivered").await;
        listed["items"][0]["position"].as_i64() == position.parse().ok()
    })
    .await;
    let late = call().ended(4);
    assert!(late.stderr.contains("is delivered"), "{late:?}");
    let late = served.post(&path, &json!({})).await;
    check(&late, 409, "CONFLICT.state");
    let unknown = served
        .post("/deliveries/orders/9999/retry", &json!({}))
        .await;
    assert_eq!(unknown.status, 404);
    served.relay.stop().await;
}
