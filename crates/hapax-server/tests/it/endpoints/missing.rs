//! Events that a new endpoint never got.

use hapax_testkit::{http::HttpReceiver, wait::eventually};
use serde_json::{Value, json};

#[cfg(debug_assertions)]
use super::count;
use super::{Stage, accepted, number};
use crate::{
    admin::Served,
    hapax::PATIENCE,
    store::{Home, Store},
};

#[tokio::test(flavor = "multi_thread")]
async fn a_new_endpoint_gets_what_it_never_got_once() {
    sends_what_is_missing(Store::Postgres).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_endpoint_gets_what_it_never_got_once_on_sqlite() {
    sends_what_is_missing(Store::Sqlite).await;
}

async fn sends_what_is_missing(on: Store) {
    let stage = Stage::new(on).await;
    let (old, new) = (HttpReceiver::start().await, HttpReceiver::start().await);
    let (first, _) = stage.create("acme", &old.url("/"), &[]);
    for (kind, n) in [
        ("order.created", 1),
        ("order.paid", 2),
        ("refund.created", 3),
    ] {
        stage.emit("acme", kind, n).await;
    }
    stage.emit("other", "order.created", 4).await;
    let relay = stage.relay().await;
    let is_logged = async || stage.deliveries("acme", &first, &[]).len() == 3;
    eventually(PATIENCE, is_logged).await;
    relay.stop().await;
    let (id, _) = stage.create("acme", &new.url("/"), &["--type", "order.*"]);
    let again = |more: &[&str]| -> Value {
        let own = ["replay-missing", &id, "--tenant", "acme", "--since", "1h"];
        let arguments = [&own[..], &["--yes", "--json"][..], more].concat();
        stage.run(&arguments).ended(0).json()
    };
    let counted = again(&["--dry-run"]);
    assert_eq!(
        (&counted["missing"], &counted["queued"]),
        (&json!(2), &json!(0))
    );
    assert_eq!(again(&[])["queued"], 2);
    assert_eq!(again(&[])["missing"], 0);
    let relay = stage.relay().await;
    eventually(PATIENCE, async || accepted(&new).len() == 2).await;
    relay.stop().await;
    let mut numbers: Vec<_> = new.received().iter().map(number).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [1, 2]);
    assert_eq!(old.received().len(), 3);
}

/// Emits events of a tenant.
const EMIT: &str = "
    INSERT INTO hapax.outbox_event (event_id, type, tenant, payload, headers, created_at)
    SELECT gen_random_uuid(), 'a', 'acme', '{}', '{}', now() - interval '10 minutes'
    FROM generate_series(1, 1200)";

#[tokio::test]
async fn the_admin_api_sends_what_is_missing_with_a_line_in_the_audit_log() {
    let home = Home::migrated(Store::Postgres).await;
    home.change("", EMIT).await;
    let served = Served::with_tokens(&home).await;
    let body = json!({"tenant": "acme", "url": "https://customer.example/hooks"});
    let created = served.post("/endpoints", &body).await.json().unwrap();
    let id = created["endpoint"]["id"].as_str().unwrap();
    let path = format!("/endpoints/{id}/replay-missing?tenant=acme");
    let refused = served.post(&path, &json!({})).await;
    assert_eq!(refused.status, 400, "{}", refused.text());
    let since = "2020-01-31T12:00:00Z";
    let dry = json!({"since": since, "dry_run": true});
    let counted = served.post(&path, &dry).await.json().unwrap();
    assert_eq!(
        (&counted["missing"], &counted["queued"]),
        (&json!(1_200), &json!(0))
    );
    let sent = served.post(&path, &json!({ "since": since })).await;
    assert_eq!(sent.json().unwrap()["queued"], 1_200, "{}", sent.text());
    let log = served.get("/audit").await;
    let lines = log["items"].as_array().unwrap();
    let line = lines.iter().find(|it| it["action"] == "replay-missing");
    let line = line.unwrap_or_else(|| panic!("{log}"));
    assert_eq!(line["object"], format!("endpoint {id}"));
    served.relay.stop().await;
}

/// A command that is killed at any step of a batch has queued complete batches, and when it is repeated,
/// each event is in the queue once.
#[cfg(debug_assertions)]
#[tokio::test]
async fn a_command_that_is_killed_queues_each_event_once_when_it_is_repeated() {
    for (place, queued) in [
        ("postgres.commit.before:1", 0),
        ("postgres.commit.after:1", 500),
        ("postgres.commit.before:2", 500),
        ("postgres.commit.after:2", 1_000),
        ("postgres.commit.after:3", 1_200),
    ] {
        let stage = Stage::new(Store::Postgres).await;
        let client = stage.client().await;
        client.execute(EMIT, &[]).await.unwrap();
        let (id, _) = stage.create("acme", "http://127.0.0.1:9/", &[]);
        let arguments = [
            "replay-missing",
            &id,
            "--tenant",
            "acme",
            "--since",
            "1h",
            "--yes",
        ];
        let mut command = stage.command(&arguments);
        let killed = command.env("HAPAX_FAILPOINT", place).output().unwrap();
        let signal = std::os::unix::process::ExitStatusExt::signal(&killed.status);
        assert_eq!(signal, Some(9), "{place}: {killed:?}");
        assert_eq!(count(&client, "endpoint_delivery").await, queued, "{place}");
        stage.run(&arguments).ended(0);
        assert_eq!(count(&client, "endpoint_delivery").await, 1_200, "{place}");
        let once = "(SELECT DISTINCT event_id FROM hapax.endpoint_delivery) AS queued";
        let once = format!("SELECT count(*) FROM {once}");
        let row = client.query_one(&once, &[]).await.unwrap();
        assert_eq!(row.get::<_, i64>(0), 1_200, "{place}");
    }
}
