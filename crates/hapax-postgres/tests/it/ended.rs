//! Statements that would end the transaction of a handler: they are refused in every kind of
//! transaction, and nothing is committed. Savepoints end nothing.

use std::time::Duration;

use hapax::{
    event::Headers,
    idempotency::{OnClaimed, Taken},
    phases::Entry,
    store::{ClaimOutcome, DatabaseError, Effect, Keys, Phases, StoreError, Transaction},
};
use hapax_postgres::{Statement, Tx, Value};
use hapax_testkit::{
    assert_matches,
    events::{claim, event, message, response},
};

use crate::fixture::{Fixture, INSERT, plan, plan_of};

const ENDINGS: [&str; 6] = [
    "COMMIT",
    "/* half */ commit and chain",
    "END",
    "ROLLBACK",
    "ABORT",
    "PREPARE TRANSACTION 'half'",
];
/// Everything that a handler or the store may have committed, except the entry of a phased request.
const STORED: &str = "SELECT (SELECT count(*) FROM note)
    + (SELECT count(*) FROM hapax.outbox_event)
    + (SELECT count(*) FROM hapax.inbox_message)
    + (SELECT count(*) FROM hapax.idempotency_key
       WHERE state <> 'in_progress' OR recovery_point IS NOT NULL)";

/// The transactions in which a handler runs.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Keyless,
    Claimed,
    Pipelined,
    Optimistic,
    AtCommit,
    Phase,
}

const KINDS: [Kind; 6] = [
    Kind::Keyless,
    Kind::Claimed,
    Kind::Pipelined,
    Kind::Optimistic,
    Kind::AtCommit,
    Kind::Phase,
];

impl Kind {
    async fn open(self, fixture: &Fixture) -> Tx {
        let (store, key) = (&fixture.store, format!("{self:?}"));
        match self {
            Self::Keyless => store.begin(None, Headers::new()).await.unwrap(),
            Self::Claimed => fixture.claim(claim(&key)).await,
            Self::Pipelined => pipelined(fixture, &key).await,
            Self::Optimistic => {
                let opened = store.claim_optimistic(claim(&key)).await.unwrap();
                opened.expect("the store has optimistic claims")
            }
            Self::AtCommit => {
                let message = message("mailer", &key, "hello");
                let opened = store.accept_at_commit(None, Headers::new(), &message).await;
                opened.unwrap().expect("the store accepts at the commit")
            }
            Self::Phase => {
                let entry = Entry {
                    claim: claim(&key),
                    lease: Duration::ZERO,
                    request: None,
                    recovery_point: None,
                };
                let ClaimOutcome::Open(owner) = store.enter(entry).await.unwrap() else {
                    panic!("expected a key that is free or can be resumed");
                };
                let phase = store.phase(&owner, Some("paid"), Headers::new()).await;
                phase.unwrap()
            }
        }
    }

    /// Ends the transaction as the layer does after a success.
    async fn end(self, tx: Tx) -> Result<(), StoreError> {
        match self {
            Self::Keyless | Self::AtCommit | Self::Phase => tx.commit().await,
            Self::Claimed | Self::Pipelined | Self::Optimistic => {
                let completed = tx.complete(&response("{}"), Effect::Keep).await;
                completed.map(drop)
            }
        }
    }
}

async fn pipelined(fixture: &Fixture, key: &str) -> Tx {
    let claimed = fixture
        .store
        .claim_pipelined(claim(key), OnClaimed::nothing());
    match claimed.await.unwrap() {
        ClaimOutcome::Open(tx) => tx,
        ClaimOutcome::Taken(taken) => panic!("expected a transaction, got {taken:?}"),
    }
}

/// Checks that this is the refusal of a statement that would end a transaction.
#[track_caller]
fn check_refused(error: &StoreError, what: &str) {
    let code = error.database_error().map(DatabaseError::code);
    assert_eq!(code, Some("2D000"), "{what}: {error:?}");
    let chain = error.error_chain();
    assert!(chain.contains("was not executed"), "{what}: {chain}");
}

