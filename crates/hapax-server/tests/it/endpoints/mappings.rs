//! Mappings of endpoints: the body of a tenant's requests, its change, its failures, and its trial.

use hapax_testkit::{
    http::{HttpReceiver, HttpReply},
    wait::eventually,
};
use http::Method;
use serde_json::{Value, json};

use super::{SCHEDULE, SETTINGS, Stage, accepted, body};
use crate::{
    admin::{OPERATOR, Served},
    hapax::{PATIENCE, is_signed},
    store::{Home, Store, on_both_stores},
};

const ORDER: &str = r#"{"text": {"$concat": ["Order ", "$.data.n"]}, "tenant": "$.tenant"}"#;

on_both_stores! {
    an_endpoint_gets_the_mapped_body_and_a_change_applies_to_the_next_attempt,
    a_delivery_that_cannot_be_mapped_fails_and_is_replayed_with_another_mapping,
    events_that_cannot_be_mapped_are_no_failures_of_their_endpoint,
    a_mapping_that_is_not_valid_is_refused,
    null_leaves_filter_and_mapping_and_an_empty_text_removes_them,
    the_mapping_of_an_endpoint_is_tried_on_stored_events,
}

async fn an_endpoint_gets_the_mapped_body_and_a_change_applies_to_the_next_attempt(on: Store) {
    let stage = Stage::new(on).await;
    let receiver = HttpReceiver::start().await;
    receiver.reply_with(|request| {
        let is_other = body(request).get("id").is_some();
        HttpReply::status(if is_other { 200 } else { 503 })
    });
    let (id, secret) = stage.create("acme", &receiver.url("/"), &["--mapping", ORDER]);
    stage.emit("acme", "order.created", 1).await;
    let relay = stage.relay().await;
    let requests = receiver.received_at_least(1).await;
    assert_eq!(
        body(&requests[0]),
        json!({"text": "Order 1", "tenant": "acme"})
    );
    assert!(is_signed(&requests[0], &secret));
    let event = requests[0].header("webhook-id").unwrap().to_owned();
    let mapping = r#"{"n": "$.data.n", "id": "$.id"}"#;
    stage
        .run(&["change", &id, "--tenant", "acme", "--mapping", mapping])
        .ended(0);
    eventually(PATIENCE, async || {
        let requests = receiver.received();
        requests.iter().any(|it| it.answered == Some(200))
    })
    .await;
    let requests = receiver.received();
    let last = requests.last().unwrap();
    assert_eq!(body(last), json!({"n": 1, "id": event}));
    assert!(is_signed(last, &secret));
    assert_eq!(last.header("webhook-id"), Some(event.as_str()));
    relay.stop().await;
}

async fn a_delivery_that_cannot_be_mapped_fails_and_is_replayed_with_another_mapping(on: Store) {
    let stage = Stage::new(on).await;
    let receiver = HttpReceiver::start().await;
    let wrong = r#"{"$each": "$.data.n", "as": "@"}"#;
    let (id, secret) = stage.create("acme", &receiver.url("/"), &["--mapping", wrong]);
    stage.emit("acme", "order.created", 1).await;
    let relay = stage.relay().await;
    eventually(PATIENCE, async || {
        let listed = stage.deliveries("acme", &id, &["--failed"]);
        listed.len() == 1 && listed[0]["state"] == "failed"
    })
    .await;
    let failed = &stage.deliveries("acme", &id, &[])[0];
    let reason = "the mapping cannot be applied: $.data.n is not a list";
    assert!(
        failed["error"].as_str().unwrap().contains(reason),
        "{failed}"
    );
    assert_eq!(failed["outcome"], "rejected");
    assert!(failed.get("request_body").is_none(), "{failed}");
    assert!(receiver.received().is_empty());
    // An empty text removes the mapping.
    stage
        .run(&["change", &id, "--tenant", "acme", "--mapping", ""])
        .ended(0);
    eventually(PATIENCE, async || {
        let again = ["replay", &id, "--tenant", "acme", "--since", "1h", "--yes"];
        stage.run(&again).ended(0);
        !receiver.received().is_empty()
    })
    .await;
    let request = &receiver.received()[0];
    assert_eq!(body(request)["data"], json!({"n": 1}));
    assert!(is_signed(request, &secret));
    relay.stop().await;
}

async fn events_that_cannot_be_mapped_are_no_failures_of_their_endpoint(on: Store) {
    // After so many failures, the pauses between two attempts are longer than the patience.
    const SPOILT: usize = 12;
    let hurry = "disable_after = \"1s\"\ndisable_failures = 3\n";
    let settings = SETTINGS.replace("timeout = \"1s\"", "timeout = \"10s\"");
    let stage = Stage::of(on, format!("{settings}{SCHEDULE}{hurry}")).await;
    let receiver = HttpReceiver::start().await;
    let (id, _) = stage.create("acme", &receiver.url("/"), &["--mapping", ORDER]);
    for _ in 0..SPOILT {
        let payload = json!({ "n": [] });
        stage.emit_payload("acme", "order.created", &payload).await;
    }
    for n in 0..3 {
        stage.emit("acme", "order.created", n).await;
    }
    let relay = stage.relay().await;
    eventually(PATIENCE, async || accepted(&receiver).len() == 3).await;
    let rejected = async || stage.deliveries("acme", &id, &["--failed"]).len() == SPOILT;
    eventually(PATIENCE, rejected).await;
    let expected = [
        format!("hapax_endpoints_attempts_total{{outcome=\"rejected\"}} {SPOILT}\n"),
        "hapax_endpoints_attempt_seconds_count 3\n".to_owned(),
    ];
    let counted = async || {
        let metrics = relay.get("/metrics").await.text();
        expected.iter().all(|it| metrics.contains(it))
    };
    eventually(PATIENCE, counted).await;
    relay.stop().await;
    let listed = stage.deliveries("acme", &id, &["--failed"]);
    for line in &listed {
        assert_eq!(
            (&line["state"], &line["outcome"]),
            (&json!("failed"), &json!("rejected"))
        );
    }
    let shown = stage.show(&id);
    let (endpoint, health) = (&shown["endpoint"], &shown["health"]);
    assert_eq!(
        (&endpoint["state"], &endpoint["failures"]),
        (&json!("enabled"), &json!(0))
    );
    assert_eq!(
        (&health["attempts"], &health["failed"]),
        (&json!(3), &json!(SPOILT))
    );
    assert_eq!(receiver.received().len(), 3);
}

