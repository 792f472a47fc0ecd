//! Retention: what this store keeps beyond the law.

use std::time::Duration;

use hapax::{
    delivery::{Checkpoint, Frontier, Settlement, Shards},
    store::{Deliveries, Keys, Outbox, Source},
};

use crate::fixture::{Fixture, shot};

const DAY: Duration = Duration::from_hours(24);

#[tokio::test]
async fn the_newest_event_stays_so_that_its_position_is_not_given_again() {
    let fixture = Fixture::new().await;
    pass_two(&fixture).await;
    assert_eq!(fixture.store.purge_events(DAY, DAY).await.unwrap(), 1);
    assert_eq!(fixture.store.purge_events(DAY, DAY).await.unwrap(), 0);
    let left = Source::read(&fixture.store, &Frontier::default(), Shards::ALL, 10)
        .await
        .unwrap()
        .events;
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].event.payload.bytes(), b"\"newest\"");
}

#[tokio::test]
async fn what_a_new_destination_has_not_seen_stays_though_it_was_chosen_before() {
    let fixture = Fixture::new().await;
    pass_two(&fixture).await;
    let held = fixture.hold().await;
    let store = fixture.store.clone();
    let opening = tokio::spawn(async move { Deliveries::open(&store, "new").await });
    fixture.queued(1).await;
    let store = fixture.store.clone();
    let purging = tokio::spawn(async move { store.purge_events(DAY, DAY).await });
    fixture.queued(2).await;
    held.let_go().await;
    opening.await.unwrap().unwrap();
    assert_eq!(purging.await.unwrap().unwrap(), 0);
}

/// Writes two events, lets a destination pass them, and lets them grow old.
async fn pass_two(fixture: &Fixture) {
    for key in ["first", "newest"] {
        fixture.store.single_shot(shot(key)).await.unwrap();
    }
    let frontier = Source::read(&fixture.store, &Frontier::default(), Shards::ALL, 10)
        .await
        .unwrap()
        .frontier;
    let opened = Deliveries::open(&fixture.store, "hook").await.unwrap();
    let checkpoint = Checkpoint {
        frontier,
        ..Checkpoint::default()
    };
    let settlement = Settlement {
        destination: "hook".to_owned(),
        epoch: opened.epoch,
        checkpoint: Some(checkpoint),
        ..Settlement::default()
    };
    fixture.store.settle(settlement).await.unwrap();
    fixture.clock.advance(2 * DAY);
}
