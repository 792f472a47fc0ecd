//! Fixture of the sink suite: a fresh sink with its receiver, and common steps.

use std::sync::Arc;

use bytes::Bytes;
use hapax::{
    event::{EventId, NewEvent},
    outbox::{OutboxEvent, build_event},
    sink::{Offer, Outcome, Sink},
};

use super::{Mood, SinkUnderTest};
use crate::clock::{ManualClock, seeded_random};

#[derive(Debug)]
pub(super) struct Fixture<S> {
    pub(super) under_test: S,
}

impl<S: SinkUnderTest> Fixture<S> {
    pub(super) async fn fresh() -> Self {
        let under_test = S::fresh().await;
        Self { under_test }
    }

    pub(super) fn sink(&self) -> Arc<dyn Sink> {
        self.under_test.sink()
    }

    /// Makes the receiver accept everything.
    pub(super) async fn accept(&self) {
        assert!(
            self.under_test.tell(Mood::Accept).await,
            "every receiver must support `Mood::Accept`"
        );
    }

    pub(super) async fn deliver(&self, offers: &[Offer]) -> Vec<Outcome> {
        let outcomes = self.sink().deliver(offers).await;
        assert_eq!(
            outcomes.len(),
            offers.len(),
            "there must be one outcome for each offer"
        );
        outcomes
    }

    /// Delivers one event once.
    pub(super) async fn offer(&self, offer: &Offer) -> Outcome {
        let mut outcomes = self.deliver(std::slice::from_ref(offer)).await;
        outcomes.pop().expect("there is one outcome for one offer")
    }

    /// The payloads that arrived for an event, one per arrival.
    pub(super) async fn arrived(&self, event: EventId) -> Vec<Option<Bytes>> {
        let id = event.to_string();
        let arrivals = self.under_test.arrivals().await;
        let ours = arrivals.into_iter().filter(|arrival| arrival.id == id);
        ours.map(|arrival| arrival.payload).collect()
    }

    /// Checks that the receiver finally accepts the event, with the same id.
    pub(super) async fn check_taken_later(&self, offer: &Offer) {
        self.accept().await;
        let again = Offer {
            event: Arc::clone(&offer.event),
            attempt: offer.attempt + 1,
            trace: None,
        };
        let outcome = self.offer(&again).await;
        assert!(
            outcome.is_ok(),
            "a later offer must be accepted: {outcome:?}"
        );
        assert_ne!(self.arrived(offer.event().id).await, []);
    }
}

/// First deliveries of this number of events without an aggregate in common.
pub(super) fn offers(count: usize) -> Vec<Offer> {
    let events = (0..count).map(|number| crate::events::event(&number.to_string()));
    offers_of(events)
}

/// First deliveries of these events.
pub(super) fn offers_of(events: impl IntoIterator<Item = NewEvent>) -> Vec<Offer> {
    let random = seeded_random(1);
    let now = ManualClock::new().now();
    let sealed = events.into_iter().zip(1..).map(|(event, position)| {
        let event = build_event(event, None, &hapax::event::Headers::new(), now, &random);
        let event = event.expect("the sample event is well formed");
        Offer {
            event: Arc::new(OutboxEvent { position, event }),
            attempt: 1,
            trace: None,
        }
    });
    sealed.collect()
}
