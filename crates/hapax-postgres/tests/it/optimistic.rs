//! Optimistic claims: the key is claimed together with the response, without a lock or a look-up
//! before the handler, and whichever request stores its response first wins.

use std::time::Duration;

use hapax::{
    idempotency::{Claim, Taken},
    store::{ClaimOutcome, Effect, KeyMaintenance, Keys, StoreError, Transaction},
};
use hapax_postgres::{Postgres, Tx};
use hapax_testkit::{
    assert_matches,
    events::{claim, event, response},
    proxy::{Deed, Moment, Proxy},
    wait::eventually,
};

use crate::fixture::{Fixture, INSERT, PATIENCE, plan, settings};

const STORES: &str = "INSERT INTO hapax.idempotency_key";
const EVENTS: &str = "SELECT count(*) FROM hapax.outbox_event";

async fn open(store: &Postgres, claim: Claim) -> Tx {
    let opened = store.claim_optimistic(claim).await;
    opened.unwrap().expect("the store has optimistic claims")
}

/// A transaction under key `k` that has written a note and emitted an event.
async fn written(store: &Postgres, note: &str) -> Tx {
    written_under(store, "k", note).await
}

async fn written_under(store: &Postgres, key: &str, note: &str) -> Tx {
    let mut tx = open(store, claim(key)).await;
    tx.execute(INSERT, &[&note]).await.unwrap();
    tx.emit(event(note)).unwrap();
    tx
}

async fn complete(tx: Tx, note: &str) -> Result<Duration, StoreError> {
    tx.complete(&response(note), Effect::Keep).await
}

/// The proxy holds back the results of `BEGIN`, and then that of the statement that stores the
/// response. The statements that were sent after them are executed all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_handler_of_one_statement_takes_two_pipelines_without_a_lock_or_a_look_up() {
    let fixture = Fixture::new().await;
    let proxy = Proxy::to_postgres(fixture.database.address());
    let node = Postgres::open(settings(&proxy.url(&fixture.database.url()))).await;
    let node = node.unwrap();
    // Everything is prepared on the connection that is used.
    let before = written_under(&node, "before", "before").await;
    complete(before, "before").await.unwrap();
    let looks = ["AS locked", "FROM hapax.idempotency_key"]
        .map(|text| proxy.always(Moment::containing(text), Deed::CutBefore));
    let begun = proxy.once(Moment::containing("BEGIN"), Deed::HoldAfter);
    let stored = proxy.once(Moment::containing(STORES), Deed::HoldAfter);
    let running = tokio::spawn(async move { complete(written(&node, "k").await, "k").await });
    begun.sprung().await;
    let executed = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
         AND state = 'idle in transaction' AND query = '{INSERT}'"
    );
    eventually(PATIENCE, async || fixture.count(&executed).await == 1).await;
    begun.release();
    stored.sprung().await;
    let committed = "SELECT count(*) FROM hapax.idempotency_key WHERE key = 'k'";
    eventually(PATIENCE, async || fixture.count(committed).await == 1).await;
    stored.release();
    running.await.unwrap().unwrap();
    assert_eq!(looks.map(|trap| trap.count()), [0, 0]);
    assert_eq!(fixture.notes().await, ["before", "k"]);
    fixture.idle().await;
}

#[tokio::test]
async fn of_two_nodes_the_first_to_store_its_response_wins_and_the_other_leaves_nothing() {
    let here = Fixture::new().await;
    let there = here.beside().await;
    let (first, second) = (
        written(&here.store, "a").await,
        written(&there.store, "b").await,
    );
    complete(first, "a").await.unwrap();
    let lost = complete(second, "b").await;
    assert_matches!(lost, Err(StoreError::NotClaimed));
    assert_eq!(here.notes().await, ["a"]);
    assert_eq!(here.count(EVENTS).await, 1);
    let known = there.store.claim(claim("k")).await.unwrap();
    assert!(
        matches!(&known, ClaimOutcome::Taken(Taken::Replay { response: it, .. }) if *it == response("a"))
    );
    here.idle().await;
}

