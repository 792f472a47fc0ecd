//! Conformance tests of optimistic claims: a key that is assumed to be free is committed with its
//! effect, or nothing is.
//!
//! A store without optimistic claims passes them with its regular claim.

use futures_util::future::join_all;
use hapax::{
    idempotency::Claim,
    store::{Effect, Keys, StoreError, Transaction},
};

use super::{
    StoreUnderTest, Tx,
    fixture::{
        Fixture, check_all_is_stored, check_one_ran, fire_or_replay, optimistic_or_replay,
        run_or_replay, try_optimistic,
    },
};
use crate::events::{RETENTION, claim, event, fingerprint, response};

/// The key, the rows, the events and the response are one commit.
pub async fn an_optimistic_claim_commits_rows_events_and_response<S: StoreUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let mut tx = open(&fixture, claim("k")).await;
    S::write_row(&mut tx, "row").await;
    tx.emit(event("row")).expect("an event is emitted");
    let kept = tx.complete(&response("row"), Effect::Keep).await;
    assert_eq!(kept.expect("a response is stored"), RETENTION);
    check_all_is_stored(&fixture.reopen().await).await;
}

/// Any number of events is written with the response.
pub async fn an_optimistic_claim_commits_several_events_or_none<S: StoreUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    for (key, events) in [("none", 0), ("two", 2)] {
        let mut tx = open(&fixture, claim(key)).await;
        S::write_row(&mut tx, key).await;
        for _ in 0..events {
            tx.emit(event(key)).expect("an event is emitted");
        }
        let kept = tx.complete(&response(key), Effect::Keep).await;
        kept.expect("a response is stored");
        assert_eq!(
            try_optimistic::<S>(fixture.store(), claim(key), key).await,
            None
        );
        assert_eq!(fixture.replay(claim(key)).await, response(key));
    }
    assert_eq!(fixture.rows().await, ["none", "two"]);
    assert_eq!(fixture.events().await.len(), 2);
}

/// If the key is stored, nothing is committed: neither for the same fingerprint nor for another.
pub async fn an_optimistic_claim_of_a_taken_key_commits_nothing<S: StoreUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    fixture.run(claim("k"), "first", &response("first")).await;
    let mut other = claim("k");
    other.fingerprint = fingerprint(2);
    for claim in [claim("k"), other] {
        assert_eq!(
            try_optimistic::<S>(fixture.store(), claim, "second").await,
            None
        );
    }
    assert_eq!(fixture.replay(claim("k")).await, response("first"));
    assert_eq!(fixture.rows().await, ["first"]);
    assert_eq!(fixture.events().await.len(), 0);
}

/// A key that has expired is left to the regular claim, which takes it over.
pub async fn an_expired_key_runs_as_new_after_an_optimistic_claim<S: StoreUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    fixture.run(claim("k"), "first", &response("first")).await;
    fixture.clock.advance(RETENTION);
    let ran = optimistic_or_replay::<S>(fixture.store(), claim("k"), "second").await;
    assert_eq!(ran, response("second"));
    assert_eq!(fixture.replay(claim("k")).await, response("second"));
    assert_eq!(fixture.rows().await, ["first", "second"]);
    assert_eq!(fixture.events().await.len(), 1);
}

/// A refusal is stored and has no effect.
pub async fn an_optimistic_refusal_keeps_the_response_alone<S: StoreUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let mut tx = open(&fixture, claim("k")).await;
    S::write_row(&mut tx, "dropped").await;
    tx.emit(event("dropped")).expect("an event is emitted");
    let kept = tx.complete(&response("no"), Effect::Drop).await;
    assert_eq!(kept.expect("a response is stored"), RETENTION);
    // The handler may also refuse before its first statement.
    let tx = open(&fixture, claim("at once")).await;
    let kept = tx.complete(&response("at once"), Effect::Drop).await;
    kept.expect("a response is stored");
    assert_eq!(fixture.replay(claim("k")).await, response("no"));
    assert_eq!(fixture.replay(claim("at once")).await, response("at once"));
    assert_eq!(fixture.rows().await, [""; 0]);
    assert_eq!(fixture.events().await.len(), 0);
}

