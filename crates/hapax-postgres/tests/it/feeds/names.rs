//! Tables that get another name, and partitions that are sent under another one: the feed stops before
//! the first change that it would lose, and reads it once the name is described.

use hapax_postgres::{Change, Feed, FeedTable};
use hapax_testkit::wait::eventually;

use super::{Fed, OUTBOX, Running, feed, insert, mapped::orders, numbers};
use crate::fixture::PATIENCE;

const PARTITIONED: &str = "
    CREATE TABLE orders (id int, region text) PARTITION BY LIST (region);
    CREATE TABLE orders_a PARTITION OF orders FOR VALUES IN ('a');
    CREATE TABLE orders_b PARTITION OF orders FOR VALUES IN ('b');
    CREATE PUBLICATION hapax_orders FOR TABLE orders
        WITH (publish = 'insert', publish_via_partition_root = true)";
const RENAME: &str = "ALTER TABLE outbox RENAME TO letters";
const UNDER_ROOT: &str = "ALTER PUBLICATION hapax_orders SET (publish_via_partition_root = true)";
const UNDER_PARTITIONS: &str =
    "ALTER PUBLICATION hapax_orders SET (publish_via_partition_root = false)";
const IDS: &str = "aggregate_id";
const NOT_ACTIVE: &str = "SELECT count(*) FROM pg_replication_slots WHERE NOT active";

/// A server that logs how often a feeder begins to read.
async fn server(ddl: &str) -> Fed {
    let fed = Fed::new(ddl).await;
    fed.cluster
        .settings(&[("log_replication_commands", "on")])
        .await;
    fed
}

/// Waits until a feeder has stopped reading and begun again, twice.
async fn stops(fed: &Fed) {
    let begun = || {
        let log = fed.cluster.log();
        log.matches("received replication command: START_REPLICATION")
            .count()
    };
    let before = begun();
    eventually(PATIENCE, async || begun() > before + 1).await;
}

async fn ends(fed: &Fed, running: Running) {
    running.stop().await;
    eventually(PATIENCE, async || fed.count(NOT_ACTIVE).await == 1).await;
}

/// The feed with one more name for its table.
fn also(mut feed: Feed, table: &str, on: &[Change]) -> Feed {
    let other = FeedTable {
        table: table.to_owned(),
        on: on.to_vec(),
        ..feed.tables[0].clone()
    };
    feed.tables.push(other);
    feed
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_is_renamed_under_a_feeder_is_read_once_its_name_is_described() {
    let fed = server(OUTBOX).await;
    let running = fed.run(feed()).await;
    fed.sql(&insert(1, 3)).await;
    fed.events(3, "payload").await;
    fed.sql(RENAME).await;
    // The service does not notice: its view is not published.
    fed.sql("CREATE VIEW outbox AS SELECT topic, owner, payload FROM letters")
        .await;
    fed.sql(&insert(4, 6)).await;
    stops(&fed).await;
    assert_eq!(fed.events(3, "payload").await, numbers(3));
    ends(&fed, running).await;
    let both = also(feed(), "letters", &[Change::Insert]);
    let running = fed.run_from(&fed.cluster.url(), both);
    assert_eq!(fed.events(6, "payload").await, numbers(6));
    running.stop().await;
}

/// The feeder has never seen the table under its earlier name.
#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_was_renamed_before_a_feeder_starts_is_read_once_its_name_is_described() {
    let fed = server(OUTBOX).await;
    ends(&fed, fed.run(feed()).await).await;
    fed.sql(RENAME).await;
    fed.sql(&insert(1, 3).replace("outbox", "letters")).await;
    let running = fed.run_from(&fed.cluster.url(), feed());
    stops(&fed).await;
    assert_eq!(
        fed.count("SELECT count(*) FROM hapax.outbox_event").await,
        0
    );
    ends(&fed, running).await;
    let both = also(feed(), "letters", &[Change::Insert]);
    let running = fed.run_from(&fed.cluster.url(), both);
    assert_eq!(fed.events(3, "payload").await, numbers(3));
    running.stop().await;
}

