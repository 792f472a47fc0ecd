//! Tests of the log lines of requests, webhooks, the thumbnail job, the demo's receiver, and
//! deliveries.

use hapax::key::short_hash;
use hapax_testkit::wait::eventually;
use serde_json::Value;

use crate::{
    shop::{ORDER, PATIENCE, Shop, Store, on_both_stores},
    uploads::taken_png,
    webhooks,
};

on_both_stores! {
    requests_and_messages_are_logged_with_their_outcomes,
}

async fn requests_and_messages_are_logged_with_their_outcomes(on: Store) {
    let flags = [&webhooks::SOURCE[..], &["--log", "json"]].concat();
    let shop = Shop::start(on, &flags).await;
    let other = ORDER.replace("500", "501");
    for body in [ORDER, ORDER, other.as_str()] {
        shop.post("/orders", Some("planted-key"), body).await;
    }
    for _ in 0..2 {
        webhooks::refunded(&shop, "msg_1").await;
    }
    assert_eq!(taken_png(&shop).await.status, 201);
    let hash = short_hash("planted-key");
    eventually(PATIENCE, async || {
        let of = |field: &str, value: &str| outcomes(&shop, field, value);
        of("key_hash", &hash) == ["created", "replayed", "mismatch"]
            && of("event_id", "msg_1") == ["accepted", "duplicate"]
            && of("consumer", "thumbnails") == ["accepted"]
            && of("consumer", "demo_receiver").contains(&"accepted".to_owned())
    })
    .await;
    assert!(!shop.log().contains("planted"), "{}", shop.log());
    shop.stop().await;
}

#[tokio::test]
async fn the_lines_of_requests_can_be_turned_off_and_sampled() {
    for flags in [["--log-requests", "off"], ["--log-requests-sample", "0"]] {
        let flags = [&flags[..], &["--log", "json"]].concat();
        let shop = Shop::start(Store::Sqlite, &flags).await;
        shop.post("/orders", Some("k"), ORDER).await;
        shop.post("/orders", Some("k"), &ORDER.replace("500", "501"))
            .await;
        let expected: &[&str] = match flags[0] {
            "--log-requests" => &[],
            _ => &["mismatch"],
        };
        let hash = short_hash("k");
        eventually(PATIENCE, async || {
            outcomes(&shop, "key_hash", &hash) == expected
        })
        .await;
        assert!(!shop.log().contains("\"created\""), "{}", shop.log());
        shop.stop().await;
    }
}

#[tokio::test]
async fn a_delivery_is_logged_at_debug_and_at_info_if_an_earlier_attempt_failed() {
    for level in ["debug", "info"] {
        let flags = ["--log", "json", "--log-level", level];
        let shop = Shop::start(Store::Sqlite, &flags).await;
        shop.post("/orders", Some("planted-1"), ORDER).await;
        shop.received("order.created", 1).await;
        shop.misbehave(r#"{"mode":"fail","count":1}"#).await;
        shop.post("/orders", Some("planted-2"), ORDER).await;
        let expected: &[&str] = match level {
            "debug" => &["DEBUG 1", "INFO 2"],
            _ => &["INFO 2"],
        };
        eventually(PATIENCE, async || delivered(&shop) == expected).await;
        assert!(!shop.log().contains("planted"), "{}", shop.log());
        shop.stop().await;
    }
}

/// The level and the attempt of each delivery to the demo's receiver that the log reports, in
/// order.
fn delivered(shop: &Shop) -> Vec<String> {
    let log = shop.log();
    let lines = log
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let is_delivery = |line: &Value| {
        let fields = &line["fields"];
        fields["to_state"] == "delivered"
            && fields["destination"] == "demo"
            && fields["event_type"] == "order.created"
            && fields["status"] == 200
            && fields["correlation_id"].is_string()
            && fields["duration_us"].is_u64()
    };
    lines
        .filter(is_delivery)
        .filter_map(|line| {
            let level = line["level"].as_str()?;
            Some(format!("{level} {}", line["fields"]["attempt"]))
        })
        .collect()
}

/// The outcomes in the lines of requests and messages in which a field has this value, in order.
fn outcomes(shop: &Shop, field: &str, value: &str) -> Vec<String> {
    let log = shop.log();
    let lines = log
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines
        .filter(|line| line["target"] == "hapax::requests" && line["fields"][field] == value)
        .filter_map(|line| Some(line["fields"]["outcome"].as_str()?.to_owned()))
        .collect()
}
