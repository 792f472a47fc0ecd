//! `hapax.claim`, `hapax.complete` and `hapax.release`: who owns a key, until when, and what other
//! callers receive meanwhile.

use std::sync::Arc;

use hapax::{
    limits::{RETENTION, RETENTION_MAX},
    store::KeyMaintenance,
};
use hapax_testkit::{events::fingerprint, wait::eventually};
use tokio_postgres::GenericClient;

use super::{
    COUNT_KEYS, ClaimRow, SCOPE, claim, claim_with, complete, open, refused, state, store_answer,
};
use crate::fixture::{Fixture, INSERT, PATIENCE};

async fn locks(session: &impl GenericClient) -> i64 {
    let sql =
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()";
    let row = session.query_one(sql, &[]).await;
    row.expect("the locks were not counted").get(0)
}

async fn release(session: &impl GenericClient, key: &str) -> Result<u64, tokio_postgres::Error> {
    let sql = format!("SELECT hapax.release({SCOPE})");
    session.execute(&sql, &[&key]).await
}

#[tokio::test]
async fn an_answer_is_stored_with_its_effect_and_replayed() {
    let fixture = Fixture::new().await;
    let mut client = fixture.database.client().await;
    let tx = open(&mut client, "k").await;
    tx.execute(INSERT, &[&"effect"]).await.unwrap();
    let stands = complete(&tx, "k", "{}").await.unwrap();
    assert!((stands - RETENTION.as_secs_f64()).abs() < 0.001, "{stands}");
    tx.commit().await.unwrap();
    let replay = ClaimRow {
        status: Some(201),
        headers: Some(r#"[["content-type", "application/json"]]"#.to_owned()),
        body: Some(b"{}".to_vec()),
        ..ClaimRow::of("replay")
    };
    assert_eq!(claim(&fixture.plain, "k").await.unwrap(), replay);
    let other = claim_with(&fixture.plain, "k", fingerprint(2), "").await;
    assert_eq!(other.unwrap(), ClaimRow::of("mismatch"));
    assert_eq!(fixture.notes().await, ["effect"]);
}

#[tokio::test]
async fn a_key_that_another_transaction_claimed_is_in_progress_until_that_ends() {
    let fixture = Fixture::new().await;
    let mut client = fixture.database.client().await;
    let tx = open(&mut client, "k").await;
    let busy = claim_with(
        &fixture.plain,
        "k",
        fingerprint(1),
        ", wait => '50 milliseconds'",
    );
    assert_eq!(busy.await.unwrap(), ClaimRow::of("in_progress"));
    // Another payload is a mismatch already, however long the claim would wait.
    let long = ", wait => '30 seconds'";
    let other = claim_with(&fixture.plain, "k", fingerprint(2), long).await;
    assert_eq!(other.unwrap(), ClaimRow::of("mismatch"));
    // A snapshot that is too old to see every response proves nothing.
    let old = fixture.database.client().await;
    old.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        .await
        .unwrap();
    let other = claim_with(&old, "k", fingerprint(2), ", wait => '0'").await;
    assert_eq!(other.unwrap(), ClaimRow::of("in_progress"));
    assert_eq!(locks(&old).await, 0);
    old.batch_execute("ROLLBACK").await.unwrap();
    tx.rollback().await.unwrap();
    assert_eq!(
        claim(&fixture.plain, "k").await.unwrap(),
        ClaimRow::of("open")
    );
}

#[tokio::test]
async fn a_waiting_claim_gets_the_response_as_soon_as_it_is_committed() {
    let fixture = Fixture::new().await;
    let mut client = fixture.database.client().await;
    let tx = open(&mut client, "k").await;
    let waiter = fixture.database.client().await;
    let waiting = tokio::spawn(async move {
        waiter.batch_execute("BEGIN").await.unwrap();
        let result = claim_with(&waiter, "k", fingerprint(1), ", wait => '30 seconds'").await;
        (result.unwrap().outcome, locks(&waiter).await)
    });
    let asleep = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event = 'PgSleep'";
    eventually(PATIENCE, async || fixture.count(asleep).await == 1).await;
    complete(&tx, "k", "{}").await.unwrap();
    tx.commit().await.unwrap();
    // The waiting transaction holds no lock after it received the response.
    assert_eq!(waiting.await.unwrap(), ("replay".to_owned(), 0));
}

#[tokio::test]
async fn a_key_that_turns_out_to_be_known_is_not_kept_locked() {
    let fixture = Fixture::new().await;
    store_answer(&fixture, "k", "{}").await;
    let mut client = fixture.database.client().await;
    let tx = client.transaction().await.unwrap();
    let take = format!("SELECT hapax.lock_claim({SCOPE}, $2, 'new')");
    let print = fingerprint(1);
    let taken = tx.query_one(&take, &[&"k", &&print.as_bytes()[..]]).await;
    assert_eq!(taken.unwrap().get::<_, String>(0), "known");
    assert_eq!(locks(&tx).await, 0);
}

#[tokio::test]
async fn of_many_sessions_that_claim_one_key_one_runs_and_the_others_replay() {
    const SESSIONS: usize = 8;
    let fixture = Arc::new(Fixture::new().await);
    let mut sessions = tokio::task::JoinSet::new();
    for number in 0..SESSIONS {
        let mut client = fixture.database.client().await;
        sessions.spawn(async move {
            let mut opened = Vec::new();
            for key in 0..25 {
                let key = format!("k{key}");
                let tx = client.transaction().await.unwrap();
                let result = claim_with(&tx, &key, fingerprint(1), ", wait => '30 seconds'").await;
                let result = result.unwrap();
                if result.outcome == "open" {
                    tx.execute(INSERT, &[&key]).await.unwrap();
                    complete(&tx, &key, &format!("by {number}")).await.unwrap();
                    opened.push(key);
                } else {
                    assert_eq!(result.outcome, "replay");
                }
                tx.commit().await.unwrap();
            }
            opened
        });
    }
    let mut opened = sessions.join_all().await.concat();
    opened.sort();
    assert_eq!(opened.len(), 25);
    assert_eq!(fixture.notes().await, opened);
}

#[tokio::test]
async fn nothing_is_left_of_a_session_that_was_cut_off_between_claim_and_commit() {
    let fixture = Fixture::new().await;
    let mut client = fixture.database.client().await;
    for completed in [false, true] {
        let tx = open(&mut client, "k").await;
        tx.execute(INSERT, &[&"effect"]).await.unwrap();
        tx.query("SELECT hapax.emit('a', '1')", &[]).await.unwrap();
        if completed {
            complete(&tx, "k", "{}").await.unwrap();
        }
        let pid: i32 = tx
            .query_one("SELECT pg_backend_pid()", &[])
            .await
            .unwrap()
            .get(0);
        fixture
            .plain
            .execute("SELECT pg_terminate_backend($1, 5000)", &[&pid])
            .await
            .unwrap();
        drop(tx);
        client = fixture.database.client().await;
        assert_eq!(
            claim(&fixture.plain, "k").await.unwrap(),
            ClaimRow::of("open")
        );
    }
    assert_eq!(fixture.count(COUNT_KEYS).await, 0);
    assert_eq!(fixture.count(super::COUNT_EVENTS).await, 0);
    assert!(fixture.notes().await.is_empty());
}

#[tokio::test]
async fn a_savepoint_that_is_rolled_back_takes_the_claim_that_was_made_in_it_along() {
    let fixture = Fixture::new().await;
    let mut client = fixture.database.client().await;
    let mut tx = client.transaction().await.unwrap();
    let savepoint = tx.savepoint("effect").await.unwrap();
    assert_eq!(claim(&savepoint, "k").await.unwrap(), ClaimRow::of("open"));
    savepoint.rollback().await.unwrap();
    assert_eq!(
        claim(&fixture.plain, "k").await.unwrap(),
        ClaimRow::of("open")
    );
    assert_eq!(state(complete(&tx, "k", "{}").await), "HX002");
}

#[tokio::test]
async fn a_refusal_is_stored_without_what_a_savepoint_took_back() {
    let fixture = Fixture::new().await;
    let mut client = fixture.database.client().await;
    let mut tx = open(&mut client, "k").await;
    let savepoint = tx.savepoint("effect").await.unwrap();
    savepoint.execute(INSERT, &[&"effect"]).await.unwrap();
    savepoint
        .query("SELECT hapax.emit('a', '1')", &[])
        .await
        .unwrap();
    savepoint.rollback().await.unwrap();
    let refuse = format!("SELECT hapax.complete({SCOPE}, 402)");
    tx.execute(&refuse, &[&"k"]).await.unwrap();
    tx.commit().await.unwrap();
    let result = claim(&fixture.plain, "k").await.unwrap();
    assert_eq!(
        (result.outcome.as_str(), result.status),
        ("replay", Some(402))
    );
    assert_eq!(result.headers.as_deref(), Some("[]"));
    assert_eq!(fixture.count(super::COUNT_EVENTS).await, 0);
    assert!(fixture.notes().await.is_empty());
}

#[tokio::test]
async fn a_released_key_is_free_when_its_transaction_ends_and_not_before() {
    let fixture = Fixture::new().await;
    let mut client = fixture.database.client().await;
    let tx = open(&mut client, "k").await;
    tx.execute(INSERT, &[&"kept"]).await.unwrap();
    release(&tx, "k").await.unwrap();
    assert_eq!(
        claim(&fixture.plain, "k").await.unwrap(),
        ClaimRow::of("in_progress")
    );
    assert_eq!(state(complete(&tx, "k", "{}").await), "HX002");
    tx.rollback().await.unwrap();
    assert_eq!(
        claim(&fixture.plain, "k").await.unwrap(),
        ClaimRow::of("open")
    );
}

#[tokio::test]
async fn what_was_written_beside_a_released_key_is_kept() {
    let fixture = Fixture::new().await;
    let mut client = fixture.database.client().await;
    let tx = open(&mut client, "k").await;
    tx.execute(INSERT, &[&"kept"]).await.unwrap();
    release(&tx, "k").await.unwrap();
    // The same transaction may claim the key again: it still owns it.
    assert_eq!(claim(&tx, "k").await.unwrap(), ClaimRow::of("open"));
    release(&tx, "k").await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(fixture.notes().await, ["kept"]);
    assert_eq!(
        claim(&fixture.plain, "k").await.unwrap(),
        ClaimRow::of("open")
    );
}

#[tokio::test]
async fn without_a_claim_of_this_transaction_there_is_nothing_to_complete_or_release() {
    let fixture = Fixture::new().await;
    let mut client = fixture.database.client().await;
    // Outside a transaction a claim ends with its statement.
    assert_eq!(claim(&client, "k").await.unwrap(), ClaimRow::of("open"));
    let (state_of, words) = refused(complete(&client, "k", "{}").await);
    assert_eq!(state_of, "HX002");
    assert_eq!(words, "no claim is open in this transaction");
    assert_eq!(state(release(&client, "k").await), "HX002");
    let tx = open(&mut client, "k").await;
    tx.rollback().await.unwrap();
    assert_eq!(state(complete(&client, "k", "{}").await), "HX002");
    let tx = open(&mut client, "k").await;
    let other = refused(complete(&tx, "other", "{}").await);
    assert_eq!(
        other.1,
        "the claim that is open in this transaction is of another key"
    );
    tx.rollback().await.unwrap();
    let tx = open(&mut client, "k").await;
    complete(&tx, "k", "{}").await.unwrap();
    assert_eq!(state(complete(&tx, "k", "{}").await), "HX002");
    tx.rollback().await.unwrap();
    store_answer(&fixture, "k", "{}").await;
    assert_eq!(state(complete(&client, "k", "another").await), "HX002");
    assert_eq!(claim(&client, "k").await.unwrap().body.unwrap(), b"{}");
}

#[tokio::test]
async fn one_claim_is_open_at_a_time_and_several_may_follow_each_other() {
    let fixture = Fixture::new().await;
    let mut client = fixture.database.client().await;
    for key in ["a", "b"] {
        let tx = open(&mut client, "a").await;
        assert_eq!(state(claim(&tx, key).await), "HX003");
        tx.rollback().await.unwrap();
    }
    let tx = open(&mut client, "a").await;
    complete(&tx, "a", "{}").await.unwrap();
    assert_eq!(claim(&tx, "a").await.unwrap().outcome, "replay");
    assert_eq!(claim(&tx, "b").await.unwrap().outcome, "open");
    complete(&tx, "b", "{}").await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(fixture.count(COUNT_KEYS).await, 2);
}

#[tokio::test]
async fn a_live_row_that_was_written_past_the_lock_is_never_overwritten() {
    let fixture = Fixture::new().await;
    for (key, state_of) in [("a", "completed"), ("b", "in_progress")] {
        let mut client = fixture.database.client().await;
        let tx = open(&mut client, key).await;
        let past = format!(
            "INSERT INTO hapax.idempotency_key (tenant, operation, key, fingerprint, state,
                 response_status, response_headers, response_body, created_at, expires_at)
             VALUES ({SCOPE}, '', '{state_of}', 200, '', 'first', now(), now() + interval '1 hour')"
        );
        fixture.plain.execute(&past, &[&key]).await.unwrap();
        assert_eq!(state(complete(&tx, key, "second").await), "23505");
    }
    let first = "SELECT count(*) FROM hapax.idempotency_key WHERE response_body = 'first'";
    assert_eq!(fixture.count(first).await, 2);
}

