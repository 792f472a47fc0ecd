//! Unreadable rows of sagas, which the conformance suite cannot create in every store.

use std::time::Duration;

use bytes::Bytes;
use hapax::{
    Timestamp,
    event::Headers,
    saga::{Definition, Direction, Owned, StepRecord, StepState},
    store::{Keys, SagaRecords, SagaRows, Sagas, Transaction},
};
use hapax_sqlite::{Tx, rusqlite::Connection};

use crate::fixture::Fixture;

const LEASE: Duration = Duration::from_secs(10);

#[tokio::test]
async fn an_unreadable_saga_does_not_block_the_others() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let checkout: Definition<Tx> = Definition::new("checkout", 1);
    for id in ["bad row", "bad step", "bad word", "good"] {
        let mut tx = store.begin(None, Headers::new()).await.unwrap();
        let new = checkout.begin(id, None, Bytes::new());
        assert!(tx.start_saga(&new).await.unwrap());
        assert!(tx.signal_saga(id, "paid", b"").await.unwrap());
        tx.commit().await.unwrap();
        let saga = store.seize_saga(id, LEASE).await.unwrap().unwrap();
        let owned = Owned::of(&saga);
        let mut tx = store.lock_saga(&owned, LEASE).await.unwrap().tx;
        tx.write_step(&owned, &step()).await.unwrap();
        tx.commit().await.unwrap();
        let given = store.give_back_saga(&owned, Duration::ZERO, "a test", 1);
        given.await.unwrap();
    }
    let spoil = "UPDATE hapax_saga SET headers = 'nonsense' WHERE id = 'bad row';
        UPDATE hapax_saga_step SET made = 'no bytes' WHERE saga = 'bad step';
        UPDATE hapax_saga_signal SET payload = 'no bytes' WHERE saga = 'bad word'";
    let spoil = |conn: &Connection| conn.execute_batch(spoil);
    store.write(spoil).await.unwrap();
    let kinds = [checkout.kind().clone()];
    let taken = store.take_sagas(&kinds, LEASE, 10).await.unwrap();
    assert_eq!(taken.len(), 1);
    let good = &taken[0];
    assert_eq!(good.id, "good");
    assert_eq!((good.steps.len(), good.signals.len()), (1, 1));
    for id in ["bad row", "bad step", "bad word"] {
        let error = store.saga(id).await.unwrap_err().error_chain();
        assert!(error.contains(id), "{error}");
    }
}

fn step() -> StepRecord {
    StepRecord {
        name: "a".to_owned(),
        direction: Direction::Forward,
        state: StepState::Done,
        provider_key: None,
        request: Bytes::new(),
        made: Bytes::new(),
        error: None,
        attempts: 1,
        next_at: Timestamp::default(),
        began_at: Timestamp::default(),
        ended_at: None,
    }
}
