//! What the clients meant, what they tried and what they were told.
//!
//! An intent is written down before its first attempt, an attempt when it
//! ends. The journal lives in the test's process, which nobody kills, so it
//! knows what the shop has acknowledged, whatever the shop still knows.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::answer::Answer;

/// How long the run has lasted: what every moment of the evidence is written in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stopwatch(Instant);

impl Stopwatch {
    pub(super) fn start() -> Self {
        Self(Instant::now())
    }

    pub(super) fn read(self) -> Duration {
        self.0.elapsed()
    }
}

/// What a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Order,
    Payment,
    Refund,
    Signup,
    /// A webhook that the shop consumes.
    Message,
}

impl Operation {
    pub(super) fn path(self) -> &'static str {
        match self {
            Self::Order => "/orders",
            Self::Payment => "/payments",
            Self::Refund => "/refunds",
            Self::Signup => "/signups",
            Self::Message => "/webhooks/provider",
        }
    }

    /// The type of the one event that its effect emits, and which member of it says of what.
    pub(super) fn event(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Order => Some(("order.created", "id")),
            Self::Payment => Some(("payment.succeeded", "charge_id")),
            Self::Refund => Some(("refund.succeeded", "refund_id")),
            Self::Signup => Some(("user.signed_up", "user_id")),
            Self::Message => None,
        }
    }
}

/// Something a client wants to happen once.
#[derive(Clone, Debug)]
pub(super) struct Intent {
    pub(super) tenant: &'static str,
    pub(super) operation: Operation,
    pub(super) key: String,
    pub(super) body: Value,
}

/// One request for an intent.
#[derive(Clone, Debug)]
pub(super) struct Attempt {
    /// Which intent, by its place in the journal.
    pub(super) intent: usize,
    /// Whether it asked for something else under the same key, on purpose.
    pub(super) altered: bool,
    pub(super) began: Duration,
    pub(super) ended: Duration,
    pub(super) outcome: Outcome,
}

impl Attempt {
    /// What it was told, if anything.
    pub(super) fn answer(&self) -> Option<&Answer> {
        match &self.outcome {
            Outcome::Answered(answer) => Some(answer),
            Outcome::Unsent | Outcome::Lost => None,
        }
    }
}

/// How an attempt ended.
#[derive(Clone, Debug)]
pub(super) enum Outcome {
    Answered(Answer),
    /// Nobody was there to send it to.
    Unsent,
    /// It was sent, and no answer came.
    Lost,
}

/// Everything that the clients have written down so far.
#[derive(Debug, Default)]
pub(super) struct Journal(Mutex<History>);

/// A journal's pages.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    pub(super) intents: Vec<Intent>,
    pub(super) attempts: Vec<Attempt>,
}

impl Journal {
    /// Writes an intent down and returns its place.
    pub(super) fn mean(&self, intent: Intent) -> usize {
        let mut history = self.open();
        history.intents.push(intent);
        history.intents.len() - 1
    }

    /// Writes down how an attempt ended.
    pub(super) fn note(&self, attempt: Attempt) {
        self.open().attempts.push(attempt);
    }

    /// The intent at `place`.
    pub(super) fn intent(&self, place: usize) -> Intent {
        self.open().intents[place].clone()
    }

    /// A copy of all that was written.
    pub(super) fn history(&self) -> History {
        self.open().clone()
    }

    fn open(&self) -> MutexGuard<'_, History> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl History {
    /// Writes the history as JSON Lines in Jepsen's shape: `invoke`, then `ok`, `fail` or `info`.
    pub(super) fn lines(&self) -> String {
        let mut lines: Vec<(Duration, Value)> = Vec::new();
        for (number, attempt) in self.attempts.iter().enumerate() {
            let intent = &self.intents[attempt.intent];
            let (word, answer) = match &attempt.outcome {
                Outcome::Answered(answer) if answer.is_success() => ("ok", Some(answer)),
                Outcome::Answered(answer) => ("fail", Some(answer)),
                Outcome::Unsent => ("fail", None),
                Outcome::Lost => ("info", None),
            };
            let line = |word: &str, time: Duration, value: Value| {
                json!({
                    "type": word, "f": intent.operation.path(), "process": number,
                    "time": time.as_nanos(), "tenant": intent.tenant, "key": intent.key,
                    "altered": attempt.altered, "value": value,
                })
            };
            let told = answer.map(|answer| {
                json!({
                    "status": answer.status,
                    "idempotency_status": answer.header("idempotency-status"),
                    "body": answer.json(),
                })
            });
            lines.push((
                attempt.began,
                line("invoke", attempt.began, intent.body.clone()),
            ));
            lines.push((
                attempt.ended,
                line(word, attempt.ended, told.unwrap_or_default()),
            ));
        }
        lines.sort_by_key(|(time, _)| *time);
        let lines: Vec<String> = lines
            .into_iter()
            .map(|(_, line)| line.to_string())
            .collect();
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kill::sample::sound;

    #[test]
    fn a_history_tells_of_each_attempt_how_it_began_and_how_it_ended() {
        let lines = sound().history.lines();
        let lines: Vec<Value> = lines
            .lines()
            .map(|line| serde_json::from_str(line).expect("a line is JSON"))
            .collect();
        let count = |word: &str| lines.iter().filter(|line| line["type"] == word).count();
        // One lost, seven wishes answered twice, of which one was refused.
        assert_eq!(count("invoke"), 15);
        assert_eq!((count("ok"), count("fail"), count("info")), (12, 2, 1));
        assert!(lines.is_sorted_by_key(|line| line["time"].as_u64()));
        assert_eq!(lines[0]["value"]["note"], "alice/k-1");
    }
}
