//! Offers for the tests, and the time at which they are made.

use std::sync::Arc;

use hapax::{
    Clock, Random, Timestamp,
    event::{Headers, NewEvent},
    outbox::{OutboxEvent, seal},
    sink::{Offer, Outcome, Sink},
};

/// `Tue, 14 Nov 2023 22:13:20 GMT`.
pub(crate) const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

pub(crate) fn clock() -> Clock {
    Clock::new(|| NOW)
}

/// The first attempt of an event; events differ by `number`.
pub(crate) fn offer(number: u64, new: NewEvent) -> Offer {
    let random = Random::new(move || number.reverse_bits());
    let event = seal(new, None, &Headers::new(), NOW, &random).unwrap();
    let position = i64::try_from(number).unwrap();
    Offer {
        event: Arc::new(OutboxEvent { position, event }),
        attempt: 1,
    }
}

/// An event that says nothing in particular.
pub(crate) fn any_offer() -> Offer {
    offer(
        1,
        NewEvent::json("order.created", &serde_json::json!({"amount": 500})),
    )
}

/// Offers one event alone.
pub(crate) async fn deliver(sink: &impl Sink, offer: Offer) -> Outcome {
    let mut outcomes = sink.deliver(&[offer]).await;
    assert_eq!(outcomes.len(), 1);
    outcomes.remove(0)
}
