//! Conformance tests of a crash between a delivery and its settlement: the attempt counts, once.

use std::time::Duration;

use hapax::{
    delivery::{AttemptOutcome, Frontier, ParkedState, Settlement},
    store::Settlements,
};

use super::{
    DeliveriesUnderTest,
    fixture::Fixture,
    steps::{HOOK, MAIL, attempt, checkpoint, park, park_key, positions, settlement},
};

const LATER: Duration = Duration::from_hours(1);

/// A first delivery that was cut off is due at once, with one attempt counted.
pub async fn an_offer_cut_off_is_due_at_once_with_its_attempt_counted<S: DeliveriesUnderTest>() {
    let (fixture, events) = Fixture::<S>::with_events(5).await;
    let place = |index: usize| events[index].position;
    let epoch = fixture.open(HOOK).await.epoch;
    let frontier = fixture.frontier(1).await;
    fixture
        .settle(Settlement {
            checkpoint: Some(checkpoint(
                frontier.clone(),
                &[place(2)],
                &[place(1), place(3)],
            )),
            ..settlement(HOOK, epoch)
        })
        .await;
    assert_eq!(fixture.due_positions(HOOK).await, [0; 0]);
    let fixture = fixture.reopen().await;
    let opened = fixture.open(HOOK).await;
    let taken = checkpoint(frontier, &[place(1), place(2), place(3)], &[]);
    assert_eq!(
        opened.checkpoint, taken,
        "parked deliveries are settled in the checkpoint"
    );
    let due = fixture.due(HOOK).await;
    assert_eq!(positions(&due), [place(1), place(3)]);
    for parked in &due {
        assert_eq!((parked.state, parked.attempt), (ParkedState::Retrying, 1));
        assert!(parked.next_at <= fixture.clock.now());
    }
    assert_eq!(
        fixture.outcomes(place(1)).await,
        [(1, AttemptOutcome::Interrupted)]
    );
}

/// A delivery that was cut off blocks its key: no later event overtakes it.
pub async fn an_offer_cut_off_holds_its_order_key_up<S: DeliveriesUnderTest>() {
    let (fixture, events) = Fixture::<S>::with_events(1).await;
    let cut_off = &events[0];
    let epoch = fixture.open(HOOK).await.epoch;
    fixture
        .settle(Settlement {
            checkpoint: Some(checkpoint(Frontier::default(), &[], &[cut_off.position])),
            ..settlement(HOOK, epoch)
        })
        .await;
    let key = cut_off
        .event
        .order_key()
        .expect("the events of the fixture have an aggregate");
    let opened = fixture.open(HOOK).await;
    assert_eq!(opened.blocked_keys, *std::slice::from_ref(&key));
    assert_eq!(fixture.due(HOOK).await[0].order_key, Some(key));
}

/// A delivery that was settled before the crash was not cut off.
pub async fn an_offer_that_was_settled_is_not_offered_again<S: DeliveriesUnderTest>() {
    let (fixture, events) = Fixture::<S>::with_events(2).await;
    let epoch = fixture.open(HOOK).await.epoch;
    let offered: Vec<_> = events.iter().map(|event| event.position).collect();
    let start = fixture.frontier(1).await;
    fixture
        .settle(Settlement {
            checkpoint: Some(checkpoint(start, &[], &offered[1..])),
            ..settlement(HOOK, epoch)
        })
        .await;
    let end = checkpoint(fixture.frontier(2).await, &[], &[]);
    fixture
        .settle(Settlement {
            checkpoint: Some(end.clone()),
            ..settlement(HOOK, epoch)
        })
        .await;
    let opened = fixture.open(HOOK).await;
    assert_eq!(opened.checkpoint, end);
    assert_eq!(fixture.due_positions(HOOK).await, [0; 0]);
    assert_eq!(fixture.outcomes(offered[1]).await, []);
}

