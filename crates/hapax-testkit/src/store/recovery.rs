//! Conformance tests of a crash between a delivery and its settlement: the attempt counts, once.

use std::time::Duration;

use hapax::{
    delivery::{AttemptOutcome, Frontier, ParkedState, Settlement},
    store::Deliveries,
};

use super::{
    StoreUnderTest,
    bench::Bench,
    steps::{HOOK, MAIL, attempt, checkpoint, park, park_key, positions, settlement},
};

const LATER: Duration = Duration::from_hours(1);

/// A first delivery that was cut off is due at once, with one attempt counted.
pub async fn an_offer_cut_off_is_due_at_once_with_its_attempt_counted<S: StoreUnderTest>() {
    let (bench, events) = Bench::<S>::with_events(5).await;
    let place = |index: usize| events[index].position;
    let epoch = bench.open(HOOK).await.epoch;
    let frontier = bench.frontier(1).await;
    bench
        .settle(Settlement {
            checkpoint: Some(checkpoint(
                frontier.clone(),
                &[place(2)],
                &[place(1), place(3)],
            )),
            ..settlement(HOOK, epoch)
        })
        .await;
    assert_eq!(bench.due_positions(HOOK).await, [0; 0]);
    let bench = bench.reopen().await;
    let opened = bench.open(HOOK).await;
    let known = checkpoint(frontier, &[place(1), place(2), place(3)], &[]);
    assert_eq!(
        opened.checkpoint, known,
        "parked deliveries are settled in the checkpoint"
    );
    let due = bench.due(HOOK).await;
    assert_eq!(positions(&due), [place(1), place(3)]);
    for parked in &due {
        assert_eq!((parked.state, parked.attempt), (ParkedState::Retrying, 1));
        assert!(parked.next_at <= bench.clock.now());
    }
    assert_eq!(
        bench.outcomes(place(1)).await,
        [(1, AttemptOutcome::Interrupted)]
    );
}

/// A delivery that was cut off blocks its key: no later event overtakes it.
pub async fn an_offer_cut_off_holds_its_order_key_up<S: StoreUnderTest>() {
    let (bench, events) = Bench::<S>::with_events(1).await;
    let cut_off = &events[0];
    let epoch = bench.open(HOOK).await.epoch;
    bench
        .settle(Settlement {
            checkpoint: Some(checkpoint(Frontier::default(), &[], &[cut_off.position])),
            ..settlement(HOOK, epoch)
        })
        .await;
    let key = cut_off
        .event
        .order_key()
        .expect("the events of the fixture have an aggregate");
    let opened = bench.open(HOOK).await;
    assert_eq!(opened.blocked_keys, *std::slice::from_ref(&key));
    assert_eq!(bench.due(HOOK).await[0].order_key, Some(key));
}

/// A delivery that was settled before the crash was not cut off.
pub async fn an_offer_that_was_settled_is_not_offered_again<S: StoreUnderTest>() {
    let (bench, events) = Bench::<S>::with_events(2).await;
    let epoch = bench.open(HOOK).await.epoch;
    let offered: Vec<_> = events.iter().map(|event| event.position).collect();
    let start = bench.frontier(1).await;
    bench
        .settle(Settlement {
            checkpoint: Some(checkpoint(start, &[], &offered[1..])),
            ..settlement(HOOK, epoch)
        })
        .await;
    let end = checkpoint(bench.frontier(2).await, &[], &[]);
    bench
        .settle(Settlement {
            checkpoint: Some(end.clone()),
            ..settlement(HOOK, epoch)
        })
        .await;
    let opened = bench.open(HOOK).await;
    assert_eq!(opened.checkpoint, end);
    assert_eq!(bench.due_positions(HOOK).await, [0; 0]);
    assert_eq!(bench.outcomes(offered[1]).await, []);
}

