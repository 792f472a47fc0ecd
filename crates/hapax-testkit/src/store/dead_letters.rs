//! Conformance tests of dead letters: they are kept with their reason until an operator decides.

use std::time::Duration;

use hapax::{
    delivery::{Attempt, AttemptOutcome, ParkedState, Settlement},
    store::DeadLetters,
};

use super::{
    DeliveriesUnderTest,
    fixture::Fixture,
    steps::{HOOK, MAIL, attempt, park, park_key, settlement},
};

const LATER: Duration = Duration::from_secs(5);

/// A dead letter contains its event, its last error, the time, and all attempts.
pub async fn a_dead_letter_keeps_its_event_and_its_whole_log<S: DeliveriesUnderTest>() {
    let (fixture, events) = Fixture::<S>::with_events(2).await;
    let place = events[0].position;
    let first = attempt(place, 1, fixture.clock.now());
    let epoch = fixture
        .park(
            HOOK,
            vec![park(place, ParkedState::Retrying, first.started_at)],
        )
        .await;
    let elsewhere = attempt(events[1].position, 1, first.started_at);
    let log = |attempts| Settlement {
        attempts,
        ..settlement(HOOK, epoch)
    };
    fixture.settle(log(vec![first.clone(), elsewhere])).await;
    fixture.clock.advance(LATER);
    let last = Attempt {
        number: 2,
        started_at: fixture.clock.now(),
        outcome: AttemptOutcome::Rejected,
        status: None,
        error: None,
        response_head: bytes::Bytes::new(),
        ..first.clone()
    };
    fixture.clock.advance(LATER);
    let mut dead = park(place, ParkedState::Dead, fixture.clock.now());
    dead.attempt = 2;
    dead.last_error = Some("it said 'no' \u{1f980}".to_owned());
    fixture
        .settle(Settlement {
            park: vec![dead],
            ..log(vec![last.clone()])
        })
        .await;
    let fixture = fixture.reopen().await;
    let letters = fixture.dead_letters(HOOK).await;
    assert_eq!(letters.len(), 1);
    let letter = &letters[0];
    assert_eq!(letter.event, events[0]);
    assert_eq!(letter.attempts, 2);
    assert_eq!(letter.last_error, "it said 'no' \u{1f980}");
    assert_eq!(letter.died_at, fixture.clock.now());
    assert_eq!(letter.log, [first, last]);
}

/// A dead letter is never due.
pub async fn a_dead_letter_never_falls_due<S: DeliveriesUnderTest>() {
    let (fixture, places) = dead::<S>(1).await;
    fixture.clock.advance(LATER);
    assert_eq!(fixture.due_positions(HOOK).await, [0; 0]);
    assert_eq!(fixture.next_due(HOOK).await, None);
    fixture.open(HOOK).await;
    assert_eq!(fixture.due_positions(HOOK).await, [0; 0]);
    assert_eq!(
        fixture.dead_letters(HOOK).await[0].event.position,
        places[0]
    );
}

/// Dead letters are listed by position, in pages.
pub async fn dead_letters_are_listed_page_by_page<S: DeliveriesUnderTest>() {
    let (fixture, places) = dead::<S>(5).await;
    let page = async |after, limit| -> Vec<i64> {
        let page = fixture.store().dead_letters(HOOK, after, limit).await;
        let page = page.expect("dead letters are read");
        page.iter().map(|letter| letter.event.position).collect()
    };
    assert_eq!(page(0, 2).await, places[..2]);
    assert_eq!(page(places[1], 2).await, places[2..4]);
    assert_eq!(page(places[3], 2).await, places[4..]);
    assert_eq!(page(places[4], 2).await, [0; 0]);
}

/// A replayed dead letter is due at once and has all its attempts again.
pub async fn a_replayed_dead_letter_is_due_as_if_never_tried<S: DeliveriesUnderTest>() {
    let (fixture, places) = dead::<S>(2).await;
    fixture.clock.advance(LATER);
    assert!(
        fixture
            .store()
            .replay(HOOK, places[0])
            .await
            .expect("it is replayed")
    );
    let due = fixture.due(HOOK).await;
    assert_eq!(due.len(), 1);
    let parked = &due[0];
    assert_eq!(parked.event.position, places[0]);
    assert_eq!((parked.state, parked.attempt), (ParkedState::Retrying, 0));
    assert_eq!(parked.order_key.as_deref(), Some("key"));
    assert_eq!(parked.next_at, fixture.clock.now());
    assert!(
        !fixture
            .store()
            .replay(HOOK, places[0])
            .await
            .expect("it is not dead now")
    );
    let backlog = fixture.backlog(HOOK).await;
    assert_eq!((backlog.parked, backlog.dead), (1, 1));
    assert_eq!(fixture.open(HOOK).await.blocked_keys, ["key"]);
}