/// If it waited for the lock, this test would not end.
#[tokio::test]
async fn an_optimistic_claim_loses_at_once_against_a_transaction_that_has_the_lock() {
    let here = Fixture::new().await;
    let there = here.beside().await;
    let mut holder = here.claim(claim("k")).await;
    holder.execute(INSERT, &[&"holder"]).await.unwrap();
    let lost = complete(written(&there.store, "lost").await, "lost").await;
    assert_matches!(lost, Err(StoreError::NotClaimed));
    let lost = written(&there.store, "lost").await;
    let lost = lost.complete(&response("lost"), Effect::Drop).await;
    assert_matches!(lost, Err(StoreError::NotClaimed));
    // The holder of the lock is never robbed of its key.
    complete(holder, "holder").await.unwrap();
    assert_eq!(here.notes().await, ["holder"]);
    assert_eq!(here.count(EVENTS).await, 0);
    here.idle().await;
}

#[tokio::test]
async fn a_claim_or_a_plan_that_commits_during_the_handler_wins() {
    let here = Fixture::new().await;
    let there = here.beside().await;
    let open = written(&there.store, "lost").await;
    let regular = here.claim(claim("k")).await;
    complete(regular, "regular").await.unwrap();
    assert_matches!(complete(open, "lost").await, Err(StoreError::NotClaimed));
    here.store.forget(&claim("k").scope).await.unwrap();
    let open = written(&there.store, "lost").await;
    let ran = here.store.execute_plan(plan("k")).await.unwrap();
    assert_matches!(ran, ClaimOutcome::Open(_));
    assert_matches!(complete(open, "lost").await, Err(StoreError::NotClaimed));
    assert_eq!(here.notes().await, ["k"]);
    here.idle().await;
}

/// The lock is taken by the statement that stores the response, so a claim waits for its commit.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_waits_for_an_optimistic_claim_that_is_committing() {
    let here = Fixture::new().await;
    let proxy = Proxy::to_postgres(here.database.address());
    let node = Postgres::open(settings(&proxy.url(&here.database.url()))).await;
    let node = node.unwrap();
    let held = proxy.once(Moment::commit(), Deed::HoldBefore);
    let committing = tokio::spawn(async move { complete(written(&node, "k").await, "k").await });
    held.sprung().await;
    let soon = Fixture::on(here.database.clone(), |it| {
        it.wait = Duration::from_millis(50);
    })
    .await;
    let known = soon.store.claim(claim("k")).await.unwrap();
    assert_matches!(known, ClaimOutcome::Taken(Taken::InProgress));
    // An optimistic claim does not wait either.
    let lost = complete(written(&soon.store, "lost").await, "lost").await;
    assert_matches!(lost, Err(StoreError::NotClaimed));
    held.release();
    committing.await.unwrap().unwrap();
    let known = soon.store.claim(claim("k")).await.unwrap();
    assert_matches!(known, ClaimOutcome::Taken(Taken::Replay { .. }));
    assert_eq!(here.notes().await, ["k"]);
    here.idle().await;
}

/// The handler has ignored the error, or returns a refusal because of it.
#[tokio::test]
async fn a_statement_that_fails_commits_nothing_whatever_the_handler_makes_of_it() {
    let fixture = Fixture::new().await;
    let mut tx = open(&fixture.store, claim("kept")).await;
    let failed = tx.execute("INSERT INTO note VALUES (NULL)", &[]).await;
    assert_matches!(failed, Err(StoreError::Statement { .. }));
    let kept = complete(tx, "kept").await;
    assert_matches!(kept, Err(StoreError::Statement { .. }));
    let mut tx = open(&fixture.store, claim("refused")).await;
    tx.execute(INSERT, &[&"refused"]).await.unwrap();
    let failed = tx.execute("INSERT INTO note VALUES (NULL)", &[]).await;
    assert_matches!(failed, Err(StoreError::Statement { .. }));
    let refused = tx.complete(&response("refused"), Effect::Drop).await;
    assert!(refused.is_ok(), "{refused:?}");
    assert_eq!(fixture.notes().await, [""; 0]);
    let keys = "SELECT count(*) FROM hapax.idempotency_key";
    assert_eq!(fixture.count(keys).await, 1);
    fixture.idle().await;
}

#[tokio::test]
async fn connections_that_were_terminated_cost_a_regular_claim() {
    let fixture = Fixture::new().await;
    for effect in [Effect::Keep, Effect::Drop] {
        let tx = open(&fixture.store, claim("k")).await;
        fixture.database.terminate_backends("hapax").await;
        // No statement was sent, so nothing was committed.
        let lost = tx.complete(&response("k"), effect).await;
        assert_matches!(lost, Err(StoreError::Conflict { .. }), "{effect:?}");
    }
    fixture.claim(claim("k")).await.rollback().await;
    fixture.idle().await;
}
