//! Dead letters over the admin API: listed, replayed and discarded.

use hapax_testkit::{
    http::{HttpReceiver, HttpReply, HttpResponse},
    wait::eventually,
};
use http::Method;
use serde_json::{Value, json};

use super::{OPERATOR, Served, check, declaration, until_dead};
use crate::hapax::{PATIENCE, emit, migrated};

#[tokio::test]
async fn dead_letters_are_listed_replayed_and_discarded_over_http() {
    let database = migrated().await;
    let receiver = HttpReceiver::start().await;
    receiver.reply(HttpReply::status(500));
    let served = Served::with_tokens(&database).await;
    let client = database.client().await;
    let mut body = declaration("orders", &receiver.url("/"));
    body["spec"]["schedule"] = json!(["0s"]);
    assert_eq!(served.post("/destinations", &body).await.status, 201);
    emit(&client, "order.created", 4).await;
    until_dead(&served, 4).await;
    let dead = served
        .get("/dead-letters?destination=orders&error=500&type=order.*")
        .await;
    assert_eq!(dead["items"].as_array().unwrap().len(), 4);
    let first = &dead["items"][0];
    let event = served
        .get(&format!("/events/{}", first["event_id"].as_str().unwrap()))
        .await;
    assert_eq!(event["position"], first["position"]);
    let way = &event["destinations"][0];
    assert_eq!(
        (&way["state"], &way["attempts"][0]["status"]),
        (&json!("dead"), &json!(500))
    );
    receiver.reply(HttpReply::status(200));
    replay_one(&served, first).await;
    receiver.received_at_least(5).await;
    discard_one(&served, &dead["items"][1]).await;
    let job = replay_matches(&served).await;
    receiver.received_at_least(7).await;
    eventually(PATIENCE, async || {
        served.get(&format!("/jobs/{job}")).await["state"] == "done"
    })
    .await;
    // All events are replayed, whether they were delivered or not.
    let again = json!({"destination": "orders", "filter": {"type": "order.*"}});
    assert_eq!(served.post("/events/replay", &again).await.status, 202);
    let all = receiver.received_at_least(11).await;
    let ids: std::collections::HashSet<_> = all
        .iter()
        .map(|it| it.header("webhook-id").unwrap().to_owned())
        .collect();
    assert_eq!(ids.len(), 4);
    served.relay.stop().await;
}

/// Replays a dead letter, which can be done only once.
async fn replay_one(served: &Served, letter: &Value) {
    let replay = format!("/dead-letters/orders/{}/replay", letter["position"]);
    assert_eq!(served.post(&replay, &json!({})).await.status, 204);
    check(
        &served.post(&replay, &json!({})).await,
        409,
        "CONFLICT.state",
    );
}

/// Discards a dead letter, which needs a reason.
async fn discard_one(served: &Served, letter: &Value) {
    let discard = format!("/dead-letters/orders/{}/discard", letter["position"]);
    check(
        &served.post(&discard, &json!({"reason": ""})).await,
        400,
        "VALIDATION.member",
    );
    assert_eq!(
        served
            .post(&discard, &json!({"reason": "test"}))
            .await
            .status,
        204
    );
}

/// Counts the dead letters that match a filter, and replays them. Returns the id of the job.
async fn replay_matches(served: &Served) -> Value {
    let mut many = json!({"destination": "orders", "filter": {"type": "order.*"}, "dry_run": true});
    let counted = served.post("/dead-letters/replay", &many).await;
    let counted = counted.json().unwrap();
    assert_eq!(counted["count"], 2);
    many["dry_run"] = json!(false);
    many["seen"] = json!("an invented value");
    let wrong = served.post("/dead-letters/replay", &many).await;
    check(&wrong, 400, "VALIDATION.member");
    many["seen"] = counted["seen"].clone();
    // The keys are parsed as in every other request: these three texts are the same key.
    let mut jobs = Vec::new();
    for key in ["once", "\"once\"", "\"once\";a=1"] {
        let begun = replay_under(served, &many, &[key]).await;
        assert_eq!(begun.status, 202, "{}", begun.text());
        jobs.push(begun.json().unwrap()["id"].clone());
    }
    assert_eq!((&jobs[1], &jobs[2]), (&jobs[0], &jobs[0]));
    for keys in [&["a b"][..], &["\"once"], &["\"once\"x"], &["once", "once"]] {
        let refused = replay_under(served, &many, keys).await;
        check(&refused, 400, "VALIDATION.member");
    }
    jobs.swap_remove(0)
}

/// Starts a replay of dead letters with one header `Idempotency-Key` per text.
async fn replay_under(served: &Served, many: &Value, keys: &[&str]) -> HttpResponse {
    let bearer = format!("Bearer {OPERATOR}");
    let mut headers = vec![
        ("authorization", bearer.as_str()),
        ("content-type", "application/json"),
    ];
    headers.extend(keys.iter().map(|key| ("idempotency-key", *key)));
    let url = format!("{}/dead-letters/replay", served.url);
    let sent = served
        .client
        .send(Method::POST, &url, &headers, many.to_string().into());
    sent.await.unwrap()
}
