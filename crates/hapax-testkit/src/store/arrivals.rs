//! Conformance tests of arrivals: an event that arrives at its first attempt has no delivery row,
//! but is in the log.

use std::time::Duration;

use hapax::delivery::{Attempt, AttemptOutcome, ParkedState, Settlement};

use super::{
    DeliveriesUnderTest,
    fixture::Fixture,
    steps::{HOOK, MAIL, arrived, attempt, checkpoint, park, settlement},
};

const LATER: Duration = Duration::from_secs(5);

/// A first attempt that succeeded is in the log like any other, and other events have none.
pub async fn a_first_attempt_that_arrived_is_in_the_log<S: DeliveriesUnderTest>() {
    let (fixture, events) = Fixture::<S>::with_events(6).await;
    let now = fixture.clock.now();
    let place = |index: usize| events[index].position;
    let epoch = fixture.open(HOOK).await.epoch;
    let mut second = arrived(&[place(4)], now.after(LATER));
    second.status = None;
    fixture
        .settle(Settlement {
            checkpoint: Some(checkpoint(fixture.frontier(6).await, &[], &[])),
            arrived: vec![arrived(&[place(0), place(1), place(3)], now), second],
            ..settlement(HOOK, epoch)
        })
        .await;
    let fixture = fixture.reopen().await;
    for index in [0, 1, 3] {
        let log = fixture.attempts(HOOK, place(index)).await;
        assert_eq!(log, [first(place(index), now, Some(200))]);
    }
    let log = fixture.attempts(HOOK, place(4)).await;
    assert_eq!(log, [first(place(4), now.after(LATER), None)]);
    for index in [2, 5] {
        assert_eq!(fixture.attempts(HOOK, place(index)).await, []);
    }
    assert_eq!(fixture.attempts(MAIL, place(0)).await, []);
    assert_eq!(fixture.backlog(HOOK).await.events, 0);
}

/// A settlement that is repeated because its commit was not confirmed is written once, even if more
/// events have arrived in the meantime.
pub async fn arrivals_that_are_written_again_are_there_once<S: DeliveriesUnderTest>() {
    let (fixture, events) = Fixture::<S>::with_events(4).await;
    let now = fixture.clock.now();
    let places: Vec<i64> = events.iter().map(|event| event.position).collect();
    let epoch = fixture.open(HOOK).await.epoch;
    for count in [2, 2, 4] {
        fixture
            .settle(Settlement {
                arrived: vec![arrived(&places[..count], now)],
                ..settlement(HOOK, epoch)
            })
            .await;
    }
    for place in places {
        let log = fixture.attempts(HOOK, place).await;
        assert_eq!(log, [first(place, now, Some(200))]);
    }
}

/// All arrivals are found, for any number of arrivals and any distance between them.
pub async fn arrivals_far_apart_are_all_found<S: DeliveriesUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let now = fixture.clock.now();
    let turn = 1_i64 << 36;
    let places: Vec<i64> = (1..=9_000)
        .chain([
            20_000,
            20_002,
            turn - 1,
            turn,
            turn + 1,
            turn + 8_191,
            turn + 8_192,
        ])
        .chain([5 * turn + 7])
        .collect();
    let epoch = fixture.open(HOOK).await.epoch;
    fixture
        .settle(Settlement {
            arrived: vec![arrived(&places, now)],
            ..settlement(HOOK, epoch)
        })
        .await;
    for place in places
        .iter()
        .filter(|place| **place > 8_990 || **place % 1_000 < 2)
    {
        let log = fixture.attempts(HOOK, *place).await;
        assert_eq!(log, [first(*place, now, Some(200))], "{place}");
    }
    for place in [0, 9_001, 20_001, turn - 2, turn + 2, 5 * turn] {
        assert_eq!(fixture.attempts(HOOK, place).await, [], "{place}");
    }
}

/// Attempts are returned in order: the first attempt that succeeded, and all later attempts.
pub async fn attempts_are_listed_in_order<S: DeliveriesUnderTest>() {
    let (fixture, events) = Fixture::<S>::with_events(2).await;
    let now = fixture.clock.now();
    let (again, failed) = (events[0].position, events[1].position);
    let epoch = fixture.open(HOOK).await.epoch;
    let tried = [
        attempt(failed, 1, now),
        attempt(failed, 2, now.after(LATER)),
    ];
    let mut repeated = attempt(again, 1, now.after(LATER));
    repeated.number = 2;
    fixture
        .settle(Settlement {
            arrived: vec![arrived(&[again], now)],
            attempts: tried.to_vec(),
            ..settlement(HOOK, epoch)
        })
        .await;
    fixture
        .settle(Settlement {
            attempts: vec![repeated.clone()],
            park: vec![park(again, ParkedState::Dead, now)],
            ..settlement(HOOK, epoch)
        })
        .await;
    assert_eq!(fixture.attempts(HOOK, failed).await, tried);
    let log = [first(again, now, Some(200)), repeated];
    assert_eq!(fixture.attempts(HOOK, again).await, log);
    assert_eq!(fixture.dead_letters(HOOK).await[0].log, log);
}

fn first(position: i64, started_at: hapax::Timestamp, status: Option<u16>) -> Attempt {
    Attempt {
        position,
        number: 1,
        started_at,
        duration: Duration::from_millis(7),
        outcome: AttemptOutcome::Delivered,
        status,
        error: None,
        response_head: bytes::Bytes::new(),
    }
}