/// An event that becomes a dead letter again keeps the attempts before the replay.
pub async fn the_log_goes_on_after_a_replay<S: DeliveriesUnderTest>() {
    let (fixture, places) = dead::<S>(1).await;
    assert!(
        fixture
            .store()
            .replay(HOOK, places[0])
            .await
            .expect("it is replayed")
    );
    fixture.clock.advance(LATER);
    let epoch = fixture.open(HOOK).await.epoch;
    let again = attempt(places[0], 1, fixture.clock.now());
    fixture
        .settle(Settlement {
            park: vec![park(places[0], ParkedState::Dead, fixture.clock.now())],
            attempts: vec![again.clone()],
            ..settlement(HOOK, epoch)
        })
        .await;
    let letters = fixture.dead_letters(HOOK).await;
    assert_eq!(letters[0].log.len(), 2);
    assert_eq!(letters[0].log[1], again);
    assert_eq!(letters[0].died_at, fixture.clock.now());
}

/// A discarded dead letter is deleted, and no other one is.
pub async fn a_discarded_dead_letter_is_gone_permanently<S: DeliveriesUnderTest>() {
    let (fixture, places) = dead::<S>(2).await;
    let discard = async |place| {
        let discarded = fixture.store().discard(HOOK, place, "not needed").await;
        discarded.expect("it is decided")
    };
    assert!(discard(places[0]).await);
    assert!(!discard(places[0]).await);
    assert!(
        !fixture
            .store()
            .replay(HOOK, places[0])
            .await
            .expect("it is gone")
    );
    assert_eq!(fixture.backlog(HOOK).await.dead, 1);
    let fixture = fixture.reopen().await;
    fixture.open(HOOK).await;
    let letters = fixture.dead_letters(HOOK).await;
    assert_eq!(letters.len(), 1);
    assert_eq!(letters[0].event.position, places[1]);
    assert_eq!(fixture.due_positions(HOOK).await, [0; 0]);
}

/// The first delivery that was blocked by a discarded dead letter becomes due.
pub async fn discarding_lets_the_order_key_go<S: DeliveriesUnderTest>() {
    let (fixture, events) = Fixture::<S>::with_events(5).await;
    let now = fixture.clock.now();
    let parked = [
        (ParkedState::Dead, "a"),
        (ParkedState::Dead, "b"),
        (ParkedState::Blocked, "a"),
        (ParkedState::Blocked, "a"),
        (ParkedState::Blocked, "b"),
    ];
    let parked = events.iter().zip(parked);
    let parked = parked.map(|(event, (state, key))| park_key(event.position, state, now, key));
    fixture.park(HOOK, parked.collect()).await;
    let discarded = fixture
        .store()
        .discard(HOOK, events[0].position, "not needed")
        .await;
    assert!(discarded.expect("it is discarded"));
    assert_eq!(fixture.due_positions(HOOK).await, [events[2].position]);
}

/// Only a dead letter can be replayed or discarded, and only at its destination.
pub async fn only_a_dead_letter_is_replayed_or_discarded<S: DeliveriesUnderTest>() {
    let (fixture, places) = dead::<S>(1).await;
    let others = fixture.emit(vec![crate::events::event("retrying")]).await;
    assert_eq!(others.len(), 1);
    let retrying = fixture.events().await[1].position;
    let parked = park(retrying, ParkedState::Retrying, fixture.clock.now());
    fixture.park(HOOK, vec![parked]).await;
    for (destination, place) in [(HOOK, retrying), (HOOK, 9_999), (MAIL, places[0])] {
        let store = fixture.store();
        assert!(
            !store
                .replay(destination, place)
                .await
                .expect("it is decided")
        );
        let discarded = store.discard(destination, place, "not needed").await;
        assert!(!discarded.expect("it is decided"));
    }
    assert_eq!(fixture.due_positions(HOOK).await, [retrying]);
    assert_eq!(fixture.dead_letters(HOOK).await.len(), 1);
}

/// A store in which `count` events are dead letters of the hook, each after one attempt, blocking
/// `key`.
async fn dead<S: DeliveriesUnderTest>(count: usize) -> (Fixture<S>, Vec<i64>) {
    let (fixture, events) = Fixture::<S>::with_events(count).await;
    let now = fixture.clock.now();
    let epoch = fixture.open(HOOK).await.epoch;
    let places: Vec<_> = events.iter().map(|event| event.position).collect();
    let of = |place: &i64| park_key(*place, ParkedState::Dead, now, "key");
    fixture
        .settle(Settlement {
            park: places.iter().rev().map(of).collect(),
            attempts: places.iter().map(|place| attempt(*place, 1, now)).collect(),
            ..settlement(HOOK, epoch)
        })
        .await;
    (fixture, places)
}
