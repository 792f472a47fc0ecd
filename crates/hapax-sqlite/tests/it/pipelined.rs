//! Pipelined claims: the writer is free until the first statement of the handler.

use hapax::{
    idempotency::{Claim, OnClaimed, Taken},
    store::{ClaimOutcome, Effect, Keys, StoreError, Transaction},
};
use hapax_sqlite::{Tx, rusqlite::Connection};
use hapax_testkit::{
    assert_matches,
    events::{claim, event, fingerprint, response},
};

use crate::fixture::{Fixture, INSERT};

#[tokio::test]
async fn a_handler_that_has_asked_for_nothing_holds_up_no_other() {
    let fixture = Fixture::new().await;
    let mut pipelined = open_pipelined(&fixture, claim("k")).await;
    // This transaction would wait if the first one held the writer.
    let Ok(ClaimOutcome::Open(mut other)) = fixture.store.claim(claim("other")).await else {
        panic!("the key is free");
    };
    write(&mut other, "other").await.unwrap();
    other
        .complete(&response("other"), Effect::Keep)
        .await
        .unwrap();
    write(&mut pipelined, "mine").await.unwrap();
    pipelined.emit(event("mine")).unwrap();
    pipelined
        .complete(&response("mine"), Effect::Keep)
        .await
        .unwrap();
    assert_eq!(count(&fixture).await, 2);
    let outcome = fixture.store.claim(claim("k")).await.unwrap();
    assert_matches!(outcome, ClaimOutcome::Taken(Taken::Replay { .. }));
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
    for (claim, mismatch) in [(claim("k"), false), (other, true)] {
        let mut tx = open_pipelined(&fixture, claim).await;
        tx.emit(event("mine")).unwrap();
        for _ in 0..2 {
            let outcome = write(&mut tx, "mine").await;
            assert_matches!(outcome, Err(StoreError::NotClaimed));
        }
        assert!(tx.has_conflict());
        match tx.taken() {
            Some(Taken::Mismatch) => assert!(mismatch),
            Some(Taken::Replay { response: it, .. }) => assert_eq!(it, response("theirs")),
            other => panic!("{other:?}"),
        }
        // Its effect cannot be kept by mistake.
        let kept = tx.complete(&response("mine"), Effect::Keep).await;
        assert_matches!(kept, Err(StoreError::NotClaimed));
    }
    assert_eq!(count(&fixture).await, 0);
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
    open_pipelined(&fixture, claim("rolled back"))
        .await
        .rollback()
        .await;
    drop(open_pipelined(&fixture, claim("dropped")).await);
    for free in ["rolled back", "dropped"] {
        let outcome = fixture.store.claim(claim(free)).await.unwrap();
        assert_matches!(outcome, ClaimOutcome::Open(_));
    }
}

async fn open_pipelined(fixture: &Fixture, claim: Claim) -> Tx {
    match fixture
        .store
        .claim_pipelined(claim, OnClaimed::nothing())
        .await
    {
        Ok(ClaimOutcome::Open(tx)) => tx,
        other => panic!("expected an open transaction, got {other:?}"),
    }
}

async fn write(tx: &mut Tx, text: &'static str) -> Result<usize, StoreError> {
    tx.with(move |rows| rows.execute(INSERT, [text])).await
}

async fn count(fixture: &Fixture) -> i64 {
    let count =
        |rows: &Connection| rows.query_row("SELECT count(*) FROM note", [], |row| row.get(0));
    fixture.store.read(count).await.unwrap()
}
