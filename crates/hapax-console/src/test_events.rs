//! How the console sends test events: its host builds the sinks of the destinations, so the host
//! offers the events.

use std::sync::Arc;

use futures_util::{FutureExt as _, future::BoxFuture};
use hapax::{
    Clock, Random,
    admin::{Actor, Admin, AdminError, offer_test_event},
    delivery::Attempt,
    relay::Destination,
};

/// Maximum number of test events that a console offers at the same time. More would take
/// connections from deliveries.
pub(crate) const TESTS_MAX: usize = 4;

/// Offers a test event to the destination with a name, once, and returns the attempt.
pub type TestEvents =
    Arc<dyn Fn(Actor, String) -> BoxFuture<'static, Result<Attempt, AdminError>> + Send + Sync>;

/// Offers test events to these destinations: for the console of a service that declares its
/// destinations in code.
pub fn test_events(
    store: Arc<dyn Admin>,
    destinations: &[Destination],
    clock: Clock,
    random: Random,
) -> TestEvents {
    let destinations = destinations.to_vec();
    Arc::new(move |actor: Actor, name: String| {
        let known = destinations.iter().find(|it| it.name == name).cloned();
        let (store, clock, random) = (Arc::clone(&store), clock.clone(), random.clone());
        async move {
            let destination = known.ok_or_else(|| {
                AdminError::conflict(format!("destination {name} is not one of this process"))
            })?;
            let offered = offer_test_event(&*store, &actor, &destination, &clock, &random);
            offered.await.map(|(_, attempt)| attempt)
        }
        .boxed()
    })
}
