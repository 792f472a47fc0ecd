//! Operators' mistakes: a key deleted by hand, and clocks that are wrong.

use std::time::Duration;

use hapax::{
    Clock, Timestamp,
    idempotency::Taken,
    store::{ClaimOutcome, Effect, KeyMaintenance, Keys, Transaction},
};
use hapax_testkit::{
    assert_matches,
    events::{claim, event, response},
    wait::eventually,
};

use super::day::{RequestKind, ask};
use crate::fixture::{Fixture, INSERT, PATIENCE, clock};

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_deleted_while_a_duplicate_waits_runs_once_more_at_most() {
    let fixture = Fixture::with(|settings| settings.wait = PATIENCE).await;
    for is_deleted in [false, true] {
        let key = format!("{is_deleted}");
        let mut tx = fixture.claim(claim(&key)).await;
        let store = fixture.store.clone();
        let (asked, body) = (key.clone(), key.clone());
        let waiting = tokio::spawn(async move { ask(&store, RequestKind::Handler, &asked).await });
        let statements = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
            AND application_name = 'hapax'";
        // The duplicate has sent its claim on another connection.
        eventually(PATIENCE, async || fixture.count(statements).await >= 2).await;
        tx.execute(INSERT, &[&key]).await.unwrap();
        tx.emit(event(&key)).unwrap();
        tx.complete(&response(&key), Effect::Keep).await.unwrap();
        if is_deleted {
            fixture.store.forget(&claim(&key).scope).await.unwrap();
        }
        assert_eq!(waiting.await.unwrap(), response(&body));
        // If an operator deletes a key, its request runs again: once, and under the lock of the
        // key.
        let notes = fixture
            .notes()
            .await
            .iter()
            .filter(|note| **note == key)
            .count();
        assert!(notes == 1 || is_deleted && notes == 2, "{notes}");
        assert_eq!(
            ask(&fixture.store, RequestKind::Handler, &key).await,
            response(&key)
        );
        assert_eq!(
            fixture
                .count("SELECT count(*) FROM hapax.idempotency_key")
                .await,
            1 + i64::from(is_deleted)
        );
        fixture.idle().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_deleted_under_its_running_request_is_written_all_the_same() {
    let fixture = Fixture::new().await;
    let mut tx = fixture.claim(claim("k")).await;
    assert!(!fixture.store.forget(&claim("k").scope).await.unwrap());
    tx.execute(INSERT, &[&"k"]).await.unwrap();
    tx.complete(&response("k"), Effect::Keep).await.unwrap();
    assert_eq!(
        ask(&fixture.store, RequestKind::Handler, "k").await,
        response("k")
    );
    assert_eq!(fixture.notes().await, ["k"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_whose_clocks_are_hours_off_judge_keys_alike() {
    let hour = i64::try_from(Duration::from_hours(2).as_millis()).unwrap();
    let right = Fixture::new().await;
    let mut nodes = Vec::new();
    for off in [-hour, hour] {
        let clock = clock();
        let skewed = Clock::new(move || Timestamp::from_millis(clock.now().as_millis() + off));
        let database = std::sync::Arc::clone(&right.database);
        nodes.push(Fixture::on(database, |settings| settings.clock = skewed).await);
    }
    nodes.push(right);
    for (number, writer) in nodes.iter().enumerate() {
        let key = format!("k{number}");
        assert_eq!(
            ask(&writer.store, RequestKind::Handler, &key).await,
            response(&key)
        );
        for reader in &nodes {
            let ClaimOutcome::Taken(known) = reader.store.claim(claim(&key)).await.unwrap() else {
                panic!("{key} is not stored");
            };
            let Taken::Replay {
                response: told,
                fresh_for,
            } = known
            else {
                panic!("{key}: {known:?}");
            };
            assert_eq!(told, response(&key));
            // The remaining retention is an hour, less the time since the key was stored.
            assert!(fresh_for <= Duration::from_hours(1), "{fresh_for:?}");
            assert!(fresh_for > Duration::from_mins(55), "{fresh_for:?}");
        }
        // None of the keys has expired, on any node.
        for purger in &nodes {
            assert_eq!(purger.store.purge_keys().await.unwrap(), []);
        }
    }
    // A key that has expired by the database's clock has expired on every node.
    let expire = "UPDATE hapax.idempotency_key SET expires_at = clock_timestamp()";
    nodes[2].plain.batch_execute(expire).await.unwrap();
    for (number, node) in nodes.iter().enumerate() {
        let claimed = node
            .store
            .claim(claim(&format!("k{number}")))
            .await
            .unwrap();
        assert_matches!(claimed, ClaimOutcome::Open(_));
    }
}
