//! Tests that events reach S3, SQS, SNS and Pub/Sub, also if the relay is killed again and again.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hapax_testkit::{drongo::Drongo, moto::Moto, wait::eventually};
use serde_json::Value;

use crate::{
    hapax::{emit, migrated, start_relay},
    store::{Home, Store},
    test_event::test_with,
};

const EVENTS: usize = 600;
/// The maximum time that a test waits for the stand-ins, which work on one request after the other.
const PATIENCE: Duration = Duration::from_mins(2);
const KILLS: usize = 5;
/// Messages that are received in one call while relays are killed.
const PULLED: usize = 20;
/// The number of aggregates that the events of the FIFO topic are about.
const KEYS: usize = 5;
const ACCESS: &str = "access_key_id = \"test\", secret_access_key = \"test\", \
                      allow = [\"127.0.0.0/8\"]";
/// Slow enough that events are left after every kill.
const PER_SECOND: usize = 40;

#[tokio::test]
async fn a_relay_that_is_killed_again_and_again_loses_no_line_and_no_message() {
    let (moto, configuration) = moto().await;
    let database = migrated().await;
    emit(&database.client().await, "order.created", EVENTS).await;
    let mut received = Vec::new();
    for kill in 0..KILLS {
        let relay = start_relay(&database.url(), &configuration).await;
        let before = received.len();
        eventually(PATIENCE, async || {
            received.extend(moto.receive_some("events").await);
            received.len() > before
        })
        .await;
        relay.kill();
        assert!(of_messages(&received).len() < EVENTS, "kill {kill} is late");
    }
    let relay = start_relay(&database.url(), &configuration).await;
    eventually(PATIENCE, async || {
        received.extend(moto.receive("events").await);
        of_messages(&received).len() == EVENTS
    })
    .await;
    let mut published = Vec::new();
    eventually(PATIENCE, async || {
        published.extend(moto.receive("published").await);
        of_messages(&published).len() == EVENTS
    })
    .await;
    eventually(PATIENCE, async || {
        let lines = moto.lines("events").await;
        let numbers: BTreeSet<_> = lines.iter().map(number).collect();
        numbers.len() == EVENTS
    })
    .await;
    relay.stop().await;
}

#[tokio::test]
async fn a_relay_that_is_killed_again_and_again_keeps_the_order_of_a_fifo_topic() {
    let moto = Moto::start(env!("CARGO_TARGET_TMPDIR")).await;
    moto.create_queue("ordered.fifo").await;
    let topic = moto.create_topic("ordered.fifo").await;
    let configuration = format!(
        "[relay]\nnode = \"one\"\nlease = \"1s\"\n{}order = \"key\"\n",
        destination("topic", &sns(&moto, &topic))
    );
    let database = migrated().await;
    let emit = format!(
        "SELECT hapax.emit('order.created', json_build_object('n', n)::text, 'order', 'o' || n % {KEYS})
         FROM generate_series(1, {EVENTS}) AS n"
    );
    database.client().await.batch_execute(&emit).await.unwrap();
    let mut received = Vec::new();
    for kill in 0..KILLS {
        let relay = start_relay(&database.url(), &configuration).await;
        let before = received.len();
        eventually(PATIENCE, async || {
            received.extend(moto.receive_some("ordered.fifo").await);
            received.len() > before
        })
        .await;
        relay.kill();
        assert!(of_messages(&received).len() < EVENTS, "kill {kill} is late");
    }
    let relay = start_relay(&database.url(), &configuration).await;
    eventually(PATIENCE, async || {
        received.extend(moto.receive("ordered.fifo").await);
        of_messages(&received).len() == EVENTS
    })
    .await;
    relay.stop().await;
    let mut groups: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for message in &received {
        let group = message["Attributes"]["MessageGroupId"].as_str().unwrap();
        let numbers = groups.entry(group).or_default();
        // Moto forgets the deduplication id of a message that was deleted. SQS and SNS do not.
        if !numbers.contains(&of_message(message)) {
            numbers.push(of_message(message));
        }
    }
    assert_eq!(groups.len(), KEYS);
    for (group, numbers) in groups {
        assert!(numbers.is_sorted(), "{group}: {numbers:?}");
    }
}

