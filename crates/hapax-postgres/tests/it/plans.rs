//! Prepared statements that become invalid because the schema changed.

use hapax::{
    idempotency::Taken,
    store::{ClaimOutcome, Effect, Keys, StoreError, Transaction},
};
use hapax_testkit::{
    assert_matches,
    events::{claim, response},
};

use crate::fixture::{Fixture, INSERT};

#[tokio::test]
async fn a_migration_beside_a_running_service_costs_a_rerun_and_no_connection() {
    let fixture = Fixture::with(|settings| settings.connections = 2).await;
    let read = "SELECT * FROM note";
    for change in [
        "ALTER TABLE note ADD COLUMN more text",
        "ALTER TABLE note DROP COLUMN more",
        "DEALLOCATE ALL",
    ] {
        let mut tx = fixture.claim(claim(change)).await;
        tx.query(read, &[]).await.unwrap();
        tx.execute(INSERT, &[&change]).await.unwrap();
        if change == "DEALLOCATE ALL" {
            tx.execute(change, &[]).await.unwrap();
            let outcome = tx.query(read, &[]).await;
            assert_matches!(outcome, Err(StoreError::Conflict { .. }));
        } else {
            tx.rollback().await;
            fixture.run(change).await;
            let mut again = fixture.claim(claim(change)).await;
            let outcome = again.query(read, &[]).await;
            assert_matches!(outcome, Err(StoreError::Conflict { .. }));
            assert!(again.has_conflict());
            again.rollback().await;
        }
        // A request that is run again gets a connection with a fresh plan.
        let mut rerun = fixture.claim(claim(change)).await;
        rerun.query(read, &[]).await.unwrap();
        rerun.execute(INSERT, &[&change]).await.unwrap();
        rerun
            .complete(&response(change), Effect::Keep)
            .await
            .unwrap();
        let outcome = fixture.store.claim(claim(change)).await.unwrap();
        assert!(matches!(outcome, ClaimOutcome::Taken(Taken::Replay { .. })));
    }
    assert_eq!(fixture.notes().await.len(), 3);
    fixture.idle().await;
}
