//! Endpoints that fail: slowed, disabled, probed, and enabled again.

use std::time::Duration;

use hapax_testkit::{
    http::{HttpReceiver, HttpReply},
    wait::eventually,
};
use serde_json::{Value, json};
use tokio_postgres::Client;

use super::{SCHEDULE, SETTINGS, Stage, accepted, count, number};
#[cfg(debug_assertions)]
use crate::hapax::start_relay_with;
use crate::{
    hapax::{PATIENCE, start_relay},
    store::Store,
};

/// A short way to the end of an endpoint that fails, and back.
const HURRY: &str = "disable_after = \"1s\"\ndisable_failures = 3\nprobe_after = \"1s\"\n\
    probe_longest = \"2s\"\ncatch_up = \"in-order\"\n";

impl Stage {
    fn endpoint(&self, id: &str) -> Value {
        self.show(id)["endpoint"].clone()
    }
}

#[tokio::test]
async fn a_disabled_endpoint_gets_nothing_until_it_is_enabled() {
    let stage = Stage::new(Store::Postgres).await;
    let (receiver, other) = (HttpReceiver::start().await, HttpReceiver::start().await);
    let (id, _) = stage.create("acme", &receiver.url("/"), &[]);
    stage.create("acme", &other.url("/"), &[]);
    let relay = stage.relay().await;
    stage.emit("acme", "a", 1).await;
    receiver.received_at_least(1).await;
    let own = ["--tenant", "acme"];
    let disable = ["disable", &id, "--yes", own[0], own[1]];
    stage.run(&disable).ended(0);
    stage.emit("acme", "a", 2).await;
    other.received_at_least(2).await;
    stage.run(&["enable", &id, own[0], own[1]]).ended(0);
    stage.emit("acme", "a", 3).await;
    receiver.received_at_least(2).await;
    let numbers: Vec<_> = receiver.received().iter().map(number).collect();
    assert_eq!(numbers, [1, 3]);
    // One that responds with 410 wants no more events.
    receiver.reply(HttpReply::status(410));
    stage.emit("acme", "a", 4).await;
    let show = ["show", &id, "--json", own[0], own[1]];
    let is_disabled = async || {
        let shown = stage.run(&show).ended(0).json();
        shown["endpoint"]["enabled"] == false
    };
    eventually(PATIENCE, is_disabled).await;
    let shown = stage.run(&show).ended(0).json();
    let reason = shown["endpoint"]["disabled_reason"].as_str().unwrap();
    assert!(reason.contains("410"), "{reason}");
    relay.stop().await;
}

