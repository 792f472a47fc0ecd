//! Recovery from a clock that was ahead: times that were stored under it are brought forward.

use std::time::Duration;

use bytes::Bytes;
use hapax::{
    Timestamp,
    delivery::{Park, ParkedState, Settlement},
    event::{Headers, NewEvent},
    phases::{Entry, Lapsed, Ownership},
    saga::{Definition, Owned},
    store::{ClaimOutcome, Keys, Partitions, Phases, SagaRows, Sagas, Settlements, Transaction},
};
use hapax_sqlite::{Sqlite, Tx};

use crate::fixture::{Fixture, claim};

const LEASE: Duration = Duration::from_secs(10);
const DAYS: Duration = Duration::from_hours(72);
const HOOK: &str = "hook";

/// When the store detects that the clock was corrected.
#[derive(Clone, Copy, Debug)]
enum Learns {
    ByRestart,
    WhileItRuns,
}

const BOTH: [Learns; 2] = [Learns::ByRestart, Learns::WhileItRuns];

#[tokio::test]
async fn a_saga_does_not_sleep_until_a_clock_that_was_ahead_is_reached() {
    for learns in BOTH {
        let (fixture, right) = ahead().await;
        let store = &fixture.store;
        let (asleep, held) = (begun(store, "asleep").await, begun(store, "held").await);
        let pause = Duration::from_secs(1);
        let given = store.give_back_saga(&asleep, pause, "a test", 0).await;
        given.unwrap();
        begun(store, "new").await;
        let store = put_right(&fixture, right, learns).await;
        let first = taken(&store).await;
        assert!(first.contains(&"asleep".to_owned()), "{learns:?} {first:?}");
        // The lease of an owned saga now ends one lease after the correction.
        fixture.clock.advance(LEASE);
        let then = taken(&store).await;
        for id in [&held.id, "new"] {
            assert!(then.contains(&id.to_owned()), "{learns:?} {then:?}");
        }
    }
}

#[tokio::test]
async fn a_saga_that_sleeps_under_the_right_clock_sleeps_on() {
    let fixture = Fixture::new().await;
    let saga = begun(&fixture.store, "asleep").await;
    let pause = Duration::from_mins(59);
    let given = fixture.store.give_back_saga(&saga, pause, "a test", 0);
    given.await.unwrap();
    let store = put_right(&fixture, fixture.clock.now(), Learns::ByRestart).await;
    assert!(taken(&store).await.is_empty());
    fixture.clock.advance(pause);
    assert_eq!(taken(&store).await, ["asleep"]);
}

#[tokio::test]
async fn a_retry_does_not_wait_until_a_clock_that_was_ahead_is_reached() {
    for learns in BOTH {
        let (fixture, right) = ahead().await;
        let next_at = fixture.clock.now().after(Duration::from_secs(5));
        parked(&fixture.store, ParkedState::Retrying, next_at).await;
        assert!(due(&fixture.store).await.is_empty());
        let store = put_right(&fixture, right, learns).await;
        assert_eq!(due(&store).await.len(), 1, "{learns:?}");
    }
}

#[tokio::test]
async fn what_is_to_be_delivered_later_or_is_retried_in_days_is_not_delivered_early() {
    for state in [ParkedState::Scheduled, ParkedState::Retrying] {
        let fixture = Fixture::new().await;
        let next_at = fixture.clock.now().after(DAYS);
        parked(&fixture.store, state, next_at).await;
        let store = put_right(&fixture, fixture.clock.now(), Learns::ByRestart).await;
        assert!(due(&store).await.is_empty(), "{state:?}");
    }
    let (fixture, right) = ahead().await;
    let next_at = right.after(DAYS).after(DAYS);
    parked(&fixture.store, ParkedState::Scheduled, next_at).await;
    let store = put_right(&fixture, right, Learns::ByRestart).await;
    assert!(due(&store).await.is_empty());
}

