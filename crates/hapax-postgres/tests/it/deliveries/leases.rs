//! Leases on PostgreSQL: the clock that decides about expiry, which transactions wait for each
//! other, and which rows remain.

use std::time::{Duration, SystemTime};

use hapax::{
    Clock,
    delivery::Settlement,
    store::{Partitions, Settlements, StoreError},
};
use hapax_testkit::{assert_matches, wait::eventually};
use tokio::time::timeout;

use super::{emitted, settlement};
use crate::fixture::{Fixture, PATIENCE};

const HOUR: Duration = Duration::from_hours(1);
const LEASE: Duration = Duration::from_secs(20);
const AT_ONCE: Duration = Duration::from_secs(5);

#[tokio::test]
async fn clocks_an_hour_apart_judge_no_lease() {
    let fixture = Fixture::with(|settings| settings.clock = clock(true)).await;
    let database = std::sync::Arc::clone(&fixture.database);
    let behind = Fixture::on(database, |settings| settings.clock = clock(false)).await;
    for (one, other) in [(&fixture, &behind), (&behind, &fixture)] {
        let epoch = one.store.take("hook", "one", LEASE).await.unwrap();
        let epoch = epoch.unwrap().epoch;
        assert!(
            other
                .store
                .take("hook", "two", LEASE)
                .await
                .unwrap()
                .is_none()
        );
        one.store.heartbeat("one", &[], LEASE).await.unwrap();
        let seen = other.store.heartbeat("two", &[], LEASE).await.unwrap();
        assert_eq!(seen.nodes, ["one", "two"]);
        assert_eq!(seen.held[0].epoch, epoch);
        // A lease expires because its node is silent, independently of the node's clock.
        let short = Duration::from_millis(50);
        eventually(PATIENCE, async || {
            other
                .store
                .take("hook", "two", short)
                .await
                .unwrap()
                .is_some()
        })
        .await;
        other.store.leave("two").await.unwrap();
        one.store.leave("one").await.unwrap();
    }
}

#[tokio::test]
async fn taking_a_partition_waits_for_no_transaction() {
    let fixture = emitted(1).await;
    let owned = fixture.store.take("hook", "one", LEASE).await.unwrap();
    fixture
        .store
        .give_up("hook", owned.unwrap().epoch)
        .await
        .unwrap();
    let mut other = fixture.database.client().await;
    for (held, partition) in [
        (
            "SELECT 1 FROM hapax.lease WHERE partition = 'hook' FOR UPDATE",
            "hook",
        ),
        (
            "SELECT pg_advisory_xact_lock('hapax.lease'::regclass::oid::int4, hashtext('hook'))",
            "hook",
        ),
        (
            "SELECT pg_advisory_xact_lock('hapax.outbox_event'::regclass::oid::int4, 0)",
            "new",
        ),
        (
            "INSERT INTO hapax.lease (partition, epoch, taken_at) VALUES ('other', 1, now())",
            "hook",
        ),
    ] {
        let long = other.transaction().await.unwrap();
        long.execute(held, &[]).await.unwrap();
        let take = fixture.store.take(partition, "two", LEASE);
        let taken = timeout(AT_ONCE, take).await.unwrap().unwrap();
        assert_eq!(taken.is_some(), held.starts_with("INSERT"), "{held}");
        long.rollback().await.unwrap();
        if let Some(opened) = taken {
            fixture
                .store
                .give_up(partition, opened.epoch)
                .await
                .unwrap();
        }
        let taken = fixture.store.take(partition, "two", LEASE).await.unwrap();
        fixture
            .store
            .give_up(partition, taken.unwrap().epoch)
            .await
            .unwrap();
    }
    // A purge does not block taking a partition that existed before the purge.
    let purging = other.transaction().await.unwrap();
    let purge = "SELECT pg_advisory_xact_lock('hapax.outbox_event'::regclass::oid::int4, 0)";
    purging.execute(purge, &[]).await.unwrap();
    let take = fixture.store.take("hook", "one", LEASE);
    assert!(timeout(AT_ONCE, take).await.unwrap().unwrap().is_some());
    purging.rollback().await.unwrap();
    fixture.idle().await;
}

