//! Conformance tests of endpoints that fail: slowed, disabled, probed and enabled again.

use std::time::Duration;

use hapax::{
    Timestamp,
    admin::{
        EndpointAction, EndpointEdit, EndpointFilter, EndpointReplay, EndpointStatus,
        TenantEndpoint,
    },
    delivery::AttemptOutcome,
    endpoint::{
        ClaimedDelivery, EndpointAttempt, EndpointRecord, EndpointRecovery, EndpointState,
        EndpointStore, FailingEndpoint, NextStep,
    },
    event::EventId,
    limits::{ENDPOINT_PAUSE, ENDPOINT_SLOW_FAILURES},
    outbox::OutboxEvent,
};

use super::{
    AdminUnderTest,
    checks::Must,
    endpoint_deliveries::{LEASE, NOW, attempt, claimed_now, emit, queue, settle},
    endpoints::{change, create, read},
    scene::{HOUR, Scene},
};

const DAY: Duration = Duration::from_hours(24);

/// An endpoint whose last attempts have failed gets one delivery at a time, after a pause that grows with
/// each failure, and all of them after a success.
pub async fn a_failing_endpoint_is_slowed_until_a_success<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    create(&scene, "acme", "ep_1").await;
    let events = emit(&scene, "acme", 2).await;
    for event in &events {
        queue(&scene, "ep_1", event, 0, NOW).await;
    }
    for _ in 1..ENDPOINT_SLOW_FAILURES {
        fail(&scene, &events[0], 1).await;
    }
    let endpoint = shown(&scene).await;
    assert_eq!(
        (endpoint.state, endpoint.slowed_until),
        (EndpointStatus::Enabled, None)
    );
    fail(&scene, &events[0], 1).await;
    let endpoint = shown(&scene).await;
    assert_eq!(endpoint.state, EndpointStatus::Slowed);
    let until = scene.now().after(ENDPOINT_PAUSE.0);
    assert_eq!(endpoint.slowed_until, Some(until));
    let reason = endpoint.slowed_reason.unwrap_or_default();
    assert_eq!(reason, "5 attempts in a row have failed: no");
    assert_eq!(scene.store().endpoint_backlog().await.must().slowed, 1);
    assert!(claimed_now(&scene).await.is_empty());
    scene.advance(ENDPOINT_PAUSE.0).await;
    assert_eq!(claimed_now(&scene).await.len(), 1);
    fail(&scene, &events[0], 1).await;
    let until = scene.now().after(ENDPOINT_PAUSE.0 * 2);
    assert_eq!(shown(&scene).await.slowed_until, Some(until));
    fail(&scene, &events[0], 40).await;
    let until = scene.now().after(ENDPOINT_PAUSE.1);
    assert_eq!(shown(&scene).await.slowed_until, Some(until));
    succeed(&scene, &events[0]).await;
    let endpoint = shown(&scene).await;
    assert_eq!(
        (endpoint.state, endpoint.slowed_until),
        (EndpointStatus::Enabled, None)
    );
    assert_eq!(endpoint.slowed_reason, None);
    scene.advance(LEASE).await;
    assert_eq!(claimed_now(&scene).await.len(), 2);
}

/// Failures are counted as spread over time when they are a span apart. A clock that jumps forward makes
/// one span, however far it jumps.
pub async fn failures_are_spread_over_time_if_they_are_a_span_apart<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    create(&scene, "acme", "ep_1").await;
    let event = &emit(&scene, "acme", 1).await[0];
    assert_eq!(fail(&scene, event, 30).await.spans, 1);
    scene.advance(HOUR / 2).await;
    assert_eq!(fail(&scene, event, 1).await.spans, 1);
    scene.advance(DAY * 30).await;
    let jumped = fail(&scene, event, 30).await;
    assert_eq!((jumped.spans, jumped.failures), (2, 61));
    assert_eq!(jumped.failing_for, DAY * 30 + HOUR / 2);
    assert_eq!(fail(&scene, event, 1).await.spans, 2);
    scene.advance(HOUR).await;
    assert_eq!(fail(&scene, event, 1).await.spans, 3);
    succeed(&scene, event).await;
    assert_eq!(fail(&scene, event, 1).await.spans, 1);
}

