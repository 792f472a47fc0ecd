//! Conformance tests of the queue of endpoints and of the log of their attempts.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use hapax::{
    Timestamp,
    admin::{
        EndpointAction, EndpointDelivery, EndpointDeliveryFilter, EndpointEdit, EndpointReplay,
    },
    delivery::AttemptOutcome,
    endpoint::{
        ClaimedDelivery, DeliveryClaim, EndpointAttempt, EndpointRecord, EndpointStore, NextStep,
        QueuedDelivery, RequestExcerpt, SettledDelivery, TOO_MANY_WAIT,
    },
    event::NewEvent,
    outbox::OutboxEvent,
};

use super::{
    AdminUnderTest,
    checks::{Must, pages},
    endpoints::{change, create, read},
    scene::{HOUR, Scene},
};

pub(super) const LEASE: Duration = Duration::from_secs(30);
pub(super) const NOW: NextStep = NextStep::Retry(Duration::ZERO);

/// A queued delivery is claimed by one caller, with its event, and again when the lease is over.
pub async fn a_delivery_is_claimed_once_and_again_after_its_lease<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    create(&scene, "acme", "ep_1").await;
    let events = emit(&scene, "acme", 3).await;
    for event in &events {
        queue(&scene, "ep_1", event, 0, NOW).await;
        // A second time changes nothing.
        queue(&scene, "ep_1", event, 7, NextStep::Failed).await;
    }
    let store = scene.store();
    let (one, other) = (claim(), claim());
    let (one, other) = tokio::join!(store.claim_deliveries(&one), store.claim_deliveries(&other));
    let mut claimed = one.must().deliveries;
    claimed.extend(other.must().deliveries);
    assert_eq!(claimed.len(), 3, "{claimed:?}");
    for delivery in &claimed {
        assert_eq!((delivery.attempt, delivery.counted), (1, 1));
        let event = delivery.event.as_ref().must();
        assert!(events.iter().any(|it| it == event), "{event:?}");
    }
    assert!(claimed_now(&scene).await.is_empty());
    scene.advance(LEASE).await;
    let again = claimed_now(&scene).await;
    assert_eq!(again.len(), 3);
    assert!(again.iter().all(|it| it.attempt == 2));
}

/// Only the settlement of the current attempt has an effect, and an ended delivery has no other.
pub async fn a_settlement_of_an_earlier_attempt_changes_nothing<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    create(&scene, "acme", "ep_1").await;
    let event = &emit(&scene, "acme", 1).await[0];
    queue(&scene, "ep_1", event, 0, NOW).await;
    claimed_now(&scene).await;
    scene.advance(LEASE).await;
    assert_eq!(claimed_now(&scene).await[0].attempt, 2);
    settle(&scene, "ep_1", event, 1, NextStep::Delivered).await;
    scene.advance(LEASE).await;
    assert_eq!(claimed_now(&scene).await[0].attempt, 3);
    settle(&scene, "ep_1", event, 3, NextStep::Retry(HOUR)).await;
    scene.advance(HOUR / 2).await;
    assert!(claimed_now(&scene).await.is_empty());
    scene.advance(HOUR / 2).await;
    assert_eq!(claimed_now(&scene).await[0].attempt, 4);
    settle(&scene, "ep_1", event, 4, NextStep::Delivered).await;
    settle(&scene, "ep_1", event, 4, NOW).await;
    scene.advance(HOUR).await;
    assert!(claimed_now(&scene).await.is_empty());
}

