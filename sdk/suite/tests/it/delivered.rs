//! `hapax relay` delivers the events of the services, to a receiver and to an inbox in the other
//! language.

use std::{collections::HashSet, path::Path};

use futures_util::future::join_all;
use hapax_testkit::{
    http::{HttpReceiver, HttpResponse},
    relay::{Relay, SECRET, hapax},
    wait::eventually,
};

use crate::{
    kind::{EXPRESS, FASTAPI},
    shop::{LONG, Shop, body, order_until_answered},
    webhooks::check_ledger,
};

const ORDERS: usize = 10;
/// Requests with each key.
const REQUESTS: usize = 4;

#[tokio::test(flavor = "multi_thread")]
async fn the_events_of_both_languages_are_delivered_once() {
    let shop = Shop::open(&[EXPRESS, FASTAPI]).await;
    let receiver = HttpReceiver::start().await;
    let url = receiver.url("/");
    let relay = start_relay(&shop, &[("orders", url.as_str())]).await;
    let ids = create_orders(&shop).await;
    let requests = receiver.received_at_least(ORDERS).await;
    // A relay that is stopped has finished what it has begun.
    relay.stop().await;
    assert_eq!(receiver.received().len(), ORDERS);
    let mut events = HashSet::new();
    let mut orders = HashSet::new();
    for request in requests {
        let id = request.header("webhook-id").expect("an id");
        assert!(events.insert(id.to_owned()), "{id} is delivered twice");
        let event: serde_json::Value = serde_json::from_slice(&request.body).expect("JSON");
        assert_eq!(event["type"], "order.created");
        let order = event["data"]["id"].as_str().expect("an id");
        orders.insert(order.to_owned());
    }
    assert_eq!(orders, ids);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_language_takes_the_events_of_both_once() {
    for place in 0..2 {
        let shop = Shop::open(&[EXPRESS, FASTAPI]).await;
        let url = format!("{}/webhooks", shop.urls()[place]);
        let inbox = url.as_str();
        // Two destinations deliver each event with the same id, as a second attempt would.
        let relay = start_relay(&shop, &[("first", inbox), ("second", inbox)]).await;
        create_orders(&shop).await;
        let settled = "SELECT count(*) FROM hapax.inbox_message WHERE processed_at IS NOT NULL";
        let orders = i64::try_from(ORDERS).expect("few");
        eventually(LONG, async || shop.count(settled).await == orders).await;
        relay.stop().await;
        check_ledger(&shop, orders, (1..=orders).sum()).await;
    }
}

/// Creates orders at both services, several times each, and returns their ids.
async fn create_orders(shop: &Shop) -> HashSet<String> {
    let urls = shop.urls();
    let requests = (0..ORDERS * REQUESTS).map(|number| {
        let (urls, http) = (&urls, &shop.http);
        let order = number / REQUESTS;
        let key = format!("delivered-{order}");
        let body = body("tea", u32::try_from(order + 1).expect("few"));
        async move { order_until_answered(http, urls, number, &key, &body).await }
    });
    let answers = join_all(requests).await;
    let id = |answer: &HttpResponse| {
        assert_eq!(answer.status, 201, "{}", answer.text());
        let order = answer.json().expect("an order is JSON");
        order["id"].as_str().expect("an id is text").to_owned()
    };
    let ids: HashSet<String> = answers.iter().map(id).collect();
    assert_eq!(ids.len(), ORDERS);
    ids
}

/// Starts a relay with webhook destinations: names and URLs.
async fn start_relay(shop: &Shop, destinations: &[(&str, &str)]) -> Relay {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../debug/hapax");
    let destination = |(name, url): &(&str, &str)| {
        format!(
            "[destinations.{name}]\n\
             schedule = [\"0s\", \"50ms\", \"100ms\", \"200ms\", \"1s\", \"1s\"]\n\
             sink.webhook = {{ url = \"{url}\", secret = \"{SECRET}\", allow = [\"127.0.0.0/8\"] }}\n"
        )
    };
    let configuration: String = destinations.iter().map(destination).collect();
    Relay::start(
        hapax(&program, &[]),
        &shop.database_url(),
        &configuration,
        &[],
    )
    .await
}
