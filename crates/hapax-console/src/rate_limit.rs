//! Rate limit of wrong tokens: delayed responses, a limited number of them at once, and limited
//! logging.
//!
//! A token is compared before the delay, and nothing is held during the delay, so a valid token is
//! accepted at once, however many wrong ones there are. The length of tokens protects against
//! guessing; this module only keeps attackers from filling the log and the machine.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use hapax::Timestamp;
use tokio::{sync::Semaphore, time::sleep};

/// The delay of the response to a wrong token.
pub(crate) const WAIT: Duration = Duration::from_secs(1);
/// Maximum number of delayed responses. Further ones are sent at once.
const WAITING_MAX: usize = 32;
/// Minimum interval between two log messages about wrong tokens.
const REPORT_INTERVAL: Duration = Duration::from_mins(1);

/// The wrong tokens of all browsers.
#[derive(Debug)]
pub(crate) struct RateLimit {
    waiting: Semaphore,
    unreported: Mutex<Unreported>,
}

#[derive(Debug, Default)]
struct Unreported {
    count: u64,
    reported_at: Option<Timestamp>,
}

impl RateLimit {
    /// No wrong tokens yet.
    pub(crate) fn new() -> Self {
        Self {
            waiting: Semaphore::new(WAITING_MAX),
            unreported: Mutex::default(),
        }
    }

    /// Delays the response. Returns false at once if too many responses are delayed already.
    pub(crate) async fn wait(&self) -> bool {
        let Ok(_place) = self.waiting.try_acquire() else {
            return false;
        };
        sleep(WAIT).await;
        true
    }

    /// Counts a wrong token. If it is time for a log message, returns the number since the last
    /// one.
    pub(crate) fn count(&self, now: Timestamp) -> Option<u64> {
        let mut unreported = self
            .unreported
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        unreported.count += 1;
        if unreported
            .reported_at
            .is_some_and(|at| now.since(at) < REPORT_INTERVAL)
        {
            return None;
        }
        unreported.reported_at = Some(now);
        Some(std::mem::take(&mut unreported.count))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::join_all;
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_wrong_token_waits_and_one_too_many_does_not() {
        let rate_limit = RateLimit::new();
        let began = Instant::now();
        let waited = join_all((0..=WAITING_MAX).map(|_| rate_limit.wait())).await;
        assert_eq!(waited.iter().filter(|it| **it).count(), WAITING_MAX);
        assert!(began.elapsed() >= WAIT);
        assert!(rate_limit.wait().await, "places are free again");
    }

    #[test]
    fn the_log_tells_of_the_first_and_then_of_all_since() {
        let rate_limit = RateLimit::new();
        let at = |seconds: i64| Timestamp::from_millis(seconds * 1000);
        assert_eq!(rate_limit.count(at(0)), Some(1));
        assert_eq!(rate_limit.count(at(1)), None);
        assert_eq!(rate_limit.count(at(59)), None);
        assert_eq!(rate_limit.count(at(60)), Some(3));
        assert_eq!(rate_limit.count(at(61)), None);
    }
}
