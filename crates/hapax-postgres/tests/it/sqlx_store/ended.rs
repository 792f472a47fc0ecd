//! Transactions that their handlers have ended, and savepoints, which end none.

use std::time::Duration;

use hapax::{
    event::Headers,
    inbox::Acceptance,
    store::{ClaimOutcome, Effect, Keys, StoreError, Transaction},
};
use hapax_testkit::{
    assert_matches,
    events::{claim, event, message, response},
};
use sqlx::{Acquire as _, Executor as _};

use super::{Node, alone, handle, insert, opened, order};

/// Statements by which a handler ends its transaction, and how many of its notes are committed.
const ENDINGS: [(&str, i64); 7] = [
    ("COMMIT", 1),
    ("END", 1),
    ("COMMIT AND CHAIN", 1),
    ("COMMIT; BEGIN", 1),
    ("ROLLBACK", 0),
    ("ROLLBACK AND CHAIN", 0),
    ("ROLLBACK; BEGIN", 0),
];

#[tokio::test]
async fn a_transaction_whose_savepoint_did_not_begin_commits_nothing() {
    let node = Node::new().await;
    for is_keyed in [true, false] {
        let mut tx = if is_keyed {
            node.open("k").await
        } else {
            node.store.begin(None, Headers::new()).await.unwrap()
        };
        insert(&mut tx, "k").await.unwrap();
        let broken = sqlx::query("SELECT 1 / 0").execute(&mut *tx).await;
        assert!(broken.is_err());
        // In a transaction that has failed, no savepoint begins. The handler ignores that too.
        assert!(tx.transaction().begin().await.is_err());
        let accepted = tx.accept(&message("a", "b", "c")).await;
        assert_matches!(accepted, Err(StoreError::Statement { .. }));
        tx.emit(event("k")).unwrap();
        let ended = if is_keyed {
            tx.complete(&response("k"), Effect::Keep).await.map(drop)
        } else {
            tx.commit().await
        };
        assert_matches!(ended, Err(StoreError::Statement { .. }));
        node.good.idle().await;
        assert_eq!(node.effects("k").await, [0, 0, 0]);
    }
    assert_eq!(order(&node.store, "k", "k").await.unwrap(), response("k"));
}

#[tokio::test]
async fn a_transaction_that_its_handler_has_ended_stores_nothing_more() {
    let node = Node::new().await;
    // The next request gets the same connection.
    let (store, _pool) = alone(&node).await;
    for (ending, kept) in ENDINGS {
        for events in 0..=2 {
            for is_keyed in [true, false] {
                let key = format!("{ending}, {events} events, with a key: {is_keyed}");
                let key = key.replace([' ', ',', ';', ':'], "-");
                let mut tx = if is_keyed {
                    opened(&store, &key).await
                } else {
                    store.begin(None, Headers::new()).await.unwrap()
                };
                insert(&mut tx, &key).await.unwrap();
                tx.execute(ending).await.unwrap();
                for _ in 0..events {
                    tx.emit(event(&key)).unwrap();
                }
                let ended = if is_keyed {
                    let completed = tx.complete(&response(&key), Effect::Keep).await;
                    completed.map(drop)
                } else {
                    tx.commit().await
                };
                assert_matches!(ended, Err(StoreError::EndedByHandler), "{key}");
                assert_eq!(node.effects(&key).await, [kept, 0, 0], "{key}");
            }
        }
    }
    assert_eq!(order(&store, "k", "k").await.unwrap(), response("k"));
    node.good.idle().await;
}

#[tokio::test]
async fn a_refusal_is_not_stored_if_the_handler_may_have_committed() {
    let node = Node::new().await;
    let (store, _pool) = alone(&node).await;
    for (number, (ending, kept)) in ENDINGS.into_iter().enumerate() {
        let key = number.to_string();
        let mut tx = opened(&store, &key).await;
        insert(&mut tx, &key).await.unwrap();
        tx.execute(ending).await.unwrap();
        let ended = tx.complete(&response("no"), Effect::Drop).await;
        assert_matches!(ended, Err(StoreError::EndedByHandler), "{ending}");
        assert_eq!(node.effects(&key).await, [kept, 0, 0], "{ending}");
    }
    assert_eq!(order(&store, "k", "k").await.unwrap(), response("k"));
    node.good.idle().await;
}

#[tokio::test]
async fn the_row_of_an_expired_key_is_not_replaced_if_the_handler_has_committed() {
    let node = Node::new().await;
    let mut brief = claim("k");
    brief.retention = Duration::ZERO;
    let ClaimOutcome::Open(tx) = node.store.claim(brief).await.unwrap() else {
        panic!("expected a free key")
    };
    tx.complete(&response("old"), Effect::Keep).await.unwrap();
    let mut tx = node.open("k").await;
    insert(&mut tx, "k").await.unwrap();
    tx.execute("COMMIT").await.unwrap();
    let ended = tx.complete(&response("k"), Effect::Keep).await;
    assert_matches!(ended, Err(StoreError::EndedByHandler));
    let epoch = node.good.count("SELECT epoch FROM hapax.idempotency_key");
    assert_eq!(epoch.await, 1);
    assert_eq!(node.effects("k").await, [1, 0, 1]);
}

#[tokio::test]
async fn a_message_whose_handler_has_ended_its_transaction_is_not_reported_as_processed() {
    const PROCESSED: &str =
        "SELECT count(*) FROM hapax.inbox_message WHERE processed_at IS NOT NULL";
    let node = Node::new().await;
    for (number, (ending, kept)) in ENDINGS.into_iter().enumerate() {
        let id = number.to_string();
        let message = message("a", &id, "c");
        let mut tx = node.store.begin(None, Headers::new()).await.unwrap();
        assert_eq!(tx.accept(&message).await.unwrap(), Acceptance::First);
        insert(&mut tx, &id).await.unwrap();
        tx.execute(ending).await.unwrap();
        assert_matches!(
            tx.commit().await,
            Err(StoreError::EndedByHandler),
            "{ending}"
        );
        assert_eq!(node.effects(&id).await, [kept, 0, 0], "{ending}");
        // What was committed with its effect is not executed again.
        let mut tx = node.store.begin(None, Headers::new()).await.unwrap();
        let again = tx.accept(&message).await.unwrap();
        tx.rollback().await;
        assert_eq!(again == Acceptance::Duplicate, kept == 1, "{ending}");
    }
    assert_eq!(node.good.count(PROCESSED).await, 0);
}

#[tokio::test]
async fn savepoints_of_sqlx_are_no_ends_of_a_transaction() {
    let node = Node::new().await;
    for is_kept in [true, false] {
        let key = is_kept.to_string();
        let mut tx = node.open(&key).await;
        let mut part = tx.transaction().begin().await.unwrap();
        insert(&mut part, "part").await.unwrap();
        if is_kept {
            part.commit().await.unwrap();
        } else {
            part.rollback().await.unwrap();
        }
        assert_eq!(handle(tx, &key).await.unwrap(), response(&key));
        assert_eq!(node.effects(&key).await, [1, 1, 1]);
    }
    assert_eq!(node.effects("part").await[0], 1);
}
