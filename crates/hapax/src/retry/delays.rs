//! Delays of a loop that retries or polls: they double up to a maximum.
//!
//! Waiting is the caller's task, and so is jitter. A loop that succeeds starts again with the first
//! delay.

use std::time::Duration;

/// Delays that double from the first one up to the longest one.
///
/// ```
/// use std::time::Duration;
///
/// use hapax::retry::Delays;
///
/// let mut delays = Delays::new((Duration::from_millis(50), Duration::from_millis(150)));
/// let waits = [delays.advance(), delays.advance(), delays.advance(), delays.advance()];
/// assert_eq!(waits.map(|wait| wait.as_millis()), [50, 100, 150, 150]);
/// delays.reset();
/// assert_eq!(delays.next_delay(), Duration::from_millis(50));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delays {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl Delays {
    /// Delays that begin with `first` and do not exceed `longest`.
    pub fn new((first, longest): (Duration, Duration)) -> Self {
        let first = first.min(longest);
        Self {
            first,
            longest,
            next: first,
        }
    }

    /// The delay that [`advance`](Self::advance) returns next.
    pub fn next_delay(&self) -> Duration {
        self.next
    }

    /// Returns the next delay, and doubles the one after it.
    pub fn advance(&mut self) -> Duration {
        let delay = self.next;
        self.next = delay.saturating_mul(2).min(self.longest);
        delay
    }

    /// Starts again with the first delay.
    pub fn reset(&mut self) {
        self.next = self.first;
    }

    /// The delay after `doublings` doublings of the first one.
    pub fn after(&self, doublings: u32) -> Duration {
        let factor = 1 << doublings.min(31);
        self.first.saturating_mul(factor).min(self.longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_is_the_same_taken_in_turn_or_by_its_number() {
        for (first, longest) in [(50, 5_000), (1, 1), (0, 10), (700, 30), (3, u64::MAX)] {
            let bounds = [first, longest].map(Duration::from_millis);
            let mut delays = Delays::new(bounds.into());
            let fresh = delays.clone();
            for doublings in 0..32 {
                assert_eq!(delays.next_delay(), fresh.after(doublings), "{first}");
                assert_eq!(delays.advance(), fresh.after(doublings), "{first}");
            }
            delays.reset();
            assert_eq!(delays, fresh);
        }
    }

    #[test]
    fn no_number_of_doublings_is_too_large() {
        let delays = Delays::new((Duration::from_secs(1), Duration::MAX));
        assert!(delays.after(u32::MAX) >= delays.after(30));
    }
}
