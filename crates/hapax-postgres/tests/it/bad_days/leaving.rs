//! Clients that disconnect during a request: neither locks nor transactions remain.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    task::Poll,
};

use hapax::{
    event::Headers,
    store::{ClaimOutcome, Effect, Keys, Transaction},
};
use hapax_testkit::{
    events::{claim, event, response},
    proxy::{Deed, Moment},
};
use tokio::time::timeout;

use super::day::{Day, RequestKind, SHORT, ask, order};
use crate::fixture::{INSERT, PATIENCE, plan};

/// A request is dropped at its n-th poll, for every n until it completes.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_given_up_at_any_point_leaves_no_lock_and_no_transaction() {
    let day = Day::with(|settings| settings.connections = 4).await;
    let mut ended = 0;
    for polls in 1.. {
        let key = format!("k{polls}");
        let node = day.node.clone();
        let request = async {
            let ClaimOutcome::Open(mut tx) = node.claim(claim(&key)).await.unwrap() else {
                panic!("expected a free key");
            };
            tx.execute(INSERT, &[&key]).await.unwrap();
            tx.emit(event(&key)).unwrap();
            tx.complete(&response(&key), Effect::Keep).await.unwrap();
        };
        let has_ended = give_up_after(polls, Box::pin(request)).await;
        check_left(&day, RequestKind::Handler, &key).await;
        ended += usize::from(has_ended);
        if ended == 2 {
            assert!(polls > 3, "the request was dropped at only {polls} points");
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_optimistic_claim_that_is_given_up_at_any_point_is_whole_or_nothing() {
    let day = Day::with(|settings| settings.connections = 4).await;
    let mut ended = 0;
    for polls in 1.. {
        let key = format!("k{polls}");
        let node = day.node.clone();
        let request = async { drop(order(&node, RequestKind::Optimistic, &key).await.unwrap()) };
        let has_ended = give_up_after(polls, Box::pin(request)).await;
        check_left(&day, RequestKind::Optimistic, &key).await;
        ended += usize::from(has_ended);
        if ended == 2 {
            return;
        }
    }
}

/// The process dies, and the server sees its connections end.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_dies_beside_its_last_optimistic_pipeline_leaves_all_or_nothing() {
    let day = Day::new().await;
    for (moment, deed, effects) in [
        // Between the first statement and the last pipeline.
        (Moment::containing(INSERT), Deed::HoldAfter, (0, 0, 0)),
        // The last pipeline does not reach the server.
        (
            Moment::containing("INSERT INTO hapax.idempotency_key"),
            Deed::HoldBefore,
            (0, 0, 0),
        ),
        // It does, and the node never learns of it.
        (Moment::commit(), Deed::HoldAfter, (1, 1, 1)),
    ] {
        let key = format!("{deed:?} {effects:?}");
        order(&day.node, RequestKind::Optimistic, &format!("{key} before"))
            .await
            .unwrap();
        let trap = day.proxy.once(moment, deed);
        let (node, asked) = (day.node.clone(), key.clone());
        let dying = tokio::spawn(async move {
            drop(order(&node, RequestKind::Optimistic, &asked).await);
        });
        trap.sprung().await;
        dying.abort();
        drop(dying.await);
        day.proxy.reset();
        day.good.idle().await;
        assert_eq!(day.effects(&key).await, effects, "{key}");
        // Its client sends the request again, to another node.
        for way in [RequestKind::Optimistic, RequestKind::Handler] {
            assert_eq!(ask(&day.good.store, way, &key).await, response(&key));
        }
        assert_eq!(day.effects(&key).await, (1, 1, 1), "{key}");
        day.proxy.heal().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_single_shot_that_is_given_up_at_any_point_is_whole_or_nothing() {
    let day = Day::with(|settings| settings.connections = 4).await;
    for polls in 1..4 {
        for round in 0..5 {
            let key = format!("k{polls} {round}");
            let node = day.node.clone();
            let request = async { drop(node.execute_plan(plan(&key)).await.unwrap()) };
            give_up_after(polls, Box::pin(request)).await;
            check_left(&day, RequestKind::PlannedRequest, &key).await;
        }
    }
}

/// Without a transaction, each statement that was sent after it would be committed on its own.
#[tokio::test(flavor = "multi_thread")]
async fn the_statement_that_opens_the_transaction_of_a_request_that_is_given_up_is_not_cancelled() {
    let day = Day::with(|settings| settings.statement_max = PATIENCE).await;
    let cancelled = day.proxy.once(Moment::cancel(), Deed::HoldBefore);
    for way in [
        None,
        Some(RequestKind::Handler),
        Some(RequestKind::Pipelined),
        Some(RequestKind::Optimistic),
    ] {
        let trap = day.proxy.once(Moment::containing("BEGIN"), Deed::HoldAfter);
        let node = day.node.clone();
        let request = tokio::spawn(async move {
            if let Some(way) = way {
                return drop(order(&node, way, "k").await);
            }
            let mut tx = node.begin(None, Headers::new()).await.unwrap();
            drop(tx.execute(INSERT, &[&"k"]).await);
        });
        trap.sprung().await;
        request.abort();
        assert!(request.await.unwrap_err().is_cancelled());
        trap.release();
        day.good.idle().await;
        assert_eq!(cancelled.count(), 0, "{way:?}");
        assert_eq!(day.effects("k").await, (0, 0, 0), "{way:?}");
    }
}

/// With a pooler, a read is a transaction too.
#[tokio::test(flavor = "multi_thread")]
async fn the_statement_that_opens_the_transaction_of_a_read_that_is_given_up_is_not_cancelled() {
    let day = Day::with(|settings| {
        settings.pooled = true;
        settings.statement_max = PATIENCE;
    })
    .await;
    let cancelled = day.proxy.once(Moment::cancel(), Deed::HoldBefore);
    let trap = day.proxy.once(Moment::containing("BEGIN"), Deed::HoldAfter);
    let node = day.node.clone();
    let reading = tokio::spawn(async move {
        drop(node.read(INSERT, &[&"k"]).await);
    });
    trap.sprung().await;
    reading.abort();
    assert!(reading.await.unwrap_err().is_cancelled());
    trap.release();
    day.good.idle().await;
    assert_eq!(cancelled.count(), 0);
    assert_eq!(day.effects("k").await, (0, 0, 0));
}

/// The transaction was not opened yet, but the connection waits for a response.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_is_left_while_a_statement_is_prepared_is_not_used_again() {
    let day = Day::with(|settings| settings.connections = 2).await;
    for _ in 0..2 {
        let mut tx = day.node.begin(None, Headers::new()).await.unwrap();
        tx.emit(event("k")).unwrap();
        day.proxy.black_hole();
        let left = timeout(SHORT / 5, tx.commit()).await;
        assert!(left.is_err(), "the statement was prepared already");
        day.proxy.heal().await;
        for _ in 0..2 {
            let mut tx = day.node.begin(None, Headers::new()).await.unwrap();
            tx.query("SELECT 1", &[]).await.unwrap();
            tx.rollback().await;
        }
    }
    day.good.idle().await;
    assert_eq!(day.effects("k").await, (0, 0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollback_that_is_given_up_is_a_rollback() {
    let day = Day::new().await;
    for effect in [Some(Effect::Drop), None] {
        let key = format!("{effect:?}");
        let ClaimOutcome::Open(mut tx) = day.node.claim(claim(&key)).await.unwrap() else {
            panic!("expected a free key");
        };
        tx.execute(INSERT, &[&key]).await.unwrap();
        let given_up = give_up_after(
            1,
            Box::pin(async {
                match effect {
                    Some(effect) => drop(tx.complete(&response(&key), effect).await),
                    None => tx.rollback().await,
                }
            }),
        );
        assert!(!given_up.await, "the rollback ended at the first poll");
        day.good.idle().await;
        assert_eq!(day.effects(&key).await.0, 0);
    }
}

/// Requires that no transaction is open, that the request is applied completely or not at all, and
/// that a retry gets its response.
async fn check_left(day: &Day, way: RequestKind, key: &str) {
    day.good.idle().await;
    let left = day.effects(key).await;
    assert!([(0, 0, 0), (1, 1, 1)].contains(&left), "{key}: {left:?}");
    assert_eq!(ask(&day.node, way, key).await, response(key), "{key}");
    assert_eq!(day.effects(key).await, (1, 1, 1), "{key}");
}

/// Polls a request at most `polls` times; returns whether it ended.
async fn give_up_after(polls: usize, request: impl Future<Output = ()>) -> bool {
    let mut request = pin!(request);
    let mut left = polls;
    poll_fn(|context| match request.as_mut().poll(context) {
        Poll::Ready(()) => Poll::Ready(true),
        Poll::Pending => {
            left -= 1;
            if left == 0 {
                Poll::Ready(false)
            } else {
                Poll::Pending
            }
        }
    })
    .await
}
