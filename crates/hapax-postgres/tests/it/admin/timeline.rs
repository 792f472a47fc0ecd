//! The timeline of one request: its key, its events, its sagas and their deliveries.

use bytes::Bytes;
use hapax::{
    admin::{Actor, AdminError, DeliveryStatus, EventAdmin as _, Timeline, TimelineAdmin as _},
    event::{EventId, Headers, NewEvent},
    inbox::Acceptance,
    key::Tenant,
    saga::Definition,
    store::{Effect, Keys as _, SagaRows as _, Transaction as _},
};
use hapax_postgres::{Postgres, Tx};
use hapax_testkit::events::{claim_of, event, message, response, scope};

use super::scene::Scene;

#[tokio::test]
async fn a_request_is_followed_from_its_key_to_whoever_took_its_events() {
    let scene = Scene::new().await;
    let store = scene.store();
    let ids = request(&scene, "alice", "k").await;
    request(&scene, "alice", "other").await;
    let mut tx = store.begin(None, Headers::new()).await.unwrap();
    let hello = message("mailer", &ids[0].to_string(), "hello");
    assert_eq!(tx.accept(&hello).await.unwrap(), Acceptance::First);
    tx.commit().await.unwrap();
    let position = scene.events().await[1].position;
    scene.pass("orders", &[position]).await;

    let by_key = store
        .timeline_of_key(&scene.ops, None, None, "k")
        .await
        .unwrap();
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
        let by_event = of_event(store, &scene.ops, *id).await.unwrap();
        check(&by_event, &ids);
        assert_eq!(by_event.key.unwrap().summary.key, "k");
    }
}

#[tokio::test]
async fn a_saga_and_what_it_emits_later_belong_to_the_request_that_began_it() {
    let scene = Scene::new().await;
    let store = scene.store();
    let mut tx = scene
        .fixture
        .claim(claim_of(scope("alice", "POST /checkouts", "k")))
        .await;
    let first = tx.emit(event("1")).unwrap();
    let new =
        Definition::<Tx>::new("checkout", 1).begin("s1", Tenant::new("alice").ok(), Bytes::new());
    tx.start_saga(&new).await.unwrap();
    tx.complete(&response("{}"), Effect::Keep).await.unwrap();
    // A step emits in the same way: with the headers of its saga.
    let saga = of_event(store, &scene.ops, first).await.unwrap().sagas;
    assert_eq!(saga.len(), 1);
    let tenant = Tenant::new("alice").ok();
    let mut tx = store
        .begin(tenant, saga[0].saga.headers.clone())
        .await
        .unwrap();
    let later = tx.emit(event("2")).unwrap();
    tx.commit().await.unwrap();
    for id in [first, later] {
        let found = of_event(store, &scene.ops, id).await.unwrap();
        check(&found, &[first, later]);
        assert_eq!(found.sagas[0].saga.id, "s1");
        let of_answer: Vec<bool> = found.events.iter().map(|it| it.is_of_answer).collect();
        assert_eq!(of_answer, [true, false]);
    }
}

#[tokio::test]
async fn an_event_without_a_key_is_shown_with_its_transaction() {
    let scene = Scene::new().await;
    scene.emit("order.created", None, 2).await;
    scene.emit("order.created", None, 1).await;
    let events = scene.events().await;
    let found = of_event(scene.store(), &scene.ops, events[0].event.id)
        .await
        .unwrap();
    assert!(found.key.is_none() && found.sagas.is_empty());
    check(&found, &[events[0].event.id, events[1].event.id]);
    // If a key is purged, its events remain.
    let ids = request(&scene, "alice", "k").await;
    scene
        .fixture
        .plain
        .batch_execute("DELETE FROM hapax.idempotency_key")
        .await
        .unwrap();
    let found = of_event(scene.store(), &scene.ops, ids[0]).await.unwrap();
    assert!(found.key.is_none());
    check(&found, &ids);
    let nothing = "0190b6e2-0000-7000-8000-000000000000".parse().unwrap();
    missing(&of_event(scene.store(), &scene.ops, nothing).await);
    missing(
        &scene
            .store()
            .timeline_of_key(&scene.ops, None, None, "k")
            .await,
    );
}