#[tokio::test]
async fn an_endpoint_that_fails_for_long_is_disabled_with_a_reason() {
    let more = format!("{SCHEDULE}disable_after = \"1s\"\ndisable_failures = 3\n");
    let stage = Stage::with(Store::Postgres, &more).await;
    let receiver = HttpReceiver::start().await;
    receiver.reply(HttpReply::status(500));
    let (id, _) = stage.create("acme", &receiver.url("/"), &[]);
    let relay = stage.relay().await;
    stage.emit("acme", "a", 1).await;
    let show = ["show", &id, "--tenant", "acme", "--json"];
    let is_disabled = async || {
        let shown = stage.run(&show).ended(0).json();
        shown["endpoint"]["enabled"] == false
    };
    eventually(PATIENCE, is_disabled).await;
    let shown = stage.run(&show).ended(0).json();
    let reason = shown["endpoint"]["disabled_reason"].as_str().unwrap();
    assert!(reason.contains("attempts in 0 hours failed"), "{reason}");
    // Its event waits, and is delivered when the endpoint is enabled.
    receiver.reply(HttpReply::status(200));
    stage.run(&["enable", &id, "--tenant", "acme"]).ended(0);
    let is_delivered = async || {
        receiver
            .received()
            .iter()
            .any(|it| it.answered == Some(200))
    };
    eventually(PATIENCE, is_delivered).await;
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_that_recovers_gets_everything_once_and_in_order() {
    recovers(Store::Postgres).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_that_recovers_gets_everything_once_and_in_order_on_sqlite() {
    recovers(Store::Sqlite).await;
}

async fn recovers(on: Store) {
    const EVENTS: usize = 5;
    let settings = SETTINGS.replace("timeout = \"1s\"", "timeout = \"10s\"");
    let stage = Stage::of(on, format!("{settings}{SCHEDULE}{HURRY}")).await;
    let (receiver, other) = (HttpReceiver::start().await, HttpReceiver::start().await);
    receiver.reply(HttpReply::status(503));
    let (id, _) = stage.create("acme", &receiver.url("/"), &[]);
    stage.create("acme", &other.url("/"), &[]);
    for n in 0..EVENTS {
        stage.emit("acme", "a", n).await;
    }
    let relay = stage.relay().await;
    let is = async |state: &str| {
        eventually(PATIENCE, async || stage.endpoint(&id)["state"] == state).await;
        stage.endpoint(&id)
    };
    let slowed = is("slowed").await;
    let reason = slowed["slowed_reason"].as_str().unwrap_or_default();
    assert!(
        slowed["state"] != "slowed" || reason.contains("in a row have failed"),
        "{slowed}"
    );
    let disabled = is("disabled").await;
    assert_eq!(disabled["enabled"], false, "{disabled}");
    let has_failed_a_probe = async || {
        let shown = stage.endpoint(&id);
        shown["probes"].as_u64() > Some(0) && shown["next_probe_at"].is_string()
    };
    eventually(PATIENCE, has_failed_a_probe).await;
    receiver.reply(HttpReply::status(200));
    is("enabled").await;
    eventually(PATIENCE, async || accepted(&receiver).len() == EVENTS).await;
    relay.stop().await;
    assert_eq!(accepted_numbers(&receiver), [0, 1, 2, 3, 4]);
    let mut numbers = accepted_numbers(&other);
    numbers.sort_unstable();
    assert_eq!(numbers, [0, 1, 2, 3, 4]);
    let failures = &stage.endpoint(&id)["failures"];
    assert_eq!(failures, 0);
}

/// Deliveries that wait for their next attempt.
const WAITS: &str = "endpoint_delivery WHERE state = 'waiting'";

/// A receiver that fails. Its endpoint was sent three events, and no relay runs.
async fn failing(stage: &Stage) -> HttpReceiver {
    let receiver = HttpReceiver::start().await;
    receiver.reply(HttpReply::status(503));
    stage.create("acme", &receiver.url("/"), &[]);
    for n in 0..3 {
        stage.emit("acme", "a", n).await;
    }
    let relay = stage.relay().await;
    let client = stage.client().await;
    eventually(PATIENCE, async || count(&client, WAITS).await == 3).await;
    relay.stop().await;
    receiver
}

#[tokio::test]
async fn new_events_follow_what_an_endpoint_catches_up_with() {
    const CATCH_UP: &str = "
        UPDATE hapax.endpoint
        SET catch_up_at = now(), failures = 0, failing_since = NULL, slow_until = NULL";
    let stage = Stage::with(Store::Postgres, "schedule = [\"0s\", \"1h\"]\n").await;
    let receiver = failing(&stage).await;
    let client = stage.client().await;
    client.execute(CATCH_UP, &[]).await.unwrap();
    receiver.reply(HttpReply::status(200).after(Duration::from_millis(300)));
    let relay = stage.relay().await;
    for n in 3..6 {
        stage.emit("acme", "a", n).await;
    }
    eventually(PATIENCE, async || accepted(&receiver).len() == 6).await;
    assert_eq!(accepted_numbers(&receiver), [0, 1, 2, 3, 4, 5]);
    let caught_up = "endpoint WHERE catch_up_at IS NULL";
    eventually(PATIENCE, async || count(&client, caught_up).await == 1).await;
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_without_the_key_counts_no_failures() {
    const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    let stage = Stage::with(Store::Postgres, &format!("{SCHEDULE}{HURRY}")).await;
    let receiver = HttpReceiver::start().await;
    let (id, _) = stage.create("acme", &receiver.url("/"), &[]);
    let other = stage
        .configuration
        .replace(KEY, &KEY.replace("AAEC", "BAEC"));
    let relay = start_relay(&stage.home.url(), &other).await;
    stage.emit("acme", "a", 1).await;
    let client = stage.client().await;
    let waits = "endpoint_delivery WHERE state = 'waiting' AND last_error LIKE '%secrets%'";
    eventually(PATIENCE, async || count(&client, waits).await == 1).await;
    // The second attempt cannot be made either, and does not count.
    let due = "UPDATE hapax.endpoint_delivery SET next_at = clock_timestamp()";
    client.execute(due, &[]).await.unwrap();
    let again = "endpoint_delivery WHERE attempt = 2 AND counted_from = 2";
    eventually(PATIENCE, async || count(&client, again).await == 1).await;
    relay.stop().await;
    assert_eq!(count(&client, "endpoint_attempt").await, 0);
    let shown = stage.endpoint(&id);
    assert_eq!(
        (&shown["failures"], &shown["state"]),
        (&Value::from(0), &Value::from("enabled"))
    );
    client.execute(due, &[]).await.unwrap();
    let relay = stage.relay().await;
    eventually(PATIENCE, async || accepted(&receiver).len() == 1).await;
    relay.stop().await;
}

/// Deliveries wait for long, and a disabled endpoint is probed every few seconds.
const PROBED: &str = "schedule = [\"0s\", \"1h\"]\nprobe_after = \"1s\"\nprobe_longest = \"2s\"\n";
/// A relay has disabled the endpoint because it failed, and the probe is due.
const DISABLE: &str = "
    UPDATE hapax.endpoint
    SET disabled_reason = 'it failed', disabled_at = now(), failures = 20, failing_since = now(),
        probe_at = now()
    WHERE failures > 0";

#[tokio::test]
async fn an_event_that_no_key_decrypts_does_not_keep_an_endpoint_disabled() {
    const ENCRYPT_OLDEST: &str = "
        UPDATE hapax.endpoint_delivery
        SET headers = '{\"hapax-encrypted-under\": \"lost\"}'
        WHERE position = (SELECT min(position) FROM hapax.endpoint_delivery)";
    let stage = Stage::with(Store::Postgres, PROBED).await;
    let receiver = failing(&stage).await;
    let client = stage.client().await;
    assert_eq!(client.execute(DISABLE, &[]).await.unwrap(), 1);
    assert_eq!(client.execute(ENCRYPT_OLDEST, &[]).await.unwrap(), 1);
    receiver.reply(HttpReply::status(200));
    let relay = stage.relay().await;
    eventually(PATIENCE, async || accepted(&receiver).len() == 2).await;
    relay.stop().await;
    assert_eq!(accepted_numbers(&receiver), [1, 2]);
    assert_eq!(count(&client, WAITS).await, 1);
}

#[tokio::test]
async fn a_delivery_that_no_key_decrypts_fails_with_a_reason_and_is_no_failure_of_its_endpoint() {
    const ENCRYPT: &str = "
        UPDATE hapax.endpoint_delivery
        SET headers = '{\"hapax-encrypted-under\": \"lost\"}', attempt = 1, next_at = now()";
    let stage = Stage::with(Store::Postgres, "schedule = [\"0s\", \"1h\"]\n").await;
    let receiver = failing(&stage).await;
    let client = stage.client().await;
    assert_eq!(client.execute(ENCRYPT, &[]).await.unwrap(), 3);
    let id = client.query_one("SELECT id FROM hapax.endpoint", &[]).await;
    let id: String = id.unwrap().get("id");
    let failures = stage.endpoint(&id)["failures"].clone();
    let sent = receiver.received().len();
    let relay = stage.relay().await;
    eventually(PATIENCE, async || count(&client, FAILED).await == 3).await;
    relay.stop().await;
    let listed = stage.deliveries("acme", &id, &["--failed"]);
    let rejected = listed.iter().filter(|it| it["outcome"] == "rejected");
    let rejected: Vec<_> = rejected.collect();
    assert_eq!(rejected.len(), 3, "{listed:?}");
    for line in rejected {
        assert_eq!(
            (&line["attempt"], &line["state"]),
            (&json!(2), &json!("failed"))
        );
        let reason = line["error"].as_str().unwrap();
        assert!(reason.contains("no key of the keyring"), "{reason}");
    }
    assert_eq!(receiver.received().len(), sent);
    assert_eq!(stage.endpoint(&id)["failures"], failures);
}

/// A mapping that cannot be applied to [`SPOILT`].
const MAPPING: &str = r#"{"data": "$.data", "text": {"$concat": ["Order ", "$.data.n"]}}"#;
const SPOILT: &str = r#"{"n": []}"#;
/// Deliveries that have failed.
const FAILED: &str = "endpoint_delivery WHERE state = 'failed'";

#[tokio::test(flavor = "multi_thread")]
async fn events_that_cannot_be_mapped_do_not_keep_an_endpoint_disabled() {
    recovers_with_the_next_event(Store::Postgres).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_that_cannot_be_mapped_do_not_keep_an_endpoint_disabled_on_sqlite() {
    recovers_with_the_next_event(Store::Sqlite).await;
}

async fn recovers_with_the_next_event(on: Store) {
    // With this timeout, three leases of a probe are longer than the patience of the test.
    let settings = SETTINGS.replace("timeout = \"1s\"", "timeout = \"10s\"");
    let stage = Stage::of(on, format!("{settings}{SCHEDULE}{HURRY}")).await;
    let receiver = HttpReceiver::start().await;
    receiver.reply(HttpReply::status(503));
    let (id, _) = stage.create("acme", &receiver.url("/"), &[]);
    let spoilt: Value = serde_json::from_str(SPOILT).unwrap();
    for _ in 0..3 {
        stage.emit_payload("acme", "a", &spoilt).await;
    }
    for n in 3..5 {
        stage.emit("acme", "a", n).await;
    }
    let relay = stage.relay().await;
    let is = async |state: &str| {
        eventually(PATIENCE, async || stage.endpoint(&id)["state"] == state).await;
    };
    is("disabled").await;
    let own = ["--tenant", "acme"];
    let change = ["change", &id, "--mapping", MAPPING, own[0], own[1]];
    stage.run(&change).ended(0);
    receiver.reply(HttpReply::status(200));
    is("enabled").await;
    eventually(PATIENCE, async || accepted(&receiver).len() == 2).await;
    assert_eq!(accepted_numbers(&receiver), [3, 4]);
    let listed = stage.deliveries("acme", &id, &["--failed"]);
    let rejected = listed.iter().filter(|it| it["outcome"] == "rejected");
    let rejected: Vec<_> = rejected.map(|it| &it["state"]).collect();
    assert_eq!(rejected, ["failed"; 3], "{listed:?}");
    // Another mapping can be applied to them.
    let change = ["change", &id, "--mapping", "", own[0], own[1]];
    stage.run(&change).ended(0);
    let again = ["replay", &id, "--since", "1h", "--yes", own[0], own[1]];
    stage.run(&again).ended(0);
    eventually(PATIENCE, async || accepted(&receiver).len() == 5).await;
    relay.stop().await;
    assert_eq!(stage.endpoint(&id)["failures"], 0);
}

/// A stage with a receiver that was [`failing`], and a disabled endpoint whose probe is due. Its mapping
/// cannot be applied to the event with the lowest (`min`) or the highest (`max`) position.
async fn spoilt(which: &str) -> (Stage, HttpReceiver, Client) {
    let stage = Stage::with(Store::Postgres, PROBED).await;
    let receiver = failing(&stage).await;
    let client = stage.client().await;
    let spoil = format!(
        "UPDATE hapax.endpoint_delivery SET payload = $1
         WHERE position = (SELECT {which}(position) FROM hapax.endpoint_delivery)"
    );
    assert_eq!(client.execute(&spoil, &[&SPOILT]).await.unwrap(), 1);
    let map = "UPDATE hapax.endpoint SET mapping = $1";
    assert_eq!(client.execute(map, &[&MAPPING]).await.unwrap(), 1);
    assert_eq!(client.execute(DISABLE, &[]).await.unwrap(), 1);
    receiver.reply(HttpReply::status(200));
    (stage, receiver, client)
}

#[tokio::test]
async fn the_last_failed_event_that_cannot_be_mapped_does_not_keep_an_endpoint_disabled() {
    const FAIL_IN_ORDER: &str = "
        UPDATE hapax.endpoint_delivery AS delivery
        SET state = 'failed', ended_at = now() - interval '1 hour' + place * interval '1 minute'
        FROM (SELECT id, row_number() OVER (ORDER BY position) AS place
              FROM hapax.endpoint_delivery) AS numbered
        WHERE numbered.id = delivery.id";
    let (stage, receiver, client) = spoilt("max").await;
    assert_eq!(client.execute(FAIL_IN_ORDER, &[]).await.unwrap(), 3);
    let relay = stage.relay().await;
    let enabled = "endpoint WHERE disabled_reason IS NULL";
    eventually(PATIENCE, async || count(&client, enabled).await == 1).await;
    relay.stop().await;
    assert_eq!(accepted_numbers(&receiver), [1]);
    assert_eq!(count(&client, FAILED).await, 2);
}

#[cfg(debug_assertions)]
#[tokio::test]
async fn a_death_around_a_probe_that_cannot_be_mapped_is_followed_by_the_next_event() {
    for place in [
        "endpoints.send.after:1",
        "endpoints.settle.before:1",
        "endpoints.settle.after:1",
    ] {
        let (stage, receiver, client) = spoilt("min").await;
        let environment = [("HAPAX_FAILPOINT", place)];
        let database = stage.home.url();
        let mut relay = start_relay_with(&database, &stage.configuration, &environment).await;
        let ended = relay.ended().await;
        let signal = std::os::unix::process::ExitStatusExt::signal(&ended);
        assert_eq!(signal, Some(9), "{place}");
        drop(relay);
        let relay = stage.relay().await;
        eventually(PATIENCE, async || accepted(&receiver).len() == 2).await;
        relay.stop().await;
        assert_eq!(accepted_numbers(&receiver), [1, 2], "{place}");
        assert_eq!(count(&client, FAILED).await, 1, "{place}");
    }
}

#[cfg(debug_assertions)]
#[tokio::test]
async fn a_death_before_and_after_each_step_of_the_recovery_loses_nothing() {
    for place in [
        "endpoints.probe.before:1",
        "endpoints.probe.after:1",
        "endpoints.send.after:1",
        "endpoints.settle.after:1",
        "endpoints.recover.before:1",
        "endpoints.recover.after:1",
    ] {
        let more = format!("schedule = [\"0s\", \"1h\"]\n{HURRY}");
        let stage = Stage::with(Store::Postgres, &more).await;
        let receiver = failing(&stage).await;
        let client = stage.client().await;
        assert_eq!(client.execute(DISABLE, &[]).await.unwrap(), 1);
        receiver.reply(HttpReply::status(200));
        let environment = [("HAPAX_FAILPOINT", place)];
        let database = stage.home.url();
        let mut relay = start_relay_with(&database, &stage.configuration, &environment).await;
        let ended = relay.ended().await;
        let signal = std::os::unix::process::ExitStatusExt::signal(&ended);
        assert_eq!(signal, Some(9), "{place}");
        drop(relay);
        let relay = stage.relay().await;
        eventually(PATIENCE, async || accepted(&receiver).len() == 3).await;
        let enabled = "endpoint WHERE disabled_reason IS NULL AND catch_up_at IS NULL";
        eventually(PATIENCE, async || count(&client, enabled).await == 1).await;
        relay.stop().await;
    }
}

/// The numbers of the events that a receiver has accepted, in the order in which it did.
fn accepted_numbers(receiver: &HttpReceiver) -> Vec<i64> {
    let requests = receiver.received();
    let accepted = requests.iter().filter(|it| it.answered == Some(200));
    accepted.map(number).collect()
}
