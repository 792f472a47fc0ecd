//! Rows of an outbox table as events.

use std::fs;

use hapax_testkit::{postgres::Certificates, wait::eventually};

use super::{Fed, OUTBOX, count, feed, insert, numbers, texts};
use crate::fixture::PATIENCE;

#[tokio::test(flavor = "multi_thread")]
async fn committed_rows_become_events_in_their_order_and_others_never() {
    let fed = Fed::new(OUTBOX).await;
    let running = fed.run(feed()).await;
    fed.sql(&insert(1, 3)).await;
    fed.sql(&format!("BEGIN; {}; ROLLBACK", insert(100, 102)))
        .await;
    fed.sql(&format!(
        "BEGIN; {}; SAVEPOINT a; {}; ROLLBACK TO a; {}; COMMIT",
        insert(4, 4),
        insert(100, 102),
        insert(5, 6)
    ))
    .await;
    assert_eq!(fed.events(6, "payload").await, numbers(6));
    running.stop().await;
    // A second start continues where the first one has ended.
    let running = fed.run(feed()).await;
    fed.sql(&insert(7, 9)).await;
    assert_eq!(fed.events(9, "payload").await, numbers(9));
    let kinds = "DISTINCT type || ' ' || aggregate_type FROM hapax.outbox_event";
    assert_eq!(
        texts(&fed.plain, &format!("SELECT {kinds}")).await,
        ["a order"]
    );
    let ids = "SELECT count(DISTINCT event_id) FROM hapax.outbox_event";
    assert_eq!(fed.count(ids).await, 9);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_is_deleted_at_once_is_an_event_and_the_table_stays_empty() {
    let fed = Fed::new(OUTBOX).await;
    let running = fed.run(feed()).await;
    fed.sql(&format!(
        "BEGIN; {}; DELETE FROM outbox; COMMIT",
        insert(1, 3)
    ))
    .await;
    assert_eq!(fed.events(3, "payload").await, numbers(3));
    assert_eq!(fed.count("SELECT count(*) FROM outbox").await, 0);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_transaction_of_any_size_is_one_transaction_of_the_store() {
    let fed = Fed::new(OUTBOX).await;
    let running = fed.run(feed()).await;
    fed.sql(&insert(1, 5_000)).await;
    assert_eq!(fed.events(1, "payload").await, numbers(5_000));
    let transactions = "SELECT count(DISTINCT xid::text) FROM hapax.outbox_event";
    assert_eq!(fed.count(transactions).await, 1);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_cannot_be_an_event_is_set_aside_with_its_payload_and_stops_no_other() {
    let fed = Fed::new(OUTBOX).await;
    let mut strict = feed();
    strict.tables[0].sequence = Some("id".to_owned());
    let running = fed.run(strict).await;
    fed.sql(
        "INSERT INTO outbox (topic, owner, payload) VALUES
             ('a', 'o', 'not json'), (repeat('x', 300), 'o', '{}'), ('a', 'o', NULL),
             ('a', repeat('o', 300), '{}'), ('a b', 'o', '{}'),
             ('a', 'o', '\"' || repeat('x', 2000000) || '\"'), ('a', 'o', '7')",
    )
    .await;
    assert_eq!(fed.events(1, "payload").await, ["7"]);
    let aside = texts(
        &fed.plain,
        "SELECT problem || ': ' || left(coalesce(payload, '-'), 9) FROM hapax.set_aside
         WHERE source = 'feeds.orders' ORDER BY split_part(split_part(row_key, '.', 2), ' ', 1)::int",
    )
    .await;
    assert_eq!(
        aside,
        [
            "the payload is not JSON: not json",
            "the event type is not 1 to 255 letters, digits and . _ - / :: {}",
            "the payload is missing: -",
            "the aggregate is not 1 to 255 bytes without control characters: {}",
            "the event type is not 1 to 255 letters, digits and . _ - / :: {}",
            "the payload is 2000002 bytes long, at most 1048576 are carried: {\"id\":6,\"",
        ]
    );
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_feeders_of_one_feed_take_turns() {
    let fed = Fed::new(OUTBOX).await;
    let first = fed.run(feed()).await;
    let second = fed.run(feed()).await;
    fed.sql(&insert(1, 10)).await;
    assert_eq!(fed.events(10, "payload").await, numbers(10));
    first.stop().await;
    fed.sql(&insert(11, 20)).await;
    assert_eq!(fed.events(20, "payload").await, numbers(20));
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_source_may_be_another_database() {
    let fed = Fed::new("CREATE TABLE row ()").await;
    fed.cluster.create("service").await;
    let service = fed.cluster.client_of("service").await;
    service.batch_execute(OUTBOX).await.unwrap();
    let running = fed.run_from(&fed.cluster.url_of("service"), feed());
    fed.has_started().await;
    service.batch_execute(&insert(1, 5)).await.unwrap();
    assert_eq!(fed.events(5, "payload").await, numbers(5));
    running.stop().await;
}

/// Without any destination, the server keeps no more log than the feed has not read.
#[tokio::test(flavor = "multi_thread")]
async fn the_log_is_released_although_nothing_is_delivered() {
    const RETAINED: &str = "
        SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::int8 FROM pg_replication_slots";
    let fed = Fed::new(OUTBOX).await;
    let running = fed.run(feed()).await;
    let wide = "INSERT INTO outbox (topic, payload)
        SELECT 'a', to_json(repeat(md5(n::text), 500)) FROM generate_series(1, 1000) AS n";
    for round in 1..=4 {
        fed.sql(wide).await;
        fed.events(round * 1_000, "type").await;
    }
    // Nothing of this becomes an event.
    fed.sql("CREATE TABLE other AS SELECT md5(n::text) FROM generate_series(1, 100000) AS n")
        .await;
    eventually(PATIENCE * 2, async || {
        fed.sql("CHECKPOINT").await;
        count(&fed.plain, RETAINED).await < 1024 * 1024
    })
    .await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_is_proved_by_scram_over_tls() {
    let fed = Fed::new(OUTBOX).await;
    fed.sql("CREATE ROLE feeder LOGIN SUPERUSER PASSWORD 'secret'")
        .await;
    let hba = texts(&fed.plain, "SHOW hba_file").await.remove(0);
    let rules = fs::read_to_string(&hba).unwrap();
    let rules =
        format!("hostssl all feeder all scram-sha-256\nhost all feeder all reject\n{rules}");
    fs::write(&hba, rules).unwrap();
    let certificates = Certificates::of("localhost");
    // Reloads the rules, too.
    certificates.install(&fed.cluster).await;
    let url = fed.cluster.url().replace("127.0.0.1", "localhost");
    let root = certificates.root();
    let url = |user: &str| {
        let url = url.replace("postgres@", &format!("{user}@"));
        format!("{url}?sslmode=require&sslrootcert={}", root.display())
    };
    let wrong = fed.run_from(&url("feeder:wrong"), feed());
    let refused = "password authentication failed for user \"feeder\"";
    eventually(PATIENCE, async || fed.cluster.log().contains(refused)).await;
    wrong.stop().await;
    let running = fed.run_from(&url("feeder:secret"), feed());
    fed.has_started().await;
    fed.sql(&insert(1, 2)).await;
    assert_eq!(fed.events(2, "payload").await, numbers(2));
    running.stop().await;
}
