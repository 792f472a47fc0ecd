//! What the probe finds out about an operation before its checks rely on it, once for each operation.
//!
//! The count of effects has to follow an accepted request: it rises by one, and the probe remembers how
//! late. Otherwise no check uses it. Two executions of one payload have two different bodies or not: if
//! not, an equal body does not prove a replay. The varied payload has to be accepted under a key of its
//! own before its refusal under a used key means anything.

use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use crate::{
    subject::Subject,
    verdict::{Judge, Stop},
};

/// How long the count may take to follow a response.
const FOLLOWS_MAX: Duration = Duration::from_secs(5);
/// How long the probe waits between two counts.
const BETWEEN: Duration = Duration::from_millis(100);
/// How long after the last response an effect is late, and still looked for.
pub(crate) const LATE: Duration = Duration::from_secs(3);
/// How long a count may go on changing.
const CHANGES_MAX: Duration = Duration::from_secs(30);

impl Subject<'_> {
    /// Returns the number of effects so far, or `None` if the plan has no count.
    pub(crate) async fn effects(&self) -> Result<Option<u64>, Stop> {
        if self.operation.oracle.is_none() {
            return Ok(None);
        }
        self.calibrated().await?;
        // An effect may appear as late as the one of the calibration did.
        self.rest(self.known.lag() * 2).await;
        let mut count = self.count().await?;
        if self.last_count().is_none() && !self.operation.settle.is_zero() {
            count = self.settled_count(count).await?;
        }
        self.known
            .counted
            .set(Some((count, self.known.requests.get())));
        Ok(Some(count))
    }

    /// Counts until the count has not changed for the plan's time.
    async fn settled_count(&self, mut count: u64) -> Result<u64, Stop> {
        let end = Instant::now() + self.operation.settle + CHANGES_MAX;
        if self.plan.dry_run {
            return Ok(count);
        }
        loop {
            sleep(self.operation.settle).await;
            let again = self.count().await?;
            if again == count {
                return Ok(count);
            }
            if Instant::now() > end {
                return Err(Stop::Effects("the count goes on changing".to_owned()));
            }
            count = again;
        }
    }

    /// Returns the last count, if no request was sent since.
    pub(crate) fn last_count(&self) -> Option<u64> {
        let (count, requests) = self.known.counted.get()?;
        (requests == self.known.requests.get()).then_some(count)
    }

    /// Returns the number of effects since `before`.
    pub(crate) async fn effects_since(&self, before: Option<u64>) -> Result<Option<u64>, Stop> {
        let after = self.effects().await?;
        before
            .zip(after)
            .map(|(before, after)| difference(before, after))
            .transpose()
    }

    /// As [`Self::effects_since`]. If there are fewer effects than expected, the probe asks first whether
    /// the count still follows.
    pub(crate) async fn effects_made(
        &self,
        before: Option<u64>,
        expected: u64,
    ) -> Result<Option<u64>, Stop> {
        let made = self.effects_since(before).await?;
        if self.plan.dry_run || made.is_none_or(|made| made >= expected) {
            return Ok(made);
        }
        self.still_counted().await?;
        // The request that asked had an effect too.
        let made = self.effects_since(before).await?;
        Ok(made.map(|made| made.saturating_sub(1)))
    }

    /// Requires this number of effects since `before`.
    pub(crate) async fn require_effects(
        &self,
        judge: &mut Judge,
        before: Option<u64>,
        expected: u64,
    ) -> Result<(), Stop> {
        // A check that has failed already needs no doubt.
        let doubted = if judge.violated() { 0 } else { expected };
        match self.effects_made(before, doubted).await {
            Ok(made) => judge.effects(made, expected),
            Err(stop @ Stop::Effects(_)) => judge.missing(stop.to_string()),
            Err(stop) => return Err(stop),
        }
        Ok(())
    }

    /// Finds out whether the count follows an accepted request, unless it is known.
    pub(crate) async fn calibrated(&self) -> Result<(), Stop> {
        if self.operation.oracle.is_none() {
            return Ok(());
        }
        let known = self.known.lag.borrow().clone();
        match known {
            Some(lag) => lag.map(|_| ()).map_err(Stop::Effects),
            None => self.still_counted().await,
        }
    }

    /// Finds out whether the count follows an accepted request. A later answer replaces the one before.
    pub(crate) async fn still_counted(&self) -> Result<(), Stop> {
        let lag = Box::pin(self.unrecorded(self.follows())).await?;
        let lag = match (self.known.lag.take(), lag) {
            (Some(Ok(before)), Ok(lag)) => Ok(before.max(lag)),
            (_, lag) => lag,
        };
        self.known.lag.replace(Some(lag.clone()));
        lag.map(|_| ()).map_err(Stop::Effects)
    }

    /// Sends a request that has to raise the count by one, and returns how long that took.
    async fn follows(&self) -> Result<Result<Duration, String>, Stop> {
        // Effects of earlier requests may be on their way.
        self.rest(LATE.max(self.operation.settle)).await;
        let before = self.count().await?;
        self.succeeded().await?;
        let start = Instant::now();
        let mut lag = Duration::ZERO;
        loop {
            let after = self.count().await?;
            if after == before + 1 || self.plan.dry_run {
                return Ok(Ok(lag));
            }
            if after != before || start.elapsed() > FOLLOWS_MAX {
                return Ok(Err(format!(
                    "the count did not follow an accepted request: it was {before} before and {after} after it"
                )));
            }
            sleep(BETWEEN).await;
            // The count of the next round ends later than it begins.
            lag = start.elapsed() + BETWEEN;
        }
    }

    /// Sends a new payload under a new key, which has to succeed.
    async fn succeeded(&self) -> Result<(), Stop> {
        let request = self.request(&self.key(), &self.payload());
        let answer = self.settled(&request).await?;
        if answer.is_success() {
            Ok(())
        } else {
            Err(Stop::NotAccepted(answer.describe()))
        }
    }

    /// Whether an equal response proves a replay: a payload gets different responses under two keys.
    pub(crate) async fn recognizable(&self) -> Result<bool, Stop> {
        if let Some(known) = self.known.recognizable.get() {
            return Ok(known);
        }
        let found = Box::pin(self.unrecorded(self.differ())).await?;
        self.known.recognizable.set(Some(found));
        Ok(found)
    }

    async fn differ(&self) -> Result<bool, Stop> {
        let payload = self.payload();
        let one = self.settled(&self.request(&self.key(), &payload)).await?;
        if !one.is_success() {
            return Err(Stop::NotAccepted(one.describe()));
        }
        let two = self.settled(&self.request(&self.key(), &payload)).await?;
        Ok(self.plan.dry_run || !one.is_like(&two))
    }

    /// Requires that the varied payload is accepted under a new key.
    pub(crate) async fn accepts_varied(&self) -> Result<(), Stop> {
        let known = self.known.varied.borrow().clone();
        let accepted = if let Some(accepted) = known {
            accepted
        } else {
            let accepted = Box::pin(self.unrecorded(self.try_varied())).await?;
            self.known.varied.replace(Some(accepted.clone()));
            accepted
        };
        accepted.map_err(Stop::Varied)
    }

    async fn try_varied(&self) -> Result<Result<(), String>, Stop> {
        let Some(varied) = self.varied(&self.payload()) else {
            return Ok(Ok(()));
        };
        let answer = self.settled(&self.request(&self.key(), &varied)).await?;
        Ok(if answer.is_success() {
            Ok(())
        } else {
            Err(answer.describe())
        })
    }

    /// Waits until this time has passed since the last request ended, except in a dry run.
    pub(crate) async fn rest(&self, time: Duration) {
        if let Some(at) = self.known.ended_at.get()
            && !self.plan.dry_run
        {
            sleep_until(at + time).await;
        }
    }
}

/// Returns by how much a count has risen. A count that has fallen says nothing.
fn difference(before: u64, after: u64) -> Result<u64, Stop> {
    after
        .checked_sub(before)
        .ok_or_else(|| Stop::Effects(format!("the count fell from {before} to {after}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_that_has_fallen_says_nothing() {
        assert!(matches!(difference(5, 5), Ok(0)));
        assert!(matches!(difference(5, 7), Ok(2)));
        assert!(matches!(difference(5, 1), Err(Stop::Effects(_))));
    }
}
