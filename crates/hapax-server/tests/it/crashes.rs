//! Tests of crashes of the relay and of its database.

use std::collections::HashMap;

use hapax_testkit::{
    http::{HttpReceiver, HttpReply},
    postgres::Cluster,
    wait::eventually,
};
use tokio_postgres::Client;

use crate::hapax::{PATIENCE, emit, migrate, migrated, start_relay, start_relay_with, webhook};

/// The maximum number of events that a crash may repeat: those that were being sent.
const WINDOW: usize = 32;

#[tokio::test]
async fn a_kill_in_the_middle_loses_nothing_and_repeats_at_most_what_was_on_the_wire() {
    let database = migrated().await;
    let receiver = HttpReceiver::start().await;
    receiver.reply(HttpReply::status(200).after(std::time::Duration::from_millis(20)));
    let configuration = format!(
        "[relay]\nnode = \"one\"\nlease = \"1s\"\n{}concurrency = {WINDOW}\n",
        webhook("orders", &receiver.url("/"))
    );
    let relay = start_relay(&database.url(), &configuration).await;
    emit(&database.client().await, "order.created", 500).await;
    receiver.received_at_least(100).await;
    relay.kill();
    let relay = start_relay(&database.url(), &configuration).await;
    eventually(PATIENCE, async || counted(&receiver).len() == 500).await;
    relay.stop().await;
    let repeated: usize = counted(&receiver).values().map(|count| count - 1).sum();
    assert!(repeated <= 2 * WINDOW, "{repeated} were repeated");
}

#[cfg(debug_assertions)]
#[tokio::test]
async fn a_death_before_and_after_each_commit_and_send_loses_nothing() {
    for place in [
        "relay.settle.before",
        "relay.settle.after",
        "relay.offer.before",
        "relay.offer.after",
    ] {
        let database = migrated().await;
        let receiver = HttpReceiver::start().await;
        let configuration = format!(
            "[relay]\nnode = \"one\"\nlease = \"1s\"\n{}",
            webhook("orders", &receiver.url("/"))
        );
        let fatal = format!("{place}:2");
        let environment = [("HAPAX_FAILPOINT", fatal.as_str())];
        let mut relay = start_relay_with(&database.url(), &configuration, &environment).await;
        let client = database.client().await;
        // The events are emitted one by one, so that the relay reads each of them separately.
        for _ in 0..3 {
            emit(&client, "order.created", 1).await;
        }
        let ended = relay.ended().await;
        assert_eq!(
            std::os::unix::process::ExitStatusExt::signal(&ended),
            Some(9),
            "{place}"
        );
        drop(relay);
        let relay = start_relay(&database.url(), &configuration).await;
        eventually(PATIENCE, async || counted(&receiver).len() == 3).await;
        relay.stop().await;
    }
}

/// No commit notifies a relay that is dead, and the next relay finds what was committed meanwhile.
#[tokio::test]
async fn a_relay_that_is_killed_while_it_sleeps_leaves_nothing_behind() {
    let database = migrated().await;
    let receiver = HttpReceiver::start().await;
    let configuration = format!(
        "[relay]\nnode = \"one\"\nlease = \"1s\"\n{}",
        webhook("orders", &receiver.url("/"))
    );
    let client = database.client().await;
    let relay = start_relay(&database.url(), &configuration).await;
    eventually(PATIENCE, async || sleeping(&client).await == 1).await;
    emit(&client, "order.created", 1).await;
    receiver.received_at_least(1).await;
    eventually(PATIENCE, async || sleeping(&client).await == 0).await;
    eventually(PATIENCE, async || sleeping(&client).await == 1).await;
    relay.kill();
    eventually(PATIENCE, async || sleeping(&client).await == 0).await;
    emit(&client, "order.created", 2).await;
    let relay = start_relay(&database.url(), &configuration).await;
    eventually(PATIENCE, async || counted(&receiver).len() == 3).await;
    relay.stop().await;
    eventually(PATIENCE, async || sleeping(&client).await == 0).await;
    assert!(counted(&receiver).values().all(|count| *count == 1));
}

/// The number of relays that hold the lock by which they sleep.
async fn sleeping(client: &Client) -> i64 {
    const SLEEPING: &str = "
        SELECT count(*) FROM pg_locks
        WHERE locktype = 'advisory' AND mode = 'ExclusiveLock' AND granted AND objid = 1
          AND classid = 'hapax.outbox_event'::regclass
          AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    client.query_one(SLEEPING, &[]).await.unwrap().get(0)
}

#[tokio::test]
async fn a_database_that_crashes_and_comes_back_is_carried_on_from() {
    let mut cluster = Cluster::start().await;
    migrate(&cluster.url());
    let receiver = HttpReceiver::start().await;
    let configuration = webhook("orders", &receiver.url("/"));
    let relay = start_relay(&cluster.url(), &configuration).await;
    emit(&cluster.client().await, "order.created", 20).await;
    receiver.received_at_least(20).await;
    cluster.stop_immediate().await;
    eventually(PATIENCE, async || relay.get("/readyz").await.status == 503).await;
    assert_eq!(relay.get("/healthz").await.status, 200);
    cluster.start_again().await;
    emit(&cluster.client().await, "order.created", 20).await;
    eventually(PATIENCE, async || counted(&receiver).len() == 40).await;
    eventually(PATIENCE, async || relay.get("/readyz").await.status == 200).await;
    relay.stop().await;
}

fn counted(receiver: &HttpReceiver) -> HashMap<String, usize> {
    let mut counts = HashMap::new();
    for received in receiver.received() {
        let id = received.header("webhook-id").unwrap().to_owned();
        *counts.entry(id).or_default() += 1;
    }
    counts
}