/// The table gets its name back: what was written meanwhile is in the log under the other name.
#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_had_another_name_for_a_while_is_read_once_that_name_is_described() {
    let fed = server(OUTBOX).await;
    ends(&fed, fed.run(feed()).await).await;
    fed.sql(RENAME).await;
    fed.sql(&insert(1, 3).replace("outbox", "letters")).await;
    fed.sql("ALTER TABLE letters RENAME TO outbox").await;
    fed.sql(&insert(4, 6)).await;
    let running = fed.run_from(&fed.cluster.url(), feed());
    stops(&fed).await;
    ends(&fed, running).await;
    let both = also(feed(), "letters", &[Change::Insert]);
    let running = fed.run_from(&fed.cluster.url(), both);
    assert_eq!(fed.events(6, "payload").await, numbers(6));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn partitions_that_get_their_own_names_are_read_once_they_are_described() {
    for is_running in [true, false] {
        let fed = server(PARTITIONED).await;
        let first = fed.run(orders()).await;
        fed.sql("INSERT INTO orders VALUES (1, 'a')").await;
        fed.events(1, IDS).await;
        let first = if is_running {
            Some(first)
        } else {
            ends(&fed, first).await;
            None
        };
        fed.sql(UNDER_PARTITIONS).await;
        fed.sql("INSERT INTO orders VALUES (2, 'a'), (3, 'b')")
            .await;
        // Changes that are in the log already keep their names.
        fed.sql(UNDER_ROOT).await;
        fed.sql("INSERT INTO orders VALUES (4, 'b')").await;
        let running = first.unwrap_or_else(|| fed.run_from(&fed.cluster.url(), orders()));
        stops(&fed).await;
        assert_eq!(fed.events(1, IDS).await, ["1"]);
        ends(&fed, running).await;
        // One of the partitions is ignored on purpose.
        let all = also(orders(), "orders_a", &[Change::Insert]);
        let running = fed.run_from(&fed.cluster.url(), also(all, "orders_b", &[]));
        assert_eq!(fed.events(3, IDS).await, ["1", "2", "4"]);
        running.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn partitions_that_get_the_name_of_their_root_are_read_once_it_is_described() {
    let fed = server(PARTITIONED).await;
    fed.sql(UNDER_PARTITIONS).await;
    let mut of_part = orders();
    of_part.tables[0].table = "orders_a".to_owned();
    let running = fed.run(of_part.clone()).await;
    fed.sql("INSERT INTO orders VALUES (1, 'a')").await;
    fed.sql(UNDER_ROOT).await;
    // Another partition is none of the feed's, under either name.
    fed.sql("INSERT INTO orders VALUES (2, 'b')").await;
    fed.sql("INSERT INTO orders VALUES (3, 'a')").await;
    stops(&fed).await;
    assert_eq!(fed.events(1, IDS).await, ["1"]);
    ends(&fed, running).await;
    let running = fed.run_from(
        &fed.cluster.url(),
        also(of_part, "orders", &[Change::Insert]),
    );
    eventually(PATIENCE, async || {
        fed.events(2, IDS).await.last().is_some_and(|id| id == "3")
    })
    .await;
    // The change of the other partition was ignored, and is read again unless that is on record.
    let mut ids = fed.events(2, IDS).await;
    ids.retain(|id| id != "2");
    assert_eq!(ids, ["1", "3"]);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_that_are_no_others_are_ignored() {
    let fed = server(OUTBOX).await;
    fed.sql(
        "CREATE TABLE other (id int PRIMARY KEY);
         CREATE TABLE parts (id int) PARTITION BY LIST (id);
         CREATE TABLE parts_1 PARTITION OF parts FOR VALUES IN (1);
         ALTER PUBLICATION hapax_orders ADD TABLE other, parts;
         ALTER PUBLICATION hapax_orders SET (publish = 'insert')",
    )
    .await;
    let running = fed.run(feed()).await;
    let others = "INSERT INTO other VALUES (1); INSERT INTO parts VALUES (1)";
    fed.sql(others).await;
    fed.sql(&insert(1, 3)).await;
    assert_eq!(fed.events(3, "payload").await, numbers(3));
    fed.sql(UNDER_ROOT).await;
    fed.sql("ALTER TABLE other RENAME TO others; INSERT INTO others VALUES (2)")
        .await;
    fed.sql("INSERT INTO parts VALUES (1)").await;
    fed.sql(&insert(4, 6)).await;
    assert_eq!(fed.events(6, "payload").await, numbers(6));
    running.stop().await;
}

/// Its description has no table, and a change does not say whether it is of that table.
#[tokio::test(flavor = "multi_thread")]
async fn a_described_table_that_is_gone_stops_the_feed_at_a_change_of_an_unknown_one() {
    let fed = server(OUTBOX).await;
    fed.sql(
        "CREATE TABLE letters (id int PRIMARY KEY, topic text, owner text, payload text);
         ALTER PUBLICATION hapax_orders ADD TABLE letters",
    )
    .await;
    let gone = also(feed(), "gone", &[Change::Insert]);
    let running = fed.run(gone.clone()).await;
    fed.sql(&insert(1, 3)).await;
    assert_eq!(fed.events(3, "payload").await, numbers(3));
    fed.sql("INSERT INTO letters VALUES (1, 'a', 'a', '0')")
        .await;
    fed.sql(&insert(4, 6)).await;
    stops(&fed).await;
    ends(&fed, running).await;
    // The changes of the other table are ignored on purpose.
    let running = fed.run_from(&fed.cluster.url(), also(gone, "letters", &[]));
    assert_eq!(fed.events(6, "payload").await, numbers(6));
    running.stop().await;
}
