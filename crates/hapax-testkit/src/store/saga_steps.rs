//! Helpers of the tests of sagas: values, and operations on the store under test.
//!
//! An operation that must succeed panics with a message if it fails, so that tests stay short.
//! Tests that expect a failure call the store themselves.

use std::time::Duration;

use bytes::Bytes;
use hapax::{
    Timestamp,
    event::Headers,
    saga::{Direction, Kind, NewSaga, Owned, SagaRecord, SagaStatus, StepRecord, StepState},
    store::{LockedSaga, SagaRecords, SagaRows, Sagas, Transaction},
};

use super::{SagasUnderTest, fixture::Fixture};

/// How long an owner has a saga until it restarts its lease.
pub(crate) const LEASE: Duration = Duration::from_secs(10);
/// Longer than every lease and deadline of these tests.
pub(crate) const DAY: Duration = Duration::from_hours(24);

/// The kind of all sagas of these tests, in a version.
pub(crate) fn kind(version: u32) -> Kind {
    Kind {
        name: "checkout".to_owned(),
        version,
    }
}

/// A new saga of version 1, for [`start`] or a transaction of the test.
pub(crate) fn saga(id: &str) -> NewSaga {
    NewSaga {
        id: id.to_owned(),
        kind: kind(1),
        tenant: None,
        input: Bytes::from_static(b"{}"),
        headers: Headers::new(),
        deadline: Duration::from_mins(15),
    }
}

/// A completed step. Its times are whole milliseconds, which every store keeps unchanged.
pub(crate) fn step(name: &str, direction: Direction) -> StepRecord {
    StepRecord {
        name: name.to_owned(),
        direction,
        state: StepState::Done,
        provider_key: None,
        request: Bytes::new(),
        // Not UTF-8: a store must keep what a step has made as bytes.
        made: Bytes::from_static(b"\x00\xffmade"),
        error: None,
        attempts: 1,
        next_at: Timestamp::from_millis(1_000),
        began_at: Timestamp::from_millis(2_000),
        ended_at: Some(Timestamp::from_millis(3_001)),
    }
}

/// The ids of sagas, in their order.
pub(crate) fn ids(sagas: &[SagaRecord]) -> Vec<String> {
    sagas.iter().map(|saga| saga.id.clone()).collect()
}

/// Starts a saga in a separate transaction. The id must be new.
pub(crate) async fn start<S: SagasUnderTest>(fixture: &Fixture<S>, id: &str) {
    let mut tx = fixture.begin().await;
    assert!(tx.start_saga(&saga(id)).await.expect("a saga is started"));
    tx.commit().await.expect("the transaction is committed");
}

/// Takes the sagas that are due, as a worker does.
pub(crate) async fn take<S: SagasUnderTest>(fixture: &Fixture<S>) -> Vec<SagaRecord> {
    let taken = fixture.store().take_sagas(&[kind(1)], LEASE, 10).await;
    taken.expect("sagas are taken")
}

/// Reads a saga, without becoming its owner.
pub(crate) async fn find<S: SagasUnderTest>(fixture: &Fixture<S>, id: &str) -> Option<SagaRecord> {
    fixture.store().saga(id).await.expect("a saga is read")
}

/// Takes a saga, even if it has an owner or is not due, as an operator does. `None` if it does not
/// exist.
pub(crate) async fn seize<S: SagasUnderTest>(fixture: &Fixture<S>, id: &str) -> Option<SagaRecord> {
    let seized = fixture.store().seize_saga(id, LEASE).await;
    seized.expect("a saga is seized")
}

/// Opens a transaction that locks a saga for its owner and restarts the lease.
pub(crate) async fn lock<S: SagasUnderTest>(
    fixture: &Fixture<S>,
    owned: &Owned,
) -> LockedSaga<super::Tx<S>> {
    let locked = fixture.store().lock_saga(owned, LEASE).await;
    locked.expect("the owner locks its saga")
}

/// Writes a step as the owner of its saga.
pub(crate) async fn write_step<S: SagasUnderTest>(
    fixture: &Fixture<S>,
    owned: &Owned,
    step: &StepRecord,
) {
    let mut tx = lock(fixture, owned).await.tx;
    let written = tx.write_step(owned, step).await;
    written.expect("a step is written");
    tx.commit().await.expect("the transaction is committed");
}

/// Writes the status of a saga as its owner. `saga` is what [`take`] or [`seize`] has returned.
pub(crate) async fn write_status<S: SagasUnderTest>(
    fixture: &Fixture<S>,
    saga: &SagaRecord,
    status: &SagaStatus,
) {
    let owned = Owned::of(saga);
    let mut tx = lock(fixture, &owned).await.tx;
    let written = tx.write_status(&owned, status).await;
    written.expect("a status is written");
    tx.commit().await.expect("the transaction is committed");
}

/// Sends a signal to a saga. Returns whether the saga has accepted it.
pub(crate) async fn signal<S: SagasUnderTest>(
    fixture: &Fixture<S>,
    id: &str,
    name: &str,
    payload: &[u8],
) -> bool {
    let mut tx = fixture.begin().await;
    let accepted = tx.signal_saga(id, name, payload).await;
    let accepted = accepted.expect("a signal is sent");
    tx.commit().await.expect("the transaction is committed");
    accepted
}

/// Ends the ownership of a saga, which is due again after `pause`. If it has received more than
/// `signals_seen` signals, it is due at once.
pub(crate) async fn give_back<S: SagasUnderTest>(
    fixture: &Fixture<S>,
    owned: &Owned,
    pause: Duration,
    signals_seen: usize,
) {
    let given = fixture
        .store()
        .give_back_saga(owned, pause, "a test", signals_seen)
        .await;
    given.expect("a saga is given back");
}
