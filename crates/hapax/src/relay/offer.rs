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
    // Whatever a sink does is done in here: being called, being polled and being dropped.
    let delivery = async { timeout(destination.timeout, destination.sink.deliver(offers)).await };
    match AssertUnwindSafe(delivery).catch_unwind().await {
        Ok(Err(_)) => all_fail("timeout", "the offer took too long"),
        Err(_) => all_fail("panic", "the sink panicked"),
        Ok(Ok(outcomes)) if outcomes.len() != offers.len() => {
            all_fail("miscount", "the sink did not answer every offer")
        }
        Ok(Ok(outcomes)) => outcomes,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::future::BoxFuture;

    use super::*;
    use crate::{
        clock::{Random, Timestamp},
        event::{Headers, NewEvent},
        outbox::{OutboxEvent, seal},
        sink::{Receipt, Sink},
    };

    #[tokio::test(start_paused = true)]
    async fn a_sink_that_hangs_panics_or_miscounts_fails_every_offer() {
        check(Misbehaviour::Hangs, "timeout").await;
        check(Misbehaviour::Panics, "panic").await;
        check(Misbehaviour::PanicsWhenCalled, "panic").await;
        check(Misbehaviour::PanicsWhenDropped, "panic").await;
        check(Misbehaviour::Miscounts, "miscount").await;
    }

    #[derive(Clone, Copy)]
    enum Misbehaviour {
        Hangs,
        Panics,
        PanicsWhenCalled,
        PanicsWhenDropped,
        Miscounts,
    }

    struct PanicsWhenDropped;

    impl Drop for PanicsWhenDropped {
        fn drop(&mut self) {
            panic!("as told");
        }
    }

    impl Sink for Misbehaviour {
        fn kind(&self) -> &'static str {
            "misbehaving"
        }

        fn deliver<'a>(&'a self, _: &'a [Offer]) -> BoxFuture<'a, Vec<Outcome>> {
            assert!(!matches!(self, Self::PanicsWhenCalled), "as told");
            Box::pin(async move {
                match self {
                    Self::Hangs => std::future::pending().await,
                    Self::PanicsWhenDropped => {
                        let _bomb = PanicsWhenDropped;
                        std::future::pending().await
                    }
                    Self::Panics | Self::PanicsWhenCalled => panic!("as told"),
                    Self::Miscounts => vec![Ok(Receipt::default())],
                }
            })
        }
    }

    async fn check(sink: Misbehaviour, error_type: &str) {
        let destination = Destination::new("d", Arc::new(sink)).timeout(Duration::from_secs(1));
        let clock = Clock::new(|| Timestamp::from_millis(0));
        let items = vec![item(1), item(2)];
        let tried = offer(Arc::new(destination), items, clock, Failpoints::none()).await;
        assert_eq!(tried.len(), 2);
        for tried in tried {
            assert_eq!(tried.outcome.unwrap_err().error_type(), error_type);
        }
    }

    fn item(position: i64) -> Item {
        let now = Timestamp::from_millis(0);
        let new = NewEvent::json("a", &position);
        let event = seal(new, None, &Headers::new(), now, &Random::new(|| 1)).unwrap();
        let event = Arc::new(OutboxEvent { position, event });
        Item {
            event,
            attempts: 0,
            parked: false,
            blocked: false,
            order_key: None,
            held_key: None,
        }
    }
}
