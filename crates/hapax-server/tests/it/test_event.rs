//! Tests that a test event is offered to one destination, by the command and by the admin API, and
//! that the outbox does not change.

use std::{fs, time::Duration};

use hapax::signature::{SIGNATURE_HEADER, Signer, TIMESTAMP_HEADER, sign};
use hapax_testkit::{
    http::{HttpReceiver, HttpReply, Received},
    wait::eventually,
};
use http::Method;
use serde_json::{Value, json};
use tokio::task::spawn_blocking;

use crate::{
    admin::{ALICE, Served, check},
    hapax::{PATIENCE, ProgramOutput, SECRET, run, start_relay, webhook},
    store::{Home, Store, on_both_stores},
};

on_both_stores! {
    a_test_event_is_signed_and_is_in_no_outbox,
    a_test_event_that_is_not_taken_fails_with_the_reason,
    a_paused_destination_of_the_database_is_tested_with_its_stored_secret,
    after_a_reload_the_destination_of_the_new_file_is_tested,
    a_fifth_test_at_the_same_time_is_refused,
}

/// Runs `hapax destinations test` with the configuration in a file. The receiver in this process
/// responds meanwhile.
async fn test(database: &Home, name: &str, config: &str) -> ProgramOutput {
    let url = database.url();
    let command = [
        "destinations",
        "test",
        name,
        "--json",
        "--database",
        &url,
        "--config",
        config,
    ];
    let command = command.map(str::to_owned);
    let ran = spawn_blocking(move || run(&command.each_ref().map(String::as_str)));
    ran.await.unwrap()
}

/// Runs `hapax destinations test` with this configuration.
pub(crate) async fn test_with(database: &Home, name: &str, configuration: &str) -> ProgramOutput {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("hapax.toml");
    fs::write(&config, configuration).unwrap();
    test(database, name, config.to_str().unwrap()).await
}

async fn a_test_event_is_signed_and_is_in_no_outbox(on: Store) {
    let database = Home::migrated(on).await;
    let receiver = HttpReceiver::start().await;
    let configuration = webhook("orders", &receiver.url("/"));
    let ran = test_with(&database, "orders", &configuration)
        .await
        .ended(0);
    let tested = ran.json();
    assert_eq!(tested["destination"], "orders", "{tested}");
    assert_eq!(tested["attempt"]["outcome"], "delivered", "{tested}");
    assert_eq!(tested["attempt"]["status"], 200, "{tested}");
    let requests = receiver.received_at_least(1).await;
    check_test_event(&requests[0]);
    assert_eq!(
        requests[0].header("webhook-id"),
        tested["event_id"].as_str()
    );
    let listed = run(&["events", "list", "--json", "--database", &database.url()]);
    assert_eq!(listed.ended(0).json()["items"], json!([]));
}

async fn a_test_event_that_is_not_taken_fails_with_the_reason(on: Store) {
    let database = Home::migrated(on).await;
    let receiver = HttpReceiver::start().await;
    let reply = HttpReply::status(422).body("{\"error\": \"x\", \"token\": \"hunter2\"}");
    receiver.reply(reply);
    let configuration = webhook("orders", &receiver.url("/"));
    let ran = test_with(&database, "orders", &configuration)
        .await
        .ended(1);
    assert!(ran.stderr.contains("responded with 422"), "{ran:?}");
    let error_type = "(error type status_4xx)";
    assert!(ran.stderr.contains(error_type), "{ran:?}");
    let attempt = &ran.json()["attempt"];
    assert!(attempt["error"].as_str().unwrap().ends_with(error_type));
    assert_eq!(attempt["outcome"], "declined", "{attempt}");
    let response = attempt["response"].as_str().unwrap();
    assert!(response.contains("\"x\"") && !response.contains("hunter2"));
    // The network policy applies.
    let guarded = configuration.replace(", allow = [\"127.0.0.0/8\"]", "");
    let ran = test_with(&database, "orders", &guarded).await.ended(1);
    assert!(ran.stderr.contains("is loopback"), "{ran:?}");
    assert_eq!(receiver.received().len(), 1);
    let ran = test_with(&database, "nobody", &configuration)
        .await
        .ended(3);
    assert!(ran.stderr.contains("destination nobody"), "{ran:?}");
    // Only the configuration of the relay has the declaration.
    let relay = start_relay(&database.url(), &configuration).await;
    eventually(PATIENCE, async || {
        relay.state("orders").await == "delivering"
    })
    .await;
    // A relay delivers before its destinations are in the list.
    let url = database.url();
    let shown = ["destinations", "show", "orders", "--database", &url];
    eventually(PATIENCE, async || run(&shown).code == Some(0)).await;
    relay.stop().await;
    let ran = test_with(&database, "orders", "").await.ended(4);
    assert!(ran.stderr.contains("declared neither"), "{ran:?}");
}

