//! Tests of an SQLite file as the database: who may have it open, and what the doctor says of it.

use std::{fs, os::unix::fs::PermissionsExt as _};

use hapax_testkit::{
    http::{HttpReceiver, HttpReply},
    port::free_port,
    program::Program,
    wait::eventually,
};
use serde_json::{Value, json};

use crate::{
    hapax::{PATIENCE, hapax, run, start_relay, webhook},
    store::{Home, Store},
};

#[tokio::test]
async fn a_relay_delivers_the_events_of_a_file_that_nobody_else_has_open() {
    let database = Home::migrated(Store::Sqlite).await;
    let receiver = HttpReceiver::start().await;
    database.emit("order.created", 5).await;
    let relay = start_relay(&database.url(), &webhook("orders", &receiver.url("/"))).await;
    receiver.received_at_least(5).await;
    eventually(PATIENCE, async || {
        relay.state("orders").await == "delivering"
    })
    .await;
    // An operator can look while the relay has the file.
    let listed = run(&["events", "list", "--json", "--database", &database.url()]);
    let listed = listed.ended(0).json();
    assert_eq!(listed["items"].as_array().unwrap().len(), 5);
    relay.stop().await;
    database.emit("order.created", 1).await;
    let relay = start_relay(&database.url(), &webhook("orders", &receiver.url("/"))).await;
    receiver.received_at_least(6).await;
    relay.stop().await;
    assert_eq!(receiver.received().len(), 6);
}

#[tokio::test]
async fn a_relay_whose_file_was_moved_away_is_not_ready() {
    let database = Home::migrated(Store::Sqlite).await;
    let receiver = HttpReceiver::start().await;
    let relay = start_relay(&database.url(), &webhook("orders", &receiver.url("/"))).await;
    assert_eq!(relay.get("/readyz").await.status, 200);
    fs::rename(database.path(), database.path().with_extension("away")).unwrap();
    eventually(PATIENCE, async || {
        let ready = relay.get("/readyz").await;
        let body = ready.json().unwrap();
        ready.status == 503 && body["status"] == "database accepts no writes"
    })
    .await;
    assert_eq!(relay.get("/healthz").await.status, 200);
}

#[tokio::test]
async fn a_relay_is_refused_a_file_that_a_service_has_open() {
    let database = Home::migrated(Store::Sqlite).await;
    let service = database.sqlite();
    let relay = ["relay", "--listen", "off", "--database", &database.url()];
    let refused = run(&relay).ended(1);
    assert!(
        refused
            .stderr
            .contains("a service that has opened it runs its relay"),
        "{refused:?}"
    );
    service.close().await.unwrap();
}

#[tokio::test]
async fn a_relay_makes_no_file_where_there_is_none_unless_it_is_told_to() {
    let database = Home::empty(Store::Sqlite).await;
    let refused = run(&["relay", "--listen", "off", "--database", &database.url()]).ended(1);
    assert!(
        refused.stderr.contains("there is no database"),
        "{refused:?}"
    );
    assert!(!database.path().exists());
    let relay = start_relay(&database.url(), "[database]\nschema = \"apply\"\n").await;
    assert!(database.path().exists());
    relay.stop().await;
}

#[tokio::test]
async fn an_existing_outbox_table_must_be_in_postgresql() {
    let database = Home::migrated(Store::Sqlite).await;
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("hapax.toml");
    let source = "[sources.old]\ntable = \"outbox\"\npublished = \"at\"\ntype = \"topic\"\n";
    fs::write(&config, source).unwrap();
    let refused = run(&[
        "relay",
        "--listen",
        "off",
        "--config",
        config.to_str().unwrap(),
        "--database",
        &database.url(),
    ]);
    let refused = refused.ended(1);
    assert!(refused.stderr.contains("sources.old: "), "{refused:?}");
}

#[tokio::test]
async fn a_console_runs_the_jobs_that_operators_start() {
    let database = Home::migrated(Store::Sqlite).await;
    let receiver = HttpReceiver::start().await;
    receiver.reply(HttpReply::status(500));
    let configuration = format!(
        "[destinations.orders]\nschedule = [\"0s\"]\nsink.webhook = {{ url = \"{}\", \
         secret = \"{}\", allow = [\"127.0.0.0/8\"] }}\n",
        receiver.url("/"),
        crate::hapax::SECRET
    );
    database.emit("order.created", 3).await;
    let relay = start_relay(&database.url(), &configuration).await;
    let url = database.url();
    let call = |arguments: &[&str]| {
        let all = [arguments, &["--json", "--database", &url]].concat();
        run(&all).ended(0).json()
    };
    eventually(PATIENCE, async || {
        call(&["dead-letters", "list"])["items"]
            .as_array()
            .unwrap()
            .len()
            == 3
    })
    .await;
    relay.stop().await;
    let all_again = [
        "dead-letters",
        "replay-all",
        "--destination",
        "orders",
        "--yes",
    ];
    let job = call(&all_again)["id"].to_string();
    assert_eq!(call(&["dead-letters", "jobs", &job])["state"], "waiting");
    let address = format!("127.0.0.1:{}", free_port());
    let folder = tempfile::tempdir().unwrap();
    let console = hapax(&["console", "--listen", &address, "--database", &url]);
    let mut console = Program::start(console, &folder.path().join("log"));
    eventually(PATIENCE, async || {
        let job = call(&["dead-letters", "jobs", &job]);
        job["state"] == "done" && job["done"] == 3
    })
    .await;
    console.stop().await;
}