#[tokio::test]
async fn an_actor_of_a_tenant_follows_its_own_requests() {
    let scene = Scene::new().await;
    let store = scene.store();
    let (hers, his) = (
        request(&scene, "alice", "k").await,
        request(&scene, "bob", "k").await,
    );
    scene.pass("orders", &[]).await;
    let alice = Actor::new("alice").of(Tenant::new("alice").unwrap());
    let own = store
        .timeline_of_key(&alice, None, None, "k")
        .await
        .unwrap();
    check(&own, &hers);
    // The destinations of other tenants' events are hidden from an actor of a tenant.
    assert!(own.events.iter().all(|it| it.traces.is_empty()), "{own:?}");
    check(&of_event(store, &alice, hers[0]).await.unwrap(), &hers);
    missing(&of_event(store, &alice, his[0]).await);
    missing(&store.timeline_of_key(&alice, Some("bob"), None, "k").await);
    let outcome = store.timeline_of_key(&scene.ops, None, None, "k").await;
    assert!(
        matches!(outcome, Err(AdminError::Invalid { .. })),
        "{outcome:?}"
    );
    let his_own = store
        .timeline_of_key(&scene.ops, Some("bob"), None, "k")
        .await
        .unwrap();
    check(&his_own, &his);
}

#[tokio::test]
async fn requests_that_were_committed_together_have_a_timeline_each() {
    let scene = Scene::new().await;
    let ids = request(&scene, "alice", "k").await;
    request(&scene, "alice", "other").await;
    request(&scene, "bob", "k").await;
    // Group commit writes the rows of several keys and their events in one transaction.
    let together = "
        UPDATE hapax.outbox_event SET xid = pg_current_xact_id();
        UPDATE hapax.idempotency_key SET on_expired = on_expired";
    let together = format!("BEGIN; {together}; COMMIT");
    scene.fixture.plain.batch_execute(&together).await.unwrap();
    let store = scene.store();
    let by_key = store
        .timeline_of_key(&scene.ops, Some("alice"), None, "k")
        .await;
    check(&by_key.unwrap(), &ids);
    let by_event = of_event(store, &scene.ops, ids[0]).await.unwrap();
    check(&by_event, &ids);
    let key = by_event.key.unwrap().summary;
    assert_eq!((key.tenant.as_str(), key.key.as_str()), ("alice", "k"));
}

/// A request that emits two events.
async fn request(scene: &Scene, tenant: &str, key: &str) -> Vec<EventId> {
    let mut tx = scene
        .fixture
        .claim(claim_of(scope(tenant, "POST /orders", key)))
        .await;
    let emit = |tx: &mut Tx, kind: &str| tx.emit(NewEvent::json(kind, &1)).unwrap();
    let ids = vec![emit(&mut tx, "order.created"), emit(&mut tx, "mail.wanted")];
    tx.complete(&response("{}"), Effect::Keep).await.unwrap();
    ids
}

async fn of_event(store: &Postgres, actor: &Actor, id: EventId) -> Result<Timeline, AdminError> {
    let found = store.find_event(actor, id).await?;
    let event = found.ok_or_else(|| AdminError::not_found("event"))?;
    store.timeline_of_event(actor, event).await
}

#[track_caller]
fn check(timeline: &Timeline, ids: &[EventId]) {
    let found: Vec<EventId> = timeline.events.iter().map(|it| it.event.event.id).collect();
    assert_eq!(found, ids);
    assert!(timeline.is_whole);
}

#[track_caller]
fn missing(outcome: &Result<Timeline, AdminError>) {
    assert!(
        matches!(outcome, Err(AdminError::NotFound { .. })),
        "{outcome:?}"
    );
}
