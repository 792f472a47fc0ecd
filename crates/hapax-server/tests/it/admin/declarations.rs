//! Destinations that are declared over the admin API: created, changed, paused and removed, while
//! relays read the declarations.

use hapax_testkit::{
    http::{HttpReceiver, HttpReply, HttpResponse},
    wait::eventually,
};
use http::Method;
use serde_json::{Value, json};
use tokio_postgres::Client;

use super::{KEY, OPERATOR, Served, check, declaration};
use crate::{
    hapax::{PATIENCE, SECRET, emit, is_signed, migrated, start_relay},
    store::{Home, Store, on_both_stores},
};

on_both_stores! {
    a_secret_is_kept_while_the_address_of_the_receiver_stays,
    a_token_is_not_kept_for_another_url_that_is_a_secret_itself,
}

#[tokio::test]
async fn a_declared_destination_is_carried_to_and_its_secret_is_never_shown() {
    let database = migrated().await;
    let (one, two) = (HttpReceiver::start().await, HttpReceiver::start().await);
    let served = Served::with_tokens(&database).await;
    let client = database.client().await;
    // A destination that is declared at run time receives only later events.
    emit(&client, "order.created", 2).await;
    let created = served
        .post("/destinations", &declaration("orders", &one.url("/")))
        .await;
    assert_eq!(created.status, 201, "{}", created.text());
    assert!(!created.text().contains(SECRET));
    emit(&client, "order.created", 3).await;
    one.received_at_least(3).await;
    assert_eq!(one.received().len(), 3, "an event of before was delivered");
    let shown = served.get("/destinations/orders").await;
    assert_eq!(shown["spec"]["sink"]["webhook"]["secret"], "***");
    assert_eq!(shown["state"], "active");
    check(
        &served
            .post("/destinations", &declaration("orders", &one.url("/")))
            .await,
        409,
        "CONFLICT.state",
    );
    change_concurrency(&served, &shown).await;
    check_start_is_kept(&served).await;
    emit(&client, "order.created", 1).await;
    one.received_at_least(4).await;
    change_url(&served, &two.url("/")).await;
    eventually(PATIENCE, async || {
        emit(&client, "order.created", 1).await;
        !two.received().is_empty()
    })
    .await;
    pause_and_resume(&served).await;
    remove(&served).await;
    assert_eq!(served.get("/destinations").await["items"], json!([]));
    check_no_secret_is_stored(&client).await;
    let audited = served.get("/audit").await;
    assert!(!audited.to_string().contains(SECRET) && !served.relay.log().contains(SECRET));
    assert_eq!(
        acts(&audited),
        [
            "create done",
            "create refused",
            "change done",
            "change refused",
            "change done",
            "pause done",
            "pause nothing",
            "resume done",
            "remove done",
            "remove_destination done",
        ]
    );
    served.relay.stop().await;
}

#[tokio::test]
async fn what_authenticates_a_declared_webhook_is_sent_and_never_shown() {
    let database = migrated().await;
    let (provider, receiver) = (HttpReceiver::start().await, HttpReceiver::start().await);
    let granted = json!({"access_token": "hunter2-token", "token_type": "Bearer"});
    provider.reply(HttpReply::status(200).body(granted.to_string()));
    receiver.reply_with(|taken| HttpReply::status(500).body(format!("{:?}", taken.headers)));
    let served = Served::with_tokens(&database).await;
    let mut body = declaration("orders", &receiver.url("/"));
    let webhook = &mut body["spec"]["sink"]["webhook"];
    webhook["headers"] = json!({"x-api-key": "hunter2-key"});
    webhook["oauth"] = json!({
        "token_url": provider.url("/token"),
        "client_id": "hapax",
        "client_secret": "hunter2-client",
    });
    let created = served.post("/destinations", &body).await;
    assert_eq!(created.status, 201, "{}", created.text());
    let shown = served.get("/destinations/orders").await;
    let webhook = &shown["spec"]["sink"]["webhook"];
    assert_eq!(webhook["headers"], json!({"x-api-key": "***"}));
    assert_eq!(webhook["oauth"]["client_secret"], "***");
    let tested = served.post("/destinations/orders/test", &json!({})).await;
    assert_eq!(tested.status, 200, "{}", tested.text());

    let client = database.client().await;
    emit(&client, "order.created", 1).await;
    for taken in receiver.received_at_least(2).await {
        assert_eq!(taken.header("x-api-key"), Some("hunter2-key"));
        assert_eq!(taken.header("authorization"), Some("Bearer hunter2-token"));
    }
    let mut stored = String::new();
    eventually(PATIENCE, async || {
        stored = attempts(&client).await;
        !stored.is_empty()
    })
    .await;
    assert!(stored.contains("Bearer ***"), "{stored}");
    let pages = [served.get("/events").await, served.get("/audit").await];
    let outputs = format!("{} {} {pages:?}", created.text(), tested.text());
    let all = format!("{outputs} {stored} {} {shown}", served.relay.log());
    assert!(!all.contains("hunter2"), "{all}");
    check_no_secret_is_stored(&client).await;
    served.relay.stop().await;
}