#[tokio::test]
async fn the_doctor_examines_the_file() {
    let database = Home::migrated(Store::Sqlite).await;
    let (code, findings) = examined(&database);
    // Nothing is open, and there are no destinations: notes.
    assert_eq!(code, Some(0), "{findings:#}");
    for check in [
        "file",
        "disk",
        "wal",
        "schema",
        "integrity",
        "stalled",
        "sagas",
    ] {
        has(&findings, "ok", check, "");
    }
    has(&findings, "note", "lock", "no process");
    for absent in ["standby", "pooler", "grants", "clock", "fsync", "sessions"] {
        assert!(
            findings
                .as_array()
                .unwrap()
                .iter()
                .all(|it| it["check"] != absent),
            "{absent} is for PostgreSQL: {findings:#}"
        );
    }
    let service = database.sqlite();
    let (_, findings) = examined(&database);
    has(&findings, "note", "lock", "runs no relay");
    service.close().await.unwrap();
}

#[tokio::test]
async fn the_doctor_finds_what_is_wrong_with_the_file() {
    let database = Home::migrated(Store::Sqlite).await;
    fs::set_permissions(database.path(), fs::Permissions::from_mode(0o644)).unwrap();
    let (code, findings) = examined(&database);
    assert_eq!(code, Some(1), "{findings:#}");
    let finding = has(&findings, "warning", "file", "mode 644");
    assert!(
        finding["remedy"]
            .as_str()
            .unwrap()
            .starts_with("chmod 600 ")
    );
    fs::set_permissions(database.path(), fs::Permissions::from_mode(0o600)).unwrap();

    let other = "PRAGMA journal_mode = delete";
    database.change(other, "").await;
    let (code, findings) = examined(&database);
    assert_eq!(code, Some(2), "{findings:#}");
    has(&findings, "error", "wal", "journal_mode is delete");

    database
        .change("DELETE FROM hapax_migration WHERE version > 4", "")
        .await;
    let (_, findings) = examined(&database);
    has(&findings, "error", "schema", "at version 4");
    damage(&database);
    let (code, findings) = examined(&database);
    assert_eq!(code, Some(2), "{findings:#}");
    has(&findings, "error", "integrity", "");
}

#[tokio::test]
async fn the_doctor_makes_no_file() {
    let database = Home::empty(Store::Sqlite).await;
    let (code, findings) = examined(&database);
    assert_eq!(code, Some(2), "{findings:#}");
    let finding = has(&findings, "error", "file", "there is no database");
    assert!(
        finding["remedy"]
            .as_str()
            .unwrap()
            .contains("hapax migrate")
    );
    assert!(!database.path().exists());
}

/// Overwrites the pages of the file after the first ones.
fn damage(database: &Home) {
    let mut bytes = fs::read(database.path()).unwrap();
    let page = 4096;
    assert!(bytes.len() > 8 * page, "{} bytes", bytes.len());
    for byte in &mut bytes[6 * page..] {
        *byte = 0x5a;
    }
    fs::write(database.path(), bytes).unwrap();
}

/// Runs the doctor, and returns its exit code and its findings.
fn examined(database: &Home) -> (Option<i32>, Value) {
    let url = database.url();
    let ran = run(&["doctor", "--database-only", "--json", "--database", &url]);
    let findings = ran.json();
    assert_ne!(findings, json!([]));
    (ran.code, findings)
}

#[track_caller]
fn has(findings: &Value, severity: &str, check: &str, found: &str) -> Value {
    let fits = |it: &&Value| {
        it["severity"] == severity
            && it["check"] == check
            && it["found"].as_str().unwrap().contains(found)
    };
    let finding = findings.as_array().unwrap().iter().find(fits);
    let missing = || panic!("no {severity} of {check} with {found:?}: {findings:#}");
    finding.unwrap_or_else(missing).clone()
}
