//! Common steps of the saga tests.
//!
//! A step that must succeed fails with a message, so that the tests are easy to read.

use std::time::Duration;

use bytes::Bytes;
use hapax::{
    Timestamp,
    event::Headers,
    saga::{Direction, Kind, NewSaga, Owned, SagaRecord, SagaStatus, StepRecord, StepState},
    store::{LockedSaga, SagaRecords, SagaRows, Sagas, Transaction},
};

use super::{SagasUnderTest, fixture::Fixture};

pub(crate) const LEASE: Duration = Duration::from_secs(10);
pub(crate) const DAY: Duration = Duration::from_hours(24);

pub(crate) fn kind(version: u32) -> Kind {
    Kind {
        name: "checkout".to_owned(),
        version,
    }
}

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

/// A completed step, with times that every store keeps unchanged.
pub(crate) fn step(name: &str, direction: Direction) -> StepRecord {
    StepRecord {
        name: name.to_owned(),
        direction,
        state: StepState::Done,
        provider_key: None,
        request: Bytes::new(),
        made: Bytes::from_static(b"\x00\xffmade"),
        error: None,
        attempts: 1,
        next_at: Timestamp::from_millis(1_000),
        began_at: Timestamp::from_millis(2_000),
        ended_at: Some(Timestamp::from_millis(3_001)),
    }
}

pub(crate) fn ids(sagas: &[SagaRecord]) -> Vec<String> {
    sagas.iter().map(|saga| saga.id.clone()).collect()
}

pub(crate) async fn start<S: SagasUnderTest>(fixture: &Fixture<S>, id: &str) {
    let mut tx = fixture.begin().await;
    assert!(tx.start_saga(&saga(id)).await.expect("it is started"));
    tx.commit().await.expect("it is committed");
}

pub(crate) async fn take<S: SagasUnderTest>(fixture: &Fixture<S>) -> Vec<SagaRecord> {
    let taken = fixture.store().take_sagas(&[kind(1)], LEASE, 10).await;
    taken.expect("sagas are taken")
}

pub(crate) async fn find<S: SagasUnderTest>(fixture: &Fixture<S>, id: &str) -> Option<SagaRecord> {
    fixture.store().saga(id).await.expect("a saga is read")
}

pub(crate) async fn seize<S: SagasUnderTest>(fixture: &Fixture<S>, id: &str) -> Option<SagaRecord> {
    let seized = fixture.store().seize_saga(id, LEASE).await;
    seized.expect("a saga is seized")
}

pub(crate) async fn turn<S: SagasUnderTest>(fixture: &Fixture<S>, owned: &Owned) -> super::Tx<S> {
    hold(fixture, owned).await.tx
}

pub(crate) async fn hold<S: SagasUnderTest>(
    fixture: &Fixture<S>,
    owned: &Owned,
) -> LockedSaga<super::Tx<S>> {
    let locked = fixture.store().lock_saga(owned, LEASE).await;
    locked.expect("a turn opens")
}

pub(crate) async fn write<S: SagasUnderTest>(
    fixture: &Fixture<S>,
    owned: &Owned,
    step: &StepRecord,
) {
    let mut tx = turn(fixture, owned).await;
    let written = tx.write_step(owned, step).await;
    written.expect("a step is written");
    tx.commit().await.expect("it is committed");
}

pub(crate) async fn stand<S: SagasUnderTest>(
    fixture: &Fixture<S>,
    saga: &SagaRecord,
    status: &SagaStatus,
) {
    let owned = Owned::of(saga);
    let mut tx = turn(fixture, &owned).await;
    let written = tx.write_status(&owned, status).await;
    written.expect("a status is written");
    tx.commit().await.expect("it is committed");
}

pub(crate) async fn signal<S: SagasUnderTest>(
    fixture: &Fixture<S>,
    id: &str,
    name: &str,
    payload: &[u8],
) -> bool {
    let mut tx = fixture.begin().await;
    let accepted = tx.signal_saga(id, name, payload).await;
    let accepted = accepted.expect("a signal is sent");
    tx.commit().await.expect("it is committed");
    accepted
}

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
