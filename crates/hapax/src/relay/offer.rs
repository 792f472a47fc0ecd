//! Offering events to a sink, whatever the sink does.

use std::{panic::AssertUnwindSafe, sync::Arc};

use futures_util::FutureExt;
use tokio::time::{Instant, timeout};

use tracing::{Span, debug_span, field::Empty};

use crate::{
    clock::Clock,
    delivery::AttemptOutcome,
    failpoint::Failpoints,
    sink::{Offer, Outcome, SinkError},
    trace::{Place, Traces},
};

use super::{
    destination::Destination,
    lane::Item,
    settle::{Tried, outcome_of},
};

/// Offers `items` once; a sink that hangs, panics or miscounts fails all of them.
pub(super) async fn offer(
    destination: Arc<Destination>,
    items: Vec<Item>,
    clock: Clock,
    failpoints: Failpoints,
    traces: Traces,
) -> Vec<Tried> {
    // One for each offer, or none at all where nothing is traced.
    let mut spans = Vec::new();
    let offers: Vec<_> = items
        .iter()
        .map(|item| {
            let place = traces.below_headers(&item.event.event.headers);
            if traces.is_on() {
                spans.push(span(&destination, item, &place));
            }
            Offer {
                event: Arc::clone(&item.event),
                attempt: item.attempts + 1,
                trace: place.context(),
            }
        })
        .collect();
    let (started_at, begun) = (clock.now(), Instant::now());
    failpoints.hit("relay.offer.before");
    let outcomes = outcomes(&destination, &offers).await;
    failpoints.hit("relay.offer.after");
    for (span, outcome) in spans.iter().zip(&outcomes) {
        conclude(span, outcome);
    }
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

/// The span of one attempt, below the one that emitted the event.
fn span(destination: &Destination, item: &Item, place: &Place) -> Span {
    if !place.is_recorded() {
        return Span::none();
    }
    let event = &item.event.event;
    debug_span!(
        "attempt",
        traceparent = place.own(),
        parent_span_id = place.parent(),
        otel.kind = "producer",
        otel.status_code = Empty,
        destination = destination.name,
        sink = destination.sink.kind(),
        event_id = %event.id,
        event_type = event.kind,
        correlation_id = event.headers.get("correlation_id"),
        attempt = item.attempts + 1,
        outcome = Empty,
        error_type = Empty,
        http.response.status_code = Empty,
    )
}

/// Says on an attempt's span how it went: in words and numbers, never in the far side's own text.
fn conclude(span: &Span, outcome: &Outcome) {
    let (word, receipt) = match outcome {
        Ok(receipt) => (AttemptOutcome::Delivered, receipt),
        Err(error) => {
            span.record("otel.status_code", "error");
            span.record("error_type", error.error_type());
            (outcome_of(error), error.receipt())
        }
    };
    span.record("outcome", word.as_str());
    if let Some(status) = receipt.status {
        span.record("http.response.status_code", status);
    }
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
        let traces = Traces::off();
        let none = Failpoints::none();
        let tried = offer(Arc::new(destination), items, clock, none, traces).await;
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
