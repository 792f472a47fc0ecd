//! Rate limit of a destination, in events per second.

use std::time::Duration;

use crate::clock::Timestamp;

/// A token bucket that fills at the allowed rate and holds the events of one second.
#[derive(Debug)]
pub(super) struct Rate {
    per_second: u64,
    /// The balance, in thousandths of an event.
    milli_events: u64,
    filled_at: Timestamp,
}

impl Rate {
    pub(super) fn new(per_second: u32, now: Timestamp) -> Self {
        let per_second = u64::from(per_second.max(1));
        Self {
            per_second,
            milli_events: 1_000,
            filled_at: now,
        }
    }

    /// The number of events that may be offered now.
    pub(super) fn allows(&mut self, now: Timestamp) -> usize {
        let millis = u64::try_from(now.since(self.filled_at).as_millis()).unwrap_or(u64::MAX);
        let full = self.per_second * 1_000;
        let filled = self
            .milli_events
            .saturating_add(millis.saturating_mul(self.per_second));
        self.milli_events = filled.min(full);
        // If the clock was set back, the new time is used. Otherwise nothing would be offered until
        // the clock has caught up.
        self.filled_at = now;
        usize::try_from(self.milli_events / 1_000).unwrap_or(usize::MAX)
    }

    /// The time until one more event may be offered.
    pub(super) fn next(&self) -> Duration {
        let missing = 1_000_u64.saturating_sub(self.milli_events);
        Duration::from_millis(missing.div_ceil(self.per_second))
    }

    /// Subtracts `events` that are offered.
    pub(super) fn spend(&mut self, events: usize) {
        self.milli_events = self.milli_events.saturating_sub(events as u64 * 1_000);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_second_holds_more_than_its_share_and_a_clock_set_back_gives_and_takes_nothing() {
        let at = Timestamp::from_millis;
        let mut rate = Rate::new(10, at(0));
        assert_eq!(rate.allows(at(0)), 1);
        rate.spend(1);
        assert_eq!(rate.allows(at(99)), 0);
        assert_eq!(rate.next(), Duration::from_millis(1));
        assert_eq!(rate.allows(at(100)), 1);
        assert_eq!(rate.allows(at(60_000)), 10);
        rate.spend(10);
        assert_eq!(rate.allows(at(0)), 0);
        assert_eq!(rate.allows(at(100)), 1);
    }
}
