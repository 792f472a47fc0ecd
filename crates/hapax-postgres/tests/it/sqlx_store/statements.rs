//! Prepared statements: none under a name behind a pooler, and those that a migration makes outdated.

use hapax::{
    inbox::Acceptance,
    store::{ClaimOutcome, Effect, Keys, StoreError, Transaction},
};
use hapax_postgres::adapter::{self, Origin, sqlx::store_error};
use hapax_testkit::{
    assert_matches,
    events::{claim, event, message, response},
};

use super::{Node, alone, handle};
use crate::fixture::INSERT;

#[tokio::test]
async fn behind_a_pooler_in_transaction_mode_no_statement_is_prepared_under_a_name() {
    const LEFT: &str = "SELECT count(*) FROM pg_prepared_statements";
    for is_pooled in [true, false] {
        let node = Node::with(|settings| settings.pooled = is_pooled).await;
        let (store, pool) = alone(&node).await;
        for key in ["one", "two"] {
            let ClaimOutcome::Open(mut tx) = store.claim(claim(key)).await.unwrap() else {
                panic!("expected a free key")
            };
            let insert = sqlx::query(INSERT).persistent(false).bind(key);
            insert.execute(&mut *tx).await.unwrap();
            let accepted = tx.accept(&message("a", key, "c")).await;
            assert_eq!(accepted.unwrap(), Acceptance::First);
            tx.emit(event(key)).unwrap();
            tx.complete(&response(key), Effect::Keep).await.unwrap();
            assert_eq!(node.effects(key).await, [1, 1, 1]);
        }
        let left = sqlx::query_scalar(LEFT).persistent(false).fetch_one(&pool);
        let left: i64 = left.await.unwrap();
        assert_eq!(left == 0, is_pooled, "{left} statements");
    }
}

#[tokio::test]
async fn the_functions_keep_their_statements_prepared_if_the_connection_keeps_others() {
    const LEFT: &str =
        "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%hapax.%'";
    let node = Node::new().await;
    let (_, pool) = alone(&node).await;
    for is_kept in [false, true] {
        let mut tx = pool.begin().await.unwrap();
        let insert = sqlx::query(INSERT).persistent(is_kept).bind("note");
        insert.execute(&mut *tx).await.unwrap();
        let (asked, origin) = (claim(&is_kept.to_string()), Origin::default());
        let opened = adapter::sqlx::claim(&mut tx, &asked).await.unwrap();
        assert_matches!(opened, ClaimOutcome::Open(()));
        adapter::sqlx::emit(&mut tx, event("k"), origin)
            .await
            .unwrap();
        adapter::sqlx::complete(&mut tx, &asked, &response("k"))
            .await
            .unwrap();
        let left = sqlx::query_scalar(LEFT)
            .persistent(false)
            .fetch_one(&mut *tx);
        let left: i64 = left.await.unwrap();
        assert_eq!(left, if is_kept { 3 } else { 0 });
        tx.commit().await.unwrap();
    }
}

#[tokio::test]
async fn a_migration_beside_a_running_service_costs_a_rerun_with_sqlx_too() {
    const READ: &str = "SELECT * FROM note";
    let node = Node::new().await;
    let (store, _pool) = alone(&node).await;
    let open = async |key: &str| match store.claim(claim(key)).await.unwrap() {
        ClaimOutcome::Open(tx) => tx,
        ClaimOutcome::Taken(taken) => panic!("expected a free key, got {taken:?}"),
    };
    for change in ["ALTER TABLE note ADD COLUMN more text", "DEALLOCATE ALL"] {
        let before = format!("before {change}");
        let mut tx = open(&before).await;
        sqlx::query(READ).fetch_all(&mut *tx).await.unwrap();
        handle(tx, &before).await.unwrap();
        let mut tx = open(change).await;
        if change == "DEALLOCATE ALL" {
            sqlx::query(change).execute(&mut *tx).await.unwrap();
        } else {
            node.good.run(change).await;
        }
        let outdated = sqlx::query(READ).fetch_all(&mut *tx).await;
        let outdated = outdated.map(drop).map_err(store_error);
        assert_matches!(outdated, Err(StoreError::Conflict { .. }));
        tx.rollback().await;
        // The rerun gets the same connection.
        let mut rerun = open(change).await;
        sqlx::query(READ).fetch_all(&mut *rerun).await.unwrap();
        handle(rerun, change).await.unwrap();
        assert_eq!(node.effects(change).await, [1, 1, 1]);
    }
}
