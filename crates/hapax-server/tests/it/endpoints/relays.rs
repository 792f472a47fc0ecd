//! Relays that are killed, and several that share one queue.

use std::time::Duration;

use hapax_testkit::{
    http::{HttpReceiver, HttpReply},
    wait::eventually,
};

use super::{Stage, accepted, count, ids};
use crate::{
    hapax::{PATIENCE, start_relay, start_relay_with},
    store::Store,
};

#[tokio::test]
async fn a_relay_that_is_killed_between_two_attempts_loses_nothing() {
    let stage = Stage::new(Store::Postgres).await;
    let receiver = HttpReceiver::start().await;
    receiver.reply(HttpReply::status(503));
    stage.create("acme", &receiver.url("/"), &[]);
    let relay = stage.relay().await;
    for n in 0..5 {
        stage.emit("acme", "a", n).await;
    }
    eventually(PATIENCE, async || ids(&receiver).len() == 5).await;
    relay.kill();
    receiver.reply(HttpReply::status(200));
    let relay = stage.relay().await;
    eventually(PATIENCE, async || accepted(&receiver).len() == 5).await;
    relay.stop().await;
}

#[tokio::test]
async fn two_relays_share_one_queue() {
    const EVENTS: usize = 40;
    let stage = Stage::new(Store::Postgres).await;
    // An attempt takes longer than the patience, so every event goes through the queue.
    let mut receivers = Vec::new();
    for _ in 0..4 {
        let receiver = HttpReceiver::start().await;
        receiver.reply(HttpReply::status(200).after(Duration::from_millis(300)));
        stage.create("acme", &receiver.url("/"), &[]);
        receivers.push(receiver);
    }
    // No lease ends during the test.
    let one = stage
        .configuration
        .replace("timeout = \"1s\"", "timeout = \"30s\"");
    let two = one.replace("node = \"one\"", "node = \"two\"");
    let database = stage.home.url();
    let relays = [
        start_relay(&database, &one).await,
        start_relay(&database, &two).await,
    ];
    for n in 0..EVENTS {
        stage.emit("acme", "order.created", n).await;
    }
    for receiver in &receivers {
        eventually(PATIENCE, async || accepted(receiver).len() == EVENTS).await;
    }
    let client = stage.client().await;
    let is_settled =
        async || count(&client, "endpoint_delivery WHERE state = 'waiting'").await == 0;
    eventually(PATIENCE, is_settled).await;
    // Both have sent, and neither has claimed what the other one had.
    let again = "endpoint_delivery WHERE attempt <> 1 OR state <> 'delivered'";
    assert_eq!(count(&client, again).await, 0);
    for relay in relays {
        let metrics = relay.get("/metrics").await.text();
        let attempts = "hapax_endpoints_attempts_total{outcome=\"delivered\"}";
        assert!(metrics.contains(attempts), "{metrics}");
        relay.stop().await;
    }
}

#[tokio::test]
async fn a_relay_that_settles_after_its_lease_changes_nothing() {
    let stage = Stage::new(Store::Postgres).await;
    let receiver = HttpReceiver::start().await;
    receiver.reply_next(HttpReply::status(503).after(Duration::from_secs(5)));
    stage.create("acme", &receiver.url("/"), &[]);
    let one = stage
        .configuration
        .replace("timeout = \"1s\"", "timeout = \"30s\"");
    let two = one.replace("node = \"one\"", "node = \"two\"");
    let database = stage.home.url();
    let first = start_relay(&database, &one).await;
    stage.emit("acme", "a", 1).await;
    let client = stage.client().await;
    let is_queued = async || count(&client, "endpoint_delivery WHERE attempt = 1").await == 1;
    eventually(PATIENCE, is_queued).await;
    // The attempt is in flight. Its lease ends while the relay does not run.
    first.signal("STOP");
    let ended = "UPDATE hapax.endpoint_delivery SET next_at = clock_timestamp()";
    client.execute(ended, &[]).await.unwrap();
    let second = start_relay(&database, &two).await;
    let delivered = "endpoint_delivery WHERE attempt = 2 AND state = 'delivered'";
    eventually(PATIENCE, async || count(&client, delivered).await == 1).await;
    first.signal("CONT");
    let failed = "endpoint_attempt WHERE number = 1 AND outcome <> 'delivered'";
    eventually(PATIENCE, async || count(&client, failed).await == 1).await;
    assert_eq!(count(&client, delivered).await, 1);
    second.stop().await;
    first.stop().await;
}

#[cfg(debug_assertions)]
#[tokio::test]
async fn a_death_before_and_after_each_commit_and_send_to_an_endpoint_loses_nothing() {
    for place in [
        "endpoints.send.before:1",
        "endpoints.send.after:1",
        "endpoints.queue.before:1",
        "endpoints.queue.after:1",
        "endpoints.claim.before:3",
        "endpoints.claim.after:3",
        "endpoints.settle.before:1",
        "endpoints.settle.after:1",
    ] {
        let stage = Stage::new(Store::Postgres).await;
        let (receiver, other) = (HttpReceiver::start().await, HttpReceiver::start().await);
        receiver.reply_next(HttpReply::status(503));
        stage.create("acme", &receiver.url("/"), &[]);
        stage.create("acme", &other.url("/"), &[]);
        let environment = [("HAPAX_FAILPOINT", place)];
        let database = stage.home.url();
        let mut relay = start_relay_with(&database, &stage.configuration, &environment).await;
        for n in 0..3 {
            stage.emit("acme", "a", n).await;
        }
        let ended = relay.ended().await;
        let signal = std::os::unix::process::ExitStatusExt::signal(&ended);
        assert_eq!(signal, Some(9), "{place}");
        drop(relay);
        let relay = stage.relay().await;
        for receiver in [&receiver, &other] {
            eventually(PATIENCE, async || accepted(receiver).len() == 3).await;
        }
        relay.stop().await;
    }
}