/// An event is queued for endpoints of its tenant only, and only if it is in the outbox.
pub async fn an_event_is_queued_for_endpoints_of_its_tenant<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    create(&scene, "acme", "ep_1").await;
    create(&scene, "other", "ep_2").await;
    let own = &emit(&scene, "acme", 1).await[0];
    let lost = OutboxEvent {
        position: own.position + 1_000,
        ..(**own).clone()
    };
    let record = EndpointRecord {
        queue: vec![
            queued("ep_1", own, 0, NOW),
            queued("ep_2", own, 0, NOW),
            queued("ep_none", own, 0, NOW),
            queued("ep_1", &lost, 0, NOW),
        ],
        ..EndpointRecord::default()
    };
    let recorded = scene.store().record_deliveries(&record).await.must();
    assert_eq!(recorded.missing, [lost.position]);
    let claimed = claimed_now(&scene).await;
    let endpoints: Vec<_> = claimed.iter().map(|it| it.endpoint.as_str()).collect();
    assert_eq!(endpoints, ["ep_1"]);
    scene.advance(LEASE).await;
    let deleted = scene.admin.delete_endpoint(&scene.ops, "acme", "ep_1");
    deleted.await.must();
    assert!(claimed_now(&scene).await.is_empty());
    queue(&scene, "ep_1", own, 0, NOW).await;
    assert!(claimed_now(&scene).await.is_empty());
}

/// A delivery to a disabled endpoint is not claimed until the endpoint is enabled.
pub async fn a_disabled_endpoint_gets_nothing_until_it_is_enabled<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let failed = create(&scene, "acme", "ep_1").await.version;
    let event = &emit(&scene, "acme", 1).await[0];
    queue(&scene, "ep_1", event, 0, NOW).await;
    let store = scene.store();
    let disable = async |id: &str, version: i64, reason: &str| {
        let disabled = store.disable_endpoint(id, version, reason, None);
        disabled.await.must()
    };
    // It was changed since, so the failure is that of another URL or secret.
    assert!(!disable("ep_1", failed - 1, "before").await);
    assert!(disable("ep_1", failed, "it failed").await);
    assert!(!disable("ep_1", failed, "again").await);
    assert!(!disable("ep_1", failed + 1, "again").await);
    assert!(!disable("ep_none", failed, "again").await);
    assert!(claimed_now(&scene).await.is_empty());
    let disabled = read(&scene, "acme", "ep_1").await;
    assert_eq!(
        disabled.endpoint.disabled_reason.as_deref(),
        Some("it failed")
    );
    let backlog = store.endpoint_backlog().await.must();
    assert_eq!((backlog.waiting, backlog.overdue), (1, Duration::ZERO));
    assert_eq!((backlog.endpoints, backlog.disabled), (1, 1));
    let mut edit = disabled.edit();
    edit.disabled_reason = None;
    let enabled = change(&scene, &disabled.endpoint, EndpointAction::Enable, &edit).await;
    assert!(enabled.enabled && enabled.disabled_at.is_none());
    scene.advance(HOUR).await;
    assert_eq!(store.endpoint_backlog().await.must().overdue, HOUR);
    assert_eq!(claimed_now(&scene).await.len(), 1);
    let log = scene.log().await;
    let line = log.iter().find(|it| it.action == "disable");
    let line = line.expect("the relay has a line in the audit log");
    assert_eq!(
        (line.actor.as_str(), line.tenant.as_deref()),
        ("relay", Some("acme"))
    );
}

/// A claim takes some deliveries of each endpoint, leaves busy ones out, and goes on where the last
/// one ended.
pub async fn a_claim_is_shared_among_the_endpoints<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    for id in ["ep_1", "ep_2", "ep_3", "ep_4"] {
        create(&scene, "acme", id).await;
    }
    let events = emit(&scene, "acme", 5).await;
    for id in ["ep_1", "ep_2", "ep_3", "ep_4"] {
        for event in &events {
            queue(&scene, id, event, 0, NOW).await;
        }
    }
    let first = DeliveryClaim {
        each: 2,
        single: vec!["ep_2".to_owned()],
        busy: vec!["ep_3".to_owned()],
        ..claim()
    };
    let claimed = scene.store().claim_deliveries(&first).await.must();
    assert_eq!(claimed.until, None);
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for delivery in claimed.deliveries {
        *counts.entry(delivery.endpoint).or_default() += 1;
    }
    let expected = [("ep_1", 2), ("ep_2", 1), ("ep_4", 2)];
    let expected = expected.map(|(id, count)| (id.to_owned(), count));
    assert_eq!(counts, BTreeMap::from(expected));
    let rest = DeliveryClaim {
        after: "ep_2".to_owned(),
        limit: 4,
        ..claim()
    };
    let claimed = scene.store().claim_deliveries(&rest).await.must();
    assert_eq!(claimed.deliveries.len(), 4);
    assert!(
        claimed
            .deliveries
            .iter()
            .all(|it| it.endpoint.as_str() > "ep_2")
    );
}

