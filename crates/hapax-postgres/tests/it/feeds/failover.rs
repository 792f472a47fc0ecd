//! Failover slots: a standby that has taken the slot over is promoted. They exist from PostgreSQL 17
//! on; `cargo x matrix` runs these tests on all versions.

use std::time::Duration;

use hapax_postgres::{Feed, Postgres};
use hapax_testkit::{
    postgres::{Database, connect},
    wait::{eventually, pace},
};

use super::{Fed, OUTBOX, count, feed, insert, texts};
use crate::fixture::{PATIENCE, settings};

/// PostgreSQL doubles the time between two looks of a standby at the slots, up to 30 s.
const SYNC_PATIENCE: Duration = Duration::from_mins(2);
const SYNCED: &str = "SELECT count(*) FROM pg_replication_slots
    WHERE slot_name = 'hapax_orders' AND synced AND NOT temporary";

fn kept() -> Feed {
    Feed {
        failover: true,
        ..feed()
    }
}

async fn has_failover_slots(fed: &Fed) -> bool {
    let version = "SELECT current_setting('server_version_num')::int8";
    fed.count(version).await >= 170_000
}

/// Requires that the feed creates no slot, which a standby would not have.
async fn is_refused(fed: &Fed) {
    fed.cluster.settings(&[("log_statement", "all")]).await;
    let running = fed.run_from(&fed.cluster.url(), kept());
    eventually(PATIENCE, async || {
        fed.cluster.log().matches("SHOW server_version_num").count() > 1
    })
    .await;
    running.stop().await;
    let waits = "SELECT count(*) FROM hapax.feed WHERE confirmed_lsn IS NULL AND gap IS NULL";
    assert_eq!(fed.count(waits).await, 1);
    let slots = "SELECT count(*) FROM pg_replication_slots";
    assert_eq!(fed.count(slots).await, 0);
}

/// Kills the primary under a feed and promotes its standby. Requires that the rows of the standby
/// are the events, each once, without a gap. The tables of Hapax are in the database of the source,
/// or in the other one.
async fn survives(fed: &mut Fed, elsewhere: Option<&Database>) {
    let primary = fed.cluster.client().await;
    let slot = "SELECT pg_create_physical_replication_slot('standby', true)";
    primary.batch_execute(slot).await.unwrap();
    let standby = fed.cluster.standby().await;
    // A feed receives nothing that the standby does not have.
    let follow = [
        ("primary_slot_name", "standby"),
        ("hot_standby_feedback", "on"),
    ];
    standby.settings(&follow).await;
    fed.cluster
        .settings(&[("synchronized_standby_slots", "standby")])
        .await;
    let url = format!(
        "postgres://postgres@{},{}/postgres?target_session_attrs=read-write",
        fed.cluster.address(),
        standby.address()
    );
    let stored = elsewhere.map_or_else(|| url.clone(), Database::url);
    fed.store = Postgres::open(settings(&stored)).await.unwrap();
    fed.plain = connect(&stored).await;
    let running = fed.run_from(&url, kept());
    fed.has_started().await;
    standby.settings(&[("sync_replication_slots", "on")]).await;
    let there = standby.client().await;
    let mut written = 0;
    // The standby takes the slot over when the feed has passed the transactions that were open when
    // the standby saw the slot first.
    eventually(SYNC_PATIENCE, async || {
        written += 1;
        let snapshot = "SELECT pg_log_standby_snapshot()";
        primary.batch_execute(snapshot).await.unwrap();
        let row = insert(written, written);
        primary.batch_execute(&row).await.unwrap();
        pace(Duration::from_millis(50)).await;
        count(&there, SYNCED).await == 1
    })
    .await;
    for _ in 0..50 {
        written += 1;
        let row = insert(written, written);
        primary.batch_execute(&row).await.unwrap();
    }
    fed.cluster.stop_immediate().await;
    standby.promote().await;
    let row = insert(written + 1, written + 10);
    there.batch_execute(&row).await.unwrap();
    fed.plain = connect(&stored).await;
    let rows = texts(&there, "SELECT payload FROM outbox ORDER BY payload::int").await;
    let number = i64::try_from(rows.len()).unwrap();
    let mut events = fed.events(number, "payload").await;
    events.sort_by_key(|number| number.parse::<usize>().unwrap());
    assert_eq!(events, rows);
    let continues = "SELECT count(*) FROM hapax.feed WHERE gap IS NULL AND timeline = 2";
    assert_eq!(fed.count(continues).await, 1);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn from_postgresql_17_on_a_failover_slot_survives_and_before_it_is_refused() {
    let mut fed = Fed::new(OUTBOX).await;
    if has_failover_slots(&fed).await {
        survives(&mut fed, None).await;
    } else {
        is_refused(&fed).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_store_elsewhere_a_failover_slot_survives_or_is_refused_before_postgresql_17() {
    let mut fed = Fed::new(OUTBOX).await;
    if has_failover_slots(&fed).await {
        survives(&mut fed, Some(&Database::fresh().await)).await;
    } else {
        is_refused(&fed).await;
    }
}
