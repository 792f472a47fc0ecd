//! Refusals: stored without the writes of their handler, on its connection, also after a failed
//! statement.

use std::time::Duration;

use futures_util::FutureExt as _;
use hapax::store::{ClaimOutcome, Effect, Keys, Transaction};
use hapax_testkit::events::{claim, event, response};
use sqlx::Acquire as _;

use super::{Node, alone, handle, insert, order};

#[tokio::test]
async fn a_refusal_is_stored_alone_and_an_expired_key_is_written_again() {
    let node = Node::new().await;
    let mut brief = claim("k");
    brief.retention = Duration::ZERO;
    for _ in 0..2 {
        let ClaimOutcome::Open(mut tx) = node.store.claim(brief.clone()).await.unwrap() else {
            panic!("expected a free key")
        };
        insert(&mut tx, "k").await.unwrap();
        tx.emit(event("k")).unwrap();
        let stands = tx.complete(&response("no"), Effect::Drop).await.unwrap();
        assert_eq!(stands, Duration::ZERO);
        assert_eq!(node.effects("k").await, [0, 0, 1]);
    }
    let ClaimOutcome::Open(tx) = node.store.claim(claim("k")).await.unwrap() else {
        panic!("expected an expired key")
    };
    handle(tx, "k").await.unwrap();
    assert_eq!(node.effects("k").await, [1, 1, 1]);
    assert_eq!(order(&node.store, "k", "k").await.unwrap(), response("k"));
}

#[tokio::test]
async fn a_refusal_is_stored_on_the_connection_of_its_handler_also_after_a_failed_statement() {
    let node = Node::new().await;
    let (store, pool) = alone(&node).await;
    for key in ["whole", "failed"] {
        let ClaimOutcome::Open(mut tx) = store.claim(claim(key)).await.unwrap() else {
            panic!("expected a free key")
        };
        insert(&mut tx, key).await.unwrap();
        tx.emit(event(key)).unwrap();
        if key == "failed" {
            let broken = sqlx::query("SELECT 1 / 0").execute(&mut *tx).await;
            assert!(broken.is_err());
        }
        // Another request is the next one to get a connection, and keeps it.
        let mut waiting = Box::pin(pool.acquire());
        assert!(waiting.as_mut().now_or_never().is_none());
        tx.complete(&response("no"), Effect::Drop).await.unwrap();
        drop(waiting.await.unwrap());
        assert_eq!(node.effects(key).await, [0, 0, 1]);
        let replayed = order(&store, key, key).await.unwrap();
        assert_eq!(replayed, response("no"));
    }
}

#[tokio::test]
async fn a_refusal_is_stored_also_if_a_savepoint_did_not_begin() {
    let node = Node::new().await;
    let mut tx = node.open("k").await;
    insert(&mut tx, "k").await.unwrap();
    let broken = sqlx::query("SELECT 1 / 0").execute(&mut *tx).await;
    assert!(broken.is_err());
    assert!(tx.transaction().begin().await.is_err());
    tx.complete(&response("no"), Effect::Drop).await.unwrap();
    assert_eq!(node.effects("k").await, [0, 0, 1]);
    assert_eq!(order(&node.store, "k", "k").await.unwrap(), response("no"));
    node.good.idle().await;
}
