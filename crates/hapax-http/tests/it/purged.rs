//! Tests of the replay cache when other nodes purge keys.

use std::time::Duration;

use hapax::{idempotency::OnStoreError, limits::PURGES_FRESH, store::KeyMaintenance as _};
use hapax_testkit::{events::scope, wait::Patience};
use tokio::time::Instant;

use crate::stage::{Sent, Stage};

const PATIENCE: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_key_that_another_node_purges_is_replayed_from_memory_for_a_second_at_most() {
    let stage = Stage::new().await;
    for _ in 0..3 {
        let first = stage.post("k", "{}").await;
        check_replayed(&stage.post("k", "{}").await, &first);
        // Directly in the store, as another node or an operator does.
        let key = scope("alice", "POST /effects", "k");
        assert!(stage.store.forget(&key).await.unwrap());
        runs_anew(&stage, Instant::now()).await;
    }
    assert_eq!(stage.effects().await, 4);
}

#[tokio::test]
async fn memory_is_passed_over_when_it_cannot_be_read_which_keys_were_purged() {
    let stage = Stage::new().await;
    let first = stage.post("k", "{}").await;
    check_replayed(&stage.post("k", "{}").await, &first);
    for statement in [
        "DROP TABLE hapax_key_purge",
        "DELETE FROM hapax_idempotency_key",
    ] {
        let done = stage.store.write(move |db| db.execute(statement, []));
        done.await.unwrap();
    }
    runs_anew(&stage, Instant::now()).await;
}

#[tokio::test]
async fn a_service_that_fails_open_replays_what_it_remembers_and_runs_nothing_twice() {
    let stage = Stage::with(|it| it.on_store_error = OnStoreError::Open, |it| it).await;
    let first = stage.post("k", "{}").await;
    stage.store.close().await.unwrap();
    let closed = Instant::now();
    let patience = Patience::within(PATIENCE);
    while closed.elapsed() <= 2 * PURGES_FRESH {
        check_replayed(&stage.post("k", "{}").await, &first);
        patience.pause().await;
    }
    let other = stage.post("k", "{\"act\":\"\"}").await;
    other.check_problem(409, "CONFLICT.idempotency.payload_mismatch");
    assert_eq!(stage.runs(), 1);
}

#[track_caller]
fn check_replayed(sent: &Sent, first: &Sent) {
    assert_eq!(sent.idempotency(), Some("replayed"));
    assert_eq!(sent.body, first.body);
}

/// Sends the request until it runs again. Checks that it is not replayed later than one second
/// after its key was purged.
async fn runs_anew(stage: &Stage, purged: Instant) -> Sent {
    let patience = Patience::within(PATIENCE);
    loop {
        let after = purged.elapsed();
        let sent = stage.post("k", "{}").await;
        match sent.idempotency() {
            Some("stored") => return sent,
            Some("replayed") => assert!(after <= PURGES_FRESH, "replayed {after:?} later"),
            other => panic!("{other:?}"),
        }
        patience.pause().await;
    }
}
