//! Offering events to a sink, whatever the sink does.

use std::{panic::AssertUnwindSafe, sync::Arc};

use futures_util::FutureExt;
use tokio::time::{Instant, timeout};

use crate::{
    clock::Clock,
    failpoint::Failpoints,
    sink::{Offer, Outcome, SinkError},
};

use super::{destination::Destination, lane::Item, settle::Tried};

/// Offers `items` once; a sink that hangs, panics or miscounts fails all of them.
pub(super) async fn offer(
    destination: Arc<Destination>,
    items: Vec<Item>,
    clock: Clock,
    failpoints: Failpoints,
) -> Vec<Tried> {
    let offers: Vec<_> = items
        .iter()
        .map(|item| Offer {
            event: Arc::clone(&item.event),
            attempt: item.attempts + 1,
        })
        .collect();
    let (started_at, begun) = (clock.now(), Instant::now());
    failpoints.hit("relay.offer.before");
    let outcomes = outcomes(&destination, &offers).await;
    failpoints.hit("relay.offer.after");
    let duration = begun.elapsed();
    items
        .into_iter()
        .zip(outcomes)
        .map(|(item, outcome)| Tried {
            item,
            started_at,
            duration,
            outcome,
        })
        .collect()
}

async fn outcomes(destination: &Destination, offers: &[Offer]) -> Vec<Outcome> {
    let all_fail = |error_type, why: &'static str| {
        offers
            .iter()
            .map(|_| Err(SinkError::unavailable(error_type, why)))
            .collect()
    };
    let delivery = AssertUnwindSafe(destination.sink.deliver(offers)).catch_unwind();
    match timeout(destination.timeout, delivery).await {
        Err(_) => all_fail("timeout", "the offer took too long"),
        Ok(Err(_)) => all_fail("panic", "the sink panicked"),
        Ok(Ok(outcomes)) if outcomes.len() != offers.len() => {
            all_fail("miscount", "the sink did not answer every offer")
        }
        Ok(Ok(outcomes)) => outcomes,
    }
}
