//! Conformance tests of the timeline of one request.

use std::time::Duration;

use futures_util::future::join_all;
use hapax::{
    admin::{Actor, AdminError, DeliveryStatus, Timeline},
    event::{EventId, Headers, NewEvent},
    store::{ClaimOutcome, Effect, KeyMaintenance, Keys, Phases, SagaRows, Transaction},
};

use super::{
    AdminUnderTest,
    checks::{Must, check_invalid, check_missing, hostile},
    inbox::accept,
    scene::{OPERATION, Scene, named, new_saga, of},
};
use crate::events::{claim, claim_of, event, response, scope, single_shot};

/// A request is followed from its key to its events, their deliveries and their consumers.
pub async fn a_request_is_followed_from_its_key_to_its_consumers<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let ids = request(&scene, "alice", "k").await;
    request(&scene, "alice", "other").await;
    accept(&scene, &[("mailer", "shop", &ids[0].to_string())]).await;
    let position = scene.fixture.events().await[1].position;
    scene.pass("orders", &[position]).await;
    let by_key = of_key(&scene, &scene.ops, None, "k").await.must();
    check(&by_key, &ids);
    assert!(by_key.events.iter().all(|it| it.is_of_answer), "{by_key:?}");
    let [first, second] = by_key.events.as_slice() else {
        panic!("{by_key:?}");
    };
    assert_eq!(first.transaction, second.transaction);
    assert_eq!((first.taken.len(), second.taken.len()), (1, 0));
    assert_eq!(first.taken[0].consumer, "mailer");
    assert_eq!(first.traces[0].status, DeliveryStatus::Passed);
    assert_eq!(second.traces[0].status, DeliveryStatus::Dead);
    for id in &ids {
        let by_event = of_event(&scene, &scene.ops, *id).await.must();
        check(&by_event, &ids);
        assert_eq!(by_event.key.expect("it has a key").summary.key, "k");
    }
}

/// A saga, and what it emits later, belong to the request that started it.
pub async fn a_saga_and_its_later_events_belong_to_the_request<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let mut tx = scene.fixture.claim(claim("k")).await;
    let first = tx.emit(event("1")).expect("an event is emitted");
    let saga = new_saga("s1", Some("alice"));
    assert!(tx.start_saga(&saga).await.must());
    tx.complete(&response("{}"), Effect::Keep).await.must();
    let found = of_event(&scene, &scene.ops, first).await.must();
    assert_eq!(found.sagas.len(), 1);
    // A step emits with the headers of its saga, some time later.
    scene.advance(Duration::from_secs(1)).await;
    let headers = found.sagas[0].saga.headers.clone();
    let tenant = Some(named("alice"));
    let mut tx = scene.store().begin(tenant, headers).await.must();
    let later = tx.emit(event("2")).expect("an event is emitted");
    tx.commit().await.must();
    for id in [first, later] {
        let found = of_event(&scene, &scene.ops, id).await.must();
        check(&found, &[first, later]);
        assert_eq!(found.sagas[0].saga.id, "s1");
        let of_answer: Vec<bool> = found.events.iter().map(|it| it.is_of_answer).collect();
        assert_eq!(of_answer, [true, false]);
    }
    let by_key = of_key(&scene, &scene.ops, None, "k").await.must();
    check(&by_key, &[first, later]);
}

/// The events of all phases belong to the request; those of the last phase came with its response.
pub async fn the_events_of_all_phases_belong_to_the_request<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let owned = scene.enter("k").await;
    let phase = scene.store().phase(&owned, Some("charged"), Headers::new());
    let mut tx = phase.await.must();
    let first = tx.emit(event("1")).expect("an event is emitted");
    tx.commit().await.must();
    let running = of_key(&scene, &scene.ops, None, "k").await.must();
    check(&running, &[first]);
    assert!(!running.events[0].is_of_answer, "there is no response yet");
    scene.advance(Duration::from_secs(1)).await;
    let phase = scene.store().phase(&owned, None, Headers::new());
    let mut tx = phase.await.must();
    let last = tx.emit(event("2")).expect("an event is emitted");
    tx.complete(&response("{}"), Effect::Keep).await.must();
    let ended = of_key(&scene, &scene.ops, None, "k").await.must();
    check(&ended, &[first, last]);
    let of_answer: Vec<bool> = ended.events.iter().map(|it| it.is_of_answer).collect();
    assert_eq!(of_answer, [false, true]);
}

/// An event without a key is shown with the other events of its transaction.
pub async fn an_event_without_a_key_is_shown_with_its_transaction<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    scene.emit("order.created", None, 2).await;
    scene.emit("order.created", None, 1).await;
    let events = scene.fixture.events().await;
    let ids: Vec<EventId> = events.iter().map(|it| it.event.id).collect();
    for (id, expected) in [(ids[0], &ids[..2]), (ids[2], &ids[2..])] {
        let found = of_event(&scene, &scene.ops, id).await.must();
        assert!(found.key.is_none() && found.sagas.is_empty());
        check(&found, expected);
    }
}

/// The events of a key that was deleted are still shown together.
pub async fn the_events_of_a_deleted_key_are_shown_together<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let ids = request(&scene, "alice", "k").await;
    assert!(scene.store().forget(&claim("k").scope).await.must());
    let found = of_event(&scene, &scene.ops, ids[0]).await.must();
    assert!(found.key.is_none());
    check(&found, &ids);
    check_missing(&of_key(&scene, &scene.ops, None, "k").await);
}

