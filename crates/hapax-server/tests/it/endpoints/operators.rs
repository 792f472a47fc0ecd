//! Endpoints as operators use them: rotations, replays, tests, and the admin API.

use std::time::Duration;

use hapax_testkit::{
    http::{HttpReceiver, HttpReply},
    wait::eventually,
};
use http::Method;
use serde_json::{Value, json};

use super::{Stage, accepted, check};
use crate::{
    admin::{ALICE, OPERATOR, Served, VIEWER},
    hapax::{PATIENCE, is_signed},
    store::{Home, Store},
};

#[tokio::test]
async fn each_secret_signs_until_its_own_overlap_ends() {
    let stage = Stage::new(Store::Postgres).await;
    let receiver = HttpReceiver::start().await;
    let (id, first) = stage.create("acme", &receiver.url("/"), &[]);
    let relay = stage.relay().await;
    let rotate = |overlap: &str| {
        let arguments = [
            "rotate",
            &id,
            "--tenant",
            "acme",
            "--overlap",
            overlap,
            "--yes",
        ];
        stage.run(&arguments)
    };
    let rotated = |overlap: &str| rotate(overlap).ended(0).stdout.trim().to_owned();
    // The output of the first rotation may have been lost, and so it is repeated.
    let mut secrets = vec![first];
    secrets.extend(["1d", "1h", "2h", "3h"].map(rotated));
    stage.emit("acme", "a", 1).await;
    let requests = receiver.received_at_least(1).await;
    for secret in &secrets {
        assert!(is_signed(&requests[0], secret));
    }
    let shown = || {
        let arguments = ["show", &id, "--tenant", "acme", "--json"];
        stage.run(&arguments).ended(0).json()["endpoint"].clone()
    };
    let before = shown();
    let refused = rotate("1d").ended(4).stderr;
    assert!(refused.contains("of them ends at 20"), "{refused}");
    assert_eq!(shown(), before);
    let last = rotated("0s");
    stage.emit("acme", "a", 2).await;
    let requests = receiver.received_at_least(2).await;
    assert!(is_signed(&requests[1], &last));
    for secret in &secrets {
        assert!(!is_signed(&requests[1], secret));
    }
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_deliveries_are_replayed_and_an_endpoint_is_tested() {
    let schedule = "schedule = [\"0s\", \"50ms\"]\n";
    let stage = Stage::with(Store::Postgres, schedule).await;
    let receiver = HttpReceiver::start().await;
    receiver.reply(HttpReply::status(422));
    let (id, _) = stage.create("acme", &receiver.url("/"), &[]);
    let relay = stage.relay().await;
    stage.emit("acme", "a", 1).await;
    let own = [id.as_str(), "--tenant", "acme"];
    let call = |verb: &str, more: &[&str]| {
        let arguments = [&[verb][..], &own[..], more].concat();
        stage.run(&arguments)
    };
    let has_failed = async || {
        let listed = stage.deliveries("acme", &id, &[]);
        listed.iter().any(|it| it["state"] == "failed")
    };
    eventually(PATIENCE, has_failed).await;
    let refused = call("test", &["--json"]).ended(1).json();
    assert_eq!(refused["status"], 422);
    receiver.reply(HttpReply::status(200));
    call("replay", &["--yes"]).ended(2);
    let none = call(
        "replay",
        &["--failed-since", "2100-01-01T00:00:00Z", "--yes", "--json"],
    );
    assert_eq!(none.ended(0).json()["replayed"], 0);
    let one = call("replay", &["--failed-since", "1h", "--yes", "--json"]);
    assert_eq!(one.ended(0).json()["replayed"], 1);
    eventually(PATIENCE, async || accepted(&receiver).len() == 1).await;
    let tested = call("test", &["--json"]).ended(0).json();
    assert_eq!(
        (&tested["status"], &tested["type"]),
        (&json!(200), &json!("hapax.test"))
    );
    let delivered = stage.deliveries("acme", &id, &[]);
    let event = delivered[0]["event_id"].as_str().unwrap();
    call("replay", &["--event-id", event, "--yes"]).ended(0);
    let again = async || {
        let all = receiver.received();
        let own = all
            .iter()
            .filter(|it| it.header("webhook-id") == Some(event));
        own.filter(|it| it.answered == Some(200)).count() == 2
    };
    eventually(PATIENCE, again).await;
    relay.stop().await;
}

#[tokio::test]
async fn the_command_lists_endpoints_by_their_state() {
    let stage = Stage::new(Store::Sqlite).await;
    let (one, _) = stage.create("acme", "https://a.example/", &[]);
    let (two, _) = stage.create("acme", "https://b.example/", &[]);
    let disable = ["disable", &two, "--tenant", "acme", "--yes"];
    stage.run(&disable).ended(0);
    let list = |state: &str| stage.run(&["list", "--state", state, "--json"]);
    for (state, expected) in [
        ("enabled", vec![json!(one)]),
        ("slowed", vec![]),
        ("disabled", vec![json!(two)]),
    ] {
        assert_eq!(ids(&list(state).ended(0).json()), expected, "{state}");
    }
    list("broken").ended(2);
}

#[tokio::test]
async fn the_admin_api_lists_endpoints_by_their_state() {
    let home = Home::migrated(Store::Postgres).await;
    let served = Served::start(&home, "").await;
    let mut created = Vec::new();
    for url in ["https://a.example/", "https://b.example/"] {
        let body = json!({"tenant": "acme", "url": url});
        let answer = served.post("/endpoints", &body).await;
        created.push(answer.json().unwrap()["endpoint"]["id"].clone());
    }
    created.sort_by_key(Value::to_string);
    let id = created[1].as_str().unwrap();
    let path = format!("/endpoints/{id}/disable?tenant=acme");
    assert_eq!(served.post(&path, &json!({})).await.status, 200);
    for (query, expected) in [
        ("", &created[..]),
        ("?state=enabled", &created[..1]),
        ("?state=slowed", &created[..0]),
        ("?state=disabled&tenant=acme", &created[1..]),
    ] {
        let page = served.get(&format!("/endpoints{query}")).await;
        assert_eq!(ids(&page), expected, "{query}");
    }
    let path = "/endpoints?state=broken";
    let refused = served.ask(OPERATOR, Method::GET, path, None).await;
    check(&refused, 400, "VALIDATION.member");
    served.relay.stop().await;
}

/// The ids of the endpoints on a page.
fn ids(page: &Value) -> Vec<Value> {
    let items = page["items"].as_array().unwrap().iter();
    items.map(|it| it["id"].clone()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_with_a_slow_endpoint_leaves_test_events_to_others() {
    let home = Home::migrated(Store::Postgres).await;
    let (slow, fast) = (HttpReceiver::start().await, HttpReceiver::start().await);
    slow.reply(HttpReply::status(200).after(Duration::from_secs(3)));
    let allow = "[endpoints]\nallow = [\"127.0.0.0/8\"]\n";
    let served = Served::start(&home, allow).await;
    let create = async |tenant: &str, url: String| {
        let body = json!({"tenant": tenant, "url": url});
        let created = served.post("/endpoints", &body).await;
        assert_eq!(created.status, 201, "{}", created.text());
        let id = created.json().unwrap()["endpoint"]["id"].clone();
        format!("/endpoints/{}/test?tenant={tenant}", id.as_str().unwrap())
    };
    let own = create("acme", slow.url("/")).await;
    let other = create("other", fast.url("/")).await;
    let empty = json!({});
    let test = async |path: &str| served.post(path, &empty).await;
    let beside = async {
        slow.received_at_least(2).await;
        (test(&own).await, test(&other).await)
    };
    let (one, two, (third, other)) = tokio::join!(test(&own), test(&own), beside);
    for tested in [one, two, other] {
        assert_eq!(tested.status, 200, "{}", tested.text());
    }
    check(&third, 429, "RATE_LIMIT.exceeded");
    assert_eq!(third.header("retry-after"), Some("1"));
    served.relay.stop().await;
}

#[tokio::test]
async fn the_admin_api_keeps_tenants_apart_and_shows_a_secret_once() {
    let home = Home::migrated(Store::Postgres).await;
    let tokens = format!(
        "[endpoints]\nper_tenant = 2\n\
         [admin.tokens.ops]\ntoken = \"{OPERATOR}\"\nrole = \"operator\"\n\
         [admin.tokens.eve]\ntoken = \"{VIEWER}\"\nrole = \"viewer\"\n\
         [admin.tokens.alice]\ntoken = \"{ALICE}\"\nrole = \"operator\"\ntenant = \"acme\"\n"
    );
    let served = Served::start(&home, &tokens).await;
    let url = "https://customer.example/hooks";
    let body =
        |tenant: &str| json!({"tenant": tenant, "url": url, "headers": {"x-key": "hunter2"}});
    let other = served.post("/endpoints", &body("other")).await;
    assert_eq!(other.status, 201, "{}", other.text());
    let other = other.json().unwrap();
    let secret = other["secret"].as_str().unwrap();
    assert!(secret.starts_with("whsec_"));
    let id = other["endpoint"]["id"].as_str().unwrap().to_owned();
    assert!(!served.get("/endpoints").await.to_string().contains(secret));
    for (method, path) in [
        (Method::GET, format!("/endpoints/{id}")),
        (Method::GET, format!("/endpoints/{id}?tenant=other")),
        (Method::DELETE, format!("/endpoints/{id}")),
        (Method::GET, format!("/endpoints/{id}/deliveries")),
        (Method::GET, format!("/endpoints/{id}/health?tenant=other")),
        (Method::GET, "/endpoints?tenant=other".to_owned()),
    ] {
        let refused = served.ask(ALICE, method, &path, None).await;
        check(&refused, 404, "NOT_FOUND");
    }
    check_verbs_are_refused(&served, &id).await;
    let path = format!("/endpoints/{id}?tenant=other");
    let moved = json!({"version": other["endpoint"]["version"], "url": "https://evil.example/"});
    let refused = served.ask(OPERATOR, Method::PUT, &path, Some(&moved)).await;
    check(&refused, 400, "VALIDATION.member");
    let types = json!({"version": other["endpoint"]["version"], "types": ["order.*"]});
    let changed = served.ask(OPERATOR, Method::PUT, &path, Some(&types)).await;
    assert_eq!(changed.status, 200, "{}", changed.text());
    check(
        &served.ask(OPERATOR, Method::PUT, &path, Some(&types)).await,
        409,
        "CONFLICT.state",
    );
    let alice = async |body: &Value| {
        served
            .ask(ALICE, Method::POST, "/endpoints", Some(body))
            .await
    };
    for _ in 0..2 {
        assert_eq!(alice(&json!({ "url": url })).await.status, 201);
    }
    check(&alice(&json!({ "url": url })).await, 409, "CONFLICT.state");
    check(&alice(&body("other")).await, 404, "NOT_FOUND");
    let credentials = "https://a:b@c.example/";
    for bad in ["http://127.0.0.1/", "ftp://a.example/", credentials, ""] {
        let body = json!({"tenant": "third", "url": bad});
        let refused = served.post("/endpoints", &body).await;
        check(&refused, 400, "VALIDATION.member");
    }
    served.relay.stop().await;
}

/// Checks that an operator of another tenant and a viewer can do nothing with an endpoint.
async fn check_verbs_are_refused(served: &Served, id: &str) {
    let since = "2026-01-31T12:00:00Z";
    for (verb, asked) in [
        ("enable", json!({})),
        ("disable", json!({})),
        ("rotate", json!({})),
        ("test", json!({})),
        ("replay", json!({ "failed_since": since })),
        ("replay-missing", json!({ "since": since, "dry_run": true })),
    ] {
        let path = format!("/endpoints/{id}/{verb}");
        let refused = served.ask(ALICE, Method::POST, &path, Some(&asked)).await;
        check(&refused, 404, "NOT_FOUND");
        let refused = served.ask(VIEWER, Method::POST, &path, Some(&asked)).await;
        check(&refused, 403, "AUTH.forbidden");
    }
}
