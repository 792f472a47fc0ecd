//! Conformance tests of events that an endpoint never got.

use std::{sync::Arc, time::Duration};

use hapax::{
    Timestamp,
    admin::{EndpointEdit, NewEndpoint, ReplayUnsent, UnsentReplayed, UnsentWindow, replay_unsent},
    delivery::AttemptOutcome,
    endpoint::{EndpointRecord, EndpointStore as _, NextStep},
    event::NewEvent,
    limits::{ENDPOINT_UNSENT_BATCH, ENDPOINTS_PER_TENANT},
    outbox::OutboxEvent,
};

use super::{
    AdminUnderTest,
    checks::{Must, check_invalid, check_missing},
    endpoint_deliveries::{attempt, claimed_now, emit, queue, settle},
    endpoints::{create, endpoint},
    scene::{HOUR, Scene, of},
};

const MINUTE: Duration = Duration::from_mins(1);

/// The events of the tenant from before an endpoint was created are queued once, however often they are
/// asked for and by how many processes, and are delivered in their order.
pub async fn events_from_before_an_endpoint_are_queued_once<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let start = scene.now();
    emit(&scene, "other", 1).await;
    let events = emit(&scene, "acme", 3).await.split_off(1);
    scene.advance(HOUR).await;
    create(&scene, "acme", "ep_1").await;
    // The relay sends what is created from now on.
    emit(&scene, "acme", 1).await;
    scene.advance(HOUR).await;
    let counted = replay(&scene, &dry(&scene, start)).await;
    assert_eq!((counted.missing, counted.queued), (3, 0));
    assert!(claimed_now(&scene).await.is_empty());
    let (ask, beside) = (ask(&scene, start), scene.beside().await);
    let (one, other) = tokio::join!(
        replay_unsent(&*scene.admin, &scene.ops, "acme", "ep_1", &ask),
        replay_unsent(&*beside, &scene.ops, "acme", "ep_1", &ask)
    );
    assert_eq!(one.must().queued + other.must().queued, 3);
    assert_eq!(replay(&scene, &ask).await, UnsentReplayed::default());
    let claimed = claimed_now(&scene).await;
    assert_eq!(claimed.len(), 3);
    for (delivery, event) in claimed.iter().zip(&events) {
        assert_eq!(delivery.event.as_ref().must(), event);
        assert_eq!((delivery.attempt, delivery.counted), (1, 1));
        settle(&scene, "ep_1", event, 1, NextStep::Delivered).await;
    }
    assert_eq!(replay(&scene, &ask).await, UnsentReplayed::default());
    let log = scene.log().await.into_iter();
    let lines = log.filter(|line| line.action == "replay-missing");
    let lines: Vec<_> = lines.collect();
    assert!(!lines.is_empty());
    assert!(lines.iter().all(|line| line.actor == "ops"), "{lines:?}");
}

/// An event that has a delivery or an attempt was sent. One that the endpoint does not take, that is outside
/// of the time or that may be in flight is not queued either.
pub async fn what_was_sent_or_is_not_taken_is_not_queued<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let new = NewEndpoint {
        edit: EndpointEdit {
            types: vec!["order.*".to_owned()],
            filter: Some(r#"{"/n": {"$gte": 10}}"#.to_owned()),
            ..endpoint("ep_1").edit
        },
        ..endpoint("ep_1")
    };
    let created = scene
        .admin
        .create_endpoint(&scene.ops, "acme", &new, ENDPOINTS_PER_TENANT);
    created.await.must();
    let write = async |kind: &str, n: i64| {
        let event = NewEvent::json(kind, &serde_json::json!({ "n": n }));
        scene.write(Some("acme"), vec![event]).await;
        let mut all = scene.fixture.events().await;
        all.pop().expect("the event was written")
    };
    write("order.early", 10).await;
    scene.advance(HOUR).await;
    let start = scene.now();
    let sent = write("order.sent", 10).await;
    let delivered = attempt("ep_1", &sent, 1, start, AttemptOutcome::Delivered);
    let record = EndpointRecord {
        attempts: vec![delivered],
        ..EndpointRecord::default()
    };
    scene.store().record_deliveries(&record).await.must();
    let queued = write("order.queued", 10).await;
    queue(&scene, "ep_1", &queued, 3, NextStep::Failed).await;
    write("refund.created", 10).await;
    write("order.small", 9).await;
    let missed = write("order.missed", 10).await;
    scene.advance(MINUTE * 2).await;
    write("order.now", 10).await;
    // Without an end, events are missing up to the time at which the endpoint was created.
    assert_eq!(
        replay(&scene, &ask(&scene, start)).await,
        UnsentReplayed::default()
    );
    let until = |until: Timestamp| ReplayUnsent {
        until: Some(until),
        ..ask(&scene, start)
    };
    assert_eq!(replay(&scene, &until(start)).await.queued, 0);
    let replayed = replay(&scene, &until(scene.now().after(HOUR))).await;
    assert_eq!((replayed.missing, replayed.queued), (1, 1));
    let claimed = claimed_now(&scene).await;
    let ids: Vec<_> = claimed.iter().map(|it| it.event_id).collect();
    assert_eq!(ids, [missed.event.id]);
}

