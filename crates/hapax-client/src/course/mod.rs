//! One operation from its first attempt to its end: what was seen in, what to do next out.
//!
//! The course waits for nothing and sends nothing; whoever sends asks it before and after each
//! attempt. A retry is taken out of the budget at the moment at which it is sent, not when it is
//! decided on: only so does the budget hold in every window, however the waits fall.

use std::{sync::Arc, time::Duration};

use hapax::retry::Again;

use crate::{
    attempt::{Attempt, Attempts},
    policy::{Seen, is_final},
    shared::Shared,
    telemetry,
};

/// Why there was no further attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stopped {
    /// The answer stands: another attempt would not change it.
    Final,
    /// The far side may have the request, and nothing would tell it that the next one is the same.
    Unrepeatable,
    /// There were as many attempts as are allowed.
    Exhausted,
    /// The time was over.
    Late,
    /// The far side asks for this wait, and it ends past the deadline.
    TooLate(Duration),
    /// The retry budget of the destination was spent.
    Spent,
}

impl Stopped {
    /// The word for it in metrics and logs.
    pub fn word(self) -> &'static str {
        match self {
            Self::Final => "answered",
            Self::Unrepeatable => "unrepeatable",
            Self::Exhausted => "exhausted",
            Self::Late => "late",
            Self::TooLate(_) => "retry_after",
            Self::Spent => "budget",
        }
    }
}

/// What to do after an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Wait, then ask whether to send again.
    Wait(Duration),
    /// Nothing.
    Stop(Stopped),
}

/// One operation under way.
#[derive(Debug)]
pub(crate) struct Course {
    shared: Arc<Shared>,
    account: Arc<str>,
    /// What metrics call it.
    label: Arc<str>,
    repeatable: bool,
    attempts: Attempts,
    delay: Duration,
    sent_at: Duration,
    doubt: bool,
    /// How long it may take.
    total: Duration,
}

impl Course {
    /// An operation whose first attempt is sent now.
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

    /// Has it end within so much time, however long the policy gives it.
    #[cfg(feature = "reqwest")]
    pub(crate) fn end_within(&mut self, most: Duration) {
        self.total = self.total.min(most);
    }

    /// What is left of the time, and how much of it one attempt may take; never nothing, for
    /// whoever asks is about to send.
    pub(crate) fn time(&mut self, elapsed: Duration) -> (Duration, Duration) {
        self.sent_at = elapsed;
        let left = self.total.saturating_sub(elapsed);
        let left = left.max(Duration::from_millis(1));
        let attempt_max = self.shared.policy.attempt_max;
        (left, attempt_max.unwrap_or(left).min(left))
    }

    /// Whether an attempt before the last may have had its effect.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.doubt
    }

    /// Takes down what became of an attempt, and decides what follows it.
    pub(crate) fn seen(
        &mut self,
        seen: Seen,
        code: Option<String>,
        notes: &str,
        elapsed: Duration,
    ) -> Step {
        let number = u32::try_from(self.attempts.len() + 1).unwrap_or(u32::MAX);
        let status = match seen {
            Seen::Answer { status, .. } => Some(status.as_u16()),
            Seen::NotSent | Seen::Lost => None,
        };
        telemetry::attempt(&self.label, number, self.delay, status);
        let times = (self.delay, elapsed.saturating_sub(self.sent_at));
        let stands = code.as_deref().is_some_and(is_final);
        let attempt = Attempt::new(number, times, status, code, notes);
        tracing::debug!(number, status, notes, "attempt");
        self.attempts.push(attempt);
        let step = self.decide(seen, stands, number, elapsed);
        if let Step::Wait(delay) = step {
            self.delay = delay;
            self.doubt |= seen != Seen::NotSent;
        }
        step
    }

    /// After the wait: whether the retry may be sent, which takes it out of the budget.
    pub(crate) fn resume(&self, elapsed: Duration) -> Result<(), Stopped> {
        if elapsed >= self.total {
            return Err(Stopped::Late);
        }
        let now = self.shared.clock.now();
        let taken = self
            .shared
            .balance(&self.account, |balance| balance.take(now));
        if taken { Ok(()) } else { Err(Stopped::Spent) }
    }

    /// The last attempt.
    #[cfg(feature = "reqwest")]
    pub(crate) fn last(&self) -> Option<&Attempt> {
        self.attempts.last()
    }

    /// Ends the operation and hands over what was tried.
    pub(crate) fn end(self, stopped: Stopped) -> Attempts {
        telemetry::operation(&self.label, stopped);
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
            // Who has to be refused after the wait is refused before it.
            Again::After(_) if !self.shared.balance(&self.account, |it| it.allows(now)) => {
                Step::Stop(Stopped::Spent)
            }
            Again::After(wait) => Step::Wait(wait),
        }
    }
}

#[cfg(test)]
mod tests;