async fn a_secret_is_kept_while_the_address_of_the_receiver_stays(on: Store) {
    let database = Home::migrated(on).await;
    let receiver = HttpReceiver::start().await;
    let served = Served::with_tokens(&database).await;
    let body = declaration("orders", &receiver.url("/"));
    assert_eq!(served.post("/destinations", &body).await.status, 201);
    let shown = served.get("/destinations/orders").await;
    let mut change = json!({"version": shown["version"], "spec": shown["spec"]});
    change["spec"]["sink"]["webhook"]["mapping"] = json!({"kind": "$.type"});
    let changed = put(&served, &change).await;
    assert_eq!(changed.status, 200, "{}", changed.text());
    let tested = served.post("/destinations/orders/test", &json!({})).await;
    assert_eq!(tested.status, 200, "{}", tested.text());
    let requests = receiver.received_at_least(1).await;
    assert_eq!(&requests[0].body[..], br#"{"kind":"hapax.test"}"#);
    assert!(is_signed(&requests[0], SECRET));
    served.relay.stop().await;
}

async fn a_token_is_not_kept_for_another_url_that_is_a_secret_itself(on: Store) {
    let database = Home::migrated(on).await;
    let more = format!(
        "kinds_at_run_time = [\"nats\"]\n\
         [admin.tokens.ops]\ntoken = \"{OPERATOR}\"\nrole = \"operator\"\n"
    );
    let served = Served::start(&database, &more).await;
    let spec = |url: &str, token: &str, subject: &str| {
        let nats = json!({"url": url, "token": token, "subject": subject});
        json!({"sink": {"nats": nats}, "paused": true})
    };
    let first = spec("nats://127.0.0.1:1", "hunter2", "a");
    let body = json!({"name": "orders", "spec": first});
    let created = served.post("/destinations", &body).await;
    assert_eq!(created.status, 201, "{}", created.text());
    let version = created.json().unwrap()["version"].clone();
    let other = spec("nats://127.0.0.1:2", "***", "a");
    let refused = put(&served, &json!({"version": version, "spec": other})).await;
    check(&refused, 400, "VALIDATION.member");
    assert_eq!(refused.json().unwrap()["member"], "sink.nats.token");
    assert!(
        refused.text().contains("sink.nats.url changes"),
        "{}",
        refused.text()
    );
    let same = spec("***", "***", "b");
    let changed = put(&served, &json!({"version": version, "spec": same})).await;
    assert_eq!(changed.status, 200, "{}", changed.text());
    served.relay.stop().await;
}

#[tokio::test]
async fn a_change_reaches_two_relays_within_two_seconds() {
    let database = migrated().await;
    let receiver = HttpReceiver::start().await;
    let served = Served::with_tokens(&database).await;
    let other = start_relay(
        &database.url(),
        &format!("[secrets]\nkey = \"{KEY}\"\n[relay]\nallow = [\"127.0.0.0/8\"]\n"),
    )
    .await;
    let is_shown = async |name: &str, is: fn(&str) -> bool| {
        eventually(PATIENCE, async || {
            is(&served.relay.state(name).await) && is(&other.state(name).await)
        })
        .await;
    };
    // Only the smallest of three measured times counts, because a busy machine may delay a single
    // one.
    let (mut created, mut paused) = (Vec::new(), Vec::new());
    for name in ["one", "two", "three"] {
        let mut body = declaration(name, &receiver.url("/"));
        body["spec"]["partitions"] = json!(2);
        let began = tokio::time::Instant::now();
        assert_eq!(served.post("/destinations", &body).await.status, 201);
        is_shown(name, |it| !it.is_empty()).await;
        created.push(began.elapsed());
        let began = tokio::time::Instant::now();
        let pause = format!("/destinations/{name}/pause");
        assert_eq!(served.post(&pause, &json!({})).await.status, 204);
        is_shown(name, |it| it == "paused").await;
        paused.push(began.elapsed());
    }
    for heard in [created, paused] {
        let least = heard.iter().min().unwrap();
        assert!(least.as_secs() < 3, "{heard:?}");
    }
    served.relay.stop().await;
    other.stop().await;
}

#[tokio::test]
async fn a_pause_holds_where_the_declaration_cannot_be_read_and_a_setting_is_not_resumed() {
    let database = migrated().await;
    let receiver = HttpReceiver::start().await;
    let served = Served::start(
        &database,
        "[destinations.filed]\npaused = true\nsink.file.path = \"/dev/null\"\n",
    )
    .await;
    let mut body = declaration("orders", &receiver.url("/"));
    assert_eq!(served.post("/destinations", &body).await.status, 201);
    let is = async |state: &str| {
        eventually(PATIENCE, async || {
            served.relay.state("orders").await == state
        })
        .await;
    };
    is("delivering").await;
    let client = database.client().await;
    client
        .batch_execute("UPDATE hapax.declaration SET sealed = '\\x00'")
        .await
        .unwrap();
    let act = async |act: &str| {
        served
            .post(&format!("/destinations/{act}"), &json!({}))
            .await
    };
    assert_eq!(act("orders/pause").await.status, 204);
    is("paused").await;
    assert_eq!(act("orders/resume").await.status, 204);
    is("delivering").await;

    // A destination that its own declaration or configuration pauses cannot be resumed, only
    // changed.
    body["name"] = json!("later");
    body["spec"]["paused"] = json!(true);
    assert_eq!(served.post("/destinations", &body).await.status, 201);
    for (name, setting) in [("later", "declaration"), ("filed", "[destinations.filed]")] {
        let shown = served.get(&format!("/destinations/{name}")).await;
        assert_eq!(shown["state"], "paused", "{shown}");
        let refused = act(&format!("{name}/resume")).await;
        check(&refused, 409, "CONFLICT.state");
        assert!(refused.text().contains(setting), "{}", refused.text());
    }
    served.relay.stop().await;
}

/// Changes one member and sends the rest of the declaration back as it was shown. The same version
/// cannot be changed twice.
async fn change_concurrency(served: &Served, shown: &Value) {
    let mut change = json!({"version": shown["version"], "spec": shown["spec"]});
    change["spec"]["concurrency"] = json!(4);
    assert_eq!(put(served, &change).await.status, 200);
    check(&put(served, &change).await, 409, "CONFLICT.state");
}

/// The start of a destination cannot be changed.
async fn check_start_is_kept(served: &Served) {
    let shown = served.get("/destinations/orders").await;
    let mut change = json!({"version": shown["version"], "spec": shown["spec"]});
    change["spec"]["start"] = json!("beginning");
    let refused = put(served, &change).await;
    check(&refused, 400, "VALIDATION.member");
    assert_eq!(refused.json().unwrap()["member"], "start");
}

/// Changes the URL of the webhook. The stored secret is not used for the new URL.
async fn change_url(served: &Served, url: &str) {
    let shown = served.get("/destinations/orders").await;
    let mut change = json!({"version": shown["version"], "spec": shown["spec"]});
    change["spec"]["sink"]["webhook"]["url"] = json!(url);
    let refused = put(served, &change).await;
    check(&refused, 400, "VALIDATION.member");
    assert_eq!(refused.json().unwrap()["member"], "sink.webhook.secret");
    let reason = "has to be given again, because sink.webhook.url changes";
    assert!(refused.text().contains(reason), "{}", refused.text());
    change["spec"]["sink"]["webhook"]["secret"] = json!(SECRET);
    assert_eq!(put(served, &change).await.status, 200);
}

async fn put(served: &Served, change: &Value) -> HttpResponse {
    served
        .ask(OPERATOR, Method::PUT, "/destinations/orders", Some(change))
        .await
}

/// Pauses the destination twice, and resumes it.
async fn pause_and_resume(served: &Served) {
    for pausing in [204, 204] {
        let answer = served.post("/destinations/orders/pause", &json!({})).await;
        assert_eq!(answer.status, pausing);
    }
    assert_eq!(served.get("/destinations/orders").await["state"], "paused");
    assert_eq!(
        served
            .post("/destinations/orders/resume", &json!({}))
            .await
            .status,
        204
    );
}

/// Removes the destination, and waits for the end of the job.
async fn remove(served: &Served) {
    let removed = served
        .ask(OPERATOR, Method::DELETE, "/destinations/orders", None)
        .await;
    assert_eq!(removed.status, 202, "{}", removed.text());
    let job = removed.json().unwrap()["id"].clone();
    eventually(PATIENCE, async || {
        served.get(&format!("/jobs/{job}")).await["state"] == "done"
    })
    .await;
}

async fn check_no_secret_is_stored(client: &Client) {
    let dumped = client
        .query("SELECT spec, sealed::text FROM hapax.declaration", &[])
        .await
        .unwrap();
    for row in dumped {
        let spec: Option<String> = row.get(0);
        let spec = spec.unwrap_or_default();
        assert!(!spec.contains(SECRET) && !spec.contains("hunter2"));
    }
}

/// The contents of the log of attempts.
async fn attempts(client: &Client) -> String {
    let select = "SELECT error, response_head FROM hapax.attempt";
    let rows = client.query(select, &[]).await.unwrap();
    let shown = rows.iter().map(|row| {
        let (error, head): (Option<String>, Vec<u8>) = (row.get(0), row.get(1));
        format!("{error:?} {}", String::from_utf8_lossy(&head))
    });
    shown.collect()
}

/// The actions in the audit log with their outcomes, oldest first.
fn acts(audited: &Value) -> Vec<String> {
    audited["items"]
        .as_array()
        .unwrap()
        .iter()
        .rev()
        .map(|act| {
            format!(
                "{} {}",
                act["action"].as_str().unwrap(),
                act["outcome"].as_str().unwrap()
            )
        })
        .collect()
}
