//! Operational events of a relay: to endpoints of the tenant, to destinations of operators, and across
//! crashes.

use std::{collections::BTreeSet, fs};

use hapax_testkit::{
    http::{HttpReceiver, HttpReply},
    wait::eventually,
};
use serde_json::{Value, json};
use tokio_postgres::Client;

use crate::{
    endpoints::{Stage, count},
    hapax::{PATIENCE, hapax, run, run_to_end, webhook},
    store::{Store, on_both_stores},
};

on_both_stores! {
    another_endpoint_of_the_tenant_is_told_of_one_that_is_disabled,
}

const SETTINGS: &str = "[relay]\nnode = \"one\"\nlease = \"1s\"\n\
    [secrets]\nkey = \"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\"\n\
    [operational_events]\nlag = \"2s\"\ntypes = [\"endpoint.disabled\", \"message.exhausted\", \
    \"relay.lag\", \"relay.caught_up\"]\n\
    [destinations.customers]\nsink.endpoints = {}\n\
    [endpoints]\nallow = [\"127.0.0.0/8\"]\ntimeout = \"1s\"\npatience = \"100ms\"\n";
const RETRIES: &str = "schedule = [\"0s\", \"100ms\", \"1s\", \"1s\", \"1s\", \"1s\"]\n";

/// A database, and a configuration with operational events and endpoints.
async fn stage(on: Store, more: &str) -> Stage {
    Stage::of(on, format!("{SETTINGS}{more}")).await
}

/// Creates an endpoint for events of a type. Returns its id.
fn create(stage: &Stage, tenant: &str, url: &str, kind: &str) -> String {
    let (id, _) = stage.create(tenant, url, &["--type", kind]);
    id
}

async fn another_endpoint_of_the_tenant_is_told_of_one_that_is_disabled(on: Store) {
    let stage = stage(on, RETRIES).await;
    let (gone, told, foreign) = (
        HttpReceiver::start().await,
        HttpReceiver::start().await,
        HttpReceiver::start().await,
    );
    gone.reply(HttpReply::status(410));
    let id = create(&stage, "acme", &gone.url("/"), "order.*");
    create(&stage, "acme", &told.url("/"), "hapax.endpoint.disabled");
    create(&stage, "other", &foreign.url("/"), "*");
    stage.emit("acme", "order.created", 1).await;
    let relay = stage.relay().await;
    let received = told.received_at_least(1).await;
    relay.stop().await;
    let body: Value = serde_json::from_slice(&received[0].body).unwrap();
    assert_eq!(body["type"], "hapax.endpoint.disabled");
    let data = &body["data"];
    assert_eq!(
        (&data["endpoint"], &data["tenant"]),
        (&json!(id), &json!("acme"))
    );
    let reason = data["reason"].as_str().unwrap();
    assert!(reason.contains("410"), "{reason}");
    assert_eq!(told.received().len(), 1);
    assert!(foreign.received().is_empty());
}

#[tokio::test]
async fn a_delivery_that_failed_is_reported_and_a_failed_report_is_not() {
    let ops = HttpReceiver::start().await;
    let operators = format!(
        "schedule = [\"0s\"]\n{}events = [\"hapax.*\"]\n",
        webhook("ops", &ops.url("/"))
    );
    let stage = stage(Store::Postgres, &operators).await;
    let (dead, unwilling) = (HttpReceiver::start().await, HttpReceiver::start().await);
    dead.reply(HttpReply::status(503));
    unwilling.reply(HttpReply::status(503));
    let id = create(&stage, "acme", &dead.url("/"), "order.*");
    create(&stage, "acme", &unwilling.url("/"), "hapax.*");
    stage.emit("acme", "order.created", 1).await;
    let relay = stage.relay().await;
    let reported = ops.received_at_least(1).await;
    let body: Value = serde_json::from_slice(&reported[0].body).unwrap();
    assert_eq!(body["type"], "hapax.message.exhausted");
    let data = &body["data"];
    assert_eq!(
        (&data["endpoint"], &data["event_type"], &data["attempts"]),
        (&json!(id), &json!("order.created"), &json!(1))
    );
    // The report itself fails at the endpoint that has subscribed to it.
    let client = stage.client().await;
    let failed = "endpoint_delivery WHERE state = 'failed'";
    eventually(PATIENCE, async || count(&client, failed).await == 2).await;
    // An event that comes after it has passed the relay.
    stage.emit("acme", "hapax.last", 1).await;
    let is_last = async || {
        let received = ops.received();
        received
            .iter()
            .any(|it| String::from_utf8_lossy(&it.body).contains("hapax.last"))
    };
    eventually(PATIENCE, is_last).await;
    let exhausted = "outbox_event WHERE type = 'hapax.message.exhausted'";
    assert_eq!(count(&client, exhausted).await, 1);
    relay.stop().await;
}