/// An event that could not be sent is neither a failure of its endpoint nor a success.
pub async fn an_event_that_cannot_be_sent_is_no_failure_of_its_endpoint<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    create(&scene, "acme", "ep_1").await;
    let event = &emit(&scene, "acme", 1).await[0];
    let rejected = |number| {
        let (now, outcome) = (scene.now(), AttemptOutcome::Rejected);
        attempt("ep_1", event, number, now, outcome)
    };
    let many = (1..=4 * ENDPOINT_SLOW_FAILURES).map(rejected);
    assert_eq!(log(&scene, many.collect()).await, None);
    let endpoint = shown(&scene).await;
    assert_eq!(
        (endpoint.state, endpoint.failures),
        (EndpointStatus::Enabled, 0)
    );
    let at = scene.now();
    assert_eq!(fail(&scene, event, 2).await.failures, 2);
    scene.advance(HOUR).await;
    assert_eq!(log(&scene, vec![rejected(40)]).await, None);
    let endpoint = shown(&scene).await;
    assert_eq!((endpoint.failures, endpoint.failing_since), (2, Some(at)));
    // In one record with a failure, the failure alone counts.
    let failed = attempt("ep_1", event, 3, scene.now(), AttemptOutcome::Declined);
    let failing = log(&scene, vec![failed, rejected(41)]).await;
    assert_eq!(failing.map(|it| (it.failures, it.spans)), Some((3, 2)));
}

/// An endpoint that was disabled because it failed is probed with the oldest event that waits, by one
/// relay, each time after a longer wait, until it is enabled. A probe does not count for the schedule.
pub async fn a_disabled_endpoint_is_probed_until_it_is_enabled<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    create(&scene, "acme", "ep_1").await;
    let events = emit(&scene, "acme", 2).await;
    queue(&scene, "ep_1", &events[1], 3, NextStep::Retry(DAY)).await;
    queue(&scene, "ep_1", &events[0], 3, NextStep::Retry(DAY)).await;
    let version = disable(&scene, "ep_1").await;
    assert_eq!(
        shown(&scene).await.next_probe_at,
        Some(scene.now().after(HOUR))
    );
    assert!(probes(&scene).await.is_empty());
    scene.advance(HOUR).await;
    let (one, other) = tokio::join!(probes(&scene), probes(&scene));
    let claimed = [one, other].concat();
    assert_eq!(claimed.len(), 1, "{claimed:?}");
    assert_eq!(claimed[0].event_id, events[0].event.id);
    assert_eq!((claimed[0].attempt, claimed[0].counted), (4, 4));
    let store = scene.store();
    let waits = Some((HOUR, HOUR * 3));
    let postpone = async |version: i64| {
        let next = NextStep::Postpone(Duration::ZERO);
        settle(&scene, "ep_1", &events[0], 4, next).await;
        store.postpone_probe("ep_1", version, waits).await.must();
        let endpoint = shown(&scene).await;
        (endpoint.probes, endpoint.next_probe_at)
    };
    // It was changed since, so the failure is that of another URL or secret.
    assert_eq!(postpone(version - 1).await.0, 0);
    let next = scene.now().after(HOUR * 2);
    assert_eq!(postpone(version).await, (1, Some(next)));
    let next = scene.now().after(HOUR * 3);
    assert_eq!(postpone(version).await, (2, Some(next)));
    scene.advance(HOUR * 3).await;
    let claimed = probes(&scene).await;
    assert_eq!((claimed[0].attempt, claimed[0].counted), (6, 4));
    settle(&scene, "ep_1", &events[0], 6, NextStep::Delivered).await;
    let recover = async |version: i64| {
        let recovered = store.recover_endpoint("ep_1", version, false);
        recovered.await.must()
    };
    assert!(!recover(version - 1).await);
    assert!(recover(version).await);
    assert!(!recover(version).await);
    let endpoint = shown(&scene).await;
    assert_eq!(endpoint.state, EndpointStatus::Enabled);
    assert_eq!((endpoint.failures, endpoint.next_probe_at), (0, None));
    assert!(endpoint.version > version);
    // Waiting deliveries are due at once.
    let claimed = claimed_now(&scene).await;
    assert_eq!(ids(&claimed), [events[1].event.id]);
    assert!(probes(&scene).await.is_empty());
    let log = scene.log().await.into_iter();
    let acts: Vec<_> = log.map(|it| (it.actor, it.action)).collect();
    let expected = [("ops", "create"), ("relay", "disable"), ("relay", "enable")];
    let expected = expected.map(|(actor, action)| (actor.to_owned(), action.to_owned()));
    assert_eq!(acts, expected);
}

