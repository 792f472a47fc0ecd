//! Conformance tests of conflicts: another payload under a key whose first request is running.
//!
//! Such a claim is a mismatch at once. It is not made to wait for the first request, which may run
//! for a long time, and not asked to try again, which would be in vain. No other claim is a mismatch.
//!
//! The first request stays open while the test claims its key again, so a store with a single writer
//! must decide without the writer.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use futures_util::future::join_all;
use hapax::{
    idempotency::{Claim, OnClaimed, Taken},
    store::{ClaimOutcome, Effect, Keys, Transaction},
};

use super::{
    StoreUnderTest, Tx,
    fixture::{Fixture, PATIENCE, run_or_replay},
};
use crate::{
    events::{claim, fingerprint, response, single_shot},
    wait::Patience,
};

/// Another payload is a mismatch while the first request runs, and after it has ended.
pub async fn another_payload_is_a_mismatch_while_the_first_request_runs<S: StoreUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let mut tx = fixture.claim(claim("k")).await;
    assert_eq!(fixture.taken(with_payload("k", 2)).await, Taken::Mismatch);
    S::write_row(&mut tx, "row").await;
    assert_eq!(fixture.taken(with_payload("k", 3)).await, Taken::Mismatch);
    assert_eq!(fixture.taken(with_payload("k", 2)).await, Taken::Mismatch);
    let kept = tx.complete(&response("row"), Effect::Keep).await;
    kept.expect("a response is stored");
    assert_eq!(fixture.taken(with_payload("k", 2)).await, Taken::Mismatch);
    assert_eq!(fixture.replay(claim("k")).await, response("row"));
    assert_eq!(fixture.rows().await, ["row"]);
}

/// Claims with one other payload do not take each other for the first request.
pub async fn many_other_payloads_at_once_are_mismatches<S: StoreUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let tx = fixture.claim(claim("k")).await;
    let asked = [2, 2, 2, 3].map(|number| {
        let store = fixture.store().clone();
        tokio::spawn(async move {
            let outcome = store.claim(with_payload("k", number)).await;
            taken(outcome.expect("a claim returns a result"))
        })
    });
    for outcome in join_all(asked).await {
        assert_eq!(outcome.expect("no panic"), Taken::Mismatch);
    }
    tx.rollback().await;
}

/// The same payload waits or is in progress, and gets the response in the end.
pub async fn the_same_payload_is_no_mismatch_while_the_first_request_runs<S: StoreUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let mut tx = fixture.claim(claim("k")).await;
    S::write_row(&mut tx, "row").await;
    let asked: Vec<_> = (0..4)
        .map(|_| {
            let store = fixture.store().clone();
            // A mismatch would be a panic.
            tokio::spawn(async move { run_or_replay::<S>(&store, claim("k"), "again").await })
        })
        .collect();
    assert_eq!(fixture.taken(with_payload("k", 2)).await, Taken::Mismatch);
    let kept = tx.complete(&response("row"), Effect::Keep).await;
    kept.expect("a response is stored");
    for outcome in join_all(asked).await {
        assert_eq!(outcome.expect("no panic"), response("row"));
    }
    assert_eq!(fixture.rows().await, ["row"]);
}

/// A mismatch does not outlive its reason: the key is free after a rollback.
pub async fn after_a_rollback_another_payload_runs<S: StoreUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    for is_dropped in [false, true] {
        let mut tx = fixture.claim(claim("k")).await;
        S::write_row(&mut tx, "rolled back").await;
        assert_eq!(fixture.taken(with_payload("k", 2)).await, Taken::Mismatch);
        let other = if is_dropped {
            drop(tx);
            claim_when_free(&fixture, with_payload("k", 2)).await
        } else {
            tx.rollback().await;
            fixture.claim(with_payload("k", 2)).await
        };
        other.rollback().await;
    }
    let second = response("second");
    fixture.run(with_payload("k", 2), "second", &second).await;
    assert_eq!(fixture.taken(claim("k")).await, Taken::Mismatch);
    assert_eq!(fixture.rows().await, ["second"]);
}

