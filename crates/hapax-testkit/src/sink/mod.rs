//! What every sink must do, one named test per law.
//!
//! A sink's tests implement [`SinkUnderTest`] over a real far side that can be
//! told how to behave, and call [`sink_suite!`](crate::sink_suite). The laws
//! are the doc comments of [`hapax::sink`]: an answer for each offer, in order,
//! that is true about the far side.

#![expect(
    clippy::missing_panics_doc,
    reason = "a law panics when it is broken: that is what it is for"
)]

pub mod offers;
pub mod failures;
mod bench;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use hapax::{
    event::{EventId, NewEvent},
    sink::Sink,
};

/// A sink and the real far side that it delivers to.
pub trait SinkUnderTest: Sized + Send + Sync + 'static {
    /// A sink, and a far side that nobody else sees and that accepts everything.
    ///
    /// Where the sink has a timeout it is made short, about a second, so that the law is quick.
    fn fresh() -> impl Future<Output = Self> + Send;

    /// The sink.
    fn sink(&self) -> Arc<dyn Sink>;

    /// The sink's own timeout for one offer; `None` when it leaves that to the relay.
    fn timeout(&self) -> Option<Duration> {
        None
    }

    /// Puts the far side in a mood, for every event; false when it has no such mood.
    fn tell(&self, mood: Mood) -> impl Future<Output = bool> + Send;

    /// Puts the far side in a mood for one event alone; false when it cannot tell events apart.
    fn tell_about(&self, event: EventId, mood: Mood) -> impl Future<Output = bool> + Send {
        let _ = (event, mood);
        std::future::ready(false)
    }

    /// Has the far side take every event but those of one kind, which it has no place for: no queue
    /// listens, the content is wrong. Gives one of these; nothing where there is no such thing.
    fn stray(&self) -> impl Future<Output = Option<NewEvent>> + Send {
        std::future::ready(None)
    }

    /// All that has arrived for good, in order.
    fn arrivals(&self) -> impl Future<Output = Vec<Arrival>> + Send;
}

/// How a far side behaves.
///
/// A law about a mood that a far side does not have holds for it without being tried; only
/// [`Mood::Accept`] must be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    /// It takes what it is offered.
    Accept,
    /// It takes it and has a great deal to say about it.
    Talk,
    /// It takes nothing now and may later.
    Fail,
    /// It will never take what it is offered.
    Refuse,
    /// It wants nothing any more.
    Gone,
    /// It listens and never answers.
    Hang,
    /// Nobody is there.
    Down,
}

/// An event as the far side has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The event's id, as it was carried.
    pub id: String,
    /// The payload, taken out of what carried it; `None` where only its meaning is carried.
    pub payload: Option<Bytes>,
}

/// Puts a sink under the law: one test per law, named after it.
///
/// The argument is the name of a type that implements
/// [`SinkUnderTest`](crate::sink::SinkUnderTest), in scope where the macro stands.
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
                a_failing_far_side_is_unavailable_and_takes_the_event_later
                a_far_side_that_is_down_is_unavailable_and_takes_the_event_later
                a_refusal_for_good_is_rejected
                a_far_side_that_wants_nothing_more_is_gone
                a_hang_ends_within_the_timeout
                a_call_that_is_dropped_half_way_harms_no_later_one
                an_offer_that_fails_fails_no_other
                an_event_that_the_far_side_has_no_place_for_is_declined_alone
            }
        }
    };
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_law_that_is_written_is_on_the_list() {
        crate::law::check_list(
            include_str!("mod.rs"),
            &[
                ("offers", include_str!("offers.rs")),
                ("failures", include_str!("failures.rs")),
            ],
        );
    }
}