/// A retry that had started counts, and the next one is due at once.
pub async fn a_retry_cut_off_is_due_at_once_with_its_attempt_counted<S: StoreUnderTest>() {
    let (bench, events) = Bench::<S>::with_events(2).await;
    let now = bench.clock.now();
    let place = events[0].position;
    let epoch = bench
        .park(
            HOOK,
            vec![
                park_key(place, ParkedState::Retrying, now, "key"),
                park(events[1].position, ParkedState::Retrying, now.after(LATER)),
            ],
        )
        .await;
    bench
        .settle(Settlement {
            begin: vec![(place, 2)],
            attempts: vec![attempt(place, 1, now)],
            ..settlement(HOOK, epoch)
        })
        .await;
    let bench = bench.reopen().await;
    bench.open(HOOK).await;
    let due = bench.due(HOOK).await;
    assert_eq!(positions(&due), [place]);
    assert_eq!((due[0].state, due[0].attempt), (ParkedState::Retrying, 2));
    assert_eq!(due[0].order_key.as_deref(), Some("key"));
    let outcomes = bench.outcomes(place).await;
    assert_eq!(
        outcomes,
        [
            (1, AttemptOutcome::Unavailable),
            (2, AttemptOutcome::Interrupted)
        ]
    );
}

/// A retry that ended before the crash has its new state and waits for its time.
pub async fn a_retry_that_was_settled_was_not_cut_off<S: StoreUnderTest>() {
    let (bench, events) = Bench::<S>::with_events(2).await;
    let now = bench.clock.now();
    let places = [events[0].position, events[1].position];
    let parked = places.map(|place| park(place, ParkedState::Retrying, now));
    let epoch = bench.park(HOOK, parked.to_vec()).await;
    bench
        .settle(Settlement {
            begin: places.map(|place| (place, 2)).to_vec(),
            ..settlement(HOOK, epoch)
        })
        .await;
    let mut again = park(places[0], ParkedState::Retrying, now.after(LATER));
    again.attempt = 2;
    bench
        .settle(Settlement {
            park: vec![again],
            delivered: vec![places[1]],
            attempts: vec![attempt(places[0], 2, now)],
            ..settlement(HOOK, epoch)
        })
        .await;
    let bench = bench.reopen().await;
    bench.open(HOOK).await;
    assert_eq!(bench.due_positions(HOOK).await, [0; 0]);
    bench.clock.advance(LATER);
    let due = bench.due(HOOK).await;
    assert_eq!(positions(&due), [places[0]]);
    assert_eq!(due[0].attempt, 2);
    assert_eq!(
        bench.outcomes(places[0]).await,
        [(2, AttemptOutcome::Unavailable)]
    );
}

/// A crash during recovery counts nothing twice.
pub async fn an_attempt_cut_off_is_counted_once<S: StoreUnderTest>() {
    let (bench, events) = Bench::<S>::with_events(2).await;
    let now = bench.clock.now();
    let places = [events[0].position, events[1].position];
    let epoch = bench
        .park(HOOK, vec![park(places[0], ParkedState::Retrying, now)])
        .await;
    bench
        .settle(Settlement {
            checkpoint: Some(checkpoint(bench.frontier(1).await, &[], &[places[1]])),
            begin: vec![(places[0], 2)],
            ..settlement(HOOK, epoch)
        })
        .await;
    bench.open(HOOK).await;
    bench.open(HOOK).await;
    let bench = bench.reopen().await;
    bench.open(HOOK).await;
    let mut due = bench.due(HOOK).await;
    due.sort_by_key(|parked| parked.event.position);
    assert_eq!(positions(&due), places);
    assert_eq!((due[0].attempt, due[1].attempt), (2, 1));
    assert_eq!(
        bench.outcomes(places[0]).await,
        [(2, AttemptOutcome::Interrupted)]
    );
    assert_eq!(
        bench.outcomes(places[1]).await,
        [(1, AttemptOutcome::Interrupted)]
    );
}

/// Opening one destination does not cut off deliveries of another one.
pub async fn opening_a_destination_cuts_off_no_other<S: StoreUnderTest>() {
    let (bench, events) = Bench::<S>::with_events(1).await;
    let epoch = bench.open(HOOK).await.epoch;
    bench
        .settle(Settlement {
            checkpoint: Some(checkpoint(Frontier::default(), &[], &[events[0].position])),
            ..settlement(HOOK, epoch)
        })
        .await;
    bench.open(MAIL).await;
    assert_eq!(bench.due_positions(HOOK).await, [0; 0]);
    assert_eq!(bench.due_positions(MAIL).await, [0; 0]);
    let still_ours = bench.store().settle(settlement(HOOK, epoch)).await;
    still_ours.expect("the epoch must still own its destination");
}