#[tokio::test]
async fn a_statement_that_would_end_its_transaction_is_refused_and_nothing_is_committed() {
    let fixture = Fixture::new().await;
    for kind in KINDS {
        for ending in ENDINGS {
            for is_first in [true, false] {
                let what = format!("{kind:?}, {ending}, first: {is_first}");
                let mut tx = kind.open(&fixture).await;
                if !is_first {
                    tx.execute(INSERT, &[&"half"]).await.unwrap();
                }
                tx.emit(event("half")).unwrap();
                check_refused(&tx.execute(ending, &[]).await.unwrap_err(), &what);
                // Even if the handler ignores it, nothing of the transaction is committed.
                check_refused(&tx.query("SELECT 1", &[]).await.unwrap_err(), &what);
                check_refused(&kind.end(tx).await.unwrap_err(), &what);
                assert_eq!(fixture.count(STORED).await, 0, "{what}");
            }
        }
    }
    fixture.idle().await;
    // The message was not lost, and the keys are free.
    for kind in KINDS {
        let mut tx = kind.open(&fixture).await;
        let note = format!("{kind:?}");
        tx.execute(INSERT, &[&note]).await.unwrap();
        kind.end(tx).await.unwrap();
    }
    assert_eq!(fixture.notes().await.len(), KINDS.len());
}

#[tokio::test]
async fn savepoints_are_no_ends_of_a_transaction() {
    let fixture = Fixture::new().await;
    for kind in KINDS {
        let mut tx = kind.open(&fixture).await;
        for sql in [
            "SAVEPOINT a",
            "INSERT INTO note (text) VALUES ('undone')",
            "ROLLBACK TO SAVEPOINT a",
            "SAVEPOINT b",
            "INSERT INTO note (text) VALUES ('kept')",
            "rollback work to a",
            "INSERT INTO note (text) VALUES ('kept')",
            "RELEASE a",
        ] {
            tx.execute(sql, &[]).await.unwrap();
        }
        tx.emit(event("kept")).unwrap();
        kind.end(tx).await.unwrap();
    }
    assert_eq!(fixture.notes().await, ["kept"; KINDS.len()]);
    fixture.idle().await;
}

#[tokio::test]
async fn a_response_without_its_effect_can_be_stored_after_a_refused_statement() {
    let fixture = Fixture::new().await;
    for kind in [Kind::Claimed, Kind::Pipelined, Kind::Optimistic] {
        let mut tx = kind.open(&fixture).await;
        tx.execute(INSERT, &[&"half"]).await.unwrap();
        assert!(tx.execute("COMMIT", &[]).await.is_err());
        tx.complete(&response("no"), Effect::Drop).await.unwrap();
        let outcome = fixture.store.claim(claim(&format!("{kind:?}"))).await;
        assert_matches!(
            outcome,
            Ok(ClaimOutcome::Taken(Taken::Replay { response: stored, .. }))
                if stored == response("no")
        );
    }
    assert!(fixture.notes().await.is_empty());
    fixture.idle().await;
}

/// The claim is sent with the statement that is refused, as with every other first statement.
#[tokio::test]
async fn a_taken_key_is_the_outcome_also_if_the_first_statement_would_be_refused() {
    let fixture = Fixture::new().await;
    let first = fixture.claim(claim("k")).await;
    let completed = first.complete(&response("first"), Effect::Keep).await;
    completed.unwrap();
    let mut tx = pipelined(&fixture, "k").await;
    let outcome = tx.execute("COMMIT", &[]).await;
    assert_matches!(outcome, Err(StoreError::NotClaimed));
    assert_matches!(tx.taken(), Some(Taken::Replay { .. }));
    tx.rollback().await;
    fixture.idle().await;
}

#[tokio::test]
async fn a_plan_with_a_statement_that_would_end_its_group_is_refused() {
    let fixture = Fixture::new().await;
    for ending in ENDINGS {
        let insert = Statement::new(INSERT, [Value::from("half")]);
        let plan = plan_of("bad", [insert, Statement::new(ending, [])]);
        let outcome = fixture.store.execute_plan(plan).await;
        check_refused(&outcome.unwrap_err(), ending);
        assert_eq!(fixture.count(STORED).await, 0, "{ending}");
    }
    let outcome = fixture.store.execute_plan(plan("good")).await;
    assert_matches!(outcome, Ok(ClaimOutcome::Open(_)));
    assert_eq!(fixture.notes().await, ["good"]);
}
