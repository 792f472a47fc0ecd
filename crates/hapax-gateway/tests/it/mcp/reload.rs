//! A new configuration keeps the keys of calls.

use axum::body::{Body, to_bytes};
use hapax::failpoint::Failpoints;
use hapax_gateway::{Gateway, Peer, config::RouteProtocol};
use hapax_sqlite::Sqlite;
use hapax_testkit::clock::{seeded_random, system_clock};
use http::Request;
use serde_json::{Value, json};

use super::fixture::{BOTH, message, order};
use crate::{stage::settings, upstream::Upstream};

#[tokio::test]
async fn a_call_is_replayed_after_the_configuration_was_read_again() {
    let upstream = Upstream::start(order).await;
    let mut settings = settings(&[&upstream.url()]);
    settings.routes.get_mut("all").unwrap().protocol = RouteProtocol::Mcp;
    let folder = tempfile::tempdir().unwrap();
    let (clock, random) = (system_clock(), seeded_random(1));
    let file = folder.path().join("gateway.db");
    let opened = hapax_sqlite::Settings::new(file, clock.clone(), random.clone());
    let store = Sqlite::open(opened).unwrap();
    let base = hapax_http::Settings::new(clock, random);
    let gateway = Gateway::new(store, base, Failpoints::none(), &settings).unwrap();
    let first = call(&gateway, json!(1)).await;
    gateway.reload(&settings).unwrap();
    let again = call(&gateway, json!(2)).await;
    assert_eq!((&first["id"], &again["id"]), (&json!(1), &json!(2)));
    assert_eq!(first["result"], again["result"]);
    assert_eq!(upstream.ledger().len(), 1);
    // With the other protocol, the message is passed on.
    let route = settings.routes.get_mut("all").unwrap();
    route.protocol = RouteProtocol::Http;
    gateway.reload(&settings).unwrap();
    let other = call(&gateway, json!(3)).await;
    assert_eq!(other["result"]["content"][0]["text"], "order 2");
}

async fn call(gateway: &Gateway<Sqlite>, id: Value) -> Value {
    let request = Request::post("/mcp")
        .header("host", "a")
        .header("accept", BOTH)
        .header("content-type", "application/json");
    let request = request.body(Body::from(message(&id, Some("k"), "tea")));
    let peer = Peer::plain("127.0.0.1:1000".parse().unwrap());
    let response = gateway.handle(request.unwrap(), &peer).await;
    let body = to_bytes(response.into_body(), 1 << 20).await.unwrap();
    serde_json::from_slice(&body).unwrap()
}
