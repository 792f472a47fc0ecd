//! Backoff of the retry client: full jitter, within a deadline.
//!
//! The wait before retry `n` is random between zero and a ceiling that doubles. A `Retry-After` is
//! a minimum to which the jitter is added, so that clients that received the same value do not
//! retry together. No wait extends past the deadline.

use std::time::Duration;

use super::Delays;
use crate::limits::{BACKOFF_BASE, BACKOFF_CAP, SEND, SEND_ATTEMPTS};

/// How often and how fast one operation is attempted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// Ceiling of the first wait. It doubles with each retry.
    pub base: Duration,
    /// Maximum of the ceiling.
    pub cap: Duration,
    /// Maximum number of attempts, including the first. Zero counts as one.
    pub attempts_max: u32,
    /// Time limit of the operation, from before its first attempt to its response.
    pub total: Duration,
}

/// The decision after a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// Another attempt, after this wait.
    After(Duration),
    /// No further attempt: the maximum number is reached.
    Exhausted,
    /// No further attempt: no time is left.
    Late,
    /// No further attempt: the receiver asked for this wait, which ends after the deadline.
    TooLate(Duration),
}

impl Backoff {
    /// The maximum wait before retry `n` (starting at 1) without a `Retry-After`.
    pub fn ceiling(&self, n: u32) -> Duration {
        Delays::new((self.base, self.cap)).after(n.saturating_sub(1))
    }

    /// Decides whether another attempt follows the failed attempt number `attempt` (starting at 1).
    ///
    /// `left` is the rest of the time limit, `unit` a uniform random number in `0.0..1.0`, and
    /// `asked` the minimum wait that the receiver asked for.
    pub fn after(&self, attempt: u32, left: Duration, unit: f64, asked: Option<Duration>) -> Again {
        if let Some(asked) = asked.filter(|asked| *asked >= left && !asked.is_zero()) {
            return Again::TooLate(asked);
        }
        if left.is_zero() {
            return Again::Late;
        }
        if attempt >= self.attempts_max {
            return Again::Exhausted;
        }
        let asked = asked.unwrap_or_default();
        // Less than the deadline, because an attempt takes some time.
        let room = left.saturating_sub(asked + Duration::from_nanos(1));
        Again::After(asked + self.ceiling(attempt).min(room).mul_f64(unit))
    }
}

impl Default for Backoff {
    /// 100 ms, doubling up to 2 s; at most 5 attempts in at most 10 s.
    fn default() -> Self {
        Self {
            base: BACKOFF_BASE,
            cap: BACKOFF_CAP,
            attempts_max: SEND_ATTEMPTS,
            total: SEND,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PLENTY: Duration = Duration::from_hours(1);

    #[test]
    fn the_ceiling_doubles_up_to_its_cap() {
        let backoff = Backoff::default();
        for (n, millis) in [
            (1, 100),
            (2, 200),
            (3, 400),
            (5, 1_600),
            (6, 2_000),
            (u32::MAX, 2_000),
        ] {
            assert_eq!(backoff.ceiling(n), Duration::from_millis(millis), "{n}");
        }
    }

    #[test]
    fn the_attempts_run_out() {
        let backoff = Backoff::default();
        assert_eq!(backoff.after(5, PLENTY, 0.5, None), Again::Exhausted);
        let half = Again::After(Duration::from_millis(400));
        assert_eq!(backoff.after(4, PLENTY, 0.5, None), half);
    }

    #[test]
    fn what_was_asked_for_is_a_minimum_and_jitter_only_adds_to_it() {
        let asked = Some(Duration::from_secs(3));
        let after = |unit| Backoff::default().after(1, PLENTY, unit, asked);
        assert_eq!(after(0.0), Again::After(Duration::from_secs(3)));
        assert_eq!(after(0.5), Again::After(Duration::from_millis(3_050)));
    }

    #[test]
    fn what_was_asked_for_past_the_deadline_is_handed_back() {
        let asked = Duration::from_secs(7);
        let after = |left| Backoff::default().after(1, left, 0.0, Some(asked));
        assert_eq!(after(asked), Again::TooLate(asked));
        // Also if no attempt would be left: the `Retry-After` is more useful to the caller.
        let last = Backoff::default().after(5, Duration::from_secs(1), 0.0, Some(asked));
        assert_eq!(last, Again::TooLate(asked));
        assert_eq!(after(asked + Duration::from_millis(1)), Again::After(asked));
    }

    #[test]
    fn without_time_there_is_no_attempt() {
        let backoff = Backoff::default();
        assert_eq!(backoff.after(1, Duration::ZERO, 0.0, None), Again::Late);
        let now = Some(Duration::ZERO);
        assert_eq!(backoff.after(1, Duration::ZERO, 0.0, now), Again::Late);
    }

    fn millis(most: u64) -> impl Strategy<Value = Duration> {
        (0..most).prop_map(Duration::from_millis)
    }

    proptest! {
        #[test]
        fn no_wait_is_shorter_than_asked_longer_than_its_bound_or_past_the_deadline(
            (base, cap, left) in (millis(5_000), millis(60_000), millis(120_000)),
            asked in proptest::option::of(millis(120_000)),
            (attempt, attempts_max) in (1_u32..60, 0_u32..60),
            bits in any::<u64>(),
        ) {
            let unit = crate::Random::new(move || bits).unit();
            let backoff = Backoff { base, cap, attempts_max, total: left };
            match backoff.after(attempt, left, unit, asked) {
                Again::After(wait) => {
                    let least = asked.unwrap_or_default();
                    prop_assert!(attempt < attempts_max);
                    prop_assert!(wait >= least);
                    prop_assert!(wait <= least + backoff.ceiling(attempt));
                    prop_assert!(wait < left);
                }
                Again::TooLate(hint) => {
                    prop_assert_eq!(Some(hint), asked);
                    prop_assert!(hint >= left);
                }
                Again::Late => prop_assert!(left.is_zero()),
                Again::Exhausted => prop_assert!(attempt >= attempts_max),
            }
        }
    }
}
