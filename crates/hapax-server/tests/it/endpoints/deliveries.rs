//! Requests of a relay to endpoints, retries, and the log of attempts.

use std::{collections::BTreeSet, time::Duration};

use hapax_testkit::{
    http::{HttpReceiver, HttpReply},
    wait::eventually,
};
use serde_json::json;

use super::{SETTINGS, Stage, body, count, ids};
use crate::{
    hapax::{PATIENCE, is_signed, start_relay},
    store::{Home, Store, on_both_stores},
};

on_both_stores! {
    each_event_goes_to_the_endpoints_of_its_tenant_that_take_it,
    a_failed_delivery_is_retried_and_both_attempts_are_shown,
}

async fn each_event_goes_to_the_endpoints_of_its_tenant_that_take_it(on: Store) {
    let stage = Stage::new(on).await;
    let receiver = HttpReceiver::start().await;
    let at = |path: &str| receiver.url(path);
    let (_, secret) = stage.create("acme", &at("/all"), &["--header", "X-Api-Key: hunter2"]);
    stage.create("acme", &at("/orders"), &["--type", "order.*"]);
    let large = r#"{"/n": {"$gte": 10}}"#;
    stage.create("acme", &at("/large"), &["--filter", large]);
    stage.create("other", &at("/other"), &[]);
    for (tenant, kind, n) in [
        ("acme", "order.created", 1),
        ("acme", "refund.created", 10),
        ("other", "order.created", 11),
        ("third", "order.created", 12),
    ] {
        stage.emit(tenant, kind, n).await;
    }
    let relay = stage.relay().await;
    let requests = receiver.received_at_least(5).await;
    relay.stop().await;
    let got = |path: &str| -> BTreeSet<i64> {
        let own = requests.iter().filter(|it| it.path == path);
        own.map(|it| body(it)["data"]["n"].as_i64().unwrap())
            .collect()
    };
    assert_eq!(got("/all"), BTreeSet::from([1, 10]));
    assert_eq!(got("/orders"), BTreeSet::from([1]));
    assert_eq!(got("/large"), BTreeSet::from([10]));
    assert_eq!(got("/other"), BTreeSet::from([11]));
    assert_eq!(requests.len(), 5);
    let one = requests.iter().find(|it| it.path == "/all").unwrap();
    assert_eq!(one.header("x-api-key"), Some("hunter2"));
    assert!(is_signed(one, &secret));
}

async fn a_failed_delivery_is_retried_and_both_attempts_are_shown(on: Store) {
    let stage = Stage::new(on).await;
    let receiver = HttpReceiver::start().await;
    let busy = HttpReply::status(503).body("{\"error\":\"busy\",\"password\":\"hunter2\"}");
    receiver.reply_next(busy);
    let header = ["--header", "X-Api-Key: hunter3"];
    let (id, _) = stage.create("acme", &receiver.url("/"), &header);
    stage.emit("acme", "order.created", 1).await;
    let relay = stage.relay().await;
    receiver.received_at_least(2).await;
    let shown = async || stage.deliveries("acme", &id, &[]).len() == 2;
    eventually(PATIENCE, shown).await;
    relay.stop().await;
    let shown = stage.deliveries("acme", &id, &[]);
    assert_eq!(
        (&shown[0]["status"], &shown[1]["status"]),
        (&json!(200), &json!(503))
    );
    assert_eq!(
        (&shown[0]["attempt"], &shown[1]["attempt"]),
        (&json!(2), &json!(1))
    );
    assert!(
        shown.iter().all(|it| it["state"] == "delivered"),
        "{shown:?}"
    );
    let failed = &stage.deliveries("acme", &id, &["--failed"])[..];
    assert_eq!(failed, &shown[1..]);
    let response = failed[0]["response"].as_str().unwrap();
    assert!(
        response.contains("busy") && !response.contains("hunter2"),
        "{response}"
    );
    let request = failed[0]["request_body"].as_str().unwrap();
    assert!(request.contains("\"n\":1"), "{request}");
    assert_eq!(failed[0]["request_headers"]["x-api-key"], "***");
    let health = stage
        .run(&["show", &id, "--tenant", "acme", "--json"])
        .ended(0)
        .json();
    assert_eq!(health["health"]["success_rate"], 0.5, "{health}");
    assert_eq!(health["endpoint"]["failures"], 0);
}

