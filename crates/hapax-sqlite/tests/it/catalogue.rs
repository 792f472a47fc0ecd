//! The check of the settings: an event that does not match the catalogue is refused, however it is
//! emitted, and nothing of its request is kept.

use hapax::{
    catalogue::{Catalogue, OtherTypes},
    delivery::{Frontier, Shards},
    event::NewEvent,
    outbox::{EventCheck, EventError},
    store::{ClaimOutcome, Effect, Keys as _, Source, StoreError, Transaction as _},
};
use hapax_testkit::assert_matches;

use crate::fixture::{Fixture, claim, note, plan, response};

/// A catalogue in which the payload of `note.written` is an object.
const CATALOGUE: &str = r#"{"title": "Notes", "version": "1", "events": [{
    "type": "note.written",
    "description": "A note was written.",
    "versions": [{"version": 1, "schema": {"type": "object", "required": ["text"]}}]
}]}"#;

#[tokio::test]
async fn an_event_that_does_not_match_is_refused_and_nothing_of_its_request_is_kept() {
    let fixture = Fixture::with(|settings| settings.event_check = check()).await;
    let mut tx = fixture.claim("interactive").await;
    note(&mut tx, "interactive").await;
    let refused = tx.emit(NewEvent::json("note.written", &"text"));
    assert_matches!(refused, Err(EventError::Mismatch(_)));
    let other = tx.emit(NewEvent::json("note.read", &"text"));
    assert_matches!(other, Err(EventError::NotInCatalogue { .. }));
    tx.rollback().await;
    let refused = fixture.store.execute_plan(plan("plan")).await;
    assert_matches!(refused, Err(StoreError::Event(EventError::Mismatch(_))));
    assert_eq!(fixture.notes().await, Vec::<String>::new());
    assert_eq!(events(&fixture).await, 0);
    for key in ["interactive", "plan"] {
        let free = fixture.store.claim(claim(key)).await.unwrap();
        assert!(matches!(free, ClaimOutcome::Open(_)), "{key}");
    }
}

#[tokio::test]
async fn an_event_that_matches_is_emitted() {
    let fixture = Fixture::with(|settings| settings.event_check = check()).await;
    let written = NewEvent::json("note.written", &serde_json::json!({"text": "a"}));
    let mut tx = fixture.claim("interactive").await;
    tx.emit(written.clone()).unwrap();
    tx.complete(&response(), Effect::Keep).await.unwrap();
    let mut planned = plan("plan");
    planned.events = vec![written];
    let ran = fixture.store.execute_plan(planned).await.unwrap();
    assert!(matches!(ran, ClaimOutcome::Open(_)));
    assert_eq!(events(&fixture).await, 2);
}

fn check() -> EventCheck {
    let catalogue = Catalogue::parse(CATALOGUE).unwrap();
    catalogue.event_check(OtherTypes::Refused)
}

async fn events(fixture: &Fixture) -> usize {
    let batch = Source::read(&fixture.store, &Frontier::default(), Shards::ALL, 10).await;
    batch.unwrap().events.len()
}
