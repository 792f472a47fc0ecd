//! Payload locks: what a claim says if another transaction has its key, by the locks of that
//! transaction.
//!
//! Sessions of the tests hold locks by hand where two keys or two payloads must have the same number,
//! or where a transaction must be seen while it releases its locks.

use std::time::Duration;

use hapax::{
    idempotency::{Claim, OnClaimed, Taken},
    key::{Fingerprint, hex},
    store::{ClaimOutcome, Effect, Keys, StoreError, Transaction},
};
use hapax_postgres::Tx;
use hapax_testkit::{
    assert_matches,
    events::{claim, fingerprint, response},
    postgres::Database,
};
use tokio_postgres::Client;

use crate::fixture::{Fixture, INSERT};

/// The lock of the key of `claim("k")`.
const KEY: &str = "hapax.key_lock('alice', 'POST /orders', 'k')";

fn with_payload(payload: Fingerprint) -> Claim {
    Claim {
        fingerprint: payload,
        ..claim("k")
    }
}

/// A store that does not wait for a key that is in progress.
async fn hasty() -> Fixture {
    Fixture::with(|settings| settings.wait = Duration::from_millis(20)).await
}

/// What a claim of key `k` with this payload gets.
async fn taken(fixture: &Fixture, payload: Fingerprint) -> Taken {
    let outcome = fixture.store.claim(with_payload(payload)).await;
    match outcome.expect("the claim failed") {
        ClaimOutcome::Open(_) => panic!("the key should be taken"),
        ClaimOutcome::Taken(taken) => taken,
    }
}

/// A session with an open transaction that holds these locks.
async fn holding(database: &Database, locks: &[String]) -> Client {
    let client = database.client().await;
    client.batch_execute("BEGIN").await.unwrap();
    for lock in locks {
        client
            .batch_execute(&format!("SELECT {lock}"))
            .await
            .unwrap();
    }
    client
}

fn alone(number: &str) -> String {
    format!("pg_advisory_xact_lock({number})")
}

fn shared(number: &str) -> String {
    format!("pg_advisory_xact_lock_shared({number})")
}

/// The payload lock of a key with the payload of `fingerprint(number)`.
fn payload_lock(key: &str, number: u8) -> String {
    let print = hex(fingerprint(number).as_bytes());
    format!("hapax.payload_lock('alice', 'POST /orders', '{key}', decode('{print}', 'hex'))")
}

#[tokio::test]
async fn a_running_claim_holds_its_key_alone_and_its_payload_shared() {
    let fixture = Fixture::new().await;
    let tx = fixture.claim(claim("k")).await;
    // The store and the SQL contract compute the same numbers.
    for (number, mode) in [
        (KEY, "ExclusiveLock"),
        (payload_lock("k", 1).as_str(), "ShareLock"),
    ] {
        let count = format!(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND mode = '{mode}'
             AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
             AND (classid::bigint << 32) | objid::bigint = {number}"
        );
        assert_eq!(fixture.count(&count).await, 1, "{number}");
    }
    tx.rollback().await;
    fixture.idle().await;
}

/// If the claim of the other node waited, this test would not end in time.
#[tokio::test]
async fn another_payload_on_another_node_is_a_mismatch_at_once() {
    let here = Fixture::new().await;
    let there = Fixture::on(here.database.clone(), |settings| {
        settings.wait = Duration::from_mins(10);
    })
    .await;
    let mut tx = here.claim(claim("k")).await;
    tx.execute(INSERT, &[&"first"]).await.unwrap();
    assert_eq!(taken(&there, fingerprint(2)).await, Taken::Mismatch);
    // So is one that is sent together with its first statement.
    let mut other = pipelined(&there, with_payload(fingerprint(2))).await;
    let lost = other.execute(INSERT, &[&"second"]).await;
    assert_matches!(lost, Err(StoreError::NotClaimed));
    assert_eq!(other.taken(), Some(Taken::Mismatch));
    other.rollback().await;
    tx.rollback().await;
    there
        .claim(with_payload(fingerprint(2)))
        .await
        .rollback()
        .await;
    here.idle().await;
}

#[tokio::test]
async fn a_pipelined_claim_shows_its_payload_too() {
    let here = Fixture::new().await;
    let there = here.beside().await;
    let mut tx = pipelined(&here, claim("k")).await;
    tx.execute(INSERT, &[&"first"]).await.unwrap();
    assert_eq!(taken(&there, fingerprint(2)).await, Taken::Mismatch);
    tx.rollback().await;
    here.idle().await;
}

