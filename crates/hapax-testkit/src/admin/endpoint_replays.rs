//! Conformance tests of deliveries to endpoints that are sent again.

use hapax::{
    Timestamp,
    admin::{EndpointReplay, ReplayEnded},
    delivery::AttemptOutcome,
    endpoint::{ClaimedDelivery, EndpointRecord, EndpointStore as _, NextStep},
    outbox::OutboxEvent,
};

use super::{
    AdminUnderTest,
    checks::{Must, check_missing},
    endpoint_deliveries::{NOW, attempt, attempts, claimed_now, emit, queue, settle},
    endpoints::create,
    scene::{HOUR, Scene},
};

/// A failed delivery is replayed as if it had not been tried, and so is one that was delivered at
/// once, while the outbox has its event.
pub async fn deliveries_are_replayed<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    create(&scene, "acme", "ep_1").await;
    create(&scene, "acme", "ep_2").await;
    let events = emit(&scene, "acme", 3).await;
    let start = scene.now();
    queue(&scene, "ep_1", &events[0], 10, NextStep::Failed).await;
    queue(&scene, "ep_2", &events[0], 10, NextStep::Failed).await;
    scene.advance(HOUR).await;
    queue(&scene, "ep_1", &events[1], 10, NextStep::Failed).await;
    let replay = async |replay: EndpointReplay| {
        let (admin, ops) = (&scene.admin, &scene.ops);
        admin.replay_endpoint(ops, "acme", "ep_1", &replay).await
    };
    let since = EndpointReplay::FailedSince(scene.now());
    assert_eq!(replay(since).await.must(), 1);
    let claimed = claimed_now(&scene).await;
    assert_eq!(claimed.len(), 1);
    assert_eq!(claimed[0].event_id, events[1].event.id);
    assert_eq!((claimed[0].attempt, claimed[0].counted), (12, 1));
    let all = EndpointReplay::FailedSince(start);
    assert_eq!(replay(all).await.must(), 1);
    assert_eq!(replay(all).await.must(), 0);
    assert_eq!(claimed_now(&scene).await[0].event_id, events[0].event.id);
    // The third one was delivered at once, so it has no row.
    let third = EndpointReplay::Event(events[2].event.id);
    check_missing(&replay(third).await);
    let delivered = attempt("ep_1", &events[2], 1, start, AttemptOutcome::Delivered);
    let record = EndpointRecord {
        attempts: vec![delivered],
        ..EndpointRecord::default()
    };
    scene.store().record_deliveries(&record).await.must();
    assert_eq!(replay(third).await.must(), 1);
    let claimed = claimed_now(&scene).await;
    assert_eq!(claimed[0].event.as_ref().must(), &events[2]);
    assert_eq!((claimed[0].attempt, claimed[0].counted), (3, 1));
    settle(&scene, "ep_1", &events[2], 3, NextStep::Delivered).await;
    assert_eq!(replay(third).await.must(), 1);
    assert_eq!(claimed_now(&scene).await.len(), 1);
}

/// A replay is not undone by the settlement of an attempt that began before it: while the last attempt is
/// in flight, after that has failed and its result was lost, and while an event that was delivered at once
/// is offered a second time.
pub async fn a_late_settlement_does_not_undo_a_replay<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    create(&scene, "acme", "ep_1").await;
    let events = emit(&scene, "acme", 3).await;
    let start = scene.now();
    let replay = async |replay: EndpointReplay| {
        let (admin, ops) = (&scene.admin, &scene.ops);
        admin.replay_endpoint(ops, "acme", "ep_1", &replay).await
    };
    queue(&scene, "ep_1", &events[0], 9, NOW).await;
    assert_eq!(claimed_now(&scene).await[0].attempt, 10);
    let first = EndpointReplay::Event(events[0].event.id);
    assert_eq!(replay(first).await.must(), 1);
    settle(&scene, "ep_1", &events[0], 10, NextStep::Failed).await;
    check_replayed(&scene, &events[0], 10).await;
    queue(&scene, "ep_1", &events[1], 10, NextStep::Failed).await;
    let failed = EndpointReplay::FailedSince(start);
    assert_eq!(replay(failed).await.must(), 1);
    settle(&scene, "ep_1", &events[1], 10, NextStep::Retry(HOUR)).await;
    check_replayed(&scene, &events[1], 10).await;
    let delivered = attempt("ep_1", &events[2], 1, start, AttemptOutcome::Delivered);
    let record = EndpointRecord {
        attempts: vec![delivered],
        ..EndpointRecord::default()
    };
    scene.store().record_deliveries(&record).await.must();
    let third = EndpointReplay::Event(events[2].event.id);
    assert_eq!(replay(third).await.must(), 1);
    settle(&scene, "ep_1", &events[2], 1, NextStep::Delivered).await;
    check_replayed(&scene, &events[2], 1).await;
}

