//! Retention: what this store keeps beyond the law.

use std::time::Duration;

use hapax::{
    delivery::{Checkpoint, Frontier, Settlement},
    store::{Deliveries, Keys, Outbox},
};

use crate::fixture::{Fixture, shot};

const DAY: Duration = Duration::from_hours(24);

#[tokio::test]
async fn the_newest_event_stays_so_that_its_position_is_not_given_again() {
    let fixture = Fixture::new().await;
    for key in ["first", "newest"] {
        fixture.store.single_shot(shot(key)).await.unwrap();
    }
    let frontier = Outbox::read(&fixture.store, &Frontier::default(), 10)
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
    assert_eq!(fixture.store.purge_events(DAY, DAY).await.unwrap(), 1);
    assert_eq!(fixture.store.purge_events(DAY, DAY).await.unwrap(), 0);
    let left = Outbox::read(&fixture.store, &Frontier::default(), 10)
        .await
        .unwrap()
        .events;
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].event.payload.bytes(), b"\"newest\"");
}