/// Consecutive failures are counted from the first one on, and a success ends them.
pub async fn failures_are_counted_until_a_success<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    create(&scene, "acme", "ep_1").await;
    create(&scene, "acme", "ep_2").await;
    let events = emit(&scene, "acme", 2).await;
    let (bad, good) = (AttemptOutcome::Unavailable, AttemptOutcome::Delivered);
    let log = async |attempts: Vec<EndpointAttempt>| {
        let record = EndpointRecord {
            attempts,
            ..EndpointRecord::default()
        };
        scene
            .store()
            .record_deliveries(&record)
            .await
            .must()
            .failing
    };
    let at = scene.now();
    let failing = log(vec![
        attempt("ep_1", &events[0], 1, at, bad),
        attempt("ep_1", &events[1], 1, at, bad),
        attempt("ep_2", &events[0], 1, at, good),
    ]);
    let failing = failing.await;
    assert_eq!(failing.len(), 1);
    assert_eq!((failing[0].id.as_str(), failing[0].failures), ("ep_1", 2));
    scene.advance(HOUR).await;
    let failing = log(vec![attempt("ep_1", &events[0], 2, scene.now(), bad)]).await;
    assert_eq!((failing[0].failures, failing[0].failing_for), (3, HOUR));
    let endpoint = read(&scene, "acme", "ep_1").await.endpoint;
    assert_eq!((endpoint.failures, endpoint.failing_since), (3, Some(at)));
    assert_eq!(failing[0].version, endpoint.version);
    let now = scene.now();
    let failing = log(vec![
        attempt("ep_1", &events[0], 3, now, good),
        attempt("ep_1", &events[1], 2, now, bad),
    ]);
    let failing = failing.await;
    assert_eq!(
        (failing[0].failures, failing[0].failing_for),
        (1, Duration::ZERO)
    );
    assert!(
        log(vec![attempt("ep_1", &events[1], 3, now, good)])
            .await
            .is_empty()
    );
    let endpoint = read(&scene, "acme", "ep_1").await.endpoint;
    assert_eq!((endpoint.failures, endpoint.failing_since), (0, None));
}

/// The failures at a URL do not count for another one.
pub async fn failures_are_counted_for_each_url<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let endpoint = create(&scene, "acme", "ep_1").await;
    let event = &emit(&scene, "acme", 1).await[0];
    let failed = attempt("ep_1", event, 1, scene.now(), AttemptOutcome::Unavailable);
    let record = EndpointRecord {
        attempts: vec![failed],
        ..EndpointRecord::default()
    };
    scene.store().record_deliveries(&record).await.must();
    let edit = EndpointEdit {
        description: "the same".to_owned(),
        ..read(&scene, "acme", "ep_1").await.edit()
    };
    let changed = change(&scene, &endpoint, EndpointAction::Change, &edit).await;
    assert_eq!(changed.failures, 1);
    let edit = EndpointEdit {
        url: "https://other.example/".to_owned(),
        ..edit
    };
    let changed = change(&scene, &changed, EndpointAction::Change, &edit).await;
    assert_eq!((changed.failures, changed.failing_since), (0, None));
}