#[tokio::test]
async fn an_expired_key_gives_way_or_is_gone_as_the_claim_asks() {
    let fixture = Fixture::new().await;
    for on_expired in ["new", "gone"] {
        let mut client = fixture.database.client().await;
        let tx = client.transaction().await.unwrap();
        let more = format!(", retention => '0', on_expired => '{on_expired}'");
        let opened = claim_with(&tx, on_expired, fingerprint(1), &more).await;
        assert_eq!(opened.unwrap(), ClaimRow::of("open"));
        complete(&tx, on_expired, "old").await.unwrap();
        tx.commit().await.unwrap();
    }
    check_expired(&fixture, "new").await;
    check_expired(&fixture, "gone").await;
    // The second claim has turned `gone` into a tombstone, which has the same outcomes.
    fixture.store.purge_keys().await.unwrap();
    assert_eq!(fixture.count(COUNT_KEYS).await, 1);
    check_expired(&fixture, "gone").await;
    store_answer(&fixture, "gone", "young").await;
    let outcome = claim(&fixture.plain, "gone").await.unwrap();
    assert_eq!(outcome.body.unwrap(), b"young");
    assert_eq!(
        fixture
            .count("SELECT epoch FROM hapax.idempotency_key")
            .await,
        2
    );
}

/// A claim that asks for `new` finds an expired key free, with any fingerprint.
async fn check_expired(fixture: &Fixture, key: &str) {
    for print in [1, 2] {
        let gone = ", on_expired => 'gone', wait => '0'";
        let gone = claim_with(&fixture.plain, key, fingerprint(print), gone).await;
        assert_eq!(gone.expect("the claim failed"), ClaimRow::of("gone"));
        let new = claim_with(&fixture.plain, key, fingerprint(print), ", wait => '0'").await;
        assert_eq!(new.expect("the claim failed"), ClaimRow::of("open"));
    }
}