/// A retry that had started counts, and the next one is due at once.
pub async fn a_retry_cut_off_is_due_at_once_with_its_attempt_counted<S: DeliveriesUnderTest>() {
    let (fixture, events) = Fixture::<S>::with_events(2).await;
    let now = fixture.clock.now();
    let place = events[0].position;
    let epoch = fixture
        .park(
            HOOK,
            vec![
                park_key(place, ParkedState::Retrying, now, "key"),
                park(events[1].position, ParkedState::Retrying, now.after(LATER)),
            ],
        )
        .await;
    fixture
        .settle(Settlement {
            begin: vec![(place, 2)],
            attempts: vec![attempt(place, 1, now)],
            ..settlement(HOOK, epoch)
        })
        .await;
    let fixture = fixture.reopen().await;
    fixture.open(HOOK).await;
    let due = fixture.due(HOOK).await;
    assert_eq!(positions(&due), [place]);
    assert_eq!((due[0].state, due[0].attempt), (ParkedState::Retrying, 2));
    assert_eq!(due[0].order_key.as_deref(), Some("key"));
    let outcomes = fixture.outcomes(place).await;
    assert_eq!(
        outcomes,
        [
            (1, AttemptOutcome::Unavailable),
            (2, AttemptOutcome::Interrupted)
        ]
    );
}

/// A retry that ended before the crash has its new state and waits for its time.
pub async fn a_retry_that_was_settled_was_not_cut_off<S: DeliveriesUnderTest>() {
    let (fixture, events) = Fixture::<S>::with_events(2).await;
    let now = fixture.clock.now();
    let places = [events[0].position, events[1].position];
    let parked = places.map(|place| park(place, ParkedState::Retrying, now));
    let epoch = fixture.park(HOOK, parked.to_vec()).await;
    fixture
        .settle(Settlement {
            begin: places.map(|place| (place, 2)).to_vec(),
            ..settlement(HOOK, epoch)
        })
        .await;
    let mut again = park(places[0], ParkedState::Retrying, now.after(LATER));
    again.attempt = 2;
    fixture
        .settle(Settlement {
            park: vec![again],
            delivered: vec![places[1]],
            attempts: vec![attempt(places[0], 2, now)],
            ..settlement(HOOK, epoch)
        })
        .await;
    let fixture = fixture.reopen().await;
    fixture.open(HOOK).await;
    assert_eq!(fixture.due_positions(HOOK).await, [0; 0]);
    fixture.clock.advance(LATER);
    let due = fixture.due(HOOK).await;
    assert_eq!(positions(&due), [places[0]]);
    assert_eq!(due[0].attempt, 2);
    assert_eq!(
        fixture.outcomes(places[0]).await,
        [(2, AttemptOutcome::Unavailable)]
    );
}

/// A crash during recovery counts nothing twice.
pub async fn an_attempt_cut_off_is_counted_once<S: DeliveriesUnderTest>() {
    let (fixture, events) = Fixture::<S>::with_events(2).await;
    let now = fixture.clock.now();
    let places = [events[0].position, events[1].position];
    let epoch = fixture
        .park(HOOK, vec![park(places[0], ParkedState::Retrying, now)])
        .await;
    fixture
        .settle(Settlement {
            checkpoint: Some(checkpoint(fixture.frontier(1).await, &[], &[places[1]])),
            begin: vec![(places[0], 2)],
            ..settlement(HOOK, epoch)
        })
        .await;
    fixture.open(HOOK).await;
    fixture.open(HOOK).await;
    let fixture = fixture.reopen().await;
    fixture.open(HOOK).await;
    let mut due = fixture.due(HOOK).await;
    due.sort_by_key(|parked| parked.event.position);
    assert_eq!(positions(&due), places);
    assert_eq!((due[0].attempt, due[1].attempt), (2, 1));
    assert_eq!(
        fixture.outcomes(places[0]).await,
        [(2, AttemptOutcome::Interrupted)]
    );
    assert_eq!(
        fixture.outcomes(places[1]).await,
        [(1, AttemptOutcome::Interrupted)]
    );
}

/// Opening one destination does not cut off deliveries of another one.
pub async fn opening_a_destination_cuts_off_no_other<S: DeliveriesUnderTest>() {
    let (fixture, events) = Fixture::<S>::with_events(1).await;
    let epoch = fixture.open(HOOK).await.epoch;
    fixture
        .settle(Settlement {
            checkpoint: Some(checkpoint(Frontier::default(), &[], &[events[0].position])),
            ..settlement(HOOK, epoch)
        })
        .await;
    fixture.open(MAIL).await;
    assert_eq!(fixture.due_positions(HOOK).await, [0; 0]);
    assert_eq!(fixture.due_positions(MAIL).await, [0; 0]);
    let still_ours = fixture.store().settle(settlement(HOOK, epoch)).await;
    still_ours.expect("the epoch must still own its destination");
}