/// Opening a partition may wait for the transaction that removes it. The partition's epoch then
/// continues instead of starting at 1.
#[tokio::test]
async fn a_partition_that_is_forgotten_while_it_is_opened_continues_its_epochs() {
    let fixture = emitted(1).await;
    let old = fixture.store.open("hook").await.unwrap().epoch;
    let mut other = fixture.database.client().await;
    let forgetting = other.transaction().await.unwrap();
    let forget = include_str!("../../../queries/admin/forget_partitions.sql");
    forgetting.query(forget, &[&vec!["hook"]]).await.unwrap();
    let store = fixture.store.clone();
    let opening = tokio::spawn(async move { store.open("hook").await.unwrap().epoch });
    let waits = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock'";
    eventually(PATIENCE, async || fixture.count(waits).await == 1).await;
    forgetting.commit().await.unwrap();
    assert!(opening.await.unwrap() > old);
}

/// The owner's partition was removed by an operator, not set back by a restore.
#[tokio::test]
async fn the_owner_of_a_partition_that_was_removed_is_fenced() {
    let fixture = emitted(1).await;
    let opened = fixture.store.open("hook").await.unwrap();
    let forget = include_str!("../../../queries/admin/forget_partitions.sql");
    let removed = fixture.plain.query(forget, &[&vec!["hook"]]).await;
    removed.unwrap();
    let late = Settlement {
        follows: Some(opened.newest),
        ..settlement("hook", opened.epoch, 1)
    };
    let outcome = fixture.store.settle(late).await;
    assert_matches!(outcome, Err(StoreError::Fenced));
}

#[tokio::test]
async fn settlements_and_signs_leave_no_version_of_a_lease_behind() {
    let fixture = emitted(3).await;
    let opened = fixture.store.take("hook", "one", LEASE).await.unwrap();
    let epoch = opened.unwrap().epoch;
    let row = "SELECT (ctid::text::point)[1]::int8 FROM hapax.lease";
    let before = fixture.count(row).await;
    for _ in 0..50 {
        fixture
            .store
            .settle(settlement("hook", epoch, 1))
            .await
            .unwrap();
        fixture.store.heartbeat("one", &[], LEASE).await.unwrap();
    }
    assert_eq!(
        fixture.count(row).await,
        before,
        "the row of the lease was written again"
    );
}

#[tokio::test]
async fn signs_of_life_stay_few_while_a_snapshot_is_pinned() {
    let fixture = Fixture::new().await;
    let off = format!(
        "ALTER DATABASE {} SET synchronous_commit = off",
        fixture.database.name()
    );
    fixture.run(&off).await;
    let pinned = pin(&fixture).await;
    fixture.store.take("hook", "one", LEASE).await.unwrap();
    for number in 0..1_200 {
        let node = if number % 2 == 0 { "one" } else { "two" };
        fixture.store.heartbeat(node, &[], LEASE).await.unwrap();
    }
    let rows = fixture.count("SELECT count(*) FROM hapax.heartbeat").await;
    assert!(rows <= 1_024, "the log has {rows} heartbeats");
    let seen = fixture.store.heartbeat("two", &[], LEASE).await.unwrap();
    assert_eq!(seen.nodes, ["one", "two"]);
    assert_eq!(
        (&*seen.held[0].partition, &*seen.held[0].node),
        ("hook", "one")
    );
    drop(pinned);
}

/// The last heartbeat of a node remains its last heartbeat after a sweep has copied it.
#[tokio::test]
async fn a_sweep_of_signs_keeps_the_last_of_each_node() {
    let fixture = Fixture::new().await;
    for node in ["one", "two", "one"] {
        fixture.store.heartbeat(node, &[], LEASE).await.unwrap();
    }
    fixture.store.leave("two").await.unwrap();
    for half in [0, 1, 0] {
        let sweep = format!("SELECT hapax.sweep_heartbeats({half}::int2)");
        fixture.run(&sweep).await;
        let kept = "SELECT count(*) FROM hapax.heartbeat WHERE is_alive = (node = 'one')";
        assert_eq!(fixture.count(kept).await, 2);
        assert_eq!(
            fixture.count("SELECT count(*) FROM hapax.heartbeat").await,
            2
        );
    }
    let seen = fixture.store.heartbeat("three", &[], LEASE).await.unwrap();
    assert_eq!(seen.nodes, ["one", "three"]);
}

/// Opens a transaction whose snapshot keeps every row version that dies from now on.
pub(super) async fn pin(fixture: &Fixture) -> tokio_postgres::Client {
    let client = fixture.database.client().await;
    let pin = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1";
    client.batch_execute(pin).await.unwrap();
    client
}

/// The system clock, an hour fast or an hour slow.
fn clock(is_fast: bool) -> Clock {
    #[expect(
        clippy::disallowed_methods,
        reason = "a test's wiring passes the time in"
    )]
    Clock::new(move || {
        let now = SystemTime::now();
        if is_fast { now + HOUR } else { now - HOUR }
    })
}
