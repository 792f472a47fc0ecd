//! Tests of the gauges of a destination. The maximum over all relays is the correct value.

use std::fs;

use hapax_testkit::{
    http::{HttpReceiver, HttpReply},
    postgres::{Cluster, Database},
    wait::eventually,
};

use crate::hapax::{PATIENCE, Relay, emit, migrate, migrated, run, start_relay, webhook};

const EPOCH: &str = "hapax_relay_lease_epoch";
const BACKLOG: &str = "hapax_outbox_backlog_events";
const LAG: &str = "hapax_outbox_lag_seconds";
const DEAD: &str = "hapax_relay_dead_events";
const GAUGES: [&str; 6] = [
    EPOCH,
    BACKLOG,
    LAG,
    DEAD,
    "hapax_relay_parked_events",
    "hapax_relay_breaker_open",
];

#[tokio::test]
async fn a_relay_that_handed_a_destination_over_reports_zero_of_it() {
    let (database, receiver) = setting().await;
    receiver.reply(HttpReply::status(503));
    let configuration = ["a", "b"]
        .map(|name| webhook(name, &receiver.url("/")))
        .concat();
    let one = start_relay(&database.url(), &configuration).await;
    emit(&database.client().await, "order.created", 20).await;
    let told = async |relay: &Relay, name, gauge| value(relay, gauge, name).await;
    for name in ["a", "b"] {
        eventually(PATIENCE, async || {
            told(&one, name, LAG).await > 0.0 && told(&one, name, EPOCH).await > 0.0
        })
        .await;
    }
    let two = start_relay(&database.url(), &configuration).await;
    eventually(PATIENCE, async || {
        told(&two, "a", LAG).await > 0.0 || told(&two, "b", LAG).await > 0.0
    })
    .await;
    let (moved, kept) = if value(&two, EPOCH, "a").await > 0.0 {
        ("a", "b")
    } else {
        ("b", "a")
    };
    for gauge in GAUGES {
        eventually(PATIENCE, async || {
            told(&one, moved, gauge).await.abs() < 0.5
        })
        .await;
    }
    assert!(value(&one, EPOCH, kept).await > 0.0);
    assert!(value(&two, EPOCH, moved).await > 1.0);
    one.stop().await;
    two.stop().await;
}

#[tokio::test]
async fn the_waits_before_retries_are_counted() {
    let (database, receiver) = setting().await;
    receiver.reply(HttpReply::status(503));
    let configuration = webhook("orders", &receiver.url("/"));
    let relay = start_relay(&database.url(), &configuration).await;
    emit(&database.client().await, "order.created", 1).await;
    let waits = async |figure: &str| {
        let metric = format!("hapax_relay_retry_delay_seconds_{figure}");
        value(&relay, &metric, "orders").await
    };
    eventually(PATIENCE, async || waits("count").await > 0.5).await;
    let (sum, count) = (waits("sum").await, waits("count").await);
    assert!(sum >= 0.05 && sum / count < 2.0, "{count} waits of {sum} s");
    let text = relay.get("/metrics").await.text();
    let bucket = "hapax_relay_retry_delay_seconds_bucket{destination=\"orders\",le=";
    assert!(text.contains(bucket), "{text}");
    relay.stop().await;
}

#[tokio::test]
async fn a_paused_destination_goes_on_telling_how_far_behind_it_is() {
    let (database, receiver) = setting().await;
    let url = database.url();
    let relay = start_relay(&url, &webhook("orders", &receiver.url("/"))).await;
    // Before the relay owns the destination, `pause` would not find it.
    eventually(PATIENCE, async || {
        value(&relay, EPOCH, "orders").await > 0.5
    })
    .await;
    let call = |verb| run(&["destinations", verb, "orders", "--yes", "--database", &url]).ended(0);
    call("pause");
    eventually(PATIENCE, async || relay.state("orders").await == "paused").await;
    emit(&database.client().await, "order.created", 5).await;
    eventually(PATIENCE, async || {
        value(&relay, BACKLOG, "orders").await > 4.5 && value(&relay, LAG, "orders").await > 0.0
    })
    .await;
    assert!(value(&relay, EPOCH, "orders").await < 0.5);
    let unread = || {
        let list = ["events", "list", "--unread", "orders", "--limit", "3"];
        let listed = run(&[&list[..], &["--json", "--database", &url]].concat());
        let listed = listed.ended(0).json();
        listed["items"].as_array().unwrap().len()
    };
    assert_eq!(unread(), 3);
    let unknown = ["events", "list", "--unread", "nobody", "--database", &url];
    run(&unknown).ended(3);
    call("resume");
    eventually(PATIENCE, async || {
        value(&relay, BACKLOG, "orders").await < 0.5 && value(&relay, EPOCH, "orders").await > 0.5
    })
    .await;
    assert_eq!(unread(), 0);
    relay.stop().await;
}

