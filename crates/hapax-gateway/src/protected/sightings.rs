//! When this process has first seen that a request was sent and has no response.
//!
//! The time in a record is that of the gateway that has sent the request, whose clock may differ from
//! this one's. A request was certainly sent before this process has read its record, so time that is
//! counted from then on, by a monotonic clock, is never too long. A process that was started again
//! begins to count again.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use hapax::Timestamp;
use tokio::time::Instant;

/// Maximum number of requests that are remembered.
const SIGHTINGS_MAX: usize = 65_536;
/// How much longer than `settle` a request is remembered of which nothing more is seen. Completers and
/// clients look more often.
const SPARE: Duration = Duration::from_hours(1);

/// The requests without a response that this process has seen.
#[derive(Debug, Default)]
pub(crate) struct Sightings(Mutex<HashMap<Attempt, Sighting>>);

/// One attempt to send a request: its provider key, which is that of no other request, and the time in
/// its record. If the request is sent again, the time is another one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Attempt {
    pub(super) provider_key: String,
    pub(super) sent_at: Timestamp,
}

#[derive(Clone, Copy, Debug)]
struct Sighting {
    first: Instant,
    last: Instant,
    settle: Duration,
}

impl Sightings {
    /// Records that an attempt is seen now, and returns when it was seen first.
    ///
    /// If too many others are remembered, it is not recorded until one of them is forgotten. None of
    /// them is dropped for it, because otherwise many requests could keep each other from ever being
    /// old enough.
    pub(super) fn see(&self, attempt: Attempt, settle: Duration, now: Instant) -> Instant {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sighting) = seen.get_mut(&attempt) {
            (sighting.last, sighting.settle) = (now, settle);
            return sighting.first;
        }
        if seen.len() >= SIGHTINGS_MAX {
            seen.retain(|_, it| now.duration_since(it.last) < it.settle.saturating_add(SPARE));
        }
        if seen.len() < SIGHTINGS_MAX {
            let (first, last) = (now, now);
            let sighting = Sighting {
                first,
                last,
                settle,
            };
            seen.insert(attempt, sighting);
        }
        now
    }

    /// Forgets an attempt whose outcome is known.
    pub(super) fn forget(&self, attempt: &Attempt) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.remove(attempt);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTLE: Duration = Duration::from_secs(30);

    #[test]
    fn an_attempt_keeps_the_time_at_which_it_was_seen_first() {
        let (sightings, start) = (Sightings::default(), Instant::now());
        let later = start + SETTLE;
        assert_eq!(sightings.see(attempt(1), SETTLE, start), start);
        assert_eq!(sightings.see(attempt(1), SETTLE, later), start);
        assert_eq!(sightings.see(attempt(2), SETTLE, later), later);
        sightings.forget(&attempt(1));
        assert_eq!(sightings.see(attempt(1), SETTLE, later), later);
    }

    #[test]
    fn attempts_of_which_nothing_more_is_seen_make_room() {
        let (sightings, start) = (Sightings::default(), Instant::now());
        for number in 0..=SIGHTINGS_MAX {
            sightings.see(attempt(number), SETTLE, start);
        }
        let second = start + SETTLE;
        // The last one is not recorded, and the others stay.
        let last = || attempt(SIGHTINGS_MAX);
        assert_eq!(sightings.see(last(), SETTLE, second), second);
        assert_eq!(sightings.see(attempt(7), SETTLE, second), start);
        let third = start + SETTLE + SPARE;
        assert_eq!(sightings.see(last(), SETTLE, third), third);
        let fourth = third + SETTLE;
        assert_eq!(sightings.see(last(), SETTLE, fourth), third);
        assert_eq!(sightings.see(attempt(7), SETTLE, fourth), start);
        assert_eq!(sightings.see(attempt(8), SETTLE, fourth), fourth);
    }

    fn attempt(number: usize) -> Attempt {
        Attempt {
            provider_key: number.to_string(),
            sent_at: Timestamp::from_millis(0),
        }
    }
}
