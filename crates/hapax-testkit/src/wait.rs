//! Waiting for another task or process.
//!
//! A test that sleeps for a fixed time is slow on a fast machine and wrong on a slow one. These
//! functions poll until a condition holds, and fail at a time limit. Only the pace of a load and
//! its faults is a fixed time: [`pace`]. Nothing else that a test awaits sleeps. A server that is
//! dropped is awaited outside any runtime.

use std::{panic::Location, time::Duration};

use tokio::time::{Instant, sleep, timeout_at};

/// The poll interval.
const TICK: Duration = Duration::from_millis(2);

/// Polls until `condition` holds. A poll that never returns is aborted at the time limit.
///
/// # Panics
/// Panics if the condition does not hold after `within`.
#[track_caller]
pub fn eventually<F>(within: Duration, mut condition: F) -> impl Future<Output = ()>
where
    F: AsyncFnMut() -> bool,
{
    let patience = Patience::within(within);
    async move {
        while !patience.bounds(condition()).await {
            patience.pause().await;
        }
    }
}

/// Waits for something that has, or should have, its own time limit.
///
/// # Panics
/// Panics if it does not complete `within` the limit.
#[track_caller]
pub fn answered<T>(within: Duration, question: impl Future<Output = T>) -> impl Future<Output = T> {
    let patience = Patience::within(within);
    async move { patience.bounds(question).await }
}

/// Lets time pass between two actions of a load: two requests, two kills, a request and a response
/// that is slow on purpose.
///
/// No condition may depend on this time. To wait for a condition, use [`eventually`].
pub async fn pace(time: Duration) {
    sleep(time).await;
}

/// The time limit of a polling loop.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    bound: Duration,
    last: Instant,
    caller: &'static Location<'static>,
}

impl Patience {
    /// A time limit of `bound` from now.
    #[track_caller]
    pub fn within(bound: Duration) -> Self {
        Self {
            bound,
            last: Instant::now() + bound,
            caller: Location::caller(),
        }
    }

    /// Waits a little before the next poll.
    ///
    /// # Panics
    /// Panics if the limit has passed.
    pub async fn pause(&self) {
        if Instant::now() >= self.last {
            self.give_up();
        }
        sleep(TICK).await;
    }

    /// Waits for the result of a poll.
    ///
    /// # Panics
    /// Panics if there is none and the limit has passed.
    pub async fn bounds<T>(&self, question: impl Future<Output = T>) -> T {
        let answer = timeout_at(self.last, question).await;
        answer.unwrap_or_else(|_| self.give_up())
    }

    fn give_up(&self) -> ! {
        let Self { bound, caller, .. } = self;
        panic!("what {caller} waits for did not come within {bound:?}");
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    #[tokio::test]
    async fn a_condition_is_asked_until_it_holds() {
        let mut asked = 0;
        eventually(Duration::from_secs(5), async || {
            asked += 1;
            asked == 3
        })
        .await;
        assert_eq!(asked, 3);
    }

    #[tokio::test]
    #[should_panic(expected = "did not come within")]
    async fn a_condition_that_never_holds_is_given_up_loudly() {
        eventually(Duration::from_millis(5), async || false).await;
    }

    #[tokio::test]
    #[should_panic(expected = "did not come within")]
    async fn a_question_without_an_answer_is_given_up_loudly() {
        eventually(Duration::from_millis(5), pending).await;
    }
}
