//! Server crashes under load, with a restart, and with a standby that takes over or fails to.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use hapax::store::{Keys, StoreError, Transaction};
use hapax_postgres::{OpenError, Postgres};
use hapax_testkit::{
    assert_matches,
    events::response,
    postgres::{Cluster, connect},
    proxy::Proxy,
    wait::eventually,
};

use super::day::{REQUEST_KINDS, RequestKind, ask, hasty, order};
use crate::fixture::{INSERT, PATIENCE, ROWS, settings};

/// A node that reaches a server through a proxy, with a table for notes.
async fn node(proxy: &Proxy, cluster: &Cluster) -> Postgres {
    let mut settings = hasty(&proxy.url(&cluster.url()));
    settings.connections = 8;
    settings.connect_max = Duration::from_secs(1);
    settings.statement_max = Duration::from_secs(2);
    let node = Postgres::open(settings)
        .await
        .expect("the node does not open");
    node.migrate("test", &[(1, "note", ROWS)]).await.unwrap();
    node
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_server_that_dies_under_load_loses_nothing_acknowledged_and_doubles_nothing() {
    let mut cluster = Cluster::start().await;
    let proxy = Proxy::to_postgres(cluster.address());
    let node = node(&proxy, &cluster).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let acknowledged = Arc::new(AtomicUsize::new(0));
    let failed = Arc::new(AtomicUsize::new(0));
    // Each client repeats a request until it gets a response, and then sends the next one.
    let clients: Vec<_> = (0..16)
        .map(|client| {
            let (node, is_over) = (node.clone(), Arc::clone(&is_over));
            let (acknowledged, failed) = (Arc::clone(&acknowledged), Arc::clone(&failed));
            let way = REQUEST_KINDS[client % REQUEST_KINDS.len()];
            tokio::spawn(async move {
                let mut keys = Vec::new();
                while !is_over.load(Ordering::SeqCst) {
                    let key = format!("c{client} {}", keys.len());
                    if order(&node, way, &key).await.is_err() {
                        failed.fetch_add(1, Ordering::SeqCst);
                        assert_eq!(ask(&node, way, &key).await, response(&key));
                    }
                    acknowledged.fetch_add(1, Ordering::SeqCst);
                    keys.push((way, key));
                }
                keys
            })
        })
        .collect();
    for crash in 1..=2 {
        let before = acknowledged.load(Ordering::SeqCst);
        let has_moved = async || acknowledged.load(Ordering::SeqCst) > before + 100;
        eventually(PATIENCE, has_moved).await;
        cluster.stop_immediate().await;
        // The crash must have an effect: requests fail while no server runs.
        eventually(PATIENCE, async || {
            failed.load(Ordering::SeqCst) >= crash * 4
        })
        .await;
        cluster.start_again().await;
    }
    let before = acknowledged.load(Ordering::SeqCst);
    eventually(PATIENCE, async || {
        acknowledged.load(Ordering::SeqCst) > before + 100
    })
    .await;
    is_over.store(true, Ordering::SeqCst);
    let mut keys = Vec::new();
    for client in clients {
        keys.extend(client.await.unwrap());
    }
    let plain = cluster.client().await;
    // Each key has one note, one event and one response, and there are no others.
    let count = "SELECT (SELECT count(*) FROM note), (SELECT count(DISTINCT text) FROM note),
                (SELECT count(*) FROM hapax.outbox_event),
                (SELECT count(DISTINCT aggregate_id) FROM hapax.outbox_event),
                (SELECT count(*) FROM hapax.idempotency_key)";
    let row = plain.query_one(count, &[]).await.unwrap();
    let counts: Vec<i64> = (0..5).map(|column| row.get(column)).collect();
    assert_eq!(counts, [i64::try_from(keys.len()).unwrap(); 5]);
    for (way, key) in keys.iter().step_by(20) {
        assert_eq!(order(&node, *way, key).await.unwrap(), response(key));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_standby_is_refused_by_name_and_a_node_led_to_one_is_unavailable_until_led_back() {
    let cluster = Cluster::start().await;
    let proxy = Proxy::to_postgres(cluster.address());
    let node = node(&proxy, &cluster).await;
    order(&node, RequestKind::Handler, "before").await.unwrap();
    let standby = cluster.standby().await;

    let opened = Postgres::open(settings(&standby.url())).await;
    assert_matches!(opened, Err(OpenError::Standby));

    proxy.lead_to(standby.address());
    proxy.reset();
    for way in REQUEST_KINDS {
        for _ in 0..3 {
            let outcome = order(&node, way, "k").await;
            assert_matches!(outcome, Err(StoreError::Unavailable { .. }), "{way:?}");
        }
    }
    // A transaction without a key gets the same error.
    let mut tx = node
        .begin(None, hapax::event::Headers::new())
        .await
        .unwrap();
    let outcome = tx.execute(INSERT, &[&"k"]).await;
    assert_matches!(outcome, Err(StoreError::Unavailable { .. }));
    tx.rollback().await;

    // The address leads to the primary again; no test code resets the connections to the standby.
    proxy.lead_to(cluster.address());
    assert_eq!(ask(&node, RequestKind::Handler, "k").await, response("k"));
    assert_eq!(
        ask(&node, RequestKind::PlannedRequest, "l").await,
        response("l")
    );
    let rows = connect(&cluster.url()).await;
    let row = rows
        .query_one("SELECT count(*) FROM note WHERE text IN ('k', 'l')", &[])
        .await;
    assert_eq!(row.unwrap().get::<_, i64>(0), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_standby_that_takes_over_replays_what_it_has() {
    let cluster = Cluster::start().await;
    let proxy = Proxy::to_postgres(cluster.address());
    let node = node(&proxy, &cluster).await;
    let standby = cluster.standby().await;
    order(&node, RequestKind::Handler, "k").await.unwrap();
    let there = standby.client().await;
    eventually(PATIENCE, async || {
        let row = there
            .query_one("SELECT count(*) FROM note", &[])
            .await
            .unwrap();
        row.get::<_, i64>(0) == 1
    })
    .await;
    drop(cluster);
    let outcome = order(&node, RequestKind::Handler, "l").await;
    assert_matches!(outcome, Err(StoreError::Unavailable { .. }));
    standby.promote().await;
    proxy.lead_to(standby.address());
    assert_eq!(ask(&node, RequestKind::Handler, "k").await, response("k"));
    assert_eq!(
        ask(&node, RequestKind::PlannedRequest, "l").await,
        response("l")
    );
    let row = there
        .query_one("SELECT count(*) FROM note", &[])
        .await
        .unwrap();
    assert_eq!(row.get::<_, i64>(0), 2);
}