#[tokio::test]
async fn a_relay_that_is_killed_again_and_again_loses_no_message_of_pubsub() {
    let drongo = Drongo::start(env!("CARGO_TARGET_TMPDIR")).await;
    let topic = drongo.create_topic("events").await;
    let address = drongo.address();
    let pubsub = format!(
        "sink.pubsub = {{ topic = \"{topic}\", endpoint = \"http://{address}\", \
         allow = [\"127.0.0.0/8\"] }}"
    );
    let configuration = format!(
        "[relay]\nnode = \"one\"\nlease = \"1s\"\n{}",
        destination("topic", &pubsub)
    );
    let database = migrated().await;
    emit(&database.client().await, "order.created", EVENTS).await;
    let mut received = BTreeSet::new();
    for kill in 0..KILLS {
        let relay = start_relay(&database.url(), &configuration).await;
        let before = received.len();
        eventually(PATIENCE, async || {
            let some = drongo.receive_some("events", PULLED).await;
            received.extend(some.iter().map(of_pubsub));
            received.len() > before
        })
        .await;
        relay.kill();
        assert!(received.len() < EVENTS, "kill {kill} is late");
    }
    let relay = start_relay(&database.url(), &configuration).await;
    eventually(PATIENCE, async || {
        received.extend(drongo.receive("events").await.iter().map(of_pubsub));
        received.len() == EVENTS
    })
    .await;
    relay.stop().await;
}

#[tokio::test]
async fn a_test_event_reaches_a_bucket_a_queue_and_a_topic() {
    let (moto, configuration) = moto().await;
    let database = Home::migrated(Store::Sqlite).await;
    for name in ["archive", "queue", "topic"] {
        let ran = test_with(&database, name, &configuration).await.ended(0);
        let tested = ran.json();
        assert_eq!(tested["attempt"]["outcome"], "delivered", "{tested}");
        assert_eq!(tested["attempt"]["status"], 200, "{tested}");
    }
    assert_eq!(moto.lines("events").await.len(), 1);
    assert_eq!(moto.receive("events").await.len(), 1);
    assert_eq!(moto.receive("published").await.len(), 1);
    moto.delete_queue("events").await;
    moto.delete_topic("published").await;
    let elsewhere = configuration.replace("bucket = \"events\"", "bucket = \"missing\"");
    for (name, code) in [
        ("archive", "NoSuchBucket"),
        ("queue", "QueueDoesNotExist"),
        ("topic", "NotFound"),
    ] {
        let ran = test_with(&database, name, &elsewhere).await.ended(1);
        assert!(ran.stderr.contains(code), "{ran:?}");
    }
    // The network policy applies.
    let guarded = configuration.replace(", allow = [\"127.0.0.0/8\"]", "");
    for name in ["archive", "queue", "topic"] {
        let ran = test_with(&database, name, &guarded).await.ended(1);
        assert!(ran.stderr.contains("is loopback"), "{ran:?}");
    }
}

/// A moto with a bucket, a queue and a topic, and the configuration of a destination for each.
async fn moto() -> (Moto, String) {
    let moto = Moto::start(env!("CARGO_TARGET_TMPDIR")).await;
    moto.create_bucket("events").await;
    let queue = moto.create_queue("events").await;
    moto.create_queue("published").await;
    let topic = moto.create_topic("published").await;
    let address = moto.address();
    let s3 = format!(
        "sink.s3 = {{ endpoint = \"http://{address}\", region = \"us-east-1\", bucket = \"events\", \
         prefix = \"shop\", {ACCESS} }}"
    );
    let sqs = format!(
        "sink.sqs = {{ queue_url = \"http://{address}{queue}\", region = \"us-east-1\", {ACCESS} }}"
    );
    let configuration = format!(
        "[relay]\nnode = \"one\"\nlease = \"1s\"\n{}{}{}",
        destination("archive", &s3),
        destination("queue", &sqs),
        destination("topic", &sns(&moto, &topic))
    );
    (moto, configuration)
}

fn sns(moto: &Moto, topic: &str) -> String {
    let address = moto.address();
    format!("sink.sns = {{ topic_arn = \"{topic}\", endpoint = \"http://{address}\", {ACCESS} }}")
}

fn destination(name: &str, sink: &str) -> String {
    format!(
        "[destinations.{name}]\n\
         schedule = [\"0s\", \"50ms\", \"100ms\", \"200ms\", \"1s\", \"1s\", \"1s\", \"1s\"]\n\
         per_second = {PER_SECOND}\n\
         {sink}\n"
    )
}

/// The numbers of the events in these messages.
fn of_messages(messages: &[Value]) -> BTreeSet<u64> {
    messages.iter().map(of_message).collect()
}

/// The number of the event in a message.
fn of_message(message: &Value) -> u64 {
    let body = message["Body"].as_str().unwrap();
    number(&serde_json::from_str(body).unwrap())
}

/// The number of the event in a message of Pub/Sub, whose data is the payload.
fn of_pubsub(message: &Value) -> u64 {
    let data = STANDARD.decode(message["data"].as_str().unwrap()).unwrap();
    let payload: Value = serde_json::from_slice(&data).unwrap();
    payload["n"].as_u64().unwrap()
}

fn number(event: &Value) -> u64 {
    event["data"]["n"].as_u64().unwrap()
}
