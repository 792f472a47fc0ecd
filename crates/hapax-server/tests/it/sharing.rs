//! Tests of several relays on one database: sharing, handing over and taking over partitions.

use std::collections::{BTreeSet, HashMap};

use hapax_testkit::{http::HttpReceiver, postgres::Database, wait::eventually};

use serde_json::Value;

use crate::hapax::{PATIENCE, Relay, emit, migrated, start_relay, webhook};

#[tokio::test]
async fn two_relays_share_the_destinations_and_repeat_nothing() {
    let (database, receiver) = setting().await;
    let configuration = many(&receiver);
    let one = start_relay(&database.url(), &configuration).await;
    let two = start_relay(&database.url(), &configuration).await;
    until_shared(&one, &two).await;
    emit(&database.client().await, "order.created", 100).await;
    receiver.received_at_least(400).await;
    one.stop().await;
    two.stop().await;
    let counts = counted(&receiver);
    assert_eq!(counts.len(), 400);
    assert!(counts.values().all(|count| *count == 1));
}

#[tokio::test]
async fn one_that_stops_hands_over_at_once() {
    let (database, receiver) = setting().await;
    // With this lease, no relay could take over from a dead relay during the test.
    let configuration = format!("[relay]\nlease = \"5m\"\n{}", many(&receiver));
    let one = start_relay(&database.url(), &configuration).await;
    eventually(PATIENCE, async || delivered(&one).await.len() == 4).await;
    one.stop().await;
    let two = start_relay(&database.url(), &configuration).await;
    emit(&database.client().await, "order.created", 10).await;
    receiver.received_at_least(40).await;
    two.stop().await;
}

#[tokio::test]
async fn a_partition_that_is_locked_for_a_moment_is_taken_right_after() {
    let (database, receiver) = setting().await;
    // With this lease, a relay looks for free partitions once a minute.
    let configuration = format!("[relay]\nlease = \"5m\"\n{}", many(&receiver));
    let one = start_relay(&database.url(), &configuration).await;
    emit(&database.client().await, "order.created", 1).await;
    receiver.received_at_least(4).await;
    one.stop().await;
    let mut somebody = database.client().await;
    let hold = somebody.transaction().await.unwrap();
    let rows = hold.execute(
        "SELECT FROM hapax.lease WHERE partition = 'd' FOR UPDATE",
        &[],
    );
    assert_eq!(rows.await.unwrap(), 1);
    let two = start_relay(&database.url(), &configuration).await;
    eventually(PATIENCE, async || states(&two).await["d"] == "standby").await;
    hold.rollback().await.unwrap();
    eventually(PATIENCE, async || states(&two).await["d"] == "delivering").await;
    two.stop().await;
}

#[tokio::test]
async fn what_a_killed_one_held_is_shared_after_its_lease_though_it_is_back_under_its_name() {
    let (database, receiver) = setting().await;
    let named = |name: &str| {
        let relay = format!("[relay]\nnode = \"{name}\"\nlease = \"3s\"\n");
        relay + &many(&receiver)
    };
    let one = start_relay(&database.url(), &named("one")).await;
    eventually(PATIENCE, async || delivered(&one).await.len() == 4).await;
    one.kill();
    let two = start_relay(&database.url(), &named("two")).await;
    // Before the lease of the killed relay has expired, another process starts under its name.
    let one = start_relay(&database.url(), &named("one")).await;
    emit(&database.client().await, "order.created", 10).await;
    until_shared(&one, &two).await;
    eventually(PATIENCE, async || counted(&receiver).len() == 40).await;
    let ready: Value = one.get("/readyz").await.json().unwrap();
    assert_eq!(ready.get("namesakes"), None, "{ready}");
    one.stop().await;
    two.stop().await;
}

#[tokio::test]
async fn two_of_one_name_share_and_say_so_and_neither_takes_what_the_other_has() {
    let (database, receiver) = setting().await;
    let configuration = format!(
        "[relay]\nnode = \"one\"\nlease = \"1s\"\n{}",
        many(&receiver)
    );
    let one = start_relay(&database.url(), &configuration).await;
    eventually(PATIENCE, async || delivered(&one).await.len() == 4).await;
    let two = start_relay(&database.url(), &configuration).await;
    until_shared(&one, &two).await;
    for relay in [&one, &two] {
        eventually(PATIENCE, async || {
            let ready = relay.get("/readyz").await;
            assert_eq!(ready.status, 200);
            ready.json().unwrap()["namesakes"] == 1
        })
        .await;
    }
    emit(&database.client().await, "order.created", 25).await;
    eventually(PATIENCE, async || counted(&receiver).len() == 100).await;
    assert!(counted(&receiver).values().all(|count| *count == 1));
    let client = database.client().await;
    let epochs = client
        .query_one("SELECT max(epoch) FROM hapax.lease", &[])
        .await;
    assert!(
        epochs.unwrap().get::<_, i64>(0) <= 3,
        "partitions changed their owners too often"
    );
    one.stop().await;
    two.stop().await;
}

#[tokio::test]
async fn what_a_killed_one_carried_goes_on_at_another() {
    let (database, receiver) = setting().await;
    let configuration = format!("[relay]\nlease = \"1s\"\n{}", many(&receiver));
    let one = start_relay(&database.url(), &configuration).await;
    let two = start_relay(&database.url(), &configuration).await;
    eventually(PATIENCE, async || !delivered(&one).await.is_empty()).await;
    let client = database.client().await;
    emit(&client, "order.created", 100).await;
    one.kill();
    emit(&client, "order.created", 100).await;
    eventually(PATIENCE, async || counted(&receiver).len() == 800).await;
    two.stop().await;
}

async fn setting() -> (Database, HttpReceiver) {
    let database = migrated().await;
    (database, HttpReceiver::start().await)
}

/// Four destinations, each with a separate path of the receiver.
fn many(receiver: &HttpReceiver) -> String {
    let one = |name: &str| webhook(name, &receiver.url(&format!("/{name}")));
    ["a", "b", "c", "d"].map(one).concat()
}

/// Waits until each relay owns two of the four destinations.
async fn until_shared(one: &Relay, two: &Relay) {
    eventually(PATIENCE, async || {
        let (one, two) = (delivered(one).await, delivered(two).await);
        one.len() == 2 && two.len() == 2 && one.is_disjoint(&two)
    })
    .await;
}

/// The destinations that a relay delivers.
async fn delivered(relay: &Relay) -> BTreeSet<String> {
    let states = states(relay).await;
    let delivered = states.as_object().unwrap().iter();
    let delivered = delivered.filter(|(_, state)| *state == "delivering");
    delivered.map(|(name, _)| name.clone()).collect()
}

/// The state of each destination, as a relay reports it.
async fn states(relay: &Relay) -> Value {
    let mut ready: Value = relay.get("/readyz").await.json().unwrap();
    ready["destinations"].take()
}

/// The number of arrivals of each event at each destination.
fn counted(receiver: &HttpReceiver) -> HashMap<(String, String), usize> {
    let mut counts = HashMap::new();
    for received in receiver.received() {
        let id = received.header("webhook-id").unwrap().to_owned();
        *counts.entry((received.path, id)).or_default() += 1;
    }
    counts
}
