//! Timelines of requests that group commit has written in one transaction.

use hapax::{
    admin::{EventAdmin as _, Timeline, TimelineAdmin as _},
    event::{EventId, NewEvent},
    store::{Effect, Transaction as _},
};
use hapax_postgres::Tx;
use hapax_testkit::events::{claim_of, response, scope};

use super::scene::Scene;

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
    let event = store.find_event(&scene.ops, ids[0]).await.unwrap().unwrap();
    let by_event = store.timeline_of_event(&scene.ops, event).await.unwrap();
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

#[track_caller]
fn check(timeline: &Timeline, ids: &[EventId]) {
    let found: Vec<EventId> = timeline.events.iter().map(|it| it.event.event.id).collect();
    assert_eq!(found, ids);
    assert!(timeline.is_whole);
}
