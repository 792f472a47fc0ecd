//! Tests of the commands for operators, each run as a process.

use std::{fs, process::Stdio};

use hapax_testkit::{
    http::{HttpReceiver, HttpReply},
    postgres::Database,
    wait::eventually,
};
use serde_json::{Value, json};

use crate::hapax::{PATIENCE, Ran, Relay, SECRET, emit, hapax, migrate, run, run_to_end, webhook};

#[tokio::test]
async fn destinations_are_declared_and_changed_and_removed_by_verbs() {
    let database = migrated().await;
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("hapax.toml");
    let settings = "[secrets]\nkey = \"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\"\n\
        [destinations.filed]\nsink.file.path = \"/tmp/x\"\n";
    fs::write(&config, settings).unwrap();
    let spec = folder.path().join("spec.json");
    let webhook = json!({"sink": {"webhook": {"url": "https://example.com/", "secret": SECRET}}});
    fs::write(&spec, webhook.to_string()).unwrap();
    let (config, spec) = (config.to_str().unwrap(), spec.to_str().unwrap());
    let call = |arguments: &[&str]| {
        let url = database.url();
        let mut all = vec![
            "destinations",
            "--database",
            &url,
            "--config",
            config,
            "--json",
        ];
        all.extend(arguments);
        run(&all)
    };
    let asked = call(&["create", "orders", "--spec", spec]).ended(4);
    assert!(asked.stderr.contains("give --yes"), "{asked:?}");
    let created = call(&["create", "orders", "--spec", spec, "--yes"]).ended(0);
    assert!(!created.stdout.contains(SECRET));
    let version = created.json()["version"].to_string();
    call(&["create", "orders", "--spec", spec, "--yes"]).ended(4);
    call(&["create", "filed", "--spec", spec, "--yes"]).ended(2);
    call(&[
        "change",
        "orders",
        "--version",
        &version,
        "--spec",
        spec,
        "--yes",
    ])
    .ended(0);
    call(&[
        "change",
        "orders",
        "--version",
        &version,
        "--spec",
        spec,
        "--yes",
    ])
    .ended(4);
    call(&["pause", "orders", "--yes"]).ended(0);
    assert_eq!(call(&["show", "orders"]).ended(0).json()["state"], "paused");
    call(&["resume", "orders", "--yes"]).ended(0);
    call(&["pause", "nobody", "--yes"]).ended(3);
    // If the database declares a destination, its section in a configuration file is ignored.
    let stale = folder.path().join("stale.toml");
    let other = "[destinations.orders]\ntenant = \"other\"\nsink.file.path = \"/tmp/x\"\n";
    fs::write(&stale, other).unwrap();
    let url = database.url();
    let mut replay = vec!["events", "replay", "--destination", "orders", "--dry-run"];
    replay.extend(["--tenant", "acme", "--database", &url]);
    replay.extend(["--config", stale.to_str().unwrap()]);
    run(&replay).ended(0);
    call(&["show", "nobody"]).ended(3);
    let listed = call(&["list"]).ended(0).json();
    assert_eq!(listed["items"].as_array().unwrap().len(), 2);
    assert_eq!(
        call(&["remove", "orders", "--yes"]).ended(0).json()["kind"],
        "remove_destination"
    );
    let log = call(&["log"]).ended(0).json();
    assert_eq!(log["items"][0]["action"], "remove");
    assert!(!log["items"][0]["actor"].as_str().unwrap().is_empty());

    let url = database.url();
    let table = run(&[
        "destinations",
        "list",
        "--database",
        &url,
        "--config",
        config,
    ])
    .ended(0);
    assert!(table.stdout.starts_with("NAME"), "{table:?}");
    let bad = folder.path().join("bad.json");
    fs::write(&bad, format!("{{\"secret\": \"{SECRET}")).unwrap();
    let outcome = call(&["create", "b", "--spec", bad.to_str().unwrap(), "--yes"]).ended(2);
    assert!(!outcome.stderr.contains(SECRET), "{outcome:?}");
}