/// Operation and tenant are needed where several keys have the same name.
pub async fn a_key_of_several_operations_is_followed_by_its_operation<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let ids = request(&scene, "alice", "k").await;
    scene.complete_of("alice", "POST /refunds", "k").await;
    let ops = &scene.ops;
    check_invalid(&of_key(&scene, ops, None, "k").await, "operation");
    let of_operation = async |operation: &str| {
        let operation = Some(operation);
        let found = scene.admin.timeline_of_key(ops, None, operation, "k").await;
        found.must()
    };
    check(&of_operation(OPERATION).await, &ids);
    // Its events have the same short hash, but came with the response of the other operation.
    let refund = of_operation("POST /refunds").await;
    assert!(refund.events.iter().all(|it| !it.is_of_answer));
    for word in hostile() {
        check_missing(&of_key(&scene, ops, None, &word).await);
        check_missing(&of_key(&scene, ops, Some(&word), "k").await);
        let operation = Some(word.as_str());
        let found = scene.admin.timeline_of_key(ops, None, operation, "k").await;
        check_missing(&found);
    }
}

/// An operator of a tenant follows that tenant's requests, and sees no destination that has made no
/// attempt.
pub async fn an_operator_of_a_tenant_follows_its_own_requests<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let hers = request(&scene, "alice", "k").await;
    let his = request(&scene, "bob", "k").await;
    let positions = scene.positions().await;
    scene.pass("orders", &positions[1..2]).await;
    let alice = of("alice");
    let own = of_key(&scene, &alice, None, "k").await.must();
    check(&own, &hers);
    assert!(own.events[0].traces.is_empty(), "{own:?}");
    assert_eq!(own.events[1].traces.len(), 1, "{own:?}");
    check(&of_event(&scene, &alice, hers[0]).await.must(), &hers);
    check_missing(&of_event(&scene, &alice, his[0]).await);
    check_missing(&of_key(&scene, &alice, Some("bob"), "k").await);
    let operation = Some(OPERATION);
    let unclear = scene
        .admin
        .timeline_of_key(&scene.ops, None, operation, "k")
        .await;
    check_invalid(&unclear, "tenant");
    let bobs = of_key(&scene, &scene.ops, Some("bob"), "k").await.must();
    check(&bobs, &his);
}

/// Requests whose commits the store has combined have a timeline each.
pub async fn requests_at_once_have_a_timeline_each<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let requests = (0..40).map(async |number: usize| {
        let tenant = ["alice", "bob"][number % 2];
        let key = format!("k{}", number / 2);
        let claim = claim_of(scope(tenant, OPERATION, &key));
        let mut plan = single_shot(claim, Vec::new(), "{}");
        plan.events
            .push(NewEvent::json(format!("{tenant}.{key}"), &1));
        plan.events
            .push(NewEvent::json(format!("{tenant}.{key}"), &2));
        let ran = scene.store().execute_plan(plan).await.must();
        assert!(matches!(ran, ClaimOutcome::Open(_)), "{ran:?}");
    });
    join_all(requests).await;
    for number in [0, 7, 19] {
        for tenant in ["alice", "bob"] {
            let key = format!("k{number}");
            let found = of_key(&scene, &scene.ops, Some(tenant), &key).await.must();
            let kinds: Vec<&str> = found
                .events
                .iter()
                .map(|it| it.event.event.kind.as_str())
                .collect();
            assert_eq!(
                kinds,
                [format!("{tenant}.{key}"), format!("{tenant}.{key}")]
            );
            let id = found.events[0].event.event.id;
            let by_event = of_event(&scene, &scene.ops, id).await.must();
            let summary = by_event.key.expect("it has a key").summary;
            assert_eq!(
                (summary.tenant.as_str(), summary.key.as_str()),
                (tenant, key.as_str())
            );
        }
    }
}

/// A request that emits two events.
async fn request<S: AdminUnderTest>(scene: &Scene<S>, tenant: &str, key: &str) -> Vec<EventId> {
    let claim = claim_of(scope(tenant, OPERATION, key));
    let mut tx = scene.fixture.claim(claim).await;
    let ids = ["order.created", "mail.wanted"].map(|kind| {
        let emitted = tx.emit(NewEvent::json(kind, &1));
        emitted.expect("an event is emitted")
    });
    tx.complete(&response("{}"), Effect::Keep).await.must();
    ids.into()
}

async fn of_event<S: AdminUnderTest>(
    scene: &Scene<S>,
    actor: &Actor,
    id: EventId,
) -> Result<Timeline, AdminError> {
    let found = scene.admin.find_event(actor, id).await?;
    let event = found.ok_or_else(|| AdminError::not_found("event"))?;
    scene.admin.timeline_of_event(actor, event).await
}

async fn of_key<S: AdminUnderTest>(
    scene: &Scene<S>,
    actor: &Actor,
    tenant: Option<&str>,
    key: &str,
) -> Result<Timeline, AdminError> {
    scene.admin.timeline_of_key(actor, tenant, None, key).await
}

#[track_caller]
fn check(timeline: &Timeline, ids: &[EventId]) {
    let found: Vec<EventId> = timeline.events.iter().map(|it| it.event.event.id).collect();
    assert_eq!(found, ids);
    assert!(timeline.is_whole);
}