#[tokio::test]
async fn a_slow_endpoint_does_not_delay_the_others() {
    const EVENTS: usize = 40;
    let stage = Stage::new(Store::Postgres).await;
    let (slow, dead, healthy) = (
        HttpReceiver::start().await,
        HttpReceiver::start().await,
        HttpReceiver::start().await,
    );
    slow.reply(HttpReply::status(200).after(Duration::from_millis(600)));
    dead.reply(HttpReply::status(200).after(Duration::from_mins(1)));
    for receiver in [&slow, &dead, &healthy] {
        stage.create("acme", &receiver.url("/"), &[]);
    }
    let relay = stage.relay().await;
    for n in 0..EVENTS {
        stage.emit("acme", "order.created", n).await;
    }
    eventually(PATIENCE, async || ids(&healthy).len() == EVENTS).await;
    // Ten rounds of four at once take six seconds.
    assert!(ids(&slow).len() < EVENTS, "{}", ids(&slow).len());
    eventually(PATIENCE, async || ids(&slow).len() == EVENTS).await;
    relay.stop().await;
}

#[tokio::test]
async fn a_delivery_waits_for_a_place_of_the_process_before_it_is_queued() {
    const EVENTS: usize = 10;
    let settings = SETTINGS.replace("patience = \"100ms\"", "patience = \"10s\"");
    let stage = Stage::of(Store::Postgres, format!("{settings}sends = 1\n")).await;
    let receiver = HttpReceiver::start().await;
    for path in ["/a", "/b", "/c", "/d"] {
        stage.create("acme", &receiver.url(path), &[]);
    }
    for n in 0..EVENTS {
        stage.emit("acme", "order.created", n).await;
    }
    let relay = stage.relay().await;
    receiver.received_at_least(4 * EVENTS).await;
    relay.stop().await;
    let Home::Server(database) = &stage.home else {
        unreachable!("the stage is on PostgreSQL");
    };
    let client = database.client().await;
    let queued = "SELECT count(*) AS number FROM hapax.endpoint_delivery";
    let queued = client.query_one(queued, &[]).await.unwrap();
    assert_eq!(queued.get::<_, i64>("number"), 0);
}

#[tokio::test]
async fn the_oldest_of_too_many_deliveries_have_failed_with_a_reason() {
    let stage = Stage::with(Store::Postgres, "schedule = [\"0s\", \"1h\"]\n").await;
    let receiver = HttpReceiver::start().await;
    receiver.reply(HttpReply::status(503));
    let (id, _) = stage.create("acme", &receiver.url("/"), &[]);
    let relay = stage.relay().await;
    for n in 0..6 {
        stage.emit("acme", "a", n).await;
    }
    let client = stage.client().await;
    let waiting = "endpoint_delivery WHERE state = 'waiting'";
    eventually(PATIENCE, async || count(&client, waiting).await == 6).await;
    relay.stop().await;
    // A relay counts when it starts, and regularly.
    let configuration = format!("{}waiting = 4\n", stage.configuration);
    let relay = start_relay(&stage.home.url(), &configuration).await;
    eventually(PATIENCE, async || count(&client, waiting).await == 4).await;
    relay.stop().await;
    let listed = stage.deliveries("acme", &id, &["--failed", "--limit", "100"]);
    let dropped = listed.iter().filter(|it| it["outcome"] == "dropped");
    let dropped: Vec<_> = dropped.collect();
    assert_eq!(dropped.len(), 2, "{listed:?}");
    for delivery in dropped {
        assert_eq!(delivery["state"], "failed");
        let error = delivery["error"].as_str().unwrap();
        assert!(error.starts_with("dropped: too many"), "{error}");
    }
}

#[tokio::test]
async fn the_log_of_attempts_is_deleted_as_fast_as_it_becomes_old_and_the_rest_is_not_written() {
    const FILL: &str = "
        INSERT INTO hapax.endpoint_attempt
            (endpoint, tenant, position, event_id, type, number, started_at, duration_ms, outcome,
             request, response, is_encrypted)
        SELECT 'ep_1', 'acme', number, gen_random_uuid(), 'a', 1,
               now() - CASE WHEN number > 59500 THEN interval '1 hour' ELSE interval '8 days' END,
               1, 'delivered', ''::bytea, ''::bytea, false
        FROM generate_series(1, 59520) AS number
        ORDER BY number";
    const LEFT: &str = "
        SELECT count(*) FILTER (WHERE started_at < now() - interval '7 days') AS old,
               count(*) FILTER (WHERE started_at >= now() - interval '7 days' AND xmax::text = '0')
                   AS untouched
        FROM hapax.endpoint_attempt";
    let stage = Stage::new(Store::Postgres).await;
    let Home::Server(database) = &stage.home else {
        unreachable!("the stage is on PostgreSQL");
    };
    let client = database.client().await;
    client.batch_execute(FILL).await.unwrap();
    let relay = stage.relay().await;
    let left = async || {
        let row = client.query_one(LEFT, &[]).await.unwrap();
        (row.get::<_, i64>("old"), row.get::<_, i64>("untouched"))
    };
    eventually(PATIENCE, async || left().await.0 == 0).await;
    assert_eq!(left().await, (0, 20));
    relay.stop().await;
}