#[tokio::test]
async fn dead_letters_are_looked_at_replayed_and_discarded_by_verbs() {
    let database = migrated().await;
    let receiver = HttpReceiver::start().await;
    receiver.reply(HttpReply::status(500));
    let configuration = webhook("orders", &receiver.url("/")).replace(
        "schedule = [\"0s\", \"50ms\", \"100ms\", \"200ms\", \"1s\", \"1s\", \"1s\", \"1s\"]",
        "schedule = [\"0s\"]",
    );
    let relay = Relay::start(&database.url(), &configuration).await;
    emit(&database.client().await, "order.created", 5).await;
    let url = database.url();
    let call = |arguments: &[&str]| -> Ran {
        let mut all = arguments.to_vec();
        all.extend(["--database", url.as_str(), "--json"]);
        run(&all)
    };
    eventually(PATIENCE, async || {
        let dead = call(&["dead-letters", "list"]).ended(0).json();
        dead["items"].as_array().unwrap().len() == 5
    })
    .await;
    receiver.reply(HttpReply::status(200));
    let dead = call(&["dead-letters", "list", "--destination", "orders"])
        .ended(0)
        .json();
    let position = |number: usize| dead["items"][number]["position"].to_string();
    let event = dead["items"][0]["event_id"].as_str().unwrap();
    let shown = call(&["events", "show", event]).ended(0).json();
    assert_eq!(shown["destinations"][0]["attempts"][0]["status"], 500);
    call(&["dead-letters", "show", &position(0)]).ended(0);
    call(&["events", "show", "no-such"]).ended(3);

    call(&["dead-letters", "replay", "orders", &position(0)]).ended(4);
    call(&["dead-letters", "replay", "orders", &position(0), "--yes"]).ended(0);
    receiver.received_at_least(6).await;
    let discard = [
        "dead-letters",
        "discard",
        "orders",
        &position(1),
        "--reason",
        "test",
        "--yes",
    ];
    call(&discard).ended(0);
    call(&discard).ended(4);
    let all = ["dead-letters", "replay-all", "--destination", "orders"];
    let counted = call(&[&all[..], &["--dry-run"]].concat()).ended(0).json();
    assert_eq!(counted["count"], 3);
    call(&all[..2]).ended(2);
    call(&all).ended(4);
    let job = call(&[&all[..], &["--yes", "--wait"]].concat())
        .ended(0)
        .json();
    assert_eq!((&job["state"], &job["done"]), (&json!("done"), &json!(3)));
    receiver.received_at_least(9).await;
    eventually(PATIENCE, async || {
        let left = call(&["deliveries", "list", "--state", "retrying,dead"])
            .ended(0)
            .json();
        left["items"] == json!([])
    })
    .await;
    let again = [
        "events",
        "replay",
        "--destination",
        "orders",
        "--type",
        "order.*",
        "--yes",
    ];
    // Without the relay's configuration, the command does not know the tenant of the destination.
    let outcome = call(&again).ended(4);
    assert!(outcome.stderr.contains("declared neither"), "{outcome:?}");
    let configured = relay.file("hapax.toml");
    let configured = ["--config", configured.to_str().unwrap()];
    let refused = [&again[..], &configured, &["--error", "500"]].concat();
    let outcome = call(&refused).ended(2);
    assert!(
        outcome.stderr.contains("error applies to deliveries"),
        "{outcome:?}"
    );
    call(&[&again[..], &configured].concat()).ended(0);
    receiver.received_at_least(14).await;
    let outcome = call(&["dead-letters", "list", "--state", "delivered"]).ended(2);
    assert!(
        outcome.stderr.contains("state cannot be set"),
        "{outcome:?}"
    );
    let listed = call(&["events", "list", "--limit", "2"]).ended(0).json();
    assert_eq!(listed["items"].as_array().unwrap().len(), 2);
    assert!(listed["next"].is_string());
    call(&["events", "list", "--since", "yesterday"]).ended(2);
    call(&["deliveries", "list", "--state", "nonsense"]).ended(2);
    let jobs = call(&["dead-letters", "jobs"]).ended(0).json();
    assert_eq!(jobs["items"].as_array().unwrap().len(), 2);
    relay.stop().await;
}

