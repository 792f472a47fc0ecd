//! Offers for the tests, and the time at which they are made.

use std::{sync::Arc, time::Duration};

use hapax::{
    Clock, Random, Timestamp,
    event::{Headers, NewEvent},
    outbox::{OutboxEvent, build_event},
    sink::{Offer, Outcome, Sink, SinkError},
};
use hapax_testkit::wait::Patience;

/// The time at which the clock stands still.
pub(crate) const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

/// [`NOW`] in the header `Date`.
pub(crate) const DATE: &str = "Tue, 14 Nov 2023 22:13:20 GMT";

/// How long a test waits for a condition.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn clock() -> Clock {
    Clock::new(|| NOW)
}

/// The first attempt of an event; events differ by `number`.
pub(crate) fn offer(number: u64, new: NewEvent) -> Offer {
    let random = Random::new(move || number.reverse_bits());
    let event = build_event(new, None, &Headers::new(), NOW, &random).unwrap();
    let position = i64::try_from(number).unwrap();
    Offer {
        event: Arc::new(OutboxEvent { position, event }),
        attempt: 1,
        trace: None,
    }
}

/// Any event, for tests in which its content does not matter.
pub(crate) fn any_offer() -> Offer {
    offer(
        1,
        NewEvent::json("order.created", &serde_json::json!({"amount": 500})),
    )
}

/// Offers a single event.
pub(crate) async fn deliver(sink: &impl Sink, offer: Offer) -> Outcome {
    let mut outcomes = sink.deliver(&[offer]).await;
    assert_eq!(outcomes.len(), 1);
    outcomes.remove(0)
}

/// First attempts of `count` events of a few keys, each with a payload of about `bytes` bytes.
pub(crate) fn offers(count: u64, bytes: usize) -> Vec<Offer> {
    let filler = "x".repeat(bytes);
    let new = |number: u64| {
        NewEvent::json(
            "order.created",
            &serde_json::json!({"n": number, "filler": filler}),
        )
        .about("order", format!("o-{}", number % 7))
    };
    (1..=count)
        .map(|number| offer(number, new(number)))
        .collect()
}

/// The second attempts of these events.
pub(crate) fn again(offers: &[Offer]) -> Vec<Offer> {
    let second = |offer: &Offer| Offer {
        attempt: 2,
        ..offer.clone()
    };
    offers.iter().map(second).collect()
}

/// The ids of the offered events, in order.
pub(crate) fn ids(offers: &[Offer]) -> Vec<String> {
    offers
        .iter()
        .map(|offer| offer.event().id.to_string())
        .collect()
}

/// Offers events again until all are taken, as the relay does. All other outcomes must be temporary
/// failures.
pub(crate) async fn deliver_all(sink: &impl Sink, offers: &[Offer]) {
    let patience = Patience::within(PATIENCE);
    let mut left = offers.to_vec();
    while !left.is_empty() {
        let outcomes = sink.deliver(&left).await;
        left = unavailable(&left, outcomes);
        if !left.is_empty() {
            patience.pause().await;
        }
    }
}

/// The offers that were not taken and may be repeated.
pub(crate) fn unavailable(offers: &[Offer], outcomes: Vec<Outcome>) -> Vec<Offer> {
    assert_eq!(offers.len(), outcomes.len());
    let mut left = Vec::new();
    for (offer, outcome) in offers.iter().zip(outcomes) {
        match outcome {
            Ok(_) => {}
            Err(SinkError::Unavailable { .. } | SinkError::Declined { .. }) => left.push(Offer {
                event: Arc::clone(&offer.event),
                attempt: offer.attempt + 1,
                trace: None,
            }),
            Err(error) => panic!("{}", error.error_chain()),
        }
    }
    left
}

/// Checks that all events were taken.
#[track_caller]
pub(crate) fn all_taken(outcomes: &[Outcome]) {
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
}

/// The offers that did not succeed.
pub(crate) fn still_open(offers: Vec<Offer>, outcomes: &[Outcome]) -> Vec<Offer> {
    assert_eq!(offers.len(), outcomes.len());
    let pairs = offers.into_iter().zip(outcomes);
    pairs
        .filter(|(_, outcome)| outcome.is_err())
        .map(|(offer, _)| offer)
        .collect()
}

/// Checks that an offer may be repeated, for this type of error, and returns the error chain.
#[track_caller]
pub(crate) fn postponed(outcome: &Outcome, expected: &str) -> String {
    match outcome {
        Err(
            error @ (SinkError::Unavailable { error_type, .. }
            | SinkError::Declined { error_type, .. }),
        ) if *error_type == expected => error.error_chain(),
        other => panic!("not unavailable for {expected}: {other:?}"),
    }
}

/// Checks that an event was rejected, for this type of error, and returns the error chain.
#[track_caller]
pub(crate) fn rejected(outcome: &Outcome, expected: &str) -> String {
    match outcome {
        Err(error @ SinkError::Rejected { error_type, .. }) if *error_type == expected => {
            error.error_chain()
        }
        other => panic!("not rejected for {expected}: {other:?}"),
    }
}

/// The type of the error of a receiver that is unavailable.
#[track_caller]
pub(crate) fn error_type(outcome: Outcome) -> &'static str {
    match outcome {
        Err(error @ SinkError::Unavailable { .. }) => error.error_type(),
        other => panic!("{other:?}"),
    }
}

/// Checks a failure: whether it is temporary, its type, and a part of its error chain.
#[track_caller]
pub(crate) fn check_failure(outcome: &Outcome, again: bool, error_type: &str, error_chain: &str) {
    let error = outcome.as_ref().unwrap_err();
    let is_again = matches!(
        error,
        SinkError::Unavailable { .. } | SinkError::Declined { .. }
    );
    let result = error.error_chain();
    assert_eq!(
        (is_again, error.error_type()),
        (again, error_type),
        "{result}"
    );
    assert!(result.contains(error_chain), "{result}");
}