/// If too many deliveries wait for an endpoint, the oldest ones have failed with a reason, which is
/// listed, and can be replayed.
pub async fn the_oldest_of_too_many_deliveries_have_failed<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    create(&scene, "acme", "ep_1").await;
    create(&scene, "acme", "ep_2").await;
    let events = emit(&scene, "acme", 5).await;
    for (place, event) in events.iter().enumerate() {
        queue(&scene, "ep_1", event, 0, NextStep::Retry(HOUR)).await;
        if place < 3 {
            queue(&scene, "ep_2", event, 0, NextStep::Retry(HOUR)).await;
        }
    }
    let store = scene.store();
    assert_eq!(store.drop_deliveries(5).await.must(), 0);
    let (one, other) = tokio::join!(store.drop_deliveries(3), store.drop_deliveries(3));
    assert_eq!(one.must() + other.must(), 2);
    assert_eq!(store.drop_deliveries(3).await.must(), 0);
    let dropped = attempts(&scene, "ep_1", |_| {}).await;
    let ids: BTreeSet<_> = dropped.iter().map(|it| it.event_id.clone()).collect();
    let oldest = events[..2].iter().map(|it| it.event.id.to_string());
    assert_eq!(ids, oldest.collect::<BTreeSet<_>>());
    for delivery in &dropped {
        assert_eq!(delivery.state, "failed");
        assert_eq!(delivery.outcome, AttemptOutcome::Dropped);
        assert_eq!(delivery.error.as_deref(), Some(TOO_MANY_WAIT));
    }
    assert!(attempts(&scene, "ep_2", |_| {}).await.is_empty());
    let (admin, ops, now) = (&scene.admin, &scene.ops, scene.now());
    let health = admin.endpoint_health(ops, "acme", "ep_1", now).await.must();
    assert_eq!((health.waiting, health.failed, health.attempts), (3, 2, 0));
    let all = EndpointReplay::FailedSince(now);
    let replayed = admin.replay_endpoint(ops, "acme", "ep_1", &all);
    assert_eq!(replayed.await.must(), 2);
    let claimed = claimed_now(&scene).await;
    let again: BTreeSet<_> = claimed.iter().map(|it| it.event_id.to_string()).collect();
    assert_eq!(again, ids);
    assert!(claimed.iter().all(|it| it.counted == 1));
}

/// The attempts at an endpoint are listed with request and response, each once, by every field of the
/// filter.
pub async fn attempts_are_listed_with_request_and_response<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    create(&scene, "acme", "ep_1").await;
    create(&scene, "acme", "ep_2").await;
    let events = emit(&scene, "acme", 2).await;
    let (bad, good) = (AttemptOutcome::Declined, AttemptOutcome::Delivered);
    let early = scene.now();
    scene.advance(HOUR).await;
    let late = scene.now();
    queue(&scene, "ep_1", &events[0], 1, NextStep::Retry(HOUR)).await;
    let record = EndpointRecord {
        attempts: vec![
            attempt("ep_1", &events[0], 1, early, bad),
            attempt("ep_1", &events[1], 1, late, good),
            attempt("ep_2", &events[1], 1, late, good),
        ],
        ..EndpointRecord::default()
    };
    for _ in 0..2 {
        scene.store().record_deliveries(&record).await.must();
    }
    let all = attempts(&scene, "ep_1", |_| {}).await;
    let shown: Vec<_> = all
        .iter()
        .map(|it| (it.started_at, it.state.as_str()))
        .collect();
    assert_eq!(shown, [(late, "delivered"), (early, "waiting")]);
    let failed = &all[1];
    assert_eq!(failed.event_id, events[0].event.id.to_string());
    assert_eq!(
        (failed.outcome, failed.status, failed.attempt),
        (bad, Some(422), 1)
    );
    assert_eq!(failed.error.as_deref(), Some("no"));
    assert_eq!(failed.request_headers["webhook-id"], "a");
    assert_eq!(failed.request_body.as_deref(), Some("{\"n\":1}"));
    assert_eq!(failed.response.as_deref(), Some("no such field"));
    assert_eq!(failed.next_at, Some(late.after(HOUR)));
    let one = attempts(&scene, "ep_1", |it| it.failed = Some(true)).await;
    assert_eq!(one[..], all[1..]);
    let one = attempts(&scene, "ep_1", |it| it.failed = Some(false)).await;
    assert_eq!(one[..], all[..1]);
    let one = attempts(&scene, "ep_1", |it| it.event_id = Some(events[0].event.id)).await;
    assert_eq!(one[..], all[1..]);
    let one = attempts(&scene, "ep_1", |it| it.since = Some(late)).await;
    assert_eq!(one[..], all[..1]);
}

