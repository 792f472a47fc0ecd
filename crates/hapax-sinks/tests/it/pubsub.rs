//! The Pub/Sub sink with a server that responds on request, and with a topic and a subscription.

use std::{fs, process::Command};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hapax::{event::NewEvent, key::Tenant, sink::Sink as _};
use hapax_sinks::pubsub::Pubsub;
use hapax_testkit::{
    drongo::Drongo,
    http::{HttpReceiver, HttpReply, Received},
    program::{packages, run_to_end},
};
use serde_json::{Value, json};

use crate::{
    events::{DATE, all_taken, deliver, error_type, ids, offer, offers},
    requests::{check_clock, check_refused, check_slow, check_spoilt},
    sinks,
};

const TOPIC: &str = "projects/shop/topics/events";
const ACCOUNT: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/it/pubsub/service-account.json"
);
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/verify/bearer_token.py");

#[tokio::test]
async fn a_batch_is_one_request_of_at_most_a_hundred_messages_in_order() {
    let (receiver, sink) = topic().await;
    let offers = offers(120, 10);
    all_taken(&sink.deliver(&offers).await);
    let requests = receiver.received();
    let counts: Vec<_> = requests.iter().map(|it| messages(it).len()).collect();
    assert_eq!(counts, [100, 20]);
    for request in &requests {
        assert_eq!(request.method.as_str(), "POST");
        assert_eq!(request.path, format!("/v1/{TOPIC}:publish"));
        assert_eq!(request.header("content-type"), Some("application/json"));
        // An emulator needs no token.
        assert_eq!(request.header("authorization"), None);
    }
    let sent = requests.iter().flat_map(messages);
    let sent: Vec<_> = sent.map(|it| it["attributes"]["ce-id"].clone()).collect();
    assert_eq!(sent, ids(&offers));
}

/// A token is verified by a library that is not ours.
#[tokio::test]
async fn requests_are_authenticated_by_a_token_that_the_account_signs() {
    let receiver = HttpReceiver::start().await;
    receiver.reply_with(published);
    let sink = sinks::pubsub(&receiver.url(""), TOPIC, sinks::destination(), |it| {
        it.service_account = Some(fs::read_to_string(ACCOUNT).unwrap().into());
    });
    deliver(&sink, offers(1, 1).remove(0)).await.unwrap();
    let request = receiver.received().remove(0);
    let authorization = request.header("authorization").unwrap();
    let token = authorization.strip_prefix("Bearer ").unwrap();
    let mut command = Command::new("python3");
    let modules = packages(env!("CARGO_TARGET_TMPDIR"), "moto");
    command.args([SCRIPT, ACCOUNT, token]);
    command.env("PYTHONPATH", modules);
    let verified = run_to_end(command).ended(0).stdout;
    let claims: Value = serde_json::from_str(&verified).unwrap();
    assert_eq!(claims["aud"], "https://pubsub.googleapis.com/");
    assert_eq!(claims["iss"], "relay@shop.iam.gserviceaccount.com");
    // A service that repeats the token does not get it into the stored attempt.
    let token = token.to_owned();
    receiver.reply(HttpReply::status(403).body(format!("{{\"a\": \"{token}\"}}")));
    let outcome = deliver(&sink, offers(1, 1).remove(0)).await;
    let shown = format!("{outcome:?} {sink:?}");
    assert!(!shown.contains(&token), "{shown}");
    assert_eq!(error_type(outcome), "login");
}

#[tokio::test]
async fn a_message_that_spoils_its_batch_is_found_and_the_others_are_sent() {
    let (receiver, sink) = topic().await;
    receiver.reply_with(|request| {
        let sent = messages(request);
        let contains = |text: &str| {
            let quoted = STANDARD.encode(format!("\"{text}\""));
            sent.iter().any(|it| it["data"] == quoted)
        };
        if contains("spoilt") {
            refusal(400, "INVALID_ARGUMENT")
        } else if contains("lengthy") {
            HttpReply::status(413)
        } else {
            published(request)
        }
    });
    check_spoilt(&sink).await;
}