#[tokio::test]
async fn a_dead_owners_key_is_not_its_until_a_clock_that_was_ahead_is_reached() {
    for learns in BOTH {
        let (fixture, right) = ahead().await;
        assert!(matches!(enter(&fixture.store).await, ClaimOutcome::Open(_)));
        let store = put_right(&fixture, right, learns).await;
        assert!(matches!(enter(&store).await, ClaimOutcome::Taken(_)));
        fixture.clock.advance(LEASE);
        let ClaimOutcome::Open(owned) = enter(&store).await else {
            panic!("{learns:?}: the dead owner still owns the key");
        };
        assert!(owned.resumed);
    }
}

#[tokio::test]
async fn a_dead_owners_request_is_taken_over_though_its_clock_was_ahead() {
    for learns in BOTH {
        let (fixture, right) = ahead().await;
        enter(&fixture.store).await;
        let store = put_right(&fixture, right, learns).await;
        let lapsed = Lapsed {
            lease: LEASE,
            grace: Duration::from_secs(1),
            limit: 10,
        };
        let operations = [claim("k").scope.operation];
        assert!(
            store
                .take_over(&operations, lapsed)
                .await
                .unwrap()
                .is_empty()
        );
        fixture.clock.advance(LEASE + lapsed.grace);
        let taken = store.take_over(&operations, lapsed).await.unwrap();
        assert_eq!(taken.len(), 1, "{learns:?}");
    }
}

/// A store whose clock is days ahead, and the correct time.
async fn ahead() -> (Fixture, Timestamp) {
    let fixture = Fixture::new().await;
    let right = fixture.clock.now();
    fixture.clock.advance(DAYS);
    (fixture, right)
}

/// Corrects the clock, and reopens the store if `learns` says so.
async fn put_right(fixture: &Fixture, right: Timestamp, learns: Learns) -> Sqlite {
    match learns {
        Learns::WhileItRuns => {
            fixture.clock.set(right);
            fixture.store.clone()
        }
        Learns::ByRestart => {
            fixture.store.close().await.unwrap();
            fixture.clock.set(right);
            Sqlite::open(fixture.settings()).unwrap()
        }
    }
}

fn checkout() -> Definition<Tx> {
    Definition::new("checkout", 1)
}

/// Starts a saga and takes it.
async fn begun(store: &Sqlite, id: &str) -> Owned {
    let mut tx = store.begin(None, Headers::new()).await.unwrap();
    let new = checkout().begin(id, None, Bytes::new());
    assert!(tx.start_saga(&new).await.unwrap());
    tx.commit().await.unwrap();
    let saga = store.seize_saga(id, LEASE).await.unwrap().unwrap();
    Owned::of(&saga)
}

async fn taken(store: &Sqlite) -> Vec<String> {
    let kinds = [checkout().kind().clone()];
    let taken = store.take_sagas(&kinds, LEASE, 10).await.unwrap();
    taken.into_iter().map(|saga| saga.id).collect()
}

/// Emits an event and parks it.
async fn parked(store: &Sqlite, state: ParkedState, next_at: Timestamp) {
    let mut tx = store.begin(None, Headers::new()).await.unwrap();
    tx.emit(NewEvent::json("order.created", &1)).unwrap();
    tx.commit().await.unwrap();
    let epoch = Partitions::open(store, HOOK).await.unwrap().epoch;
    let park = Park {
        position: 1,
        state,
        attempt: 1,
        next_at,
        order_key: None,
        last_error: None,
    };
    let settlement = Settlement {
        park: vec![park],
        destination: HOOK.to_owned(),
        epoch,
        ..Settlement::default()
    };
    store.settle(settlement).await.unwrap();
}

async fn due(store: &Sqlite) -> Vec<i64> {
    let due = store.due(HOOK, &[], 10, 0).await.unwrap();
    due.into_iter()
        .map(|parked| parked.event.position)
        .collect()
}

async fn enter(store: &Sqlite) -> ClaimOutcome<Ownership> {
    let entry = Entry {
        claim: claim("k"),
        lease: LEASE,
        request: Some(Bytes::from_static(b"{}")),
        recovery_point: None,
    };
    store.enter(entry).await.unwrap()
}
