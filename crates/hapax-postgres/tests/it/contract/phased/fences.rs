//! Owners that are late, and snapshots that are old: they change nothing.

use hapax_testkit::wait::eventually;

use super::{Entered, call, enter, enter_with, give_back};
use crate::{
    contract::{SCOPE, state},
    fixture::{Fixture, INSERT, PATIENCE},
};

/// Every call of an owner.
const CALLS: [(&str, &str); 6] = [
    ("phase", ", 'late'"),
    ("finish", ", 201"),
    ("nothing_happened", ""),
    ("renew", ""),
    ("take_over", ""),
    ("provider_key", ", 'charge'"),
];

#[tokio::test]
async fn an_owner_whose_key_was_taken_over_changes_nothing() {
    let fixture = Fixture::new().await;
    let mut client = fixture.database.client().await;
    assert_eq!(enter(&fixture.plain).await, Entered::of("entered", 1));
    give_back(&fixture.plain, 1).await;
    assert_eq!(enter(&fixture.plain).await, Entered::of("resumed", 2));
    for (function, more) in CALLS {
        let tx = client.transaction().await.unwrap();
        tx.execute(INSERT, &[&function]).await.unwrap();
        let late = call(&tx, function, 1, more).await;
        assert_eq!(state(late), "HX005", "{function}");
        // The statement has failed, so a commit is a rollback.
        tx.commit().await.unwrap();
    }
    assert!(fixture.notes().await.is_empty());
    call(&fixture.plain, "finish", 2, ", 201").await.unwrap();
    for (function, more) in CALLS {
        let ended = call(&fixture.plain, function, 2, more).await;
        assert_eq!(state(ended), "HX005", "{function} after the response");
    }
}

/// The epochs of a key that was released begin again. The time of the entry distinguishes its rows.
#[tokio::test]
async fn an_owner_of_a_released_key_is_not_mistaken_for_the_next_one() {
    let fixture = Fixture::new().await;
    let enter_at = async |payload: u8| {
        enter_with(&fixture.plain, payload, ", '0'").await.unwrap();
        let sql = "SELECT created_at::text FROM hapax.idempotency_key";
        let row = fixture.plain.query_one(sql, &[]).await.unwrap();
        row.get::<_, String>(0)
    };
    let first = enter_at(1).await;
    let more = format!(", entered_at => '{first}'");
    call(&fixture.plain, "nothing_happened", 1, &more)
        .await
        .unwrap();
    // Times of entry are in milliseconds.
    let is_later =
        format!("SELECT (date_trunc('milliseconds', clock_timestamp()) > '{first}')::int4::int8");
    eventually(PATIENCE, async || fixture.count(&is_later).await == 1).await;
    let second = enter_at(2).await;
    for (function, more) in CALLS {
        let more = format!("{more}, entered_at => '{first}'");
        let late = call(&fixture.plain, function, 1, &more).await;
        assert_eq!(state(late), "HX005", "{function}");
    }
    let more = format!(", 'a', entered_at => '{second}'");
    call(&fixture.plain, "phase", 1, &more).await.unwrap();
}

#[tokio::test]
async fn an_owner_that_is_ending_its_phase_is_not_dead() {
    let fixture = Fixture::new().await;
    let mut client = fixture.database.client().await;
    enter(&fixture.plain).await;
    give_back(&fixture.plain, 1).await;
    let tx = client.transaction().await.unwrap();
    call(&tx, "phase", 1, ", 'slow'").await.unwrap();
    assert_eq!(enter(&fixture.plain).await, Entered::in_progress());
    let taken = call(&fixture.plain, "take_over", 1, "").await;
    assert_eq!(taken.unwrap(), None);
    tx.commit().await.unwrap();
    assert_eq!(enter(&fixture.plain).await.phase.as_deref(), Some("slow"));
}

#[tokio::test]
async fn a_snapshot_that_is_older_than_the_row_fails_with_40001() {
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        let fixture = Fixture::new().await;
        let session = fixture.database.client().await;
        let begin = format!("BEGIN ISOLATION LEVEL {level}; SELECT 1 FROM note");
        session.batch_execute(&begin).await.unwrap();
        enter(&fixture.plain).await;
        let entered = enter_with(&session, 1, "").await;
        assert_eq!(state(entered), "40001", "{level}: an entry");
        session.batch_execute("ROLLBACK").await.unwrap();
        give_back(&fixture.plain, 1).await;
        session.batch_execute(&begin).await.unwrap();
        assert_eq!(enter(&fixture.plain).await, Entered::of("resumed", 2));
        let late = call(&session, "phase", 1, ", 'late'").await;
        assert_eq!(state(late), "40001", "{level}: a phase");
        session.batch_execute("ROLLBACK").await.unwrap();
        // With a fresh snapshot every call works.
        session.batch_execute(&begin).await.unwrap();
        assert_eq!(enter(&session).await, Entered::in_progress());
        call(&session, "phase", 2, ", 'on time'").await.unwrap();
        call(&session, "finish", 2, ", 201").await.unwrap();
        session.batch_execute("COMMIT").await.unwrap();
        assert_eq!(enter(&fixture.plain).await.outcome, "replay");
    }
}

/// Times of entry are in milliseconds, and a row may expire in the middle of one.
#[tokio::test]
async fn a_key_is_entered_in_the_millisecond_in_which_its_row_expires() {
    let fixture = Fixture::new().await;
    enter(&fixture.plain).await;
    let entries = "DO $$
        DECLARE
            ends timestamptz;
        BEGIN
            FOR number IN 1..20 LOOP
                UPDATE hapax.idempotency_key SET
                    state = 'completed',
                    expires_at = date_trunc('milliseconds', clock_timestamp())
                        + '1 millisecond 1 microsecond'
                RETURNING expires_at INTO ends;
                WHILE clock_timestamp() < ends LOOP
                END LOOP;
                PERFORM hapax.enter('alice', 'POST /orders', 'k', sha256('x'));
            END LOOP;
        END
        $$";
    fixture.run(entries).await;
    let entered = "SELECT epoch FROM hapax.idempotency_key WHERE state = 'in_progress'";
    assert_eq!(fixture.count(entered).await, 21);
}

#[tokio::test]
async fn a_row_that_was_written_past_the_lock_is_not_overwritten() {
    let fixture = Fixture::new().await;
    let session = fixture.database.client().await;
    session.batch_execute("BEGIN").await.unwrap();
    let past = format!(
        "INSERT INTO hapax.idempotency_key
             (tenant, operation, key, fingerprint, state, created_at, expires_at)
         VALUES ({SCOPE}, '', 'in_progress', now(), now())"
    );
    session.execute(&past, &[&"k"]).await.unwrap();
    let waiting = fixture.database.client().await;
    let entry = tokio::spawn(async move { enter_with(&waiting, 1, "").await });
    let blocked = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event = 'transactionid'";
    eventually(PATIENCE, async || fixture.count(blocked).await == 1).await;
    session.batch_execute("COMMIT").await.unwrap();
    assert_eq!(state(entry.await.unwrap()), "23505");
}
