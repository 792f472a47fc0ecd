//! Lost connections, lost results of commits, commits that the database refuses, and time limits.

use std::time::Duration;

use hapax::{
    event::Headers,
    store::{Keys, StoreError, Transaction},
};
use hapax_postgres::adapter::sqlx::store_error;
use hapax_testkit::{
    assert_matches,
    events::{claim, event, response},
    proxy::{Deed, Moment},
};

use super::{Node, alone, handle, insert, insist, order};
use crate::fixture::INSERT;

#[tokio::test]
async fn a_killed_connection_leaves_nothing_and_the_retry_runs() {
    let node = Node::new().await;
    let mut tx = node.open("k").await;
    insert(&mut tx, "k").await.unwrap();
    let pid: i32 = sqlx::query_scalar("SELECT pg_backend_pid()")
        .fetch_one(&mut *tx)
        .await
        .unwrap();
    let kill = "SELECT pg_terminate_backend($1, 5000)";
    node.good.plain.execute(kill, &[&pid]).await.unwrap();
    let gone = handle(tx, "k").await;
    assert_matches!(gone, Err(StoreError::Unavailable { .. }));
    assert_eq!(node.effects("k").await, [0, 0, 0]);
    assert_eq!(insist(&node.store, "k", "k").await, response("k"));
    assert_eq!(node.effects("k").await, [1, 1, 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_happened_is_acknowledged_though_its_result_was_lost() {
    let node = Node::new().await;
    for deed in [Deed::CutAfter, Deed::SwallowAfter] {
        let key = format!("{deed:?}");
        let trap = node.proxy.once(Moment::commit(), deed);
        let told = order(&node.store, &key, &key).await.unwrap();
        assert_eq!(trap.count(), 1, "{key}");
        assert_eq!(told, response(&key));
        assert_eq!(node.effects(&key).await, [1, 1, 1], "{key}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_did_not_happen_may_run_again() {
    let node = Node::new().await;
    let trap = node.proxy.once(Moment::commit(), Deed::CutBefore);
    let told = order(&node.store, "k", "k").await;
    assert_eq!(trap.count(), 1);
    assert_matches!(told, Err(StoreError::Conflict { .. }));
    assert_eq!(node.effects("k").await, [0, 0, 0]);
    assert_eq!(insist(&node.store, "k", "k").await, response("k"));
    assert_eq!(node.effects("k").await, [1, 1, 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_commit_without_a_key_is_unavailable_and_whole_or_nothing() {
    let node = Node::new().await;
    for (deed, effects) in [(Deed::CutBefore, 0), (Deed::CutAfter, 1)] {
        let text = format!("{deed:?}");
        let mut tx = node.store.begin(None, Headers::new()).await.unwrap();
        insert(&mut tx, &text).await.unwrap();
        tx.emit(event(&text)).unwrap();
        let trap = node.proxy.once(Moment::commit(), deed);
        let outcome = tx.commit().await;
        assert_matches!(outcome, Err(StoreError::Unavailable { .. }));
        assert_eq!(trap.count(), 1);
        node.good.idle().await;
        assert_eq!(node.effects(&text).await, [effects, effects, 0], "{deed:?}");
    }
}

#[tokio::test]
async fn a_commit_that_the_database_refuses_is_classified_and_leaves_nothing() {
    let node = Node::new().await;
    let unique = "ALTER TABLE note ADD CONSTRAINT note_key UNIQUE (text)
        DEFERRABLE INITIALLY DEFERRED";
    node.good.run(unique).await;
    order(&node.store, "one", "same").await.unwrap();
    let refused = order(&node.store, "two", "same").await.unwrap_err();
    assert_eq!(refused.constraint(), Some("note_key"));
    assert_eq!(node.effects("two").await, [0, 0, 0]);
    // A failed statement that the handler ignored: the COMMIT alone would report success.
    let mut tx = node.store.begin(None, Headers::new()).await.unwrap();
    insert(&mut tx, "ignored").await.unwrap();
    let broken = sqlx::query("SELECT 1 / 0").execute(&mut *tx).await;
    assert!(broken.is_err());
    assert_matches!(tx.commit().await, Err(StoreError::Statement { .. }));
    assert_eq!(node.effects("ignored").await, [0, 0, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_is_dropped_while_its_transaction_begins_leaves_none_open() {
    let node = Node::new().await;
    let (store, pool) = alone(&node).await;
    let trap = node
        .proxy
        .once(Moment::containing("BEGIN"), Deed::HoldAfter);
    let claiming = tokio::spawn({
        let store = store.clone();
        async move { store.claim(claim("k")).await.map(drop) }
    });
    trap.sprung().await;
    claiming.abort();
    assert!(claiming.await.unwrap_err().is_cancelled());
    trap.release();
    node.good.idle().await;
    // A statement outside of a transaction is committed: the connection is in none.
    let insert = sqlx::query(INSERT).bind("alone").execute(&pool).await;
    insert.unwrap();
    assert_eq!(node.good.notes().await, ["alone"]);
    assert_eq!(insist(&store, "k", "k").await, response("k"));
    assert_eq!(node.effects("k").await, [1, 1, 1]);
    let begun = store_error(sqlx::Error::BeginFailed);
    assert_matches!(begun, StoreError::Unavailable { .. });
}

#[tokio::test]
async fn a_transaction_has_the_time_limits_of_the_store_and_ends_if_its_node_vanishes() {
    const LIMITS: &str = "SELECT current_setting('statement_timeout') || ' '
        || current_setting('idle_in_transaction_session_timeout')";
    let node = Node::with(|settings| settings.idle_max = Duration::from_millis(500)).await;
    let mut forgotten = node.open("k").await;
    let limits: String = sqlx::query_scalar(LIMITS)
        .fetch_one(&mut *forgotten)
        .await
        .unwrap();
    assert_eq!(limits, "1s 500ms");
    node.good.idle().await;
    assert_eq!(insist(&node.store, "k", "k").await, response("k"));
    assert!(handle(forgotten, "k").await.is_err());
    assert_eq!(node.effects("k").await, [1, 1, 1]);
}