/// The health of an endpoint is computed from its attempts since a time, and from what waits.
pub async fn the_health_of_an_endpoint_is_that_of_its_attempts<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    create(&scene, "acme", "ep_1").await;
    let event = &emit(&scene, "acme", 1).await[0];
    let since = scene.now();
    let health = async || {
        let health = scene
            .admin
            .endpoint_health(&scene.ops, "acme", "ep_1", since);
        health.await.must()
    };
    let none = health().await;
    assert_eq!(
        (none.attempts, none.success_rate, none.p95_ms),
        (0, None, None)
    );
    let tried = (1..=40).map(|number: u32| EndpointAttempt {
        duration: Duration::from_millis(u64::from(number)),
        ..attempt("ep_1", event, number, since, outcome_of(number))
    });
    // Nothing was sent, which says nothing about the endpoint.
    let rejected = attempt("ep_1", event, 41, since, AttemptOutcome::Rejected);
    let record = EndpointRecord {
        attempts: tried.chain([rejected]).collect(),
        ..EndpointRecord::default()
    };
    scene.store().record_deliveries(&record).await.must();
    queue(&scene, "ep_1", event, 1, NextStep::Retry(HOUR)).await;
    let now = health().await;
    assert_eq!((now.attempts, now.delivered), (40, 30));
    assert_eq!((now.success_rate, now.p95_ms), (Some(0.75), Some(38)));
    assert_eq!((now.waiting, now.failed), (1, 0));
    assert_eq!(now.waiting_since, Some(since));
}

/// Attempts and ended deliveries are purged after the retention, and what waits for a disabled
/// endpoint.
pub async fn old_attempts_and_deliveries_are_purged<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    create(&scene, "acme", "ep_1").await;
    let failed = create(&scene, "acme", "ep_2").await.version;
    let events = emit(&scene, "acme", 3).await;
    queue(&scene, "ep_1", &events[0], 1, NextStep::Failed).await;
    queue(&scene, "ep_1", &events[1], 1, NOW).await;
    queue(&scene, "ep_2", &events[2], 1, NOW).await;
    let delivered = |event, at| attempt("ep_1", event, 1, at, AttemptOutcome::Delivered);
    let mut record = EndpointRecord::default();
    record.attempts.push(delivered(&events[0], scene.now()));
    scene.store().record_deliveries(&record).await.must();
    let store = scene.store();
    let disabled = store.disable_endpoint("ep_2", failed, "it failed", None);
    assert!(disabled.await.must());
    assert_eq!(store.purge_endpoints(HOUR).await.must(), 0);
    scene.advance(HOUR + HOUR).await;
    // The attempt, the failed delivery, and the one that waits for the disabled endpoint.
    assert_eq!(store.purge_endpoints(HOUR).await.must(), 3);
    assert!(attempts(&scene, "ep_1", |_| {}).await.is_empty());
    assert_eq!(claimed_now(&scene).await.len(), 1);
    // A clock that was wrong has left an attempt of the future.
    let (far, near) = (scene.now().after(HOUR + HOUR), scene.now().after(HOUR / 2));
    record.attempts = [far, near].map(|at| delivered(&events[1], at)).into();
    store.record_deliveries(&record).await.must();
    assert_eq!(store.purge_endpoints(HOUR).await.must(), 1);
    assert_eq!(attempts(&scene, "ep_1", |_| {}).await[0].started_at, near);
}

