//! Pipelined claims: the claim is sent together with the first statement, which saves a round trip
//! and is equally safe.

use std::time::Duration;

use hapax::{
    idempotency::{Claim, OnClaimed, Taken},
    store::{ClaimOutcome, Effect, Keys, StoreError, Transaction},
};
use hapax_postgres::Tx;
use hapax_testkit::{
    assert_matches,
    events::{claim, event, fingerprint, response},
};

use crate::fixture::{Fixture, INSERT};

async fn open_pipelined(fixture: &Fixture, claim: Claim) -> Tx {
    match fixture
        .store
        .claim_pipelined(claim, OnClaimed::nothing())
        .await
    {
        Ok(ClaimOutcome::Open(tx)) => tx,
        other => panic!("expected a transaction before the claim's outcome: {other:?}"),
    }
}

#[tokio::test]
async fn a_free_key_is_claimed_with_the_first_statement() {
    let fixture = Fixture::new().await;
    let mut tx = open_pipelined(&fixture, claim("k")).await;
    tx.execute(INSERT, &[&"first"]).await.unwrap();
    // From here on the key is locked.
    let other = fixture.beside().await;
    assert!(matches!(
        other.store.claim(claim("k")).await,
        Ok(ClaimOutcome::Taken(Taken::InProgress))
    ));
    tx.emit(event("first")).unwrap();
    tx.execute(INSERT, &[&"second"]).await.unwrap();
    tx.complete(&response("{}"), Effect::Keep).await.unwrap();
    assert_eq!(fixture.notes().await, ["first", "second"]);
    assert_eq!(
        fixture
            .count("SELECT count(*) FROM hapax.outbox_event")
            .await,
        1
    );
    let outcome = fixture.store.claim(claim("k")).await.unwrap();
    assert_matches!(outcome, ClaimOutcome::Taken(Taken::Replay { .. }));
    fixture.idle().await;
}

#[tokio::test]
async fn a_taken_key_fails_the_first_statement_and_says_what_it_was_taken_for() {
    let fixture = Fixture::new().await;
    let tx = open_pipelined(&fixture, claim("k")).await;
    tx.complete(&response("theirs"), Effect::Keep)
        .await
        .unwrap();
    let mut other = claim("k");
    other.fingerprint = fingerprint(2);
    for (claim, taken) in [(claim("k"), None), (other, Some(Taken::Mismatch))] {
        let mut tx = open_pipelined(&fixture, claim).await;
        let outcome = tx
            .query("INSERT INTO note VALUES ('mine') RETURNING text", &[])
            .await;
        assert_matches!(outcome, Err(StoreError::NotClaimed));
        let outcome = tx
            .taken()
            .expect("the transaction does not know that its key is taken");
        match taken {
            Some(taken) => assert_eq!(outcome, taken),
            None => assert!(
                matches!(&outcome, Taken::Replay { response: it, .. } if *it == response("theirs"))
            ),
        }
        tx.rollback().await;
    }
    assert_eq!(fixture.notes().await.len(), 0);
    fixture.idle().await;
}

#[tokio::test]
async fn a_key_that_another_transaction_has_loses_and_may_run_again() {
    let fixture = Fixture::new().await;
    let other = fixture.beside().await;
    let theirs = other.claim(claim("k")).await;
    let mut tx = open_pipelined(&fixture, claim("k")).await;
    let outcome = tx.execute(INSERT, &[&"mine"]).await;
    assert_matches!(outcome, Err(StoreError::NotClaimed));
    assert!(tx.has_conflict());
    assert_eq!(tx.taken(), None);
    // The transaction cannot be committed by mistake.
    let kept = tx.complete(&response("mine"), Effect::Keep).await;
    assert_matches!(kept, Err(StoreError::NotClaimed));
    theirs
        .complete(&response("theirs"), Effect::Keep)
        .await
        .unwrap();
    assert_eq!(fixture.notes().await.len(), 0);
    fixture.idle().await;
}

#[tokio::test]
async fn a_handler_without_a_statement_claims_at_its_end() {
    let fixture = Fixture::new().await;
    for effect in [Effect::Keep, Effect::Drop] {
        let key = format!("{effect:?}");
        let mut tx = open_pipelined(&fixture, claim(&key)).await;
        tx.emit(event(&key)).unwrap();
        tx.complete(&response(&key), effect).await.unwrap();
        let tx = open_pipelined(&fixture, claim(&key)).await;
        let outcome = tx.complete(&response("again"), effect).await;
        assert_matches!(outcome, Err(StoreError::NotClaimed));
    }
    assert_eq!(
        fixture
            .count("SELECT count(*) FROM hapax.outbox_event")
            .await,
        1
    );
    open_pipelined(&fixture, claim("rolled back"))
        .await
        .rollback()
        .await;
    drop(open_pipelined(&fixture, claim("dropped")).await);
    assert_eq!(
        fixture
            .count("SELECT count(*) FROM hapax.idempotency_key")
            .await,
        2
    );
    fixture.idle().await;
}

/// The claim is cut off together with the statement, so nothing may say that a response is stored.
#[tokio::test]
async fn a_first_statement_that_is_cut_off_stores_no_response_and_says_so() {
    let fixture = Fixture::new().await;
    let lock = "BEGIN; LOCK TABLE note IN ACCESS EXCLUSIVE MODE";
    fixture.run(lock).await;
    let mut tx = open_pipelined(&fixture, claim("k")).await;
    let execute = tx.execute(INSERT, &[&"late"]);
    let outcome = tokio::time::timeout(Duration::from_millis(200), execute).await;
    assert!(outcome.is_err(), "the statement did not wait for the lock");
    let kept = tx.complete(&response("late"), Effect::Drop).await;
    assert_matches!(kept, Err(StoreError::Unavailable { .. }));
    fixture.run("ROLLBACK").await;
    let outcome = fixture.store.claim(claim("k")).await.unwrap();
    assert_matches!(outcome, ClaimOutcome::Open(_));
    assert!(fixture.notes().await.is_empty());
}

#[tokio::test]
async fn a_first_statement_that_fails_dooms_the_transaction_and_frees_the_key() {
    let fixture = Fixture::new().await;
    let mut tx = open_pipelined(&fixture, claim("k")).await;
    let outcome = tx.execute("INSERT INTO note VALUES (NULL)", &[]).await;
    assert_matches!(outcome, Err(StoreError::Statement { .. }));
    assert!(!tx.has_conflict());
    let kept = tx.complete(&response("{}"), Effect::Drop).await;
    assert!(kept.is_ok(), "the rejection was not stored: {kept:?}");
    let outcome = fixture.store.claim(claim("k")).await.unwrap();
    assert_matches!(outcome, ClaimOutcome::Taken(Taken::Replay { .. }));
    fixture.idle().await;
}
