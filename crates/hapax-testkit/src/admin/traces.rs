//! Conformance tests of traces: the status of an event at every destination.

use std::{collections::BTreeSet, num::NonZeroU8, time::Duration};

use hapax::{
    Timestamp,
    admin::{DeliveryStatus, Trace},
    delivery::{Attempt, AttemptOutcome, Frontier, ParkedState, Settlement, Shards, partition},
    store::{DeadLetters, Source},
};

use super::{
    AdminUnderTest,
    checks::Must,
    scene::{Scene, park},
};
use crate::store::steps::{arrived, attempt, settlement};

/// The status of an event says what is known of it at each destination, and what blocks it.
pub async fn a_trace_tells_the_status_of_an_event_at_every_destination<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let at = scene.emit("order.created", None, 5).await;
    let key = Some("order\n0");
    let mut retrying = park(at[3], ParkedState::Retrying, None);
    retrying.next_at = Timestamp::from_millis(4_000_000_000_000);
    let parks = vec![
        park(at[0], ParkedState::Dead, key),
        park(at[1], ParkedState::Blocked, key),
        park(at[2], ParkedState::Scheduled, None),
        retrying,
    ];
    scene.settle("a", parks).await;
    scene.fixture.open("unread").await;
    let status = async |position| {
        let [one, two] = traces(&scene, position).await.try_into().must();
        assert_eq!(
            (one.destination.as_str(), two.destination.as_str()),
            ("a", "unread")
        );
        assert_eq!(two.status, DeliveryStatus::Unread);
        one
    };
    let dead = status(at[0]).await;
    assert_eq!((dead.status, dead.attempts), (DeliveryStatus::Dead, 3));
    assert_eq!((dead.next_at, dead.behind), (None, None));
    let error = format!("connection Refused by 100% of host_{}", at[0]);
    assert_eq!(dead.last_error, Some(error));
    assert_eq!(dead.changed_at, Some(scene.now()));
    let blocked = status(at[1]).await;
    assert_eq!(
        (blocked.status, blocked.behind),
        (DeliveryStatus::Blocked, Some(at[0]))
    );
    let scheduled = status(at[2]).await;
    assert_eq!(scheduled.status, DeliveryStatus::Scheduled);
    assert_eq!(scheduled.next_at, Some(Timestamp::from_millis(32_000)));
    let retrying = status(at[3]).await;
    assert_eq!(retrying.status, DeliveryStatus::Retrying);
    assert!(retrying.next_at.is_some());
    assert_eq!(status(at[4]).await.status, DeliveryStatus::Passed);
}

/// An event that was delivered, at the first attempt or later, is traced with its attempts.
pub async fn a_delivered_event_is_traced_with_its_attempts<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let at = scene.emit("order.created", None, 2).await;
    let now = scene.now();
    scene
        .settle("a", vec![park(at[1], ParkedState::Retrying, None)])
        .await;
    let epoch = scene.fixture.open("a").await.epoch;
    let last = Attempt {
        outcome: AttemptOutcome::Delivered,
        ..attempt(at[1], 4, now)
    };
    let settled = Settlement {
        delivered: vec![at[1]],
        attempts: vec![attempt(at[1], 3, now), last],
        arrived: vec![arrived(&[at[0]], now)],
        ..settlement("a", epoch)
    };
    scene.fixture.settle(settled).await;
    for (position, numbers) in [(at[0], vec![1]), (at[1], vec![3, 4])] {
        let [trace] = traces(&scene, position).await.try_into().must();
        assert_eq!(trace.status, DeliveryStatus::Delivered);
        let found: Vec<u32> = trace.log.iter().map(|it| it.number).collect();
        assert_eq!(found, numbers);
        let log = scene.store().attempts("a", position).await.must();
        assert_eq!(trace.log, log);
    }
}

/// A discarded delivery is traced with the reason.
pub async fn a_discarded_delivery_is_traced_with_its_reason<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let at = scene.emit("order.created", None, 1).await;
    scene.pass("a", &at).await;
    let discarded = scene
        .admin
        .discard_dead_letter(&scene.ops, "a", at[0], "no such shop");
    discarded.await.must();
    let [trace] = traces(&scene, at[0]).await.try_into().must();
    assert_eq!(trace.status, DeliveryStatus::Discarded);
    assert_eq!(trace.reason.as_deref(), Some("no such shop"));
}

/// Of a destination with several partitions, only the one that delivers the event's shard is traced.
pub async fn an_event_is_traced_at_the_partition_of_its_shard<S: AdminUnderTest>() {
    const PARTITIONS: NonZeroU8 = NonZeroU8::new(4).expect("not zero");
    let scene = Scene::<S>::new().await;
    let at = scene.emit("order.created", None, 30).await;
    for number in 0..4 {
        scene.pass(&partition("a", number, PARTITIONS), &[]).await;
    }
    let traces = scene.admin.traces(&at).await.must();
    let mut seen = BTreeSet::new();
    for number in 0..4 {
        let shards = Shards::of_partition(number, PARTITIONS).must();
        let own = scene.store().read(&Frontier::default(), shards, 100).await;
        for event in own.must().events {
            let [trace] = traces[&event.position].as_slice() else {
                panic!("{traces:?}");
            };
            assert_eq!(trace.partition, partition("a", number, PARTITIONS));
            assert_eq!(trace.destination, "a");
            seen.insert(event.position);
        }
    }
    assert_eq!(seen.len(), at.len());
}

/// The traces of several events are read at once; a position without an event has none.
pub async fn traces_of_many_events_are_read_at_once<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let at = scene.emit("order.created", None, 500).await;
    scene.pass("a", &at[..1]).await;
    scene.advance(Duration::from_secs(1)).await;
    let mut asked = at.clone();
    asked.extend([i64::MAX, 0, -1, i64::MIN]);
    let found = scene.admin.traces(&asked).await.must();
    let mut positions: Vec<i64> = found.keys().copied().collect();
    positions.sort_unstable();
    assert_eq!(positions, at);
    assert_eq!(found[&at[0]][0].status, DeliveryStatus::Dead);
    assert_eq!(found[&at[1]][0].status, DeliveryStatus::Passed);
    assert!(scene.admin.traces(&[]).await.must().is_empty());
    assert!(scene.admin.trace(i64::MAX).await.must().is_empty());
}

/// The traces of one event, by partition.
async fn traces<S: AdminUnderTest>(scene: &Scene<S>, position: i64) -> Vec<Trace> {
    let mut traces = scene.admin.trace(position).await.must();
    traces.sort_by(|one, next| one.partition.cmp(&next.partition));
    traces
}
