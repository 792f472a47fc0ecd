//! Tokens of a tenant: they see and change the rows of this tenant only.

use hapax_testkit::{
    http::{HttpReceiver, HttpReply},
    wait::eventually,
};
use http::Method;
use serde_json::{Value, json};

use super::{ALICE, Served, check, declaration, until_dead};
use crate::hapax::{PATIENCE, migrated};

#[tokio::test]
async fn a_token_of_a_tenant_sees_and_touches_that_tenants_rows_alone() {
    let database = migrated().await;
    let receiver = HttpReceiver::start().await;
    receiver.reply(HttpReply::status(500).body("of the far side"));
    let served = Served::with_tokens(&database).await;
    let client = database.client().await;
    let mut body = declaration("all", &receiver.url("/"));
    body["spec"]["schedule"] = json!(["0s"]);
    assert_eq!(served.post("/destinations", &body).await.status, 201);
    let emit = "SELECT hapax.emit('a', '1', tenant => t) FROM unnest(ARRAY['acme', 'other']) AS t";
    client.batch_execute(emit).await.unwrap();
    until_dead(&served, 2).await;
    check_lists_of_a_tenant(&served).await;
    let all = served.get("/dead-letters").await["items"].clone();
    check_foreign_event_is_hidden(&served, of_tenant(&all, "other")).await;
    check_foreign_destination_is_hidden(&served).await;
    let mut others = declaration("others", &receiver.url("/"));
    others["spec"]["tenant"] = json!("other");
    assert_eq!(served.post("/destinations", &others).await.status, 201);
    check_no_replay_by_another_tenant(&served).await;
    check_foreign_responses_are_hidden(&served, of_tenant(&all, "acme")).await;
    check_no_replay_to_another_tenant(&served).await;
    served.relay.stop().await;
}

/// The first row of this tenant.
#[track_caller]
fn of_tenant<'a>(rows: &'a Value, tenant: &str) -> &'a Value {
    let rows = rows.as_array().unwrap();
    rows.iter().find(|row| row["tenant"] == tenant).unwrap()
}

async fn check_lists_of_a_tenant(served: &Served) {
    for list in ["/events", "/deliveries", "/dead-letters"] {
        let items = served.get_as_alice(list).await.json().unwrap()["items"].clone();
        assert_eq!(items.as_array().unwrap().len(), 1, "{list}");
        assert_eq!(items[0]["tenant"], "acme");
        let foreign = served
            .get_as_alice(&format!("{list}?tenant=other"))
            .await
            .json()
            .unwrap();
        assert_eq!(foreign["items"], json!([]));
    }
}

async fn check_foreign_event_is_hidden(served: &Served, other: &Value) {
    let by_position = format!("/events/{}", other["position"]);
    check(&served.get_as_alice(&by_position).await, 404, "NOT_FOUND");
    let by_id = format!("/events/{}", other["event_id"].as_str().unwrap());
    check(&served.get_as_alice(&by_id).await, 404, "NOT_FOUND");
    let replay = format!("/dead-letters/all/{}/replay", other["position"]);
    let outcome = served
        .ask(ALICE, Method::POST, &replay, Some(&json!({})))
        .await;
    check(&outcome, 404, "NOT_FOUND");
}

async fn check_foreign_destination_is_hidden(served: &Served) {
    check(
        &served.get_as_alice("/destinations/all").await,
        404,
        "NOT_FOUND",
    );
    let many = json!({"destination": "all", "dry_run": true});
    let counted = served
        .ask(ALICE, Method::POST, "/dead-letters/replay", Some(&many))
        .await;
    assert_eq!(counted.json().unwrap()["count"], 1);
    let pause = served
        .ask(
            ALICE,
            Method::POST,
            "/destinations/all/pause",
            Some(&json!({})),
        )
        .await;
    check(&pause, 404, "NOT_FOUND");
}

/// A tenant cannot replay events to a destination of another tenant.
async fn check_no_replay_by_another_tenant(served: &Served) {
    for name in ["others", "all", "nobody"] {
        let again = json!({"destination": name});
        let outcome = served
            .ask(ALICE, Method::POST, "/events/replay", Some(&again))
            .await;
        check(&outcome, 404, "NOT_FOUND");
    }
}

/// A tenant sees where its events were delivered, but not the responses of a receiver that belongs
/// to another tenant.
async fn check_foreign_responses_are_hidden(served: &Served, own: &Value) {
    let path = format!("/events/{}", own["position"]);
    eventually(PATIENCE, async || {
        let ways = served.get(&path).await["destinations"].clone();
        let ways = ways.as_array().unwrap();
        ways.iter().any(|way| way["state"] == "passed")
    })
    .await;
    let whole = served.get(&path).await;
    assert!(whole.to_string().contains("of the far side"), "{whole}");
    let seen = served.get_as_alice(&path).await.json().unwrap();
    assert_eq!(seen["destinations"].as_array().unwrap().len(), 1, "{seen}");
    assert_eq!(seen["destinations"][0]["attempts"][0]["status"], 500);
    assert!(!seen.to_string().contains("of the far side"), "{seen}");
}

/// A destination of one tenant never receives events of another tenant, no matter who starts the
/// replay.
async fn check_no_replay_to_another_tenant(served: &Served) {
    let again = json!({"destination": "others", "filter": {"tenant": "acme"}});
    check(
        &served.post("/events/replay", &again).await,
        400,
        "VALIDATION.member",
    );
    let again = json!({"destination": "others", "dry_run": true});
    let counted = served.post("/events/replay", &again).await;
    assert_eq!(counted.json().unwrap()["count"], 1);
}
