//! Test events, of the type [`TEST_EVENT`]: each is offered to one destination, once, and is in no
//! outbox.
//!
//! The order of the destination and its breaker do not change, and a paused destination can be
//! tested too. For the receiver it is an event like any other. The audit log has an entry before
//! the event is offered, so that no event is sent without one.

use std::sync::Arc;

use serde_json::json;

use super::{Actor, Admin, AdminError, destination_object};
use crate::{
    clock::{Clock, Random, Timestamp},
    delivery::Attempt,
    event::{Event, EventId, Headers, NewEvent},
    key::Tenant,
    outbox::{EventError, OutboxEvent, build_event},
    relay::{Destination, offer_once},
};

/// The type of test events.
pub const TEST_EVENT: &str = "hapax.test";

/// Offers a test event to a destination, and returns its id and the attempt, whose response is not
/// masked. The caller has checked that the actor may see the destination.
///
/// # Errors
/// Fails if the entry cannot be written, or if the name of the destination is too long for an
/// event. Nothing was sent then. An event that is not delivered is not an error.
pub async fn offer_test_event(
    store: &dyn Admin,
    actor: &Actor,
    destination: &Destination,
    clock: &Clock,
    random: &Random,
) -> Result<(EventId, Attempt), AdminError> {
    let (name, tenant) = (&destination.name, destination.tenant.as_ref());
    let event = event(name, tenant, clock.now(), random);
    let event = event.map_err(|error| AdminError::invalid("name", error.to_string()))?;
    let id = event.id;
    let detail = json!({"event_id": id.to_string()});
    let object = destination_object(name);
    store.record(actor, "test", &object, &detail).await?;
    // It has no position, because it is in no outbox.
    let event = Arc::new(OutboxEvent { position: 0, event });
    Ok((id, offer_once(destination, event, 1, clock).await))
}

/// A test event for a destination, of the tenant whose events are routed to it.
fn event(
    name: &str,
    tenant: Option<&Tenant>,
    now: Timestamp,
    random: &Random,
) -> Result<Event, EventError> {
    let payload = json!({
        "test": true,
        "destination": name,
        "message": "This is a test event of Hapax. Nothing has happened.",
    });
    // Some receivers need an aggregate, such as a table with a column for it.
    let new = NewEvent::json(TEST_EVENT, &payload).about("destination", name);
    build_event(new, tenant, &Headers::new(), now, random)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_event_says_what_it_is_and_belongs_to_the_tenant_of_its_destination() {
        let (tenant, random) = (Tenant::new("acme").unwrap(), Random::new(|| 1));
        let now = Timestamp::from_millis(7);
        let event = event("orders", Some(&tenant), now, &random).unwrap();
        assert_eq!(event.kind, "hapax.test");
        assert_eq!(event.tenant.unwrap().as_str(), "acme");
        let payload: serde_json::Value = serde_json::from_slice(event.payload.bytes()).unwrap();
        assert_eq!(
            (&payload["test"], &payload["destination"]),
            (&json!(true), &json!("orders"))
        );
    }
}
