//! Conflicting transactions: one of them fails, runs again, and both complete.

use std::sync::Arc;

use futures_util::future::join;
use hapax::{
    idempotency::StoredResponse,
    store::{ClaimOutcome, Effect, Keys, StoreError, Transaction},
};
use hapax_postgres::{Postgres, Tx};
use hapax_testkit::{
    assert_matches,
    events::{claim, event, response},
    wait::Patience,
};
use tokio::sync::Barrier;

use crate::fixture::{Fixture, INSERT, PATIENCE};

const STOCK: &str = "CREATE TABLE stock (id int PRIMARY KEY, left_over int NOT NULL);
    INSERT INTO stock VALUES (1, 10), (2, 10)";
const TAKE: &str = "UPDATE stock SET left_over = left_over - 1 WHERE id = $1";

#[tokio::test(flavor = "multi_thread")]
async fn of_two_transactions_that_lock_each_other_out_one_loses_and_both_end() {
    let fixture = Fixture::new().await;
    fixture.run(STOCK).await;
    // Both lock their first row before either requests its second.
    let crossing = Arc::new(Barrier::new(2));
    let take = async |key: &'static str, rows: [i32; 2]| {
        let handler = async |tx: &mut Tx, run: usize| {
            tx.execute(INSERT, &[&key]).await?;
            tx.execute(TAKE, &[&rows[0]]).await?;
            if run == 0 {
                crossing.wait().await;
            }
            tx.execute(TAKE, &[&rows[1]]).await
        };
        Box::pin(run(&fixture.store, key, handler)).await
    };
    let (one, two) = join(take("one", [1, 2]), take("two", [2, 1])).await;
    assert_eq!((one.0, two.0), (response("one"), response("two")));
    // One of them runs again, and may conflict once more while the other has not been woken yet.
    assert!(one.1 + two.1 >= 3, "neither ran again");
    check_both(&fixture).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_serializable_transactions_that_depend_on_each_other_one_runs_again() {
    let fixture = Fixture::with(|settings| {
        // The claim's pipeline already reads, so the isolation level must be set for the session.
        settings.url += "?options=-c%20default_transaction_isolation%3Dserializable";
    })
    .await;
    fixture.run(STOCK).await;
    let crossing = Arc::new(Barrier::new(2));
    // Each transaction reads both rows and updates one, so only one order of the two is
    // serializable.
    let take = async |key: &'static str, row: i32| {
        let handler = async |tx: &mut Tx, run: usize| {
            let level = tx.query("SHOW transaction_isolation", &[]).await?;
            assert_eq!(level[0].get::<_, &str>(0), "serializable");
            tx.query("SELECT sum(left_over) FROM stock", &[]).await?;
            if run == 0 {
                crossing.wait().await;
            }
            tx.execute(INSERT, &[&key]).await?;
            tx.execute(TAKE, &[&row]).await?;
            if run == 0 {
                crossing.wait().await;
            }
            Ok(0)
        };
        Box::pin(run(&fixture.store, key, handler)).await
    };
    let (one, two) = join(take("one", 1), take("two", 2)).await;
    assert_eq!((one.0, two.0), (response("one"), response("two")));
    assert!(one.1 + two.1 >= 3, "neither ran again");
    let left = fixture.count("SELECT sum(left_over) FROM stock").await;
    assert_eq!(left, 18);
    assert_eq!(fixture.notes().await, ["one", "two"]);
    fixture.idle().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_transaction_commits_nothing_whatever_its_handler_answers() {
    let fixture = Fixture::new().await;
    fixture.run(STOCK).await;
    for effect in [Effect::Keep, Effect::Drop] {
        let key = format!("{effect:?}");
        let mut tx = fixture.claim(claim(&key)).await;
        tx.execute(INSERT, &[&key]).await.unwrap();
        let blocker = fixture.database.client().await;
        blocker
            .batch_execute("BEGIN; SELECT * FROM stock FOR UPDATE")
            .await
            .unwrap();
        let lost = tx
            .execute("SELECT * FROM stock FOR UPDATE NOWAIT", &[])
            .await;
        assert_matches!(lost, Err(StoreError::Conflict { .. }));
        assert!(tx.has_conflict());
        let outcome = tx.complete(&response(&key), effect).await;
        assert_matches!(outcome, Err(StoreError::Conflict { .. }), "{effect:?}");
        blocker.batch_execute("COMMIT").await.unwrap();
        fixture.idle().await;
        assert_eq!(fixture.notes().await, [""; 0]);
        assert!(
            fixture
                .store
                .look_up(&claim(&key).scope)
                .await
                .unwrap()
                .is_none()
        );
    }
}

/// Runs a handler under a key, again after each conflict; returns how often it ran.
async fn run(
    store: &Postgres,
    key: &str,
    handler: impl AsyncFn(&mut Tx, usize) -> Result<u64, StoreError>,
) -> (StoredResponse, usize) {
    let patience = Patience::within(PATIENCE);
    for runs in 0.. {
        let claimed = store.claim(claim(key)).await;
        let mut tx = match claimed {
            Ok(ClaimOutcome::Open(tx)) => tx,
            Err(StoreError::Conflict { .. }) => continue,
            other => panic!("{key}: {other:?}"),
        };
        let outcome = match handler(&mut tx, runs).await {
            Ok(_) => {
                tx.emit(event(key)).unwrap();
                tx.complete(&response(key), Effect::Keep).await.map(drop)
            }
            Err(error) => {
                assert!(tx.has_conflict(), "{key}: {error:?}");
                tx.rollback().await;
                Err(error)
            }
        };
        match outcome {
            Ok(()) => return (response(key), runs + 1),
            Err(StoreError::Conflict { .. }) => patience.pause().await,
            Err(error) => panic!("{key}: {error:?}"),
        }
    }
    unreachable!()
}

async fn check_both(fixture: &Fixture) {
    for row in [1, 2] {
        let left = format!("SELECT left_over::int8 FROM stock WHERE id = {row}");
        assert_eq!(fixture.count(&left).await, 8);
    }
    assert_eq!(fixture.notes().await, ["one", "two"]);
    assert_eq!(
        fixture
            .count("SELECT count(*) FROM hapax.outbox_event")
            .await,
        2
    );
    assert_eq!(
        fixture
            .count("SELECT count(*) FROM hapax.idempotency_key")
            .await,
        2
    );
    fixture.idle().await;
}