/// If nothing waits for an endpoint, it is probed with the delivery that has failed last; without one it is
/// not probed any more.
pub async fn a_probe_needs_a_delivery<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    create(&scene, "acme", "ep_1").await;
    create(&scene, "acme", "ep_2").await;
    let events = emit(&scene, "acme", 2).await;
    queue(&scene, "ep_1", &events[0], 9, NextStep::Failed).await;
    scene.advance(HOUR).await;
    queue(&scene, "ep_1", &events[1], 9, NextStep::Failed).await;
    disable(&scene, "ep_1").await;
    disable(&scene, "ep_2").await;
    scene.advance(HOUR).await;
    let claimed = probes(&scene).await;
    assert_eq!(ids(&claimed), [events[1].event.id]);
    // It has all of its attempts again: it waits, and is sent when the endpoint is enabled.
    assert_eq!((claimed[0].attempt, claimed[0].counted), (10, 1));
    let other = read(&scene, "acme", "ep_2").await.endpoint;
    assert_eq!((other.enabled, other.next_probe_at), (false, None));
    assert!(shown(&scene).await.next_probe_at.is_some());
    // One that responded with 410 to the probe is not probed again.
    let version = shown(&scene).await.version;
    let postponed = scene.store().postpone_probe("ep_1", version, None);
    postponed.await.must();
    assert_eq!(shown(&scene).await.next_probe_at, None);
}

/// An event that a probe could not send does not keep the endpoint from being probed with the next one.
pub async fn a_probe_leaves_out_an_event_that_was_postponed<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    create(&scene, "acme", "ep_1").await;
    let events = emit(&scene, "acme", 2).await;
    for event in &events {
        queue(&scene, "ep_1", event, 3, NextStep::Retry(DAY)).await;
    }
    disable(&scene, "ep_1").await;
    scene.advance(HOUR).await;
    for event in &events {
        let claimed = probes(&scene).await;
        assert_eq!(ids(&claimed), [event.event.id]);
        let postponed = NextStep::Postpone(HOUR);
        settle(&scene, "ep_1", event, claimed[0].attempt, postponed).await;
        scene.advance(LEASE).await;
    }
    // Nothing can be sent, but something waits.
    assert!(probes(&scene).await.is_empty());
    assert!(shown(&scene).await.next_probe_at.is_some());
    scene.advance(HOUR).await;
    assert_eq!(ids(&probes(&scene).await), [events[0].event.id]);
}

/// If the event of a probe cannot be sent, the probe is repeated at once with the next event: with each that
/// waits, and then with each that has failed, once. A change of the endpoint begins again.
pub async fn a_probe_goes_on_with_the_next_event_if_one_cannot_be_sent<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    create(&scene, "acme", "ep_1").await;
    let events = emit(&scene, "acme", 4).await;
    for event in &events[..2] {
        queue(&scene, "ep_1", event, 9, NextStep::Failed).await;
        scene.advance(HOUR).await;
    }
    for event in &events[2..] {
        queue(&scene, "ep_1", event, 3, NextStep::Retry(DAY)).await;
    }
    let version = disable(&scene, "ep_1").await;
    scene.advance(HOUR).await;
    let store = scene.store();
    for place in [2, 3, 1, 0] {
        let event = &events[place];
        let claimed = probes(&scene).await;
        assert_eq!(ids(&claimed), [event.event.id]);
        let number = claimed[0].attempt;
        settle(&scene, "ep_1", event, number, NextStep::Failed).await;
        // At another version the event may have been sent.
        store.repeat_probe("ep_1", version - 1).await.must();
        assert!(probes(&scene).await.is_empty());
        store.repeat_probe("ep_1", version).await.must();
    }
    assert!(probes(&scene).await.is_empty());
    let endpoint = shown(&scene).await;
    assert_eq!((endpoint.probes, endpoint.failures), (0, 0));
    // No probe can send anything, so none is announced.
    assert_eq!(endpoint.next_probe_at, None);
    assert_eq!(listed_probes(&scene).await, [None; 2]);
    scene.advance(LEASE).await;
    assert!(probes(&scene).await.is_empty());
    assert_eq!(shown(&scene).await.next_probe_at, None);
    scene.advance(LEASE).await;
    let stored = read(&scene, "acme", "ep_1").await;
    let edit = EndpointEdit {
        mapping: Some(r#"{"n": "$.data"}"#.to_owned()),
        ..stored.edit()
    };
    change(&scene, &stored.endpoint, EndpointAction::Change, &edit).await;
    assert!(shown(&scene).await.next_probe_at.is_some());
    assert!(listed_probes(&scene).await.iter().all(Option::is_some));
    assert_eq!(probes(&scene).await.len(), 1);
}

