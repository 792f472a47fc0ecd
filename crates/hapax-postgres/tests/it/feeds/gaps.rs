//! Gaps: changes that may be missing stop the feed until an operator accepts it.

use std::sync::Mutex;

use hapax::{
    admin::{Actor, AdminError},
    failpoint::Failpoints,
};
use hapax_postgres::Postgres;
use hapax_testkit::{assert_matches, wait::eventually};
use tokio::{runtime::Handle, task::block_in_place};
use tokio_postgres::Client;

use super::{Fed, OUTBOX, count, feed, insert, numbers, texts};
use crate::fixture::{PATIENCE, settings};

const SLOT: &str = "SELECT count(*) FROM pg_replication_slots WHERE NOT active";
const DROP: &str = "SELECT pg_drop_replication_slot('hapax_orders')";
const RESTORE: &str = "UPDATE hapax.feed SET confirmed_lsn = backup.confirmed_lsn FROM backup";

/// Stops a feed, and waits until nothing reads its slot.
async fn begun() -> Fed {
    let fed = Fed::new(OUTBOX).await;
    let running = fed.run(feed()).await;
    fed.sql(&insert(1, 3)).await;
    fed.events(3, "payload").await;
    running.stop().await;
    eventually(PATIENCE, async || fed.count(SLOT).await == 1).await;
    fed
}

/// Has the next feeder meet this change, once, after it has compared its position with the slot and
/// before it holds the slot.
async fn meanwhile(fed: &mut Fed, sql: &'static str) {
    let client = Mutex::new(Some(fed.cluster.client().await));
    let mut changed = settings(&fed.cluster.url());
    changed.failpoints = Failpoints::calling(move |name| {
        if name != "feed.claim.before" {
            return;
        }
        let first = client.lock().unwrap().take();
        if let Some(client) = first {
            let change = client.batch_execute(sql);
            block_in_place(|| Handle::current().block_on(change)).unwrap();
        }
    });
    fed.store = Postgres::open(changed).await.unwrap();
}

async fn gap(client: &Client) -> String {
    const GAP: &str = "SELECT coalesce(gap, '') FROM hapax.feed";
    eventually(PATIENCE, async || texts(client, GAP).await != [""]).await;
    texts(client, GAP).await.remove(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_was_dropped_is_a_gap_until_an_operator_accepts_it() {
    let fed = begun().await;
    fed.sql(DROP).await;
    fed.sql(&insert(100, 102)).await;
    let running = fed.run_from(&fed.cluster.url(), feed());
    let found = gap(&fed.plain).await;
    assert!(
        found.starts_with("the replication slot is missing"),
        "{found}"
    );
    assert_eq!(
        fed.count("SELECT count(*) FROM pg_replication_slots").await,
        0
    );
    let actor = Actor::new("alice");
    let accepted = fed.store.accept_gap(&actor, "orders", "replayed").await;
    assert_eq!(accepted.unwrap(), found);
    fed.has_started().await;
    fed.sql(&insert(4, 6)).await;
    assert_eq!(fed.events(6, "payload").await, numbers(6));
    let log = "SELECT concat_ws(' ', actor, action, object, detail::jsonb ->> 'reason')
        FROM hapax.audit_log";
    let log = texts(&fed.plain, log).await;
    assert_eq!(log, ["alice accept_gap feed orders replayed"]);
    let again = fed.store.accept_gap(&actor, "orders", "again").await;
    assert_matches!(again, Err(AdminError::Conflict { .. }));
    let unknown = fed.store.accept_gap(&actor, "other", "again").await;
    assert_matches!(unknown, Err(AdminError::NotFound { .. }));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_was_made_again_is_a_gap() {
    let fed = begun().await;
    fed.sql(DROP).await;
    fed.sql(&insert(100, 102)).await;
    fed.sql("SELECT pg_create_logical_replication_slot('hapax_orders', 'pgoutput')")
        .await;
    let running = fed.run_from(&fed.cluster.url(), feed());
    let found = gap(&fed.plain).await;
    assert!(found.contains("past the feed's position"), "{found}");
    assert_eq!(fed.events(3, "payload").await, numbers(3));
    running.stop().await;
}

/// The database of the store is restored from a backup while the feeder has nothing to do: neither
/// its epoch nor its connection says so.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_restored_under_a_feeder_is_a_gap() {
    let fed = Fed::new(OUTBOX).await;
    let running = fed.run(feed()).await;
    fed.sql("CREATE TABLE backup AS SELECT confirmed_lsn FROM hapax.feed")
        .await;
    fed.sql(&insert(1, 3)).await;
    let released = "SELECT count(*) FROM pg_replication_slots, backup
        WHERE confirmed_flush_lsn > backup.confirmed_lsn";
    eventually(PATIENCE, async || fed.count(released).await == 1).await;
    fed.sql("UPDATE hapax.feed SET confirmed_lsn = backup.confirmed_lsn FROM backup")
        .await;
    fed.sql(&insert(4, 6)).await;
    let found = gap(&fed.plain).await;
    assert!(found.contains("past the feed's position"), "{found}");
    running.stop().await;
}

/// The backup has an earlier position than the slot.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_restored_while_the_feed_is_taken_over_is_a_gap() {
    let mut fed = Fed::new(OUTBOX).await;
    let running = fed.run(feed()).await;
    fed.sql("CREATE TABLE backup AS SELECT confirmed_lsn FROM hapax.feed")
        .await;
    fed.sql(&insert(1, 3)).await;
    let released = "SELECT count(*) FROM pg_replication_slots, backup
        WHERE confirmed_flush_lsn > backup.confirmed_lsn";
    eventually(PATIENCE, async || fed.count(released).await == 1).await;
    running.stop().await;
    eventually(PATIENCE, async || fed.count(SLOT).await == 1).await;
    meanwhile(&mut fed, RESTORE).await;
    let running = fed.run_from(&fed.cluster.url(), feed());
    let found = gap(&fed.plain).await;
    assert!(found.contains("past the feed's position"), "{found}");
    running.stop().await;
}

/// The slot is not past the position of the backup: nothing is missing if the feed reads from there,
/// and not from the position that it has found first.
#[tokio::test(flavor = "multi_thread")]
async fn a_feed_reads_from_the_position_at_which_it_is_taken_over() {
    let mut fed = begun().await;
    fed.sql("CREATE TABLE backup AS SELECT confirmed_lsn FROM hapax.feed")
        .await;
    fed.sql(&insert(4, 6)).await;
    // As if these rows were events already, and the slot had not been moved yet.
    fed.sql("UPDATE hapax.feed SET confirmed_lsn = pg_current_wal_flush_lsn()")
        .await;
    meanwhile(&mut fed, RESTORE).await;
    let running = fed.run_from(&fed.cluster.url(), feed());
    assert_eq!(fed.events(6, "payload").await, numbers(6));
    running.stop().await;
}

/// Another program reads the slot, or moves it.
#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_is_moved_while_the_feed_is_taken_over_is_a_gap() {
    let mut fed = begun().await;
    fed.sql(&insert(4, 6)).await;
    let advance = "SELECT pg_replication_slot_advance('hapax_orders', pg_current_wal_flush_lsn())";
    meanwhile(&mut fed, advance).await;
    let running = fed.run_from(&fed.cluster.url(), feed());
    let found = gap(&fed.plain).await;
    assert!(found.contains("past the feed's position"), "{found}");
    assert_eq!(fed.events(3, "payload").await, numbers(3));
    running.stop().await;
}

