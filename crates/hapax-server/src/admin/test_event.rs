//! `/admin/v1/destinations/{name}/test`: offers a test event to one destination.
//!
//! The event is not written to the outbox. This process builds the sink from the declaration of the
//! destination, as a relay does, and offers the event to it once. So neither the order of the
//! destination nor its breaker is affected, and a paused destination can be tested too. For the
//! receiver it is an event like any other, of the type [`KIND`]. A call opens a new connection
//! and may wait for the receiver's timeout, so at most [`TESTS_MAX`] are accepted at the same time.

use std::{sync::Arc, time::Duration};

use axum::extract::State;
use hapax::{
    admin::{Actor, AdminError},
    delivery::Attempt,
    event::{Event, Headers, NewEvent},
    mask::Mask,
    outbox::{OutboxEvent, seal},
    relay::offer_once,
};
use hapax_http::{Json, Path, Problem, problem::RATE_LIMIT};
use serde::Serialize;
use serde_json::json;
use utoipa::ToSchema;

use super::{AdminApi, Declare, auth::Caller};
use crate::{
    destination::{Spec, SpecError},
    environment, wiring,
};

/// The type of test events.
const KIND: &str = "hapax.test";
/// Maximum number of test events that the admin API of a process offers at the same time. Operators
/// test one destination after the other; more calls would take connections from deliveries.
pub(super) const TESTS_MAX: usize = 4;
/// `Retry-After` of a call beyond the limit.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The outcome of a test event.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Tested {
    /// The name of the destination.
    pub(crate) destination: String,
    /// The id of the test event, which is in no outbox.
    pub(crate) event_id: String,
    /// The attempt to deliver it.
    pub(crate) attempt: Attempt,
}

/// Offers a test event of the type `hapax.test` to a destination, once. The outbox, the order of
/// events and the breaker are not affected. A process offers at most four at the same time.
#[utoipa::path(post, path = "/admin/v1/destinations/{name}/test", tag = "destinations",
    params(("name" = String, Path)),
    responses((status = 200, body = Tested), (status = 404, body = Problem),
        (status = 409, body = Problem), (status = 429, body = Problem)))]
pub(super) async fn send(
    State(admin): State<AdminApi>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Json<Tested>, Problem> {
    let Ok(_permit) = admin.0.tests.try_acquire() else {
        let busy = format!("{TESTS_MAX} test events are being offered: wait until one has ended");
        return Err(Problem::new(RATE_LIMIT)
            .detail(busy)
            .retry_after(RETRY_AFTER));
    };
    let configured = admin.0.configured.borrow().get(&name).cloned();
    let (declare, mask) = (&admin.0.declare, &admin.0.mask);
    let tested = offer(declare, &caller.actor, &name, configured, mask).await?;
    // The database is not changed, so the audit log has no entry.
    tracing::info!(
        destination = tested.destination,
        actor = caller.actor.name,
        event_id = tested.event_id,
        outcome = tested.attempt.outcome.as_str(),
        "a test event was offered"
    );
    Ok(Json(tested))
}

/// Offers a test event to a destination that the database declares, or else `configured`. The
/// response of the receiver is masked.
pub(crate) async fn offer(
    declare: &Declare,
    actor: &Actor,
    name: &str,
    configured: Option<Spec>,
    mask: &Mask,
) -> Result<Tested, AdminError> {
    let spec = declare.in_effect(actor, name, configured).await?;
    let clock = environment::clock();
    let destination = wiring::destination(name, &spec, &clock)?;
    let event = event(name, &spec)?;
    let event_id = event.id.to_string();
    // It has no position, because it is in no outbox.
    let event = Arc::new(OutboxEvent { position: 0, event });
    let attempt = offer_once(&destination, event, 1, &clock).await;
    Ok(Tested {
        destination: name.to_owned(),
        event_id,
        attempt: masked(attempt, mask),
    })
}

/// An attempt with the response of the receiver masked.
pub(crate) fn masked(mut attempt: Attempt, mask: &Mask) -> Attempt {
    let head = mask.head(&attempt.response_head);
    attempt.response_head = head.unwrap_or_default().into();
    attempt
}

/// A test event for a destination, of the tenant whose events are routed to it.
fn event(name: &str, spec: &Spec) -> Result<Event, SpecError> {
    let payload = json!({
        "test": true,
        "destination": name,
        "message": "This is a test event of Hapax. Nothing has happened.",
    });
    // Some receivers need an aggregate, such as a table with a column for it.
    let new = NewEvent::json(KIND, &payload).about("destination", name);
    let (tenant, context) = (spec.tenant()?, Headers::new());
    let (now, random) = (environment::clock().now(), environment::random());
    let event = seal(new, tenant.as_ref(), &context, now, &random);
    Ok(event.expect("the name of a destination is short plain text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_event_says_what_it_is_and_belongs_to_the_tenant_of_its_destination() {
        let spec = json!({"tenant": "acme", "sink": {"file": {"path": "-"}}});
        let event = event("orders", &Spec::read(&spec).unwrap()).unwrap();
        assert_eq!(event.kind, "hapax.test");
        assert_eq!(event.tenant.unwrap().as_str(), "acme");
        let payload: serde_json::Value = serde_json::from_slice(event.payload.bytes()).unwrap();
        assert_eq!(
            (&payload["test"], &payload["destination"]),
            (&json!(true), &json!("orders"))
        );
    }
}