#[tokio::test]
async fn a_topic_that_takes_nothing_is_unavailable_and_asked_once() {
    for (status, code, expected) in [
        (404, "NOT_FOUND", "no_topic"),
        (403, "PERMISSION_DENIED", "login"),
        (401, "UNAUTHENTICATED", "login"),
        (429, "RESOURCE_EXHAUSTED", "throttled"),
        (503, "UNAVAILABLE", "throttled"),
        (500, "INTERNAL", "status_5xx"),
        (400, "FAILED_PRECONDITION", "status_4xx"),
    ] {
        let (receiver, sink) = topic().await;
        receiver.reply(refusal(status, code).header("date", DATE));
        check_refused(&receiver, &sink, 250, (status, code, expected)).await;
    }
}

#[tokio::test]
async fn a_refused_token_is_explained_by_the_clock() {
    let (receiver, sink) = topic().await;
    check_clock(&receiver, &sink, refusal(401, "UNAUTHENTICATED")).await;
}

#[tokio::test]
async fn a_response_without_an_id_for_each_message_delivers_nothing() {
    for reply in [
        HttpReply::status(200),
        HttpReply::status(200).body("<html>it works</html>"),
        HttpReply::status(200).body("{}"),
        HttpReply::status(200).body("{\"messageIds\": [\"1\"]}"),
        HttpReply::status(200).large_body(1 << 30),
    ] {
        let (receiver, sink) = topic().await;
        receiver.reply(reply);
        for outcome in sink.deliver(&offers(2, 1)).await {
            assert_eq!(error_type(outcome), "answer");
        }
    }
}

#[tokio::test]
async fn a_slow_topic_costs_the_timeout() {
    check_slow(250, |receiver, destination| {
        sinks::pubsub(&receiver.url(""), TOPIC, destination, |_| {})
    })
    .await;
}

#[tokio::test]
async fn hostile_tenants_and_keys_reach_the_subscription_as_they_are() {
    let drongo = Drongo::start(env!("CARGO_TARGET_TMPDIR")).await;
    let topic = drongo.create_topic("events").await;
    let endpoint = format!("http://{}", drongo.address());
    let sink = sinks::pubsub(&endpoint, &topic, sinks::destination(), |it| {
        it.ordering = true;
    });
    let hostile = "a\",\"data\":\"\\u0000%00:publish/../\u{e9}\u{1f980}";
    let new = NewEvent::json("order/created:v1", &hostile)
        .about("order", hostile)
        .tenant(Tenant::new(hostile).unwrap());
    let offer = offer(1, new);
    deliver(&sink, offer.clone()).await.unwrap();
    let received = drongo.receive("events").await;
    assert_eq!(received.len(), 1);
    let message = &received[0];
    assert_eq!(message["orderingKey"], format!("order/{hostile}"));
    let attributes = &message["attributes"];
    assert_eq!(attributes["ce-tenant"], hostile);
    assert_eq!(attributes["ce-type"], "order/created:v1");
    assert_eq!(attributes["ce-id"], offer.event().id.to_string());
    let data = STANDARD.decode(message["data"].as_str().unwrap()).unwrap();
    let data: Value = serde_json::from_slice(&data).unwrap();
    assert_eq!(data, hostile);
}

/// A receiver that publishes every message, and a sink for it.
async fn topic() -> (HttpReceiver, Pubsub) {
    let receiver = HttpReceiver::start().await;
    receiver.reply_with(published);
    let sink = sinks::pubsub(&receiver.url(""), TOPIC, sinks::destination(), |_| {});
    (receiver, sink)
}

fn published(request: &Received) -> HttpReply {
    let ids = 0..messages(request).len();
    let ids: Vec<_> = ids.map(|id| id.to_string()).collect();
    HttpReply::status(200).body(json!({ "messageIds": ids }).to_string())
}

fn refusal(status: u16, code: &str) -> HttpReply {
    let error = json!({"code": status, "message": "hunter2", "status": code});
    HttpReply::status(status).body(json!({ "error": error }).to_string())
}

fn messages(request: &Received) -> Vec<Value> {
    let body: Value = serde_json::from_slice(&request.body).unwrap();
    body["messages"].as_array().unwrap().clone()
}
