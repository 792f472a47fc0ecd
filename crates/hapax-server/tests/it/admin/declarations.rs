//! Destinations that are declared over the admin API: created, changed, paused and removed, while
//! relays read the declarations.

use hapax_testkit::{
    http::{HttpAnswer, HttpReceiver},
    wait::eventually,
};
use http::Method;
use serde_json::{Value, json};
use tokio_postgres::Client;

use super::{KEY, OPERATOR, Served, check, declaration};
use crate::hapax::{PATIENCE, SECRET, emit, migrated, start_relay};

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
    change["spec"]["sink"]["webhook"]["secret"] = json!(SECRET);
    assert_eq!(put(served, &change).await.status, 200);
}

async fn put(served: &Served, change: &Value) -> HttpAnswer {
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
        assert!(!spec.unwrap_or_default().contains(SECRET));
    }
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