#[tokio::test]
async fn dead_letters_are_counted_until_an_operator_handles_them() {
    let (database, receiver) = setting().await;
    // The receiver rejects the event, so all attempts fail. They are too few to open the breaker.
    receiver.reply(HttpReply::status(422));
    let url = database.url();
    let relay = start_relay(&url, &webhook("orders", &receiver.url("/"))).await;
    let total = "hapax_relay_dead_letters_total";
    eventually(PATIENCE, async || {
        value(&relay, total, "orders").await.abs() < 0.5
    })
    .await;
    emit(&database.client().await, "order.created", 1).await;
    eventually(PATIENCE, async || value(&relay, DEAD, "orders").await > 0.5).await;
    assert!(value(&relay, total, "orders").await > 0.5);
    receiver.reply(HttpReply::status(200));
    let again = ["dead-letters", "replay-all", "--destination", "orders"];
    run(&[&again[..], &["--yes", "--database", &url]].concat()).ended(0);
    eventually(PATIENCE, async || value(&relay, DEAD, "orders").await < 0.5).await;
    relay.stop().await;
}

#[tokio::test]
async fn of_a_destination_that_is_no_more_a_relay_says_nothing() {
    let (database, receiver) = setting().await;
    let one = webhook("a", &receiver.url("/a"));
    let both = [one.clone(), webhook("b", &receiver.url("/b"))].concat();
    let relay = start_relay(&database.url(), &both).await;
    eventually(PATIENCE, async || {
        value(&relay, BACKLOG, "b").await.abs() < 0.5
    })
    .await;
    fs::write(relay.file("hapax.toml"), one).unwrap();
    relay.signal("HUP");
    eventually(PATIENCE, async || all_nan(&relay, "b").await).await;
    eventually(PATIENCE, async || value(&relay, EPOCH, "a").await > 0.0).await;
    relay.stop().await;
}

#[tokio::test]
async fn a_relay_counts_how_often_its_database_failed_it_even_one_that_carries_nothing() {
    let mut cluster = Cluster::start().await;
    migrate(&cluster.url());
    let receiver = HttpReceiver::start().await;
    let configuration = webhook("orders", &receiver.url("/"));
    let one = start_relay(&cluster.url(), &configuration).await;
    eventually(PATIENCE, async || value(&one, EPOCH, "orders").await > 0.5).await;
    let standby = start_relay(&cluster.url(), &configuration).await;
    let failures = "hapax_relay_store_failures_total";
    for relay in [&one, &standby] {
        eventually(PATIENCE, async || {
            value(relay, failures, "orders").await.abs() < 0.5
        })
        .await;
    }
    cluster.stop_immediate().await;
    for relay in [&one, &standby] {
        eventually(PATIENCE, async || {
            value(relay, failures, "orders").await > 0.5
        })
        .await;
    }
}

async fn setting() -> (Database, HttpReceiver) {
    let database = migrated().await;
    (database, HttpReceiver::start().await)
}

async fn all_nan(relay: &Relay, destination: &str) -> bool {
    for gauge in GAUGES {
        if !value(relay, gauge, destination).await.is_nan() {
            return false;
        }
    }
    true
}

/// The value of a relay's metric for a destination, or -1 if the relay has never reported it.
async fn value(relay: &Relay, metric: &str, destination: &str) -> f64 {
    let start = format!("{metric}{{destination=\"{destination}\"}} ");
    let text = relay.get("/metrics").await.text();
    let value = text.lines().find_map(|line| line.strip_prefix(&start));
    value.map_or(-1.0, |value| value.parse().unwrap())
}