#[tokio::test]
async fn an_answer_stands_no_longer_than_the_bound() {
    let fixture = Fixture::new().await;
    let mut client = fixture.database.client().await;
    let tx = client.transaction().await.unwrap();
    let opened = claim_with(&tx, "k", fingerprint(1), ", retention => '1 year'").await;
    assert_eq!(opened.unwrap(), ClaimRow::of("open"));
    let stands = complete(&tx, "k", "{}").await.unwrap();
    assert!(
        (stands - RETENTION_MAX.as_secs_f64()).abs() < 0.001,
        "{stands}"
    );
}

#[tokio::test]
async fn a_key_that_runs_in_phases_is_in_progress_and_never_expires() {
    let fixture = Fixture::new().await;
    let begun = "INSERT INTO hapax.idempotency_key
            (tenant, operation, key, fingerprint, state, created_at, expires_at)
        VALUES ('alice', 'POST /orders', 'k', $1, 'in_progress', now(), now() - interval '1 hour')";
    let print = fingerprint(1);
    fixture
        .plain
        .execute(begun, &[&&print.as_bytes()[..]])
        .await
        .unwrap();
    assert_eq!(
        claim(&fixture.plain, "k").await.unwrap(),
        ClaimRow::of("in_progress")
    );
    let other = claim_with(&fixture.plain, "k", fingerprint(2), "").await;
    assert_eq!(other.unwrap(), ClaimRow::of("mismatch"));
}
