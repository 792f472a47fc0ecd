//! Samples for the tests: a clock that stands still, and offers of events.

use std::sync::Arc;

use hapax::{
    Clock, Random, Timestamp,
    event::{Headers, NewEvent},
    outbox::{OutboxEvent, build_event},
    sink::Offer,
};

const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

pub(crate) fn clock() -> Clock {
    Clock::new(|| NOW)
}

/// The first attempt of an event. Its id is always the same.
pub(crate) fn offer(new: NewEvent) -> Offer {
    numbered_offer(7, new)
}

/// The first attempt of an event; ids differ by `number`.
pub(crate) fn numbered_offer(number: u64, new: NewEvent) -> Offer {
    let random = Random::new(move || number.reverse_bits());
    let event = build_event(new, None, &Headers::new(), NOW, &random).unwrap();
    Offer {
        event: Arc::new(OutboxEvent { position: 1, event }),
        attempt: 1,
        trace: None,
    }
}
