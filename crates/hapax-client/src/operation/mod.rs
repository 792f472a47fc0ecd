//! Retry decisions of one operation, from its first attempt to its end.
//!
//! This module neither waits nor sends. The caller asks it before and after each attempt. A retry
//! is subtracted from the budget when it is sent, not when it is decided: otherwise more retries
//! than the budget allows could be sent in one time window.

use std::{sync::Arc, time::Duration};

use hapax::retry::Again;

use crate::{
    attempt::{Attempt, Attempts},
    policy::{Seen, is_final},
    shared::Shared,
    stopped::Stopped,
    telemetry,
};

/// What to do after an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Wait, then ask whether to send again.
    Wait(Duration),
    /// Do not send again.
    Stop(Stopped),
}

/// An operation that is running.
#[derive(Debug)]
pub(crate) struct Operation {
    shared: Arc<Shared>,
    account: Arc<str>,
    /// The name of the destination in metrics.
    label: Arc<str>,
    repeatable: bool,
    attempts: Attempts,
    delay: Duration,
    sent_at: Duration,
    doubt: bool,
    /// The time limit.
    total: Duration,
}

impl Operation {
    /// Starts an operation, whose first attempt is sent now.
    pub(crate) fn begin(shared: &Arc<Shared>, destination: Arc<str>, repeatable: bool) -> Self {
        let account = shared.account(destination);
        let now = shared.clock.now();
        shared.balance(&account, |balance| balance.first(now));
        Self {
            shared: Arc::clone(shared),
            label: shared.label(&account),
            account,
            repeatable,
            attempts: Attempts::default(),
            delay: Duration::ZERO,
            sent_at: Duration::ZERO,
            doubt: false,
            total: shared.policy.backoff.total,
        }
    }

    /// Limits the time of the operation further.
    #[cfg(feature = "reqwest")]
    pub(crate) fn end_within(&mut self, most: Duration) {
        self.total = self.total.min(most);
    }

    /// The remaining time, and the time that one attempt may take. Neither is ever zero, because
    /// the caller is about to send.
    pub(crate) fn time(&mut self, elapsed: Duration) -> (Duration, Duration) {
        self.sent_at = elapsed;
        let left = self.total.saturating_sub(elapsed);
        let left = left.max(Duration::from_millis(1));
        let attempt_max = self.shared.policy.attempt_max;
        (left, attempt_max.unwrap_or(left).min(left))
    }

    /// The number of the attempt that is sent next or is running, starting at 1.
    pub(crate) fn number(&self) -> u32 {
        u32::try_from(self.attempts.len() + 1).unwrap_or(u32::MAX)
    }

    /// Whether an attempt before the last one may have had an effect.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.doubt
    }

    /// Records the outcome of an attempt and decides what follows.
    pub(crate) fn seen(
        &mut self,
        seen: Seen,
        code: Option<String>,
        notes: &str,
        elapsed: Duration,
    ) -> Step {
        let number = self.number();
        let status = match seen {
            Seen::Response { status, .. } => Some(status.as_u16()),
            Seen::NotSent | Seen::Lost | Seen::TimedOut => None,
        };
        telemetry::attempt(&self.label, number, self.delay, status);
        let times = (self.delay, elapsed.saturating_sub(self.sent_at));
        let stands = code.as_deref().is_some_and(is_final);
        let mut attempt = Attempt::new(number, times, status, code, notes);
        attempt.timed_out = seen == Seen::TimedOut;
        tracing::debug!(number, status, notes, "attempt");
        self.attempts.push(attempt);
        let step = self.decide(seen, stands, number, elapsed);
        if let Step::Wait(delay) = step {
            self.delay = delay;
            self.doubt |= seen != Seen::NotSent;
        }
        step
    }

    /// Decides after the wait whether the retry may be sent, and subtracts it from the budget.
    pub(crate) fn resume(&self, elapsed: Duration) -> Result<(), Stopped> {
        if elapsed >= self.total {
            return Err(Stopped::Late);
        }
        let now = self.shared.clock.now();
        let taken = self
            .shared
            .balance(&self.account, |balance| balance.take(now));
        if taken {
            Ok(())
        } else {
            Err(Stopped::BudgetExhausted)
        }
    }

    /// The last attempt.
    #[cfg(feature = "reqwest")]
    pub(crate) fn last(&self) -> Option<&Attempt> {
        self.attempts.last()
    }

    /// Ends the operation and returns its attempts.
    pub(crate) fn end(self, stopped: Stopped) -> Attempts {
        telemetry::operation(&self.label, stopped);
        self.attempts
    }

    /// Ends an operation whose client has failed between two attempts, and returns its attempts. It
    /// is not counted, because the failure says nothing about the destination.
    #[cfg(feature = "tower")]
    pub(crate) fn abandon(self) -> Attempts {
        self.attempts
    }

    fn decide(&self, seen: Seen, stands: bool, number: u32, elapsed: Duration) -> Step {
        let now = self.shared.clock.now();
        if stands || !seen.is_passing() {
            self.shared
                .balance(&self.account, |balance| balance.succeeded(now));
            return Step::Stop(Stopped::Final);
        }
        self.shared
            .balance(&self.account, |balance| balance.failed(now));
        if !self.repeatable && seen != Seen::NotSent {
            return Step::Stop(Stopped::Unrepeatable);
        }
        let backoff = &self.shared.policy.backoff;
        let left = self.total.saturating_sub(elapsed);
        let unit = self.shared.random.unit();
        match backoff.after(number, left, unit, seen.asked()) {
            Again::TooLate(asked) => Step::Stop(Stopped::TooLate(asked)),
            Again::Late => Step::Stop(Stopped::Late),
            Again::Exhausted => Step::Stop(Stopped::Exhausted),
            // A retry that the budget would refuse after the wait is refused before it.
            Again::After(_) if !self.shared.balance(&self.account, |it| it.allows(now)) => {
                Step::Stop(Stopped::BudgetExhausted)
            }
            Again::After(wait) => Step::Wait(wait),
        }
    }
}

#[cfg(test)]
mod tests;
