//! Sinks with one fault each, and the conformance test that detects it.

use std::{sync::Arc, time::Duration};

use futures_util::{
    FutureExt,
    future::{BoxFuture, join_all},
};
use hapax::{
    event::Payload,
    outbox::OutboxEvent,
    sink::{Offer, Outcome, Receipt, Sink, SinkError},
};
use hapax_testkit::{
    conformance,
    sink::{Arrival, Mood, SinkUnderTest, failures, offers},
};

use crate::plain::{FarSide, Plain, TIMEOUT};

/// The delivery function of a broken sink, which replaces that of the plain one.
type Deliver = for<'a> fn(&'a Plain, &'a [Offer]) -> BoxFuture<'a, Vec<Outcome>>;

struct Broken {
    plain: Plain,
    deliver: Deliver,
}

impl Sink for Broken {
    fn kind(&self) -> &'static str {
        "broken"
    }

    fn deliver<'a>(&'a self, offers: &'a [Offer]) -> BoxFuture<'a, Vec<Outcome>> {
        (self.deliver)(&self.plain, offers)
    }
}

/// Defines a type under test with a fault. The suite takes types, not values.
macro_rules! broken {
    ($name:ident, $deliver:expr) => {
        struct $name {
            far_side: FarSide,
            sink: Arc<Broken>,
        }

        impl SinkUnderTest for $name {
            async fn fresh() -> Self {
                let far_side = FarSide::start().await;
                let plain = Plain::new(far_side.address);
                let deliver: Deliver = $deliver;
                Self {
                    far_side,
                    sink: Arc::new(Broken { plain, deliver }),
                }
            }

            fn sink(&self) -> Arc<dyn Sink> {
                Arc::clone(&self.sink) as Arc<dyn Sink>
            }

            fn timeout(&self) -> Option<Duration> {
                Some(TIMEOUT)
            }

            async fn tell(&self, mood: Mood) -> bool {
                self.far_side.tell(mood).await;
                true
            }

            async fn arrivals(&self) -> Vec<Arrival> {
                self.far_side.arrivals()
            }
        }
    };
}

broken!(SaysYesAndDoesNothing, |_, offers| {
    let yes = offers.iter().map(|_| Ok(Receipt::default())).collect();
    Box::pin(std::future::ready(yes))
});

broken!(AnswersForTheBatch, |plain, offers| Box::pin(async move {
    join_all(offers.iter().map(|offer| plain.offer(offer)))
        .await
        .pop()
        .into_iter()
        .collect()
}));

broken!(WritesTheJsonAnew, |plain, offers| Box::pin(async move {
    let anew = offers.iter().map(|offer| {
        let mut event = offer.event().clone();
        if let Payload::Json(text) = &event.payload {
            let value: serde_json::Value = serde_json::from_str(text).expect("it is JSON");
            event.payload = Payload::Json(value.to_string());
        }
        let position = offer.event.position;
        Offer {
            event: Arc::new(OutboxEvent { position, event }),
            attempt: offer.attempt,
            trace: None,
        }
    });
    let anew: Vec<_> = anew.collect();
    join_all(anew.iter().map(|offer| plain.offer(offer))).await
}));

broken!(GivesUpAtOnce, |plain, offers| Box::pin(async move {
    let outcomes = join_all(offers.iter().map(|offer| plain.offer(offer))).await;
    let never = |_| SinkError::rejected("failed", "it failed");
    outcomes
        .into_iter()
        .map(|outcome| outcome.map_err(never))
        .collect()
}));

broken!(HopesForEver, |plain, offers| Box::pin(async move {
    let outcomes = join_all(offers.iter().map(|offer| plain.offer(offer))).await;
    let again = |_| SinkError::unavailable("failed", "it failed");
    outcomes
        .into_iter()
        .map(|outcome| outcome.map_err(again))
        .collect()
}));

broken!(StopsAtTheFirstFailure, |plain, offers| Box::pin(
    async move {
        let mut outcomes = Vec::new();
        for offer in offers {
            let failed = outcomes.last().is_some_and(Result::is_err);
            outcomes.push(if failed {
                Err(SinkError::rejected("batch", "an earlier offer failed"))
            } else {
                plain.offer(offer).await
            });
        }
        outcomes
    }
));

broken!(LosesItsPatience, |plain, offers| Box::pin(async move {
    let outcomes = join_all(offers.iter().map(|offer| plain.offer(offer))).await;
    // It reports a timeout as a delivery, although the receiver may not have the event.
    let hope = |error: SinkError| match error.error_type() {
        "timeout" => Ok(Receipt::default()),
        _ => Err(error),
    };
    outcomes
        .into_iter()
        .map(|outcome| outcome.or_else(hope))
        .collect()
}));

#[test]
fn a_delivery_that_never_happened_is_caught() {
    check_bites(offers::an_accepted_offer_arrives_with_its_event_id::<
        SaysYesAndDoesNothing,
    >());
}

#[test]
fn an_answer_for_a_whole_batch_is_caught() {
    check_bites(offers::there_is_one_outcome_for_each_offer::<
        AnswersForTheBatch,
    >());
}

#[test]
fn json_that_was_parsed_and_written_again_is_caught() {
    check_bites(offers::a_payload_arrives_byte_for_byte::<WritesTheJsonAnew>());
}

#[test]
fn a_failure_that_is_taken_for_a_refusal_is_caught() {
    use failures::a_failing_receiver_is_unavailable_and_takes_the_event_later as requirement;
    check_bites(requirement::<GivesUpAtOnce>());
}

#[test]
fn a_refusal_that_is_taken_for_a_failure_is_caught() {
    check_bites(failures::a_permanent_refusal_is_rejected::<HopesForEver>());
    check_bites(failures::a_receiver_that_wants_nothing_more_is_gone::<
        HopesForEver,
    >());
}

#[test]
fn a_failure_that_spoils_its_batch_is_caught() {
    use failures::a_receiver_that_is_down_is_unavailable_and_takes_the_event_later as requirement;
    check_bites(requirement::<StopsAtTheFirstFailure>());
}

#[test]
fn a_timeout_that_is_taken_for_a_delivery_is_caught() {
    check_bites(failures::a_hang_ends_within_the_timeout::<LosesItsPatience>());
}

/// Checks that the conformance test fails.
fn check_bites(broken: impl Future<Output = ()>) {
    conformance::hold(async {
        let held = std::panic::AssertUnwindSafe(broken).catch_unwind().await;
        assert!(
            held.is_err(),
            "the conformance test did not detect the fault"
        );
    });
}
