//! Calling a sink, and protection against sinks that hang, panic or return too few outcomes.

use std::{panic::AssertUnwindSafe, sync::Arc};

use futures_util::FutureExt;
use tokio::time::{Instant, timeout};

use tracing::{Span, debug_span, field::Empty};

use crate::{
    clock::Clock,
    delivery::AttemptOutcome,
    failpoint::Failpoints,
    keyring::ENCRYPTED_UNDER,
    sink::{Offer, Outcome, SinkError},
    trace::{TracePosition, Traces},
};

use super::{
    destination::Destination,
    lane::Item,
    settle::{Tried, outcome_of},
};

/// Offers `items` once. If the sink hangs, panics or returns the wrong number of outcomes, all of
/// them fail.
pub(super) async fn offer(
    destination: Arc<Destination>,
    items: Vec<Item>,
    clock: Clock,
    failpoints: Failpoints,
    traces: Traces,
) -> Vec<Tried> {
    // One span for each offer, or none if nothing is traced.
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

/// The span of one attempt, below the span that emitted the event.
fn span(destination: &Destination, item: &Item, place: &TracePosition) -> Span {
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

/// Records the outcome in the span of an attempt, without the text of the receiver.
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

/// The message for a payload that cannot be decrypted by any key.
#[derive(Debug, thiserror::Error)]
#[error(
    "the header {ENCRYPTED_UNDER} says that the payload is encrypted, but no keyring has encrypted \
     it for this event: it was changed, or moved here from an existing outbox"
)]
struct Undecryptable;

/// Offers the events that can be offered. Those that cannot are rejected permanently and do not
/// delay the others.
pub(super) async fn outcomes(destination: &Destination, offers: &[Offer]) -> Vec<Outcome> {
    let is_readable = |offer: &&Offer| !offer.event.event.headers.contains_key(ENCRYPTED_UNDER);
    if offers.iter().all(|offer| is_readable(&offer)) {
        return sent(destination, offers).await;
    }
    let readable: Vec<Offer> = offers.iter().filter(is_readable).cloned().collect();
    let sent = match readable[..] {
        [] => Vec::new(),
        _ => sent(destination, &readable).await,
    };
    let mut sent = sent.into_iter();
    let each = offers.iter().map(|offer| {
        let sent = is_readable(&offer).then(|| sent.next()).flatten();
        sent.unwrap_or_else(|| Err(SinkError::rejected("encrypted", Undecryptable)))
    });
    each.collect()
}

async fn sent(destination: &Destination, offers: &[Offer]) -> Vec<Outcome> {
    let all_fail = |error_type, why: &'static str| {
        offers
            .iter()
            .map(|_| Err(SinkError::unavailable(error_type, why)))
            .collect()
    };
    // All code of a sink runs in this future: the call, the polls and the drop.
    let delivery = async { timeout(destination.timeout, destination.sink.deliver(offers)).await };
    match AssertUnwindSafe(delivery).catch_unwind().await {
        Ok(Err(_)) => all_fail("timeout", "the sink did not finish within the time limit"),
        Err(_) => all_fail("panic", "the sink panicked"),
        Ok(Ok(outcomes)) if outcomes.len() != offers.len() => all_fail(
            "miscount",
            "the sink did not return one outcome for each offer",
        ),
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
        outbox::{OutboxEvent, build_event},
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

    #[tokio::test]
    async fn what_nobody_can_decrypt_is_refused_and_the_rest_is_offered() {
        check_marked(&[false, true, false, true, true], 2).await;
        check_marked(&[true], 0).await;
        check_marked(&[false, false], 2).await;
    }

    /// A sink that accepts batches up to this size.
    struct Takes(usize);

    impl Sink for Takes {
        fn kind(&self) -> &'static str {
            "takes"
        }

        fn deliver<'a>(&'a self, offers: &'a [Offer]) -> BoxFuture<'a, Vec<Outcome>> {
            assert_eq!(offers.len(), self.0);
            Box::pin(async move { offers.iter().map(|_| Ok(Receipt::default())).collect() })
        }
    }

    async fn check_marked(marked: &[bool], taken: usize) {
        let destination = Arc::new(Destination::new("d", Arc::new(Takes(taken))));
        let clock = Clock::new(|| Timestamp::from_millis(0));
        let mut items: Vec<_> = (1..).take(marked.len()).map(item).collect();
        for (item, _) in items
            .iter_mut()
            .zip(marked)
            .filter(|(_, is_marked)| **is_marked)
        {
            let event = Arc::get_mut(&mut item.event).unwrap();
            let header = (ENCRYPTED_UNDER.to_owned(), "k1".to_owned());
            event.event.headers.extend([header]);
        }
        let tried = offer(destination, items, clock, Failpoints::none(), Traces::off()).await;
        let refused: Vec<_> = tried.iter().map(|it| it.outcome.is_err()).collect();
        assert_eq!(refused, marked);
        for error in tried.into_iter().filter_map(|it| it.outcome.err()) {
            assert!(matches!(error, SinkError::Rejected { .. }), "{error:?}");
            assert_eq!(error.error_type(), "encrypted");
        }
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
            panic!("the sink panics as configured");
        }
    }

    impl Sink for Misbehaviour {
        fn kind(&self) -> &'static str {
            "misbehaving"
        }

        fn deliver<'a>(&'a self, _: &'a [Offer]) -> BoxFuture<'a, Vec<Outcome>> {
            assert!(
                !matches!(self, Self::PanicsWhenCalled),
                "the sink panics as configured"
            );
            Box::pin(async move {
                match self {
                    Self::Hangs => std::future::pending().await,
                    Self::PanicsWhenDropped => {
                        let _bomb = PanicsWhenDropped;
                        std::future::pending().await
                    }
                    Self::Panics | Self::PanicsWhenCalled => {
                        panic!("the sink panics as configured")
                    }
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
        let event = build_event(new, None, &Headers::new(), now, &Random::new(|| 1)).unwrap();
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
