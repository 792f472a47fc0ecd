//! Connections: all of them in use, terminated by the server, or in a state in which they must not
//! be used again.

use std::time::Instant;

use hapax::{
    event::Headers,
    idempotency::OnClaimed,
    store::{ClaimOutcome, Effect, Keys, StoreError, Transaction},
};
use hapax_testkit::{
    assert_matches,
    events::{claim, event, response},
    proxy::{Deed, Moment},
    wait::eventually,
};

use super::day::{Day, REQUEST_KINDS, RequestKind, SHORT, order};
use crate::fixture::{INSERT, PATIENCE};

#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_a_free_connection_is_unavailable_and_recovers() {
    let day = Day::with(|settings| settings.connections = 3).await;
    let mut open = Vec::new();
    for number in 0..3 {
        open.push(
            day.node
                .claim(claim(&format!("open{number}")))
                .await
                .unwrap(),
        );
    }
    for way in REQUEST_KINDS {
        let start = Instant::now();
        let outcome = order(&day.node, way, "k").await;
        assert_matches!(outcome, Err(StoreError::Unavailable { .. }));
        assert!(
            start.elapsed() >= SHORT,
            "the request did not wait for a connection"
        );
        assert!(start.elapsed() < SHORT * 5, "{:?}", start.elapsed());
    }
    assert_eq!(day.effects("k").await, (0, 0, 0));
    drop(open);
    assert_eq!(
        order(&day.node, RequestKind::Handler, "k").await.unwrap(),
        response("k")
    );
    assert_eq!(
        order(&day.node, RequestKind::PlannedRequest, "l")
            .await
            .unwrap(),
        response("l")
    );
    day.settle(RequestKind::Handler, "k", Ok(response("k")))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backend_that_is_terminated_between_two_statements_leaves_nothing() {
    let day = Day::new().await;
    for effect in [Effect::Keep, Effect::Drop] {
        let key = format!("{effect:?}");
        let ClaimOutcome::Open(mut tx) = day.node.claim(claim(&key)).await.unwrap() else {
            panic!("expected a free key");
        };
        tx.execute(INSERT, &[&key]).await.unwrap();
        tx.emit(event(&key)).unwrap();
        assert!(terminate(&day).await > 0);
        let outcome = tx.complete(&response(&key), effect).await;
        let outcome = outcome.map(|_| response(&key));
        assert!(outcome.is_err(), "{effect:?}");
        day.settle(RequestKind::Handler, &key, outcome).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backend_that_is_terminated_in_a_statement_leaves_nothing() {
    let day = Day::with(|settings| settings.statement_max = PATIENCE).await;
    let mut tx = day.node.begin(None, Headers::new()).await.unwrap();
    tx.execute(INSERT, &[&"k"]).await.unwrap();
    let running = tokio::spawn(async move {
        let slept = tx.execute("SELECT pg_sleep(30)", &[]).await;
        (slept, tx.commit().await)
    });
    running_statement(&day, "SELECT pg_sleep(30)").await;
    assert!(terminate(&day).await > 0);
    let (slept, committed) = running.await.unwrap();
    assert_matches!(slept, Err(StoreError::Unavailable { .. }));
    assert!(committed.is_err());
    day.good.idle().await;
    assert_eq!(day.effects("k").await, (0, 0, 0));
    assert_eq!(
        order(&day.node, RequestKind::Handler, "k").await.unwrap(),
        response("k")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_that_were_terminated_are_replaced_unnoticed() {
    let day = Day::new().await;
    for way in REQUEST_KINDS {
        order(&day.node, way, "warm").await.unwrap();
        assert!(terminate(&day).await > 0);
        day.good.idle().await;
        let key = format!("{way:?}");
        let outcome = order(&day.node, way, &key).await;
        day.settle(way, &key, outcome).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_past_its_time_is_rolled_back_and_says_so() {
    let day = Day::new().await;
    let ClaimOutcome::Open(mut tx) = day.node.claim(claim("k")).await.unwrap() else {
        panic!("expected a free key");
    };
    tx.execute(INSERT, &[&"k"]).await.unwrap();
    tx.execute("SET LOCAL statement_timeout = 20", &[])
        .await
        .unwrap();
    let outcome = tx.execute("SELECT pg_sleep(30)", &[]).await;
    assert_matches!(outcome, Err(StoreError::TimedOut));
    let kept = tx.complete(&response("k"), Effect::Keep).await;
    let outcome = kept.map(|_| response("k"));
    assert!(outcome.is_err());
    day.settle(RequestKind::Handler, "k", outcome).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_idles_past_its_time_is_rolled_back_and_lets_its_key_go() {
    let day = Day::with(|settings| settings.idle_max = SHORT).await;
    let ClaimOutcome::Open(mut tx) = day.node.claim(claim("k")).await.unwrap() else {
        panic!("expected a free key");
    };
    tx.execute(INSERT, &[&"k"]).await.unwrap();
    tx.emit(event("k")).unwrap();
    // The server terminates the transaction.
    day.good.idle().await;
    assert_eq!(
        order(&day.good.store, RequestKind::Handler, "k")
            .await
            .unwrap(),
        response("k")
    );
    let outcome = tx.complete(&response("other"), Effect::Keep).await;
    assert!(outcome.is_err(), "{outcome:?}");
    day.settle(RequestKind::Handler, "k", Ok(response("k")))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_may_be_in_the_middle_of_something_is_never_given_back() {
    let day = Day::with(|settings| settings.connections = 2).await;
    let mut backends = Vec::new();
    for deed in [Deed::SwallowAfter, Deed::HoldAfter, Deed::SwallowBefore] {
        let mut tx = day.node.begin(None, Headers::new()).await.unwrap();
        backends.push(backend(&mut tx).await);
        tx.execute(INSERT, &[&"lost"]).await.unwrap();
        let trap = day.proxy.once(Moment::containing("SELECT 'lost'"), deed);
        let outcome = tx.execute("SELECT 'lost'", &[]).await;
        assert_matches!(
            outcome,
            Err(StoreError::Unavailable { .. } | StoreError::TimedOut)
        );
        assert_eq!(trap.count(), 1);
        drop(tx);
        // A connection that is handed out now is not in a transaction and returns the results of
        // its own statements.
        for _ in 0..4 {
            let mut tx = day.node.begin(None, Headers::new()).await.unwrap();
            assert!(!backends.contains(&backend(&mut tx).await), "{deed:?}");
            let inside = tx.query("SELECT count(*) FROM note WHERE text = 'lost'", &[]);
            assert_eq!(inside.await.unwrap()[0].get::<_, i64>(0), 0, "{deed:?}");
            tx.rollback().await;
        }
    }
    day.proxy.heal().await;
    day.proxy.reset();
    day.good.idle().await;
    assert_eq!(day.effects("lost").await, (0, 0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_that_comes_late_stops_nobody_else() {
    let day = Day::with(|settings| {
        settings.connections = 2;
        settings.statement_max = PATIENCE;
    })
    .await;
    let late = day.proxy.once(Moment::cancel(), Deed::HoldBefore);
    // A client disconnects in the middle of a statement.
    let mut tx = day.node.begin(None, Headers::new()).await.unwrap();
    let leaving = tokio::spawn(async move {
        drop(tx.execute("SELECT pg_sleep(2)", &[]).await);
    });
    running_statement(&day, "SELECT pg_sleep(2)").await;
    leaving.abort();
    late.sprung().await;
    day.good.idle().await;
    // Both connections now belong to other transactions, in the middle of a statement.
    let mut others = Vec::new();
    for _ in 0..2 {
        let mut tx = day.node.begin(None, Headers::new()).await.unwrap();
        others.push(tokio::spawn(async move {
            tx.execute("SELECT pg_sleep(2)", &[]).await
        }));
    }
    let running = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND state = 'active' AND query = 'SELECT pg_sleep(2)'";
    eventually(PATIENCE, async || day.good.count(running).await == 2).await;
    late.release();
    for other in others {
        let outcome = other.await.unwrap();
        assert!(outcome.is_ok(), "{outcome:?}");
    }
}

/// The transaction is open by then, though the handler waits for its statement alone.
#[tokio::test(flavor = "multi_thread")]
async fn the_first_statement_behind_a_pipelined_claim_is_cancelled_if_it_is_given_up() {
    let day = Day::with(|settings| settings.statement_max = PATIENCE).await;
    let ClaimOutcome::Open(mut tx) = day
        .node
        .claim_pipelined(claim("k"), OnClaimed::nothing())
        .await
        .unwrap()
    else {
        panic!("expected a free key");
    };
    let cancelled = day.proxy.once(Moment::cancel(), Deed::HoldBefore);
    let leaving = tokio::spawn(async move {
        drop(tx.execute("SELECT pg_sleep(2)", &[]).await);
    });
    running_statement(&day, "SELECT pg_sleep(2)").await;
    leaving.abort();
    cancelled.sprung().await;
    cancelled.release();
    day.good.idle().await;
}

/// Terminates the node's connections on the server; returns how many there were.
async fn terminate(day: &Day) -> u64 {
    day.good.database.terminate_backends("hapax").await
}

async fn backend(tx: &mut hapax_postgres::Tx) -> i32 {
    tx.query("SELECT pg_backend_pid()", &[]).await.unwrap()[0].get(0)
}

/// Waits until a statement is running.
async fn running_statement(day: &Day, statement: &str) {
    const RUNNING: &str = "SELECT 1 FROM pg_stat_activity
        WHERE datname = current_database() AND state = 'active' AND query = $1";
    let plain = &day.good.plain;
    eventually(PATIENCE, async || {
        !plain
            .query(RUNNING, &[&statement])
            .await
            .unwrap()
            .is_empty()
    })
    .await;
}
