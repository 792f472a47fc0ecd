//! `/admin/v1/destinations/{name}/test`: offers a test event to one destination.
//!
//! The event is not written to the outbox. This process builds the sink from the declaration of the
//! destination, as a relay does, and offers the event to it once. So neither the order of the
//! destination nor its breaker is affected, and a paused destination can be tested too. For the
//! receiver it is an event like any other, of the type [`TEST_EVENT`](hapax::admin::TEST_EVENT). A
//! call opens a new connection and may wait for the receiver's timeout, so at most [`TESTS_MAX`] are
//! accepted at the same time. The console of the same process offers test events in the same way.

use std::{sync::Arc, time::Duration};

use axum::extract::State;
use futures_util::FutureExt as _;
use hapax::{
    admin::{Actor, AdminError, EndpointOperations, offer_test_event},
    delivery::Attempt,
    mask::Mask,
};
use hapax_console::TestEvents;
use hapax_http::{Json, Path, Problem, problem::RATE_LIMIT};
use serde::Serialize;
use utoipa::ToSchema;

use super::{AdminApi, Declare, auth::Caller};
use crate::{destination::Spec, environment, wiring};

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
    let tested = admin.test(&caller.actor, &name).await?;
    tracing::info!(
        destination = tested.destination,
        actor = caller.actor.name,
        event_id = tested.event_id,
        outcome = tested.attempt.outcome.as_str(),
        "a test event was offered"
    );
    Ok(Json(tested))
}

impl AdminApi {
    /// Offers test events for the console of this process.
    pub(crate) fn test_events(&self) -> TestEvents {
        let admin = self.clone();
        Arc::new(move |actor: Actor, name: String| {
            let admin = admin.clone();
            async move { Ok(admin.test(&actor, &name).await?.attempt) }.boxed()
        })
    }

    /// The operations on endpoints, which the console of this process uses too.
    pub(crate) fn endpoints(&self) -> Arc<dyn EndpointOperations> {
        Arc::clone(&self.0.endpoints)
    }

    async fn test(&self, actor: &Actor, name: &str) -> Result<Tested, AdminError> {
        let configured = self.0.configured.borrow().get(name).cloned();
        let (declare, mask) = (&self.0.declare, &self.0.mask);
        offer(declare, actor, name, configured, mask).await
    }
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
    let (clock, random) = (environment::clock(), environment::random());
    let destination = wiring::destination(name, &spec, &clock)?;
    let store = declare.index().store();
    let offered = offer_test_event(store, actor, &destination, &clock, &random);
    let (event_id, attempt) = offered.await?;
    Ok(Tested {
        destination: name.to_owned(),
        event_id: event_id.to_string(),
        attempt: masked(attempt, mask),
    })
}

/// An attempt with the response of the receiver masked.
pub(crate) fn masked(mut attempt: Attempt, mask: &Mask) -> Attempt {
    let head = mask.head(&attempt.response_head);
    attempt.response_head = head.unwrap_or_default().into();
    attempt
}