#[tokio::test]
async fn a_lag_is_reported_when_it_begins_and_when_it_ends() {
    let (ops, slow) = (HttpReceiver::start().await, HttpReceiver::start().await);
    slow.reply(HttpReply::status(503));
    let more = format!(
        "{}events = [\"hapax.relay.*\"]\n{}events = [\"order.*\"]\n",
        webhook("ops", &ops.url("/")),
        webhook("orders", &slow.url("/")),
    );
    // The first destination is not the one that lags.
    let schedule =
        "schedule = [\"0s\", \"50ms\", \"100ms\", \"200ms\", \"1s\", \"1s\", \"1s\", \"1s\"]\n";
    let often = format!("schedule = [{}]\n", ["\"500ms\""; 100].join(", "));
    let stage = stage(Store::Postgres, &more.replace(schedule, &often)).await;
    stage.emit("acme", "order.created", 1).await;
    let relay = stage.relay().await;
    ops.received_at_least(1).await;
    slow.reply(HttpReply::status(200));
    ops.received_at_least(2).await;
    relay.stop().await;
    let bodies = ops.received();
    let bodies = bodies
        .iter()
        .map(|it| serde_json::from_slice::<Value>(&it.body).unwrap());
    let told: Vec<_> = bodies
        .map(|it| (it["type"].clone(), it["data"]["destination"].clone()))
        .collect();
    let expected = ["hapax.relay.lag", "hapax.relay.caught_up"];
    assert_eq!(told, expected.map(|kind| (json!(kind), json!("orders"))));
}

/// A relay dies while the transaction that disables an endpoint is open: before its event is written,
/// and after. Neither the change nor the event is there, and the next relay makes both.
#[tokio::test]
async fn a_relay_that_is_killed_while_it_disables_an_endpoint_reports_it_once() {
    for hold in [
        "audit_log FOR EACH ROW WHEN (NEW.action = 'disable')",
        "outbox_event FOR EACH ROW WHEN (NEW.type = 'hapax.endpoint.disabled')",
    ] {
        let stage = stage(Store::Postgres, RETRIES).await;
        let (gone, told) = (HttpReceiver::start().await, HttpReceiver::start().await);
        gone.reply(HttpReply::status(410));
        create(&stage, "acme", &gone.url("/"), "order.*");
        create(&stage, "acme", &told.url("/"), "hapax.endpoint.*");
        let client = stage.client().await;
        let trigger = format!(
            "SELECT pg_advisory_lock(4711);
             CREATE FUNCTION public.hold() RETURNS trigger LANGUAGE plpgsql
                 AS $$ BEGIN PERFORM pg_advisory_lock(4711); RETURN NEW; END $$;
             CREATE TRIGGER hold BEFORE INSERT ON hapax.{hold} EXECUTE FUNCTION public.hold()"
        );
        client.batch_execute(&trigger).await.unwrap();
        stage.emit("acme", "order.created", 1).await;
        let relay = stage.relay().await;
        eventually(PATIENCE, async || held(&client).await == 1).await;
        relay.kill();
        let table = hold.split(' ').next().unwrap();
        let released = "
             SELECT pg_terminate_backend(pid) FROM pg_locks
             WHERE locktype = 'advisory' AND objid = 4711 AND NOT granted
               AND database = (SELECT oid FROM pg_database WHERE datname = current_database());
             SELECT pg_advisory_unlock(4711)";
        client.batch_execute(released).await.unwrap();
        eventually(PATIENCE, async || held(&client).await == 0).await;
        check_reports(&client, hold).await;
        let disabled = "endpoint WHERE disabled_reason IS NOT NULL";
        assert_eq!(count(&client, disabled).await, 0, "{hold}");
        let dropped = format!("DROP TRIGGER hold ON hapax.{table}");
        client.batch_execute(&dropped).await.unwrap();
        check_next_relay(&stage, &client, &told, hold).await;
    }
}