async fn a_mapping_that_is_not_valid_is_refused(on: Store) {
    let stage = Stage::with(on, "events_url = \"https://events.example.com/events\"\n").await;
    let create = ["create", "--tenant", "acme", "--url", "https://a.example/"];
    for (more, problem) in [
        (
            &["--mapping", r#"{"a": "$.database"}"#][..],
            "mapping.a names an unknown field of an event: did you mean data?",
        ),
        (&["--mapping", "{"][..], "mapping is not valid JSON"),
        (
            &["--mapping", ORDER, "--payload", "thin"][..],
            "mapping has no payload to map",
        ),
    ] {
        let refused = stage.run(&[&create[..], more].concat()).ended(2);
        assert!(refused.stderr.contains(problem), "{}", refused.stderr);
    }
    let (id, _) = stage.create("acme", "https://a.example/", &["--mapping", ORDER]);
    let thin = ["change", &id, "--tenant", "acme", "--payload", "thin"];
    let refused = stage.run(&thin).ended(2);
    assert!(
        refused.stderr.contains("mapping has no payload to map"),
        "{}",
        refused.stderr
    );
}

async fn null_leaves_filter_and_mapping_and_an_empty_text_removes_them(on: Store) {
    let home = Home::migrated(on).await;
    let served = Served::start(&home, "").await;
    let settings = json!({"tenant": "acme", "url": "https://a.example/", "filter": {"/n": 1},
        "mapping": {"n": "$.data.n"}});
    let created = served.post("/endpoints", &settings).await;
    assert_eq!(created.status, 201, "{}", created.text());
    let endpoint = created.json().unwrap()["endpoint"].clone();
    let id = endpoint["id"].as_str().unwrap();
    let path = format!("/endpoints/{id}?tenant=acme");
    let change = async |version: &Value, value: Value| {
        let change = json!({"version": version, "filter": value, "mapping": value});
        let changed = served
            .ask(OPERATOR, Method::PUT, &path, Some(&change))
            .await;
        assert_eq!(changed.status, 200, "{}", changed.text());
        changed.json().unwrap()
    };
    let kept = change(&endpoint["version"], Value::Null).await;
    for member in ["filter", "mapping"] {
        assert!(kept[member].is_string(), "{kept}");
        assert_eq!(kept[member], endpoint[member]);
    }
    let removed = change(&kept["version"], json!("")).await;
    for member in ["filter", "mapping"] {
        assert!(removed.get(member).is_none(), "{removed}");
    }
    served.relay.stop().await;
}

async fn the_mapping_of_an_endpoint_is_tried_on_stored_events(on: Store) {
    let stage = Stage::new(on).await;
    let more = ["--mapping", ORDER, "--type", "order.*"];
    let (id, _) = stage.create("acme", "https://a.example/", &more);
    for (tenant, kind, n) in [
        ("acme", "order.created", 1),
        ("acme", "refund.created", 2),
        ("other", "order.created", 3),
        ("acme", "order.paid", 4),
    ] {
        stage.emit(tenant, kind, n).await;
    }
    let map = ["map", &id, "--tenant", "acme"];
    let tried = stage.run(&[&map[..], &["--json"]].concat()).ended(0).json();
    let items = tried["items"].as_array().unwrap().iter();
    let texts: Vec<_> = items.map(|it| &it["body"]["text"]).collect();
    assert_eq!(texts, [&json!("Order 4"), &json!("Order 1")], "{tried}");
    let table = stage.run(&map).ended(0).stdout;
    assert!(
        table.contains("2 of 2 events are mapped") && table.contains("Order 4"),
        "{table}"
    );
    // Another mapping is tried before the endpoint has it.
    let file = stage.folder.path().join("mapping.json");
    std::fs::write(&file, r#"{"$each": "$.data.n", "as": 1}"#).unwrap();
    let other = ["--mapping", file.to_str().unwrap(), "--json"];
    let tried = stage.run(&[&map[..], &other].concat()).ended(0).json();
    assert_eq!((&tried["tried"], &tried["failed"]), (&json!(2), &json!(2)));
    let failure = tried["items"][0]["failure"].as_str().unwrap();
    assert!(failure.contains("$.data.n is not a list"), "{failure}");
    let (plain, _) = stage.create("acme", "https://a.example/", &[]);
    let refused = stage.run(&["map", &plain, "--tenant", "acme"]).ended(2);
    assert!(
        refused.stderr.contains("has no mapping: give one with"),
        "{}",
        refused.stderr
    );
}