#[tokio::test]
async fn a_refusal_claims_its_key_and_its_payload_again_and_is_stored() {
    let fixture = Fixture::new().await;
    let mut tx = fixture.claim(claim("k")).await;
    tx.execute(INSERT, &[&"dropped"]).await.unwrap();
    tx.complete(&response("no"), Effect::Drop).await.unwrap();
    assert_eq!(taken(&fixture, fingerprint(2)).await, Taken::Mismatch);
    fixture.idle().await;
}

/// An optimistic claim that is committing holds the key's lock only, and so does a node of an older
/// version.
#[tokio::test]
async fn a_transaction_without_a_payload_lock_is_in_progress_for_every_payload() {
    let fixture = hasty().await;
    let holder = holding(&fixture.database, &[alone(KEY)]).await;
    for payload in [1, 2] {
        let taken = taken(&fixture, fingerprint(payload)).await;
        assert_eq!(taken, Taken::InProgress);
    }
    drop(holder);
    fixture.idle().await;
}

/// A transaction that has ended releases its locks one by one. It may have its key's lock still,
/// while a claim with another payload waits for it.
#[tokio::test]
async fn the_payload_lock_of_a_waiting_claim_is_not_that_of_the_first_request() {
    let fixture = hasty().await;
    let releasing = holding(&fixture.database, &[alone(KEY)]).await;
    let waiting = holding(&fixture.database, &[shared(&payload_lock("k", 2))]).await;
    assert_eq!(taken(&fixture, fingerprint(1)).await, Taken::InProgress);
    drop((releasing, waiting));
    fixture.idle().await;
}

/// The holder of the key's lock runs another key whose lock has the same number.
#[tokio::test]
async fn two_keys_whose_locks_have_one_number_are_no_conflict() {
    let fixture = hasty().await;
    let locks = [alone(KEY), shared(&payload_lock("other", 2))];
    let holder = holding(&fixture.database, &locks).await;
    assert_eq!(taken(&fixture, fingerprint(1)).await, Taken::InProgress);
    drop(holder);
    fixture.idle().await;
}

#[tokio::test]
async fn two_payloads_whose_locks_have_one_number_are_in_progress() {
    let fixture = hasty().await;
    let tx = fixture.claim(claim("k")).await;
    let mut alike = [9; 32];
    alike[..2].copy_from_slice(&fingerprint(1).as_bytes()[..2]);
    let alike = Fingerprint::from_bytes(alike);
    assert_eq!(taken(&fixture, alike).await, Taken::InProgress);
    assert_eq!(taken(&fixture, fingerprint(9)).await, Taken::Mismatch);
    tx.rollback().await;
    fixture.idle().await;
}

/// One transaction of a service may claim a key, release it and claim it again with another payload.
/// Both are its payloads until it ends.
#[tokio::test]
async fn a_transaction_that_has_run_two_payloads_is_in_progress_for_both() {
    let fixture = hasty().await;
    let locks = [1, 2].map(|number| shared(&payload_lock("k", number)));
    let [first, second] = locks;
    let holder = holding(&fixture.database, &[alone(KEY), first, second]).await;
    for payload in [1, 2] {
        let taken = taken(&fixture, fingerprint(payload)).await;
        assert_eq!(taken, Taken::InProgress);
    }
    assert_eq!(taken(&fixture, fingerprint(3)).await, Taken::Mismatch);
    drop(holder);
    fixture.idle().await;
}

/// A response that was stored after the first look is found, although another claim has the locks for
/// a moment.
#[tokio::test]
async fn a_stored_response_decides_even_if_another_claim_has_the_locks() {
    let fixture = hasty().await;
    let tx = fixture.claim(claim("k")).await;
    tx.complete(&response("first"), Effect::Keep).await.unwrap();
    let locks = [alone(KEY), shared(&payload_lock("k", 2))];
    let other = holding(&fixture.database, &locks).await;
    let outcome = taken(&fixture, fingerprint(1)).await;
    assert_matches!(outcome, Taken::Replay { .. });
    drop(other);
    fixture.idle().await;
}

async fn pipelined(fixture: &Fixture, claim: Claim) -> Tx {
    let opened = fixture.store.claim_pipelined(claim, OnClaimed::nothing());
    match opened.await {
        Ok(ClaimOutcome::Open(tx)) => tx,
        other => panic!("expected a transaction before the claim's outcome: {other:?}"),
    }
}