/// A probe is announced again if a delivery is replayed, which waits then.
pub async fn a_replay_is_probed_although_nothing_else_could_be_sent<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    create(&scene, "acme", "ep_1").await;
    let event = &emit(&scene, "acme", 1).await[0];
    queue(&scene, "ep_1", event, 3, NextStep::Retry(DAY)).await;
    let version = disable(&scene, "ep_1").await;
    scene.advance(HOUR).await;
    let number = probes(&scene).await[0].attempt;
    settle(&scene, "ep_1", event, number, NextStep::Failed).await;
    let store = scene.store();
    store.repeat_probe("ep_1", version).await.must();
    assert!(probes(&scene).await.is_empty());
    assert_eq!(shown(&scene).await.next_probe_at, None);
    let all = EndpointReplay::FailedSince(scene.now());
    let replayed = scene
        .admin
        .replay_endpoint(&scene.ops, "acme", "ep_1", &all);
    assert_eq!(replayed.await.must(), 1);
    assert!(shown(&scene).await.next_probe_at.is_some());
    scene.advance(LEASE).await;
    assert_eq!(ids(&probes(&scene).await), [event.event.id]);
}

/// An endpoint that a person disables is not probed, and neither a probe in flight nor a late one enables
/// it. Another URL is probed at once.
pub async fn a_person_decides_about_probes<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    create(&scene, "acme", "ep_1").await;
    let event = &emit(&scene, "acme", 1).await[0];
    queue(&scene, "ep_1", event, 1, NextStep::Retry(DAY)).await;
    disable(&scene, "ep_1").await;
    let stored = read(&scene, "acme", "ep_1").await;
    let edit = EndpointEdit {
        url: "https://other.example/".to_owned(),
        ..stored.edit()
    };
    let changed = change(&scene, &stored.endpoint, EndpointAction::Change, &edit).await;
    assert_eq!(changed.next_probe_at, Some(scene.now()));
    assert_eq!(probes(&scene).await.len(), 1);
    let by_hand = EndpointEdit {
        disabled_reason: Some("asked to".to_owned()),
        ..edit
    };
    let disabled = change(&scene, &changed, EndpointAction::Disable, &by_hand).await;
    assert_eq!(disabled.next_probe_at, None);
    let store = scene.store();
    for version in [changed.version, disabled.version] {
        let recovered = store.recover_endpoint("ep_1", version, false);
        assert!(!recovered.await.must());
    }
    let moved = EndpointEdit {
        url: "https://third.example/".to_owned(),
        ..by_hand
    };
    let moved = change(&scene, &disabled, EndpointAction::Change, &moved).await;
    assert_eq!(moved.next_probe_at, None);
    scene.advance(DAY).await;
    assert!(probes(&scene).await.is_empty());
}