/// A refusal never replaces a stored response.
pub async fn an_optimistic_refusal_of_a_taken_key_is_not_stored<S: StoreUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    fixture.run(claim("k"), "first", &response("first")).await;
    let opened = fixture.store().claim_optimistic(claim("k")).await;
    if let Some(mut tx) = opened.expect("a claim returns a result") {
        S::write_row(&mut tx, "second").await;
        let refused = tx.complete(&response("no"), Effect::Drop).await;
        let fits = matches!(
            refused,
            Err(StoreError::Conflict { .. } | StoreError::NotClaimed)
        );
        assert!(fits, "{refused:?}");
    }
    assert_eq!(fixture.replay(claim("k")).await, response("first"));
    assert_eq!(fixture.rows().await, ["first"]);
}

/// A handler without a statement claims its key at its end.
pub async fn an_optimistic_claim_without_a_statement_keeps_its_response<S: StoreUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let mut tx = open(&fixture, claim("k")).await;
    tx.emit(event("k")).expect("an event is emitted");
    let kept = tx.complete(&response("{}"), Effect::Keep).await;
    kept.expect("a response is stored");
    assert_eq!(fixture.replay(claim("k")).await, response("{}"));
    assert_eq!(
        try_optimistic::<S>(fixture.store(), claim("k"), "again").await,
        None
    );
    assert_eq!(fixture.rows().await, [""; 0]);
    assert_eq!(fixture.events().await.len(), 1);
}

/// If the transaction ends without a response, the key was never used.
pub async fn an_optimistic_claim_that_stores_no_response_leaves_its_key_free<S: StoreUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    for ending in ["rolled back", "dropped"] {
        let mut tx = open(&fixture, claim("k")).await;
        S::write_row(&mut tx, ending).await;
        tx.emit(event(ending)).expect("an event is emitted");
        if ending == "dropped" {
            drop(tx);
        } else {
            tx.rollback().await;
        }
    }
    let mut tx = open(&fixture, claim("k")).await;
    S::write_row(&mut tx, "committed").await;
    tx.commit().await.expect("the rows are committed");
    fixture.run(claim("k"), "after", &response("after")).await;
    assert_eq!(fixture.rows().await, ["after", "committed"]);
    assert_eq!(fixture.events().await.len(), 0);
}

/// Of many concurrent optimistic claims of one key, one commits and all requests receive its
/// response.
pub async fn of_many_optimistic_claims_at_once_one_commits<S: StoreUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let asked = (0..50).map(|number: u32| {
        let store = fixture.store().clone();
        let body = number.to_string();
        tokio::spawn(async move { optimistic_or_replay::<S>(&store, claim("k"), &body).await })
    });
    check_one_ran(&fixture, join_all(asked).await).await;
}

/// Optimistic claims, regular claims and single-shot requests with the same key exclude each other.
pub async fn every_claim_of_one_key_at_once_runs_once<S: StoreUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let asked = (0..48).map(|number: u32| {
        let store = fixture.store().clone();
        let body = number.to_string();
        tokio::spawn(async move {
            match number % 3 {
                0 => optimistic_or_replay::<S>(&store, claim("k"), &body).await,
                1 => run_or_replay::<S>(&store, claim("k"), &body).await,
                _ => fire_or_replay::<S>(&store, "k", &body).await,
            }
        })
    });
    check_one_ran(&fixture, join_all(asked).await).await;
}

/// Opens a transaction for a key that is free.
async fn open<S: StoreUnderTest>(fixture: &Fixture<S>, claim: Claim) -> Tx<S> {
    let opened = fixture.store().claim_optimistic(claim.clone()).await;
    match opened.expect("a claim returns a result") {
        Some(tx) => tx,
        None => fixture.claim(claim).await,
    }
}