/// A relay dies after it has recorded that a delivery has failed, and before it disables the endpoint.
#[cfg(debug_assertions)]
#[tokio::test]
async fn a_relay_that_is_killed_before_it_disables_an_endpoint_reports_it_once() {
    let stage = stage(Store::Postgres, RETRIES).await;
    let (gone, told) = (HttpReceiver::start().await, HttpReceiver::start().await);
    gone.reply(HttpReply::status(410));
    create(&stage, "acme", &gone.url("/"), "order.*");
    create(&stage, "acme", &told.url("/"), "hapax.endpoint.*");
    let environment = [("HAPAX_FAILPOINT", "endpoints.queue.after:1")];
    let database = stage.home.url();
    let mut relay =
        crate::hapax::start_relay_with(&database, &stage.configuration, &environment).await;
    stage.emit("acme", "order.created", 1).await;
    relay.ended().await;
    drop(relay);
    let client = stage.client().await;
    check_reports(&client, "before").await;
    let exhausted = "outbox_event WHERE type = 'hapax.message.exhausted'";
    assert_eq!(count(&client, exhausted).await, 1);
    check_next_relay(&stage, &client, &told, "after").await;
}

/// Requires that the next relay disables the endpoint and reports that once.
async fn check_next_relay(stage: &Stage, client: &Client, told: &HttpReceiver, case: &str) {
    let relay = stage.relay().await;
    stage.emit("acme", "order.updated", 1).await;
    told.received_at_least(1).await;
    relay.stop().await;
    check_reports(client, case).await;
    let disabled = "endpoint WHERE disabled_reason IS NOT NULL";
    assert_eq!(count(client, disabled).await, 1, "{case}");
    let ids = told.received();
    let ids = ids
        .iter()
        .map(|it| it.header("webhook-id").unwrap().to_owned());
    assert_eq!(ids.collect::<BTreeSet<_>>().len(), 1, "{case}");
}

/// The number of sessions that wait for the lock of the test.
async fn held(client: &Client) -> i64 {
    const HELD: &str = "
        SELECT count(*)
        FROM pg_locks
        WHERE locktype = 'advisory' AND objid = 4711 AND NOT granted
          AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    client.query_one(HELD, &[]).await.unwrap().get(0)
}

/// Requires as many reports as rows that they report.
async fn check_reports(client: &Client, case: &str) {
    let disabled = count(client, "endpoint WHERE disabled_reason IS NOT NULL").await;
    let reported = "outbox_event WHERE type = 'hapax.endpoint.disabled'";
    assert_eq!(count(client, reported).await, disabled, "{case}");
    let failed = "endpoint_delivery WHERE state = 'failed' AND type NOT LIKE 'hapax.%'";
    let failed = count(client, failed).await;
    let reported = "outbox_event WHERE type = 'hapax.message.exhausted'";
    assert_eq!(count(client, reported).await, failed, "{case}");
}

#[test]
fn a_type_that_does_not_exist_is_refused_with_the_nearest_one() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hapax.toml");
    let text = "[operational_events]\ntypes = [\"endpoint.disable\"]\n";
    fs::write(&file, text).unwrap();
    let mut command = hapax(&["config", "check", "--config"]);
    command.arg(&file);
    let refused = run_to_end(command);
    assert!(
        refused.stderr.contains("did you mean endpoint.disabled?"),
        "{}",
        refused.stderr
    );
}

#[test]
fn the_catalogue_of_operational_events_is_a_catalogue() {
    let printed = run(&["catalogue", "operational", "--prefix", "ops/"]).ended(0);
    let catalogue = printed.json();
    assert_eq!(catalogue["events"][0]["type"], "ops/endpoint.disabled");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("operational.json");
    fs::write(&file, catalogue.to_string()).unwrap();
    let mut command = hapax(&["catalogue", "check"]);
    command.arg(&file);
    run_to_end(command).ended(0);
}
