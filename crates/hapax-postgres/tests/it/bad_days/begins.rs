//! Transactions that are not opened although the statements that need them are on their way: the
//! server runs each of them, and none of them may write anything.
//!
//! The proxy makes the server refuse the statement that opens the transaction. A statement that is
//! cancelled leaves the same behind: an error, and no transaction.

use hapax::{
    event::Headers,
    inbox::Acceptance,
    store::{Effect, Keys, StoreError, Transaction},
};
use hapax_postgres::{Statement, Value};
use hapax_testkit::{
    assert_matches,
    events::{claim, event, message, response},
    proxy::{Deed, Moment, Trap},
};

use super::day::{Day, RequestKind, ask, order};
use crate::fixture::{INSERT, INSERT_EACH, plan_of};

/// A node without and with a pooler.
const POOLED: [bool; 2] = [false, true];

async fn day(pooled: bool) -> Day {
    Day::with(|settings| settings.pooled = pooled).await
}

/// Has the server refuse the next statement that opens a transaction.
fn refuse(day: &Day) -> Trap {
    day.proxy.once(Moment::containing("BEGIN"), Deed::Garble)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_whose_transaction_is_not_opened_writes_nothing() {
    for pooled in POOLED {
        let day = day(pooled).await;
        for way in [
            RequestKind::Handler,
            RequestKind::Pipelined,
            RequestKind::PlannedRequest,
        ] {
            let key = format!("{way:?}");
            // All statements are prepared, so that they are sent at once.
            ask(&day.node, way, &format!("before {key}")).await;
            let trap = refuse(&day);
            let told = order(&day.node, way, &key).await;
            assert!(told.is_err(), "{key}, pooled: {pooled}: {told:?}");
            assert_eq!(trap.count(), 1, "{key}");
            day.good.idle().await;
            assert_eq!(
                day.effects(&key).await,
                (0, 0, 0),
                "{key}, pooled: {pooled}"
            );
            assert_eq!(ask(&day.node, way, &key).await, response(&key));
            assert_eq!(day.effects(&key).await, (1, 1, 1), "{key}");
        }
    }
}

/// The guard has changed the connection. So nothing is stored on it, and no other request gets it.
#[tokio::test(flavor = "multi_thread")]
async fn an_optimistic_claim_whose_transaction_is_not_opened_leaves_no_connection_behind() {
    for pooled in POOLED {
        let day = day(pooled).await;
        ask(&day.node, RequestKind::Optimistic, "before").await;
        for (key, effect) in [
            ("k", Effect::Keep),
            ("k", Effect::Drop),
            ("before", Effect::Drop),
        ] {
            let trap = refuse(&day);
            let opened = day.node.claim_optimistic(claim(key)).await.unwrap();
            let mut tx = opened.expect("the store has optimistic claims");
            tx.execute(INSERT, &[&key]).await.unwrap_err();
            let stored = tx.complete(&response(key), effect).await;
            assert_eq!(trap.count(), 1);
            match effect {
                Effect::Keep => assert_matches!(stored, Err(StoreError::Statement { .. })),
                Effect::Drop => assert_matches!(stored, Err(StoreError::Conflict { .. })),
            }
            let next = format!("after {key} {effect:?}");
            let told = order(&day.node, RequestKind::Handler, &next).await;
            assert_eq!(told.unwrap(), response(&next), "pooled: {pooled}");
        }
        day.good.idle().await;
        assert_eq!(day.effects("k").await, (0, 0, 0), "pooled: {pooled}");
        assert_eq!(day.effects("before").await, (1, 1, 1), "pooled: {pooled}");
    }
}

/// The second statement fails: the first one, the key and the event must not remain.
#[tokio::test(flavor = "multi_thread")]
async fn a_write_plan_whose_transaction_is_not_opened_is_not_written_in_part() {
    let plan = |key: &str| {
        let insert = Statement::each(INSERT_EACH, [Value::from(key)]);
        plan_of(key, [insert, Statement::new("SELECT 1 / 0", [])])
    };
    for pooled in POOLED {
        let day = day(pooled).await;
        day.node.execute_plan(plan("before")).await.unwrap_err();
        let trap = refuse(&day);
        day.node.execute_plan(plan("k")).await.unwrap_err();
        assert_eq!(trap.count(), 1);
        day.good.idle().await;
        assert_eq!(day.effects("k").await, (0, 0, 0), "pooled: {pooled}");
        let again = day.node.execute_plan(plan("k")).await;
        assert_matches!(again, Err(StoreError::Statement { .. }));
        assert_eq!(day.effects("k").await, (0, 0, 0), "pooled: {pooled}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_without_a_key_that_is_not_opened_writes_nothing() {
    for pooled in POOLED {
        let day = day(pooled).await;
        let mut tx = day.node.begin(None, Headers::new()).await.unwrap();
        tx.execute(INSERT, &[&"before"]).await.unwrap();
        tx.commit().await.unwrap();
        let trap = refuse(&day);
        let mut tx = day.node.begin(None, Headers::new()).await.unwrap();
        tx.execute(INSERT, &[&"k"]).await.unwrap_err();
        tx.rollback().await;
        assert_eq!(trap.count(), 1);
        // Its first pipeline is also its last one.
        let mut tx = day.node.begin(None, Headers::new()).await.unwrap();
        tx.emit(event("before")).unwrap();
        tx.commit().await.unwrap();
        let trap = refuse(&day);
        let mut tx = day.node.begin(None, Headers::new()).await.unwrap();
        tx.emit(event("k")).unwrap();
        tx.commit().await.unwrap_err();
        assert_eq!(trap.count(), 1);
        day.good.idle().await;
        assert_eq!(day.effects("k").await, (0, 0, 0), "pooled: {pooled}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_whose_transaction_is_not_opened_is_not_accepted() {
    for pooled in POOLED {
        let day = day(pooled).await;
        let accept = async |id: &str| {
            let mut tx = day.node.begin(None, Headers::new()).await.unwrap();
            let accepted = tx.accept(&message("mailer", id, "hello")).await;
            tx.rollback().await;
            accepted
        };
        assert_matches!(accept("before").await, Ok(Acceptance::First));
        let trap = refuse(&day);
        accept("k").await.unwrap_err();
        assert_eq!(trap.count(), 1);
        day.good.idle().await;
        assert_matches!(accept("k").await, Ok(Acceptance::First));
    }
}
