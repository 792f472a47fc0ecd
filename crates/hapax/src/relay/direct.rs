//! One attempt without a relay: for a test event, or for a program that forwards events.
//!
//! The sink is called as a relay calls it, with the same protection against sinks that hang or
//! panic. Nothing is stored or counted, so the order of the destination, its breaker and its
//! progress do not change.

use std::sync::Arc;

use tokio::time::Instant;

use crate::{
    clock::Clock,
    delivery::Attempt,
    outbox::OutboxEvent,
    sink::{Offer, SinkError},
};

use super::{
    destination::Destination,
    lane::Item,
    offer::outcomes,
    settle::{Tried, attempt_of},
};

/// Offers an event to a destination once, as attempt `number` (starting at 1), without a relay.
///
/// The event need not be in an outbox. The patterns, the filter and the tenant of the destination do
/// not apply, and neither does a pause. The response to a success is left out, except for its status.
pub async fn offer_once(
    destination: &Destination,
    event: Arc<OutboxEvent>,
    number: u32,
    clock: &Clock,
) -> Attempt {
    let offers = [Offer {
        event: Arc::clone(&event),
        attempt: number,
        trace: None,
    }];
    let (started_at, begun) = (clock.now(), Instant::now());
    let outcome = outcomes(destination, &offers).await.pop();
    let none = || Err(SinkError::unavailable("miscount", "there is no outcome"));
    let item = Item {
        event,
        attempts: number.saturating_sub(1),
        parked: false,
        blocked: false,
        order_key: None,
        held_key: None,
    };
    attempt_of(&Tried {
        item,
        started_at,
        duration: begun.elapsed(),
        outcome: outcome.unwrap_or_else(none),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::future::{BoxFuture, pending};

    use super::*;
    use crate::{
        clock::{Random, Timestamp},
        delivery::AttemptOutcome,
        event::{Headers, NewEvent},
        limits::ERROR_BYTES,
        outbox::build_event,
        sink::{Outcome, Receipt, Sink},
    };

    /// A sink with this outcome; without one it hangs.
    struct Responds(Option<fn(u32) -> Outcome>);

    impl Sink for Responds {
        fn kind(&self) -> &'static str {
            "responds"
        }

        fn deliver<'a>(&'a self, offers: &'a [Offer]) -> BoxFuture<'a, Vec<Outcome>> {
            Box::pin(async move {
                match self.0 {
                    None => pending().await,
                    Some(outcome) => offers.iter().map(|it| outcome(it.attempt)).collect(),
                }
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_without_a_relay_has_the_outcome_that_a_relay_would_record() {
        let delivered = check(Some(delivered), AttemptOutcome::Delivered).await;
        assert_eq!((delivered.status, delivered.error), (Some(204), None));
        let declined = check(Some(declined), AttemptOutcome::Declined).await;
        assert_eq!(declined.status, Some(422));
        assert_eq!(declined.response_head, "no such field");
        let error = "sink declined the event: attempt 3 (error type status_4xx)";
        assert_eq!(declined.error.as_deref(), Some(error));
        let long = check(Some(long), AttemptOutcome::Rejected).await;
        let error = long.error.unwrap();
        assert_eq!(error.len(), ERROR_BYTES);
        assert!(error.ends_with("xx (error type content)"), "{error}");
        let hung = check(None, AttemptOutcome::Unavailable).await;
        assert!(hung.error.is_some_and(|it| it.contains("time limit")));
    }

    #[expect(clippy::unnecessary_wraps, reason = "the other outcome is an error")]
    fn delivered(_: u32) -> Outcome {
        Ok(Receipt {
            status: Some(204),
            ..Receipt::default()
        })
    }

    fn declined(attempt: u32) -> Outcome {
        let receipt = Receipt {
            status: Some(422),
            head: "no such field".into(),
        };
        Err(SinkError::Declined {
            retry_after: None,
            error_type: "status_4xx",
            receipt,
            source: format!("attempt {attempt}").into(),
        })
    }

    fn long(_: u32) -> Outcome {
        Err(SinkError::rejected("content", "x".repeat(ERROR_BYTES)))
    }

    /// Offers an event as the third attempt.
    async fn check(outcome: Option<fn(u32) -> Outcome>, expected: AttemptOutcome) -> Attempt {
        let sink = Arc::new(Responds(outcome));
        let destination = Destination::new("d", sink).timeout(Duration::from_secs(1));
        let (now, random) = (Timestamp::from_millis(7), Random::new(|| 1));
        let event =
            build_event(NewEvent::json("a", &1), None, &Headers::new(), now, &random).unwrap();
        let event = Arc::new(OutboxEvent { position: 0, event });
        let clock = Clock::new(move || now);
        let attempt = offer_once(&destination, event, 3, &clock).await;
        assert_eq!(attempt.outcome, expected);
        assert_eq!((attempt.number, attempt.started_at), (3, now));
        attempt
    }
}
