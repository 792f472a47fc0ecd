//! Waiting for something that another task or process does.
//!
//! A test that sleeps for a fixed time is slow on a fast machine and wrong on
//! a slow one. These functions ask again until the answer comes, and give up
//! loudly at a bound. A load and its faults have a pace, though, which is a time
//! and stands for nothing else: [`pace`]. Nothing else that a test awaits sleeps;
//! a server that is dropped is waited for outside any runtime.

use std::{panic::Location, time::Duration};

use tokio::time::{Instant, sleep, timeout_at};

/// How long to wait between two questions.
const TICK: Duration = Duration::from_millis(2);

/// Asks until `condition` holds. A question that gets no answer at all is given up with the rest.
///
/// # Panics
/// When it does not hold after `within`.
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

/// Waits for something that has a bound of its own, or should have.
///
/// # Panics
/// When it has not come `within`.
#[track_caller]
pub fn answered<T>(within: Duration, question: impl Future<Output = T>) -> impl Future<Output = T> {
    let patience = Patience::within(within);
    async move { patience.bounds(question).await }
}

/// Lets time pass between two deeds of a load: two requests, two kills, a question and an answer
/// that is slow on purpose.
///
/// Nothing may be true after it that was not before: whoever waits for something asks
/// [`eventually`].
pub async fn pace(time: Duration) {
    sleep(time).await;
}

/// A bound on how long a loop may go on asking.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    bound: Duration,
    last: Instant,
    caller: &'static Location<'static>,
}

impl Patience {
    /// Patience for `bound` from now.
    #[track_caller]
    pub fn within(bound: Duration) -> Self {
        Self {
            bound,
            last: Instant::now() + bound,
            caller: Location::caller(),
        }
    }

    /// Waits a little before the next question.
    ///
    /// # Panics
    /// When the bound has passed.
    pub async fn pause(&self) {
        if Instant::now() >= self.last {
            self.give_up();
        }
        sleep(TICK).await;
    }

    /// Waits for the answer to a question.
    ///
    /// # Panics
    /// When none has come and the bound has passed.
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