/// Events are queued in batches. A call that ends because the queue is full continues where it ended, and
/// so does one that begins again.
pub async fn many_unsent_events_are_queued_in_batches<S: AdminUnderTest>() {
    const BATCH: usize = ENDPOINT_UNSENT_BATCH;
    let scene = Scene::<S>::new().await;
    let start = scene.now();
    let events = emit(&scene, "acme", 2 * BATCH + 1).await;
    scene.advance(HOUR).await;
    create(&scene, "acme", "ep_1").await;
    let mut window = UnsentWindow {
        since: start,
        until: scene.now(),
        after: None,
    };
    let (admin, ops) = (&scene.admin, &scene.ops);
    let mut listed = Vec::new();
    loop {
        let page = admin.unsent_events(ops, "acme", "ep_1", &window);
        let page = page.await.must();
        assert!(page.events.len() <= BATCH);
        listed.extend(page.events);
        window.after = page.next;
        if page.next.is_none() {
            break;
        }
    }
    assert_eq!(listed, events);
    let some = ReplayUnsent {
        waiting_max: 3 * u32::try_from(BATCH / 2).must(),
        ..ask(&scene, start)
    };
    let replayed = replay(&scene, &some).await;
    assert!(replayed.is_full, "{replayed:?}");
    assert_eq!(replayed.queued, BATCH as u64);
    let rest = ReplayUnsent {
        after: replayed.next,
        ..ask(&scene, start)
    };
    let counted = dry(&scene, start);
    assert_eq!(replay(&scene, &counted).await.missing, BATCH as u64 + 1);
    let replayed = replay(&scene, &rest).await;
    assert_eq!((replayed.queued, replayed.next), (BATCH as u64 + 1, None));
    assert_eq!(replay(&scene, &counted).await.missing, 0);
    let odd = ReplayUnsent {
        after: Some("x".to_owned()),
        ..ask(&scene, start)
    };
    let refused = replay_unsent(&**admin, ops, "acme", "ep_1", &odd).await;
    check_invalid(&refused, "after");
}

/// Events of one tenant are neither listed nor queued for the endpoint of another one.
pub async fn unsent_events_belong_to_their_tenant<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let start = scene.now();
    let events = emit(&scene, "acme", 1).await;
    scene.advance(HOUR).await;
    create(&scene, "acme", "ep_1").await;
    create(&scene, "other", "ep_2").await;
    let (admin, ops, ask) = (&scene.admin, &scene.ops, ask(&scene, start));
    for (actor, tenant, id) in [
        (ops.clone(), "other", "ep_1"),
        (of("other"), "acme", "ep_1"),
        (ops.clone(), "acme", "ep_2"),
    ] {
        check_missing(&replay_unsent(&**admin, &actor, tenant, id, &ask).await);
    }
    let window = UnsentWindow {
        since: start,
        until: scene.now(),
        after: None,
    };
    let foreign = of("other");
    check_missing(&admin.unsent_events(&foreign, "acme", "ep_1", &window).await);
    check_missing(&admin.queue_unsent(&foreign, "acme", "ep_1", &events).await);
    let own = admin.unsent_events(ops, "other", "ep_2", &window).await;
    assert!(own.must().events.is_empty());
    for (tenant, id) in [("other", "ep_2"), ("acme", "ep_2"), ("other", "ep_1")] {
        let queued = admin.queue_unsent(ops, tenant, id, &events).await;
        assert_eq!(queued.must(), 0, "{tenant} {id}");
    }
    let lost = [Arc::new(OutboxEvent {
        position: events[0].position + 1_000,
        ..(*events[0]).clone()
    })];
    let queued = admin.queue_unsent(ops, "acme", "ep_1", &lost).await;
    assert_eq!(queued.must(), 0);
    assert!(claimed_now(&scene).await.is_empty());
}

fn ask<S: AdminUnderTest>(scene: &Scene<S>, since: Timestamp) -> ReplayUnsent {
    ReplayUnsent {
        since,
        until: None,
        after: None,
        is_dry_run: false,
        waiting_max: 100_000,
        now: scene.now(),
    }
}

fn dry<S: AdminUnderTest>(scene: &Scene<S>, since: Timestamp) -> ReplayUnsent {
    ReplayUnsent {
        is_dry_run: true,
        ..ask(scene, since)
    }
}

async fn replay<S: AdminUnderTest>(scene: &Scene<S>, ask: &ReplayUnsent) -> UnsentReplayed {
    let (admin, ops) = (&*scene.admin, &scene.ops);
    replay_unsent(admin, ops, "acme", "ep_1", ask).await.must()
}