async fn a_paused_destination_of_the_database_is_tested_with_its_stored_secret(on: Store) {
    let database = Home::migrated(on).await;
    database.emit("order.created", 2).await;
    let receiver = HttpReceiver::start().await;
    let served = Served::with_tokens(&database).await;
    let body = json!({"name": "orders", "spec": {
        "paused": true,
        "sink": {"webhook": {"url": receiver.url("/"), "secret": SECRET, "allow": ["127.0.0.0/8"]}},
    }});
    assert_eq!(served.post("/destinations", &body).await.status, 201);
    let path = "/destinations/orders/test";
    let tested = served.post(path, &json!({})).await;
    assert_eq!(tested.status, 200, "{}", tested.text());
    let tested = tested.json().unwrap();
    assert_eq!(tested["attempt"]["outcome"], "delivered", "{tested}");
    let config = served.relay.file("hapax.toml");
    let ran = test(&database, "orders", config.to_str().unwrap())
        .await
        .ended(0);
    assert_eq!(ran.json()["attempt"]["status"], 200, "{ran:?}");
    let requests = receiver.received_at_least(2).await;
    requests.iter().for_each(check_test_event);

    let ran = test_with(&database, "orders", "").await.ended(4);
    assert!(ran.stderr.contains("cannot be read"), "{ran:?}");
    let hidden = served
        .ask(ALICE, Method::POST, path, Some(&json!({})))
        .await;
    check(&hidden, 404, "NOT_FOUND");
    let unknown = served.post("/destinations/nobody/test", &json!({})).await;
    check(&unknown, 404, "NOT_FOUND");
    // The outbox and the deliveries are as before.
    let events = served.get("/events").await["items"].clone();
    assert_eq!(events.as_array().unwrap().len(), 2, "{events}");
    assert_eq!(served.get("/deliveries").await["items"], json!([]));
    assert_eq!(receiver.received().len(), 2);
    // Both test events have an entry, the newest first, and what was refused has none.
    let entries = served.get("/audit?action=test").await["items"].clone();
    let entries = entries.as_array().unwrap();
    let ids = entries
        .iter()
        .rev()
        .map(|it| it["detail"]["event_id"].as_str());
    let sent = requests.iter().map(|it| it.header("webhook-id"));
    assert!(ids.eq(sent), "{entries:?}");
    assert_eq!(entries[0]["object"], "destination orders");
    served.relay.stop().await;
}

async fn after_a_reload_the_destination_of_the_new_file_is_tested(on: Store) {
    let database = Home::migrated(on).await;
    let (one, two) = (HttpReceiver::start().await, HttpReceiver::start().await);
    let mut served = Served::start(&database, &webhook("orders", &one.url("/"))).await;
    let path = "/destinations/orders/test";
    assert_eq!(served.post(path, &json!({})).await.status, 200);
    let config = served.relay.file("hapax.toml");
    let before = fs::read_to_string(&config).unwrap();
    fs::write(&config, before.replace(&one.url("/"), &two.url("/"))).unwrap();
    served.relay.signal("HUP");
    let reloaded = "configuration reloaded: its destinations are in effect";
    served.relay.logged(reloaded).await;
    assert_eq!(served.post(path, &json!({})).await.status, 200);
    check_test_event(&two.received_at_least(1).await[0]);
    assert_eq!(one.received().len(), 1);
    served.relay.stop().await;
}

async fn a_fifth_test_at_the_same_time_is_refused(on: Store) {
    let database = Home::migrated(on).await;
    let receiver = HttpReceiver::start().await;
    receiver.reply(HttpReply::status(200).after(Duration::from_secs(3)));
    let served = Served::start(&database, &webhook("orders", &receiver.url("/"))).await;
    let empty = json!({});
    let test = async || served.post("/destinations/orders/test", &empty).await;
    let fifth = async {
        receiver.received_at_least(4).await;
        test().await
    };
    let (one, two, three, four, fifth) = tokio::join!(test(), test(), test(), test(), fifth);
    for tested in [one, two, three, four] {
        assert_eq!(tested.status, 200, "{}", tested.text());
    }
    check(&fifth, 429, "RATE_LIMIT.exceeded");
    assert_eq!(fifth.header("retry-after"), Some("1"));
    receiver.reply(HttpReply::status(200));
    assert_eq!(test().await.status, 200);
    assert_eq!(receiver.received().len(), 5);
    served.relay.stop().await;
}

/// Checks the content and the signature of a test event.
#[track_caller]
fn check_test_event(received: &Received) {
    let body: Value = serde_json::from_slice(&received.body).unwrap();
    assert_eq!(body["type"], "hapax.test", "{body}");
    assert_eq!(body["data"]["test"], true, "{body}");
    assert_eq!(body["data"]["destination"], "orders", "{body}");
    check_signature(received, SECRET);
}

/// Checks that a webhook is signed with this secret.
#[track_caller]
pub(crate) fn check_signature(received: &Received, secret: &str) {
    let id = received.header("webhook-id").unwrap();
    let timestamp = received.header(TIMESTAMP_HEADER).unwrap();
    let keys = [secret.parse::<Signer>().unwrap()];
    let signature = sign(id, timestamp.parse().unwrap(), &received.body, &keys);
    assert_eq!(received.header(SIGNATURE_HEADER), Some(&*signature));
}
