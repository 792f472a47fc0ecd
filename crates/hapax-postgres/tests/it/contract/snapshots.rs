//! Transactions with a fixed snapshot: they succeed, or fail with 40001 and write nothing.

use super::{COUNT_KEYS, ClaimRow, claim, complete, state, store_answer};
use crate::fixture::{Fixture, INSERT};

const LEVELS: [&str; 2] = ["REPEATABLE READ", "SERIALIZABLE"];

#[tokio::test]
async fn a_key_is_claimed_completed_and_replayed_at_every_isolation() {
    let fixture = Fixture::new().await;
    for level in LEVELS {
        let session = fixture.database.client().await;
        let begin = format!("BEGIN ISOLATION LEVEL {level}");
        session.batch_execute(&begin).await.unwrap();
        assert_eq!(claim(&session, level).await.unwrap(), ClaimRow::of("open"));
        session.execute(INSERT, &[&level]).await.unwrap();
        complete(&session, level, "{}").await.unwrap();
        session.batch_execute("COMMIT").await.unwrap();
        session.batch_execute(&begin).await.unwrap();
        assert_eq!(claim(&session, level).await.unwrap().outcome, "replay");
    }
    assert_eq!(fixture.notes().await, LEVELS);
    assert_eq!(fixture.count(COUNT_KEYS).await, 2);
}

#[tokio::test]
async fn a_claim_fails_with_40001_when_its_snapshot_is_older_than_the_answer() {
    let fixture = Fixture::new().await;
    for level in LEVELS {
        let session = fixture.database.client().await;
        let begin = format!("BEGIN ISOLATION LEVEL {level}; SELECT 1 FROM note");
        session.batch_execute(&begin).await.unwrap();
        store_answer(&fixture, level, "{}").await;
        assert_eq!(state(claim(&session, level).await), "40001");
        session.batch_execute("ROLLBACK").await.unwrap();
        session.batch_execute(&begin).await.unwrap();
        assert_eq!(claim(&session, level).await.unwrap().outcome, "replay");
    }
}

#[tokio::test]
async fn an_answer_fails_with_40001_when_its_place_was_taken_past_the_lock() {
    let fixture = Fixture::new().await;
    for level in LEVELS {
        let session = fixture.database.client().await;
        let begin = format!("BEGIN ISOLATION LEVEL {level}");
        session.batch_execute(&begin).await.unwrap();
        assert_eq!(claim(&session, level).await.unwrap(), ClaimRow::of("open"));
        let past = "INSERT INTO hapax.idempotency_key
                (tenant, operation, key, fingerprint, state, created_at, expires_at)
            VALUES ('alice', 'POST /orders', $1, '', 'in_progress', now(), now())";
        fixture.plain.execute(past, &[&level]).await.unwrap();
        assert_eq!(state(complete(&session, level, "{}").await), "40001");
    }
}

#[tokio::test]
async fn a_message_fails_with_40001_when_it_was_taken_after_the_snapshot() {
    let fixture = Fixture::new().await;
    let accept = "SELECT hapax.accept('ledger', $1, sha256('x'), 'bank')";
    for level in LEVELS {
        let session = fixture.database.client().await;
        let begin = format!("BEGIN ISOLATION LEVEL {level}; SELECT 1 FROM note");
        session.batch_execute(&begin).await.unwrap();
        fixture.plain.execute(accept, &[&level]).await.unwrap();
        assert_eq!(state(session.execute(accept, &[&level]).await), "40001");
    }
}
