//! Circuit breaker: stops offers to a destination that keeps failing.
//!
//! Ten failures in a row open the breaker. While it is open, nothing is offered and no attempt is
//! counted. After a wait one event is offered as a probe: if it succeeds, the breaker closes,
//! otherwise it stays open for another wait. A destination that fails for five days is disabled.
//! Time in which nothing was offered does not count.

use std::time::Duration;

use crate::{
    clock::Timestamp,
    limits::{BREAKER_FAILURES, BREAKER_OPEN, FAILING_GAP, FAILING_MAX},
};

#[derive(Debug, Default)]
pub(super) struct Breaker {
    failures: u32,
    /// How long all offers have failed, without the time in which nothing was offered.
    failing_for: Duration,
    failed_at: Option<Timestamp>,
    open_until: Option<Timestamp>,
}

/// How many events may be offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Allowed {
    All,
    /// One event, to find out whether the receiver is available again.
    Probe,
    NothingUntil(Timestamp),
}

impl Breaker {
    pub(super) fn allows(&self, now: Timestamp) -> Allowed {
        match self.open_until {
            None => Allowed::All,
            // A wait that is longer than the longest possible one means that the clock was set
            // back.
            Some(until) if now < until && until.since(now) <= BREAKER_OPEN => {
                Allowed::NothingUntil(until)
            }
            Some(_) => Allowed::Probe,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.open_until.is_some()
    }

    pub(super) fn succeeded(&mut self) {
        *self = Self::default();
    }

    pub(super) fn failed(&mut self, now: Timestamp) {
        let since = self.failed_at.replace(now).unwrap_or(now);
        self.failing_for += now.since(since).min(FAILING_GAP);
        self.failures = self.failures.saturating_add(1);
        if self.failures >= BREAKER_FAILURES {
            self.open_until = Some(now.after(BREAKER_OPEN));
        }
    }

    /// Allows a probe at once, because an operator asks for a delivery.
    pub(super) fn probe_now(&mut self, now: Timestamp) {
        if let Some(until) = &mut self.open_until {
            *until = (*until).min(now);
        }
    }

    /// Whether all offers have failed for so long that the destination is to be disabled.
    pub(super) fn is_hopeless(&self) -> bool {
        self.is_open() && self.failing_for >= FAILING_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_failures_in_a_row_open_it_and_one_success_closes_it() {
        let mut breaker = failed(9);
        assert_eq!(breaker.allows(at(0)), Allowed::All);
        breaker.failed(at(0));
        assert_eq!(breaker.allows(at(9_999)), Allowed::NothingUntil(at(10_000)));
        assert_eq!(breaker.allows(at(10_000)), Allowed::Probe);
        breaker.succeeded();
        assert_eq!(breaker.allows(at(10_000)), Allowed::All);
    }

    #[test]
    fn a_probe_that_fails_opens_it_again() {
        let mut breaker = failed(10);
        breaker.failed(at(10_000));
        assert_eq!(
            breaker.allows(at(19_999)),
            Allowed::NothingUntil(at(20_000))
        );
    }

    #[test]
    fn an_operator_who_asks_does_not_wait_for_the_probe() {
        let mut breaker = failed(10);
        breaker.probe_now(at(1));
        assert_eq!(breaker.allows(at(1)), Allowed::Probe);
        breaker.failed(at(2));
        assert_eq!(breaker.allows(at(3)), Allowed::NothingUntil(at(10_002)));
        let mut closed = failed(9);
        closed.probe_now(at(1));
        assert_eq!(closed.allows(at(1)), Allowed::All);
    }

    #[test]
    fn a_success_in_between_starts_the_count_again() {
        let mut breaker = failed(9);
        breaker.succeeded();
        breaker.failed(at(0));
        assert_eq!(breaker.allows(at(0)), Allowed::All);
    }

    #[test]
    fn a_clock_that_is_set_back_does_not_keep_it_open() {
        let mut breaker = failed(9);
        breaker.failed(at(3_600_000));
        assert_eq!(breaker.allows(at(0)), Allowed::Probe);
    }

    #[test]
    fn five_days_of_failures_are_hopeless() {
        let mut breaker = failed(10);
        for hours in 1..5 * 24 {
            breaker.failed(at(hours * 3_600_000));
            assert!(!breaker.is_hopeless(), "after {hours} hours");
        }
        breaker.failed(at(5 * DAY));
        assert!(breaker.is_hopeless());
        breaker.succeeded();
        assert!(!breaker.is_hopeless());
    }

    #[test]
    fn days_on_which_nothing_was_offered_are_no_failures() {
        let mut breaker = failed(1);
        for _ in 0..10 {
            breaker.failed(at(5 * DAY));
        }
        assert!(breaker.is_open());
        assert!(!breaker.is_hopeless());
    }

    #[test]
    fn a_clock_that_is_set_back_and_forth_makes_nothing_hopeless() {
        let mut breaker = failed(10);
        for _ in 0..20 {
            breaker.failed(at(30 * DAY));
            breaker.failed(at(0));
        }
        assert!(!breaker.is_hopeless());
    }

    const DAY: i64 = 86_400_000;

    fn failed(times: u32) -> Breaker {
        let mut breaker = Breaker::default();
        for _ in 0..times {
            breaker.failed(at(0));
        }
        breaker
    }

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }
}