/// The row is that of another server: its position says nothing about this one.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_of_another_server_is_not_taken_over() {
    let mut fed = begun().await;
    let other = "UPDATE hapax.feed SET system_identifier = '1'";
    meanwhile(&mut fed, other).await;
    let running = fed.run_from(&fed.cluster.url(), feed());
    let found = gap(&fed.plain).await;
    assert!(found.starts_with("the server 1 was replaced"), "{found}");
    running.stop().await;
}

/// The backup is older than the feed, or the feed has another name.
#[tokio::test(flavor = "multi_thread")]
async fn a_slot_without_a_recorded_position_is_a_gap() {
    let fed = begun().await;
    fed.sql("DELETE FROM hapax.feed").await;
    let running = fed.run_from(&fed.cluster.url(), feed());
    let stopped = "SELECT count(*) FROM hapax.feed WHERE gap IS NOT NULL";
    eventually(PATIENCE, async || fed.count(stopped).await == 1).await;
    let found = gap(&fed.plain).await;
    assert!(
        found.contains("no position of this feed is recorded"),
        "{found}"
    );
    let actor = Actor::new("alice");
    let accepted = fed.store.accept_gap(&actor, "orders", "renamed").await;
    assert_eq!(accepted.unwrap(), found);
    fed.has_started().await;
    fed.sql(&insert(4, 4)).await;
    let last = "SELECT count(*) FROM hapax.outbox_event WHERE payload = '4'";
    eventually(PATIENCE, async || fed.count(last).await == 1).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_whose_log_was_removed_is_a_gap() {
    const LOST: &str = "SELECT count(*) FROM pg_replication_slots WHERE wal_status = 'lost'";
    let fed = begun().await;
    fed.cluster
        .settings(&[("max_slot_wal_keep_size", "1MB")])
        .await;
    eventually(PATIENCE, async || {
        fed.sql("CREATE TABLE filler AS SELECT 1 AS n; DROP TABLE filler")
            .await;
        fed.sql("SELECT pg_switch_wal()").await;
        fed.sql("CHECKPOINT").await;
        fed.count(LOST).await == 1
    })
    .await;
    let running = fed.run_from(&fed.cluster.url(), feed());
    let found = gap(&fed.plain).await;
    assert!(found.contains("max_slot_wal_keep_size"), "{found}");
    let actor = Actor::new("alice");
    fed.store
        .accept_gap(&actor, "orders", "known")
        .await
        .unwrap();
    fed.has_started().await;
    fed.sql(&insert(4, 6)).await;
    assert_eq!(fed.events(6, "payload").await, numbers(6));
    running.stop().await;
}

/// Before PostgreSQL 17, a standby has no slot.
#[tokio::test(flavor = "multi_thread")]
async fn a_promoted_standby_without_the_slot_is_a_gap() {
    let fed = begun().await;
    let standby = fed.cluster.standby().await;
    let there = standby.client().await;
    eventually(PATIENCE, async || {
        count(&there, "SELECT count(*) FROM hapax.outbox_event").await == 3
    })
    .await;
    standby.promote().await;
    let promoted = Fed {
        store: Postgres::open(settings(&standby.url())).await.unwrap(),
        cluster: standby,
        plain: there,
    };
    promoted.sql(&insert(100, 102)).await;
    let running = promoted.run_from(&promoted.cluster.url(), feed());
    let found = gap(&promoted.plain).await;
    assert!(
        found.starts_with("the replication slot is missing"),
        "{found}"
    );
    running.stop().await;
}

/// The slot of the standby is not ahead, but the standby never had the log up to the position.
#[tokio::test(flavor = "multi_thread")]
async fn a_position_that_a_promoted_standby_never_had_is_a_gap() {
    let fed = begun().await;
    let standby = fed.cluster.standby().await;
    standby.promote().await;
    let there = standby.client().await;
    there
        .batch_execute("SELECT pg_create_logical_replication_slot('hapax_orders', 'pgoutput')")
        .await
        .unwrap();
    let past = "UPDATE hapax.feed
        SET confirmed_lsn = (SELECT confirmed_flush_lsn FROM pg_replication_slots)";
    there.batch_execute(past).await.unwrap();
    let promoted = Fed {
        store: Postgres::open(settings(&standby.url())).await.unwrap(),
        cluster: standby,
        plain: there,
    };
    let running = promoted.run_from(&promoted.cluster.url(), feed());
    let found = gap(&promoted.plain).await;
    assert!(
        found.contains("a standby was promoted (timeline 2)"),
        "{found}"
    );
    running.stop().await;
}

/// It runs again, and the URL still leads to it. The position is one of the promoted standby.
#[tokio::test(flavor = "multi_thread")]
async fn a_primary_that_a_standby_has_replaced_is_not_read_and_is_no_gap() {
    const IDENTIFY: &str = "received replication command: IDENTIFY_SYSTEM";
    let fed = begun().await;
    fed.sql("CREATE TABLE backup AS SELECT timeline, confirmed_lsn FROM hapax.feed")
        .await;
    fed.sql("UPDATE hapax.feed SET timeline = 2, confirmed_lsn = confirmed_lsn + 1000000000")
        .await;
    fed.cluster
        .settings(&[("log_replication_commands", "on")])
        .await;
    let running = fed.run_from(&fed.cluster.url(), feed());
    eventually(PATIENCE, async || {
        fed.cluster.log().matches(IDENTIFY).count() > 1
    })
    .await;
    fed.sql(
        "UPDATE hapax.feed SET timeline = backup.timeline, confirmed_lsn = backup.confirmed_lsn
         FROM backup",
    )
    .await;
    fed.sql(&insert(4, 6)).await;
    assert_eq!(fed.events(6, "payload").await, numbers(6));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_server_is_a_gap() {
    let fed = begun().await;
    fed.sql("UPDATE hapax.feed SET system_identifier = '1'")
        .await;
    let running = fed.run_from(&fed.cluster.url(), feed());
    let found = gap(&fed.plain).await;
    assert!(
        found.starts_with("the server 1 was replaced by the server"),
        "{found}"
    );
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publication_that_is_missing_makes_no_slot() {
    let fed = Fed::new("CREATE TABLE row ()").await;
    let running = fed.run_from(&fed.cluster.url(), feed());
    let log = "SELECT 1 FROM pg_publication WHERE pubname = 'hapax_orders'";
    fed.cluster.settings(&[("log_statement", "all")]).await;
    eventually(PATIENCE, async || {
        fed.cluster.log().matches(log).count() > 1
    })
    .await;
    assert_eq!(
        fed.count("SELECT count(*) FROM pg_replication_slots").await,
        0
    );
    fed.sql("CREATE TABLE outbox (id int PRIMARY KEY, topic text, owner text, payload text)")
        .await;
    fed.sql("CREATE PUBLICATION hapax_orders FOR TABLE outbox")
        .await;
    fed.has_started().await;
    running.stop().await;
}