fn outcome_of(number: u32) -> AttemptOutcome {
    if number.is_multiple_of(4) {
        AttemptOutcome::Unavailable
    } else {
        AttemptOutcome::Delivered
    }
}

/// Emits events of a tenant, and returns all events of the outbox.
pub(super) async fn emit<S: AdminUnderTest>(
    scene: &Scene<S>,
    tenant: &str,
    count: usize,
) -> Vec<Arc<OutboxEvent>> {
    let events = (0..count).map(|number| NewEvent::json("order.created", &number));
    scene.write(Some(tenant), events.collect()).await;
    scene.fixture.events().await
}

fn queued(endpoint: &str, event: &OutboxEvent, attempt: u32, next: NextStep) -> QueuedDelivery {
    QueuedDelivery {
        endpoint: endpoint.to_owned(),
        position: event.position,
        event_id: event.event.id,
        attempt,
        next,
        error: None,
    }
}

pub(super) async fn queue<S: AdminUnderTest>(
    scene: &Scene<S>,
    endpoint: &str,
    event: &OutboxEvent,
    attempt: u32,
    next: NextStep,
) {
    let record = EndpointRecord {
        queue: vec![queued(endpoint, event, attempt, next)],
        ..EndpointRecord::default()
    };
    let recorded = scene.store().record_deliveries(&record).await.must();
    assert!(recorded.missing.is_empty());
}

pub(super) async fn settle<S: AdminUnderTest>(
    scene: &Scene<S>,
    endpoint: &str,
    event: &OutboxEvent,
    attempt: u32,
    next: NextStep,
) {
    let settled = SettledDelivery {
        endpoint: endpoint.to_owned(),
        event_id: event.event.id,
        attempt,
        next,
        error: Some("no".to_owned()),
    };
    let record = EndpointRecord {
        settle: vec![settled],
        ..EndpointRecord::default()
    };
    scene.store().record_deliveries(&record).await.must();
}

fn claim() -> DeliveryClaim {
    DeliveryClaim {
        after: String::new(),
        limit: 100,
        each: 100,
        single: Vec::new(),
        busy: Vec::new(),
        lease: LEASE,
    }
}

pub(super) async fn claimed_now<S: AdminUnderTest>(scene: &Scene<S>) -> Vec<ClaimedDelivery> {
    let claimed = scene.store().claim_deliveries(&claim()).await.must();
    claimed.deliveries
}

pub(super) fn attempt(
    endpoint: &str,
    event: &OutboxEvent,
    number: u32,
    started_at: Timestamp,
    outcome: AttemptOutcome,
) -> EndpointAttempt {
    let headers = BTreeMap::from([("webhook-id".to_owned(), "a".to_owned())]);
    let is_delivered = outcome == AttemptOutcome::Delivered;
    EndpointAttempt {
        endpoint: endpoint.to_owned(),
        position: event.position,
        event_id: event.event.id,
        kind: event.event.kind.clone(),
        number,
        started_at,
        duration: Duration::from_millis(5),
        outcome,
        status: Some(if is_delivered { 204 } else { 422 }),
        error: (!is_delivered).then(|| "no".to_owned()),
        request: RequestExcerpt::new(headers, b"{\"n\":1}").encode(),
        response: "no such field".into(),
    }
}

pub(super) async fn attempts<S: AdminUnderTest>(
    scene: &Scene<S>,
    endpoint: &str,
    change: impl Fn(&mut EndpointDeliveryFilter),
) -> Vec<EndpointDelivery> {
    let mut filter = EndpointDeliveryFilter::default();
    change(&mut filter);
    let (admin, ops) = (&scene.admin, &scene.ops);
    pages(1, async |before: Option<String>| {
        let before = before.as_deref();
        let page = admin.endpoint_deliveries(ops, "acme", endpoint, &filter, before, 1);
        page.await
    })
    .await
}
