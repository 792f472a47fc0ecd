//! Conformance suite for sinks, one named test per requirement.
//!
//! A sink's tests implement [`SinkUnderTest`] with a real receiver whose behavior can be
//! controlled, and call [`sink_suite!`](crate::sink_suite). The requirements are documented in
//! [`hapax::sink`]: one outcome per delivery, in order, that is true about the receiver.

#![expect(
    clippy::missing_panics_doc,
    reason = "a conformance test panics when a requirement is violated"
)]

pub mod offers;
pub mod failures;
mod fixture;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use hapax::{
    event::{EventId, NewEvent},
    sink::Sink,
};

/// A sink and its real receiver.
pub trait SinkUnderTest: Sized + Send + Sync + 'static {
    /// A sink, and a receiver for this test only that accepts everything.
    ///
    /// If the sink has a timeout, set it to about a second, so that the tests are fast.
    fn fresh() -> impl Future<Output = Self> + Send;

    /// The sink.
    fn sink(&self) -> Arc<dyn Sink>;

    /// The timeout of the sink for one delivery; `None` if the sink leaves that to the relay.
    fn timeout(&self) -> Option<Duration> {
        None
    }

    /// Sets the behavior of the receiver for all events. Returns false if it does not support it.
    fn tell(&self, mood: Mood) -> impl Future<Output = bool> + Send;

    /// Sets the behavior of the receiver for one event. Returns false if it cannot distinguish
    /// events.
    fn tell_about(&self, event: EventId, mood: Mood) -> impl Future<Output = bool> + Send {
        let _ = (event, mood);
        std::future::ready(false)
    }

    /// Makes the receiver accept all events except for one kind, which it cannot place: no queue is
    /// bound, or the content is wrong. Returns an event of this kind; `None` if the receiver can
    /// place every event.
    fn stray(&self) -> impl Future<Output = Option<NewEvent>> + Send {
        std::future::ready(None)
    }

    /// All stored arrivals, in order.
    fn arrivals(&self) -> impl Future<Output = Vec<Arrival>> + Send;
}

/// The behavior of a receiver.
///
/// A test of a behavior that a receiver does not support passes without testing it. Only
/// [`Mood::Accept`] is required.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    /// Accepts events.
    Accept,
    /// Accepts events with a long response.
    Talk,
    /// Fails, but may accept later.
    Fail,
    /// Refuses events permanently.
    Refuse,
    /// Wants no more events.
    Gone,
    /// Listens and never responds.
    Hang,
    /// Does not listen.
    Down,
}

/// An event at the receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The event id, as transferred.
    pub id: String,
    /// The payload, extracted from its envelope; `None` if only its meaning is transferred.
    pub payload: Option<Bytes>,
}

/// Runs the conformance suite for a sink: one test per requirement, named after it.
///
/// The argument is the name of a type that implements [`SinkUnderTest`](crate::sink::SinkUnderTest)
/// and is in scope at the macro call.
#[macro_export]
macro_rules! sink_suite {
    ($sink:ident) => {
        $crate::suite! { $sink, sink,
            offers {
                an_accepted_offer_arrives_with_its_event_id
                a_payload_arrives_byte_for_byte
                there_is_one_outcome_for_each_offer
                batches_at_once_all_arrive
                an_event_that_is_offered_again_is_accepted_again
                a_long_response_is_cut
            }
            failures {
                a_failing_receiver_is_unavailable_and_takes_the_event_later
                a_receiver_that_is_down_is_unavailable_and_takes_the_event_later
                a_permanent_refusal_is_rejected
                a_receiver_that_wants_nothing_more_is_gone
                a_hang_ends_within_the_timeout
                a_call_that_is_dropped_half_way_harms_no_later_one
                an_offer_that_fails_fails_no_other
                an_event_that_the_receiver_has_no_place_for_is_declined_alone
            }
        }
    };
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_law_that_is_written_is_on_the_list() {
        crate::conformance::check_list(
            include_str!("mod.rs"),
            &[
                ("offers", include_str!("offers.rs")),
                ("failures", include_str!("failures.rs")),
            ],
        );
    }
}