/// Deliveries that have failed in a time are replayed: those that were dropped, those whose attempts have
/// failed, or both.
pub async fn deliveries_that_failed_in_a_time_are_replayed<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    create(&scene, "acme", "ep_1").await;
    let events = emit(&scene, "acme", 4).await;
    let start = scene.now();
    let ended = async |since: Timestamp, until: Option<Timestamp>, dropped: Option<bool>| {
        let (admin, ops) = (&scene.admin, &scene.ops);
        let replay = EndpointReplay::Ended(ReplayEnded {
            since,
            until,
            dropped,
        });
        let replayed = admin.replay_endpoint(ops, "acme", "ep_1", &replay);
        let count = replayed.await.must();
        let claimed = claimed_now(&scene).await;
        assert_eq!(claimed.len() as u64, count);
        let event = |it: &ClaimedDelivery| it.event.as_ref().must().position;
        let mut positions: Vec<_> = claimed.iter().map(event).collect();
        positions.sort_unstable();
        positions
    };
    queue(&scene, "ep_1", &events[0], 9, NextStep::Failed).await;
    queue(&scene, "ep_1", &events[1], 9, NextStep::Retry(HOUR * 9)).await;
    assert_eq!(scene.store().drop_deliveries(0).await.must(), 1);
    scene.advance(HOUR).await;
    let later = scene.now();
    queue(&scene, "ep_1", &events[2], 9, NextStep::Failed).await;
    queue(&scene, "ep_1", &events[3], 9, NextStep::Retry(HOUR * 9)).await;
    assert_eq!(scene.store().drop_deliveries(0).await.must(), 1);
    let at = |place: usize| events[place].position;
    assert!(ended(start, Some(start), None).await.is_empty());
    assert_eq!(ended(start, Some(later), Some(true)).await, [at(1)]);
    assert_eq!(ended(start, None, Some(false)).await, [at(0), at(2)]);
    assert_eq!(ended(later, None, None).await, [at(3)]);
    assert!(ended(start, None, None).await.is_empty());
}

/// Requires that a delivery is due and counted from the beginning, and that the log takes both the
/// attempt before the replay and the one after it.
async fn check_replayed<S: AdminUnderTest>(scene: &Scene<S>, event: &OutboxEvent, before: u32) {
    let claimed = claimed_now(scene).await;
    assert_eq!(claimed.len(), 1, "{claimed:?}");
    assert_eq!(
        (claimed[0].event_id, claimed[0].counted),
        (event.event.id, 1)
    );
    let number = claimed[0].attempt;
    let at = scene.now();
    let record = EndpointRecord {
        attempts: vec![
            attempt("ep_1", event, before, at, AttemptOutcome::Unavailable),
            attempt("ep_1", event, number, at, AttemptOutcome::Delivered),
        ],
        ..EndpointRecord::default()
    };
    scene.store().record_deliveries(&record).await.must();
    settle(scene, "ep_1", event, number, NextStep::Delivered).await;
    let logged = attempts(scene, "ep_1", |it| it.event_id = Some(event.event.id)).await;
    let numbers: Vec<_> = logged.iter().map(|it| it.attempt).collect();
    assert!(
        numbers.contains(&before) && numbers.contains(&number),
        "{numbers:?}"
    );
    assert!(
        logged.iter().all(|it| it.state == "delivered"),
        "{logged:?}"
    );
}
