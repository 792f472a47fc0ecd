//! The check of the settings: an event that does not match the catalogue is refused, however it is
//! emitted, and nothing of its request is kept.

use hapax::{
    catalogue::{Catalogue, OtherTypes},
    event::NewEvent,
    outbox::{EventCheck, EventError},
    store::{ClaimOutcome, Effect, Keys, StoreError, Transaction},
};
use hapax_postgres::adapter::{self, Origin};
use hapax_testkit::{
    assert_matches,
    events::{claim, response},
    postgres::connect,
};
use serde_json::json;

use crate::fixture::{Fixture, INSERT, plan};

/// A catalogue in which the payload of `order.created` has an amount.
const CATALOGUE: &str = r#"{"title": "Orders", "version": "1", "events": [{
    "type": "order.created",
    "description": "An order was created.",
    "versions": [{"version": 1, "schema": {"type": "object", "required": ["amount"]}}]
}]}"#;
const EVENTS: &str = "SELECT count(*) FROM hapax.outbox_event";

#[tokio::test]
async fn an_event_that_does_not_match_is_refused_and_nothing_of_its_request_is_kept() {
    let fixture = Fixture::with(|settings| settings.event_check = check()).await;
    let mut tx = fixture.claim(claim("interactive")).await;
    tx.execute(INSERT, &[&"interactive"]).await.unwrap();
    refuses(&mut tx);
    tx.rollback().await;
    // The event of the single-shot request has no amount.
    let refused = fixture.store.execute_plan(plan("plan")).await;
    assert_matches!(refused, Err(StoreError::Event(EventError::Mismatch(_))));
    assert_eq!(fixture.notes().await, Vec::<String>::new());
    assert_eq!(fixture.count(EVENTS).await, 0);
    for key in ["interactive", "plan"] {
        fixture.claim(claim(key)).await.rollback().await;
    }
}

#[tokio::test]
async fn an_event_that_matches_is_emitted() {
    let fixture = Fixture::with(|settings| settings.event_check = check()).await;
    let mut tx = fixture.claim(claim("interactive")).await;
    tx.emit(matching()).unwrap();
    tx.complete(&response("{}"), Effect::Keep).await.unwrap();
    let mut planned = plan("plan");
    planned.events = vec![matching()];
    let ran = fixture.store.execute_plan(planned).await.unwrap();
    assert!(matches!(ran, ClaimOutcome::Open(_)));
    assert_eq!(fixture.count(EVENTS).await, 2);
}

#[tokio::test]
async fn an_event_in_a_transaction_of_the_service_is_checked_if_its_origin_has_a_check() {
    let fixture = Fixture::new().await;
    let mut client = connect(&fixture.database.url()).await;
    let mut tx = client.transaction().await.unwrap();
    let check = check();
    let origin = Origin {
        check: Some(&check),
        ..Origin::default()
    };
    let refused = adapter::tokio_postgres::emit(&mut tx, mismatching(), origin).await;
    assert_matches!(refused, Err(StoreError::Event(EventError::Mismatch(_))));
    // The refusal comes before any statement, so the transaction can continue.
    let emitted = adapter::tokio_postgres::emit(&mut tx, matching(), origin).await;
    emitted.unwrap();
    let unchecked = Origin::default();
    let emitted = adapter::tokio_postgres::emit(&mut tx, mismatching(), unchecked).await;
    emitted.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(fixture.count(EVENTS).await, 2);
}

#[cfg(feature = "sqlx")]
#[tokio::test]
async fn an_event_in_a_transaction_of_sqlx_is_checked() {
    let fixture = Fixture::with(|settings| settings.event_check = check()).await;
    let pool = sqlx::PgPool::connect(&fixture.database.url())
        .await
        .unwrap();
    let store = adapter::sqlx::SqlxStore::new(fixture.store.clone(), pool);
    let ClaimOutcome::Open(mut tx) = store.claim(claim("k")).await.unwrap() else {
        panic!("expected a free key");
    };
    refuses(&mut tx);
    tx.rollback().await;
    assert_eq!(fixture.count(EVENTS).await, 0);
}

#[track_caller]
fn refuses(tx: &mut impl Transaction) {
    assert_matches!(tx.emit(mismatching()), Err(EventError::Mismatch(_)));
    let other = tx.emit(NewEvent::json("order.read", &1));
    assert_matches!(other, Err(EventError::NotInCatalogue { .. }));
}

fn matching() -> NewEvent {
    NewEvent::json("order.created", &json!({"amount": 1}))
}

fn mismatching() -> NewEvent {
    NewEvent::json("order.created", &json!({"id": "o1"}))
}

fn check() -> EventCheck {
    let catalogue = Catalogue::parse(CATALOGUE).unwrap();
    catalogue.event_check(OtherTypes::Refused)
}