#[tokio::test]
async fn a_dead_letter_is_edited_and_replayed_by_a_verb() {
    let database = migrated().await;
    let receiver = HttpReceiver::start().await;
    receiver.reply(HttpReply::status(422));
    let relay = Relay::start(&database.url(), &webhook("orders", &receiver.url("/"))).await;
    emit(&database.client().await, "order.created", 1).await;
    let url = database.url();
    let call = |arguments: &[&str]| -> Ran {
        run(&[arguments, &["--database", url.as_str(), "--json"]].concat())
    };
    let mut dead = json!(null);
    eventually(PATIENCE, async || {
        dead = call(&["dead-letters", "list"]).ended(0).json()["items"][0].clone();
        dead.is_object()
    })
    .await;
    receiver.reply(HttpReply::status(200));
    let before = receiver.received().len();
    let position = dead["position"].to_string();
    let edit = |patch: &'static str| {
        [
            "dead-letters",
            "replay",
            "orders",
            &position,
            "--patch",
            patch,
        ]
    };
    let sorry = edit("{\"said\": \"sorry\", \"n\": null}");
    let asked = call(&sorry).ended(4);
    assert!(asked.stderr.contains("of orders, edited?"), "{asked:?}");
    for none in ["", "[]", "{\"n\"}"] {
        let outcome = call(&[&edit(none)[..], &["--yes"]].concat()).ended(2);
        assert!(outcome.stderr.contains("patch"), "{outcome:?}");
    }
    call(&[&sorry[..], &["--yes"]].concat()).ended(0);
    let offers = receiver.received_at_least(before + 1).await;
    let last: Value = serde_json::from_slice(&offers[before].body).unwrap();
    assert_eq!(last["data"], json!({"said": "sorry"}), "{last}");
    let event = dead["event_id"].as_str().unwrap();
    assert_eq!(offers[before].header("webhook-id"), Some(event));
    let shown = call(&["events", "show", event]).ended(0).json();
    let edited = &shown["destinations"][0]["edited"];
    assert_eq!(edited, "{\"said\":\"sorry\"}", "{shown}");
    let again = call(&[&sorry[..], &["--yes"]].concat()).ended(4);
    assert!(again.stderr.contains("not dead"), "{again:?}");
    relay.stop().await;
}

#[tokio::test]
async fn a_name_under_which_a_relay_carries_is_not_free() {
    let database = migrated().await;
    let configuration = "[destinations.orders]\nsink.file.path = \"/dev/null\"\n";
    let relay = Relay::start(&database.url(), configuration).await;
    let client = database.client().await;
    eventually(PATIENCE, async || {
        let opened = "SELECT EXISTS (SELECT FROM hapax.destination WHERE name = 'orders')";
        client.query_one(opened, &[]).await.unwrap().get(0)
    })
    .await;
    let spec = relay.file("spec.json");
    let json = json!({"sink": {"webhook": {"url": "https://example.com/", "secret": SECRET}}});
    fs::write(&spec, json.to_string()).unwrap();
    let keys = relay.file("keys.toml");
    let key = "[secrets]\nkey = \"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\"\n";
    fs::write(&keys, key).unwrap();
    let taken = run(&[
        "destinations",
        "create",
        "orders",
        "--yes",
        "--spec",
        spec.to_str().unwrap(),
        "--config",
        keys.to_str().unwrap(),
        "--database",
        &database.url(),
    ]);
    let taken = taken.ended(4);
    assert!(
        taken.stderr.contains("a relay delivers or delivered to it"),
        "{taken:?}"
    );
    relay.stop().await;
}

#[tokio::test]
async fn a_pipe_that_is_closed_is_no_failure_and_tables_are_for_people() {
    let database = migrated().await;
    emit(&database.client().await, "order.created", 3).await;
    let url = database.url();
    let table = run(&["events", "list", "--database", &url]).ended(0);
    assert!(
        table.stdout.starts_with("ID ") && table.stdout.lines().count() == 4,
        "{table:?}"
    );
    let mut command = hapax(&["events", "list", "--database", &url]);
    command.stdin(Stdio::null());
    run_to_end(command).ended(0);
}

async fn migrated() -> Database {
    let database = Database::fresh().await;
    migrate(&database.url());
    database
}
