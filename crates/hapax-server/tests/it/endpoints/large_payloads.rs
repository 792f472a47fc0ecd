//! Large payloads with mappings: they delay neither other tenants nor the relay itself.

use std::time::Duration;

use hapax_testkit::{http::HttpReceiver, wait::eventually};
use tokio::time::timeout;
use tokio_postgres::Client;

use super::{Stage, ids};
use crate::{
    hapax::{PATIENCE, start_relay},
    store::Store,
};

/// The number of endpoints of the tenant with the large payloads.
const ENDPOINTS: usize = 10;
/// The maximum time for a delivery and for an answer of the relay. It is far longer than either takes, and
/// shorter than the mappings together.
const BOUND: Duration = Duration::from_secs(10);

#[tokio::test]
async fn mappings_of_large_payloads_delay_neither_other_tenants_nor_the_relay() {
    let stage = Stage::new(Store::Postgres).await;
    let (heavy, light) = (HttpReceiver::start().await, HttpReceiver::start().await);
    let paths: Vec<_> = (0..98).map(|at| format!("\"$.data.zz{at}\"")).collect();
    let mapping = format!(r#"{{"m": [{}], "ok": "$.type"}}"#, paths.join(","));
    for _ in 0..ENDPOINTS {
        stage.create("heavy", &heavy.url("/"), &["--mapping", &mapping]);
    }
    stage.create("light", &light.url("/"), &[]);
    // One mapping may take seconds in a program that is not optimized.
    let configuration = stage
        .configuration
        .replace("timeout = \"1s\"", "timeout = \"30s\"")
        .replace("lease = \"1s\"", "lease = \"5s\"");
    let relay = start_relay(&stage.home.url(), &configuration).await;
    let client = stage.client().await;
    emit_large(&client).await;
    heavy.received_at_least(1).await;
    let before = epochs(&client).await;
    for n in 1..=5 {
        stage.emit("light", "order.created", n).await;
        let delivered = eventually(PATIENCE, async || ids(&light).len() == n);
        let delivered = timeout(BOUND, delivered).await;
        delivered.expect("an event of the other tenant is late");
        let answer = timeout(BOUND, relay.get("/readyz")).await;
        assert_eq!(answer.expect("the relay answers late").status, 200);
    }
    assert!(!before.is_empty());
    assert_eq!(epochs(&client).await, before);
    // Mappings that wait do not delay the end.
    relay.stop().await;
}

/// Emits three events with 70,000 members each, in one transaction.
async fn emit_large(client: &Client) {
    const EMIT: &str = "
        INSERT INTO hapax.outbox_event (event_id, type, tenant, payload, headers, created_at)
        SELECT gen_random_uuid(), 'order.created', 'heavy', $1::text, '{}', now()
        FROM generate_series(1, 3)";
    let members: Vec<_> = (0..70_000).map(|at| format!("\"zz{at}\":1")).collect();
    let payload = format!("{{{}}}", members.join(","));
    client.execute(EMIT, &[&payload]).await.unwrap();
}

/// The owners' epochs of all partitions. A lease that changes hands has a higher one.
async fn epochs(client: &Client) -> Vec<(String, i64)> {
    const EPOCHS: &str = "SELECT partition, epoch FROM hapax.lease ORDER BY partition";
    let rows = client.query(EPOCHS, &[]).await.unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}
