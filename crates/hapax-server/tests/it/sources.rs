//! Tests of `hapax relay` with existing outbox tables, which use the sample configurations.

use hapax_testkit::http::HttpReceiver;

use crate::hapax::{SECRET, hapax, migrated, run_to_end, start_relay};

const TOPIC: &str = include_str!("../../../../examples/existing-outbox/topic.toml");
const AGGREGATE: &str = include_str!("../../../../examples/existing-outbox/aggregate.toml");
const STATUS: &str = include_str!("../../../../examples/existing-outbox/status.toml");

#[tokio::test]
async fn the_topic_schema_is_carried_by_its_sample_configuration() {
    let rows = "INSERT INTO outbox (topic, payload)
        SELECT 'order.created', json_build_object('n', n)::jsonb FROM generate_series(1, 20) AS n";
    carried(TOPIC, rows, "outbox WHERE published_at IS NULL").await;
}

#[tokio::test]
async fn the_aggregate_schema_is_carried_by_its_sample_configuration() {
    let rows = "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, sequence, payload)
        SELECT 'order', 'o' || n % 3, 'order.created', n, json_build_object('n', n)::jsonb
        FROM generate_series(1, 20) AS n";
    carried(AGGREGATE, rows, "outbox WHERE published_at IS NULL").await;
}

#[tokio::test]
async fn the_status_schema_is_carried_by_its_sample_configuration() {
    let rows = "INSERT INTO outbox_events (order_id, event_type, payload)
        SELECT 'o' || n % 3, 'order.created', json_build_object('n', n)::jsonb
        FROM generate_series(1, 20) AS n";
    let unpublished = "outbox_events WHERE status <> 'processed' OR processed_at IS NULL";
    carried(STATUS, rows, unpublished).await;
}

#[tokio::test]
async fn a_column_that_is_not_there_is_named_before_anything_is_carried() {
    let database = migrated().await;
    database
        .client()
        .await
        .batch_execute(&table(TOPIC))
        .await
        .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hapax.toml");
    let sources =
        "[sources.orders]\ntable = \"outbox\"\npublished = \"published_at\"\ntype = \"tpic\"\n";
    std::fs::write(&path, sources).unwrap();
    let mut command = hapax(&[
        "relay",
        "--listen",
        "127.0.0.1:0",
        "--database",
        &database.url(),
    ]);
    command.arg("--config").arg(&path);
    let ran = run_to_end(command).ended(1);
    assert!(
        ran.stderr.contains("sources.orders") && ran.stderr.contains("tpic"),
        "{ran:?}"
    );
}

/// The relay delivers the 20 events that `rows` inserts, and leaves no row that is `unpublished`.
async fn carried(sample: &str, rows: &str, unpublished: &str) {
    let database = migrated().await;
    let client = database.client().await;
    client.batch_execute(&table(sample)).await.unwrap();
    client.batch_execute(rows).await.unwrap();
    let receiver = HttpReceiver::start().await;
    let relay = start_relay(&database.url(), &configured(sample, &receiver.url("/"))).await;
    receiver.received_at_least(20).await;
    relay.stop().await;
    assert_eq!(receiver.received().len(), 20);
    let left = format!("SELECT count(*) FROM {unpublished}");
    let left: i64 = client.query_one(&left, &[]).await.unwrap().get(0);
    assert_eq!(left, 0);
}

/// The sample configuration with the URL of the test's receiver, and without the files of secrets.
fn configured(sample: &str, url: &str) -> String {
    let lines = sample.lines().filter(|line| !line.starts_with("url = "));
    let webhook = format!(
        "sink.webhook = {{ url = \"{url}\", secret = \"{SECRET}\", allow = [\"127.0.0.0/8\"] }}"
    );
    let lines = lines.map(|line| {
        if line.starts_with("sink.webhook = ") {
            webhook.as_str()
        } else {
            line
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The table from the comment of a sample configuration.
fn table(sample: &str) -> String {
    let comment = sample.lines().map_while(|line| line.strip_prefix('#'));
    let statements: Vec<&str> = comment.skip(1).collect();
    statements.join("\n").replace(" CONCURRENTLY", "")
}