/// A pipelined claim has its key after the first statement, and says so.
pub async fn another_payload_is_a_mismatch_after_the_first_statement_of_a_pipelined_claim<
    S: StoreUnderTest,
>() {
    let fixture = Fixture::<S>::fresh().await;
    let is_claimed = Arc::new(AtomicBool::new(false));
    let claimed = Arc::clone(&is_claimed);
    let on_claimed = OnClaimed::new(move || claimed.store(true, Ordering::SeqCst));
    let opened = fixture
        .store()
        .claim_pipelined(claim("k"), on_claimed)
        .await;
    let ClaimOutcome::Open(mut tx) = opened.expect("a claim returns a result") else {
        panic!("the key should be free");
    };
    S::write_row(&mut tx, "row").await;
    assert!(is_claimed.load(Ordering::SeqCst));
    assert_eq!(fixture.taken(with_payload("k", 2)).await, Taken::Mismatch);
    tx.rollback().await;
}

/// A plan waits for nothing either.
pub async fn a_plan_with_another_payload_is_a_mismatch_while_the_first_request_runs<
    S: StoreUnderTest,
>() {
    let fixture = Fixture::<S>::fresh().await;
    let mut tx = fixture.claim(claim("k")).await;
    S::write_row(&mut tx, "rolled back").await;
    let plan = || {
        let statements = vec![S::row_statement("plan")];
        single_shot(with_payload("k", 2), statements, "plan")
    };
    let outcome = fixture.store().execute_plan(plan()).await;
    let outcome = outcome.expect("it returns a result");
    assert_eq!(outcome, ClaimOutcome::Taken(Taken::Mismatch));
    tx.rollback().await;
    let outcome = fixture.store().execute_plan(plan()).await;
    assert!(matches!(outcome, Ok(ClaimOutcome::Open(_))), "{outcome:?}");
    assert_eq!(fixture.rows().await, ["plan"]);
}

/// A payload that runs under one key says nothing about another key.
pub async fn another_key_is_no_conflict<S: StoreUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let mut tx = fixture.claim(claim("k")).await;
    S::write_row(&mut tx, "row").await;
    let store = fixture.store().clone();
    let other =
        tokio::spawn(
            async move { run_or_replay::<S>(&store, with_payload("l", 2), "other").await },
        );
    assert_eq!(fixture.taken(with_payload("k", 2)).await, Taken::Mismatch);
    let kept = tx.complete(&response("row"), Effect::Keep).await;
    kept.expect("a response is stored");
    assert_eq!(other.await.expect("no panic"), response("other"));
    assert_eq!(fixture.rows().await, ["other", "row"]);
}

/// Claims a key whose transaction was dropped: its rollback may take a moment.
async fn claim_when_free<S: StoreUnderTest>(fixture: &Fixture<S>, claim: Claim) -> Tx<S> {
    let patience = Patience::within(PATIENCE);
    loop {
        let outcome = fixture.store().claim(claim.clone()).await;
        match outcome.expect("a claim returns a result") {
            ClaimOutcome::Open(tx) => return tx,
            ClaimOutcome::Taken(Taken::Mismatch | Taken::InProgress) => patience.pause().await,
            ClaimOutcome::Taken(other) => panic!("nothing is stored, but it is {other:?}"),
        }
    }
}

/// A claim of `key` with the payload `number`. That of `claim` is 1.
fn with_payload(key: &str, number: u8) -> Claim {
    Claim {
        fingerprint: fingerprint(number),
        ..claim(key)
    }
}

fn taken<T>(outcome: ClaimOutcome<T>) -> Taken {
    match outcome {
        ClaimOutcome::Open(_) => panic!("the key should be taken"),
        ClaimOutcome::Taken(taken) => taken,
    }
}
