//! Wrong tokens at the door: each is answered late, a bounded number at once, and the log tells of them
//! now and then.
//!
//! A token is compared before anybody waits, and nothing is held while somebody does: who has a right one
//! comes in at once, however many guess. What keeps guessers out is the length of a token; this keeps
//! them from filling the log and the machine.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use hapax::Timestamp;
use tokio::{sync::Semaphore, time::sleep};

/// How long a wrong token waits for its answer.
pub(crate) const WAIT: Duration = Duration::from_secs(1);
/// Wrong tokens that wait at once; one more is told so right away.
const WAITING_MAX: usize = 32;
/// How often the log tells of wrong tokens at most.
const TELL: Duration = Duration::from_mins(1);

/// The wrong tokens of all browsers.
#[derive(Debug)]
pub(crate) struct Knocks {
    waiting: Semaphore,
    untold: Mutex<Untold>,
}

#[derive(Debug, Default)]
struct Untold {
    count: u64,
    told_at: Option<Timestamp>,
}

impl Knocks {
    /// Nobody has knocked yet.
    pub(crate) fn new() -> Self {
        Self {
            waiting: Semaphore::new(WAITING_MAX),
            untold: Mutex::default(),
        }
    }

    /// Lets whoever was wrong wait for the answer; false, at once, where too many wait already.
    pub(crate) async fn wait(&self) -> bool {
        let Ok(_place) = self.waiting.try_acquire() else {
            return false;
        };
        sleep(WAIT).await;
        true
    }

    /// Counts one, and says how many there were since that was told, when it is time to tell.
    pub(crate) fn count(&self, now: Timestamp) -> Option<u64> {
        let mut untold = self.untold.lock().unwrap_or_else(PoisonError::into_inner);
        untold.count += 1;
        if untold.told_at.is_some_and(|at| now.since(at) < TELL) {
            return None;
        }
        untold.told_at = Some(now);
        Some(std::mem::take(&mut untold.count))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::join_all;
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_wrong_token_waits_and_one_too_many_does_not() {
        let knocks = Knocks::new();
        let began = Instant::now();
        let waited = join_all((0..=WAITING_MAX).map(|_| knocks.wait())).await;
        assert_eq!(waited.iter().filter(|it| **it).count(), WAITING_MAX);
        assert!(began.elapsed() >= WAIT);
        assert!(knocks.wait().await, "places are free again");
    }

    #[test]
    fn the_log_tells_of_the_first_and_then_of_all_since() {
        let knocks = Knocks::new();
        let at = |seconds: i64| Timestamp::from_millis(seconds * 1000);
        assert_eq!(knocks.count(at(0)), Some(1));
        assert_eq!(knocks.count(at(1)), None);
        assert_eq!(knocks.count(at(59)), None);
        assert_eq!(knocks.count(at(60)), Some(3));
        assert_eq!(knocks.count(at(61)), None);
    }
}