/// An endpoint that catches up gets what has waited in the order of the events, one at a time and each at
/// once, until nothing waits.
pub async fn an_endpoint_catches_up_in_the_order_of_the_events<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    create(&scene, "acme", "ep_1").await;
    let events = emit(&scene, "acme", 3).await;
    for place in [2, 0, 1] {
        queue(&scene, "ep_1", &events[place], 1, NextStep::Retry(DAY)).await;
    }
    let version = disable(&scene, "ep_1").await;
    scene.advance(HOUR).await;
    let store = scene.store();
    let recovered = store.recover_endpoint("ep_1", version, true);
    assert!(recovered.await.must());
    assert!(is_catching_up(&scene, version).await);
    let (one, other) = tokio::join!(claimed_now(&scene), claimed_now(&scene));
    let claimed = [one, other].concat();
    assert_eq!(ids(&claimed), [events[0].event.id]);
    assert!(claimed_now(&scene).await.is_empty());
    // The others wait for one that has failed.
    settle(&scene, "ep_1", &events[0], 2, NextStep::Retry(HOUR)).await;
    assert!(claimed_now(&scene).await.is_empty());
    scene.advance(HOUR).await;
    for (place, number) in [(0, 3), (1, 2), (2, 2)] {
        let claimed = claimed_now(&scene).await;
        assert_eq!(ids(&claimed), [events[place].event.id]);
        assert!(!store.end_catch_up("ep_1").await.must());
        settle(&scene, "ep_1", &events[place], number, NextStep::Delivered).await;
    }
    let before = shown(&scene).await.version;
    assert!(store.end_catch_up("ep_1").await.must());
    assert!(!store.end_catch_up("ep_1").await.must());
    assert!(!is_catching_up(&scene, before).await);
}

/// Records failed attempts at `ep_1`, and returns the endpoint.
async fn fail<S: AdminUnderTest>(
    scene: &Scene<S>,
    event: &OutboxEvent,
    count: u32,
) -> FailingEndpoint {
    let (now, outcome) = (scene.now(), AttemptOutcome::Unavailable);
    let failed = (0..count).map(|number| attempt("ep_1", event, number + 1, now, outcome));
    let failing = log(scene, failed.collect()).await;
    failing.expect("the endpoint fails")
}

/// Records an attempt at `ep_1` that succeeded.
async fn succeed<S: AdminUnderTest>(scene: &Scene<S>, event: &OutboxEvent) {
    let (now, outcome) = (scene.now(), AttemptOutcome::Delivered);
    let failing = log(scene, vec![attempt("ep_1", event, 1, now, outcome)]).await;
    assert_eq!(failing, None);
}

async fn log<S: AdminUnderTest>(
    scene: &Scene<S>,
    attempts: Vec<EndpointAttempt>,
) -> Option<FailingEndpoint> {
    let record = EndpointRecord {
        attempts,
        failing_span: HOUR,
        ..EndpointRecord::default()
    };
    let recorded = scene.store().record_deliveries(&record).await.must();
    recorded.failing.into_iter().next()
}

/// Disables an endpoint as a relay does, to be probed after an hour. Returns its version.
async fn disable<S: AdminUnderTest>(scene: &Scene<S>, id: &str) -> i64 {
    let version = read(scene, "acme", id).await.endpoint.version;
    let store = scene.store();
    let disabled = store.disable_endpoint(id, version, "it failed", Some(HOUR));
    assert!(disabled.await.must());
    read(scene, "acme", id).await.endpoint.version
}

async fn probes<S: AdminUnderTest>(scene: &Scene<S>) -> Vec<ClaimedDelivery> {
    scene.store().claim_probes(10, LEASE).await.must()
}

/// The next probe of `ep_1` in the list of endpoints and in the list with their health.
async fn listed_probes<S: AdminUnderTest>(scene: &Scene<S>) -> [Option<Timestamp>; 2] {
    let (admin, ops, filter) = (&scene.admin, &scene.ops, EndpointFilter::default());
    let list = admin.endpoints(ops, &filter, None, 10).await.must();
    let statuses = admin.endpoint_statuses(ops, &filter, scene.now(), None, 10);
    let statuses = statuses.await.must();
    [list.items[0].next_probe_at, statuses.items[0].next_probe_at]
}

async fn shown<S: AdminUnderTest>(scene: &Scene<S>) -> TenantEndpoint {
    read(scene, "acme", "ep_1").await.endpoint
}

/// Whether the endpoint catches up by its change after a version.
async fn is_catching_up<S: AdminUnderTest>(scene: &Scene<S>, after: i64) -> bool {
    let changes = scene.store().endpoint_changes(after, 10).await.must();
    match &changes[..] {
        [change] => match &change.state {
            EndpointState::Present(endpoint) => endpoint.is_catching_up,
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

fn ids(claimed: &[ClaimedDelivery]) -> Vec<EventId> {
    claimed.iter().map(|it| it.event_id).collect()
}
