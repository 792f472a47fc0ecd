//! Journal of the clients: intents, attempts and responses.
//!
//! An intent is recorded before its first attempt, and an attempt when it ends. The journal is in
//! the process of the test, which is not killed. It therefore contains everything that the shop has
//! acknowledged, even if the shop lost it.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::answer::Answer;

/// The time since the beginning of the run. All times in the evidence are relative to it.
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

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Order,
    Payment,
    Refund,
    Signup,
    /// A webhook that the shop receives.
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

    /// The type of the event that the effect emits, and the member of its payload that holds the
    /// id.
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

/// An effect that a client wants once.
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
    /// The index of the intent in the journal.
    pub(super) intent: usize,
    /// Whether the request intentionally had another body under the same key.
    pub(super) altered: bool,
    pub(super) began: Duration,
    pub(super) ended: Duration,
    pub(super) outcome: Outcome,
}

impl Attempt {
    /// The response, if there was one.
    pub(super) fn answer(&self) -> Option<&Answer> {
        match &self.outcome {
            Outcome::Answered(answer) => Some(answer),
            Outcome::Unsent | Outcome::Lost => None,
        }
    }
}

/// The outcome of an attempt.
#[derive(Clone, Debug)]
pub(super) enum Outcome {
    Answered(Answer),
    /// No instance accepted the connection.
    Unsent,
    /// The request was sent, and no response arrived.
    Lost,
}

/// The records of all clients so far.
#[derive(Debug, Default)]
pub(super) struct Journal(Mutex<History>);

/// The contents of a journal.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    pub(super) intents: Vec<Intent>,
    pub(super) attempts: Vec<Attempt>,
}

impl Journal {
    /// Records an intent and returns its index.
    pub(super) fn mean(&self, intent: Intent) -> usize {
        let mut history = self.open();
        history.intents.push(intent);
        history.intents.len() - 1
    }

    /// Records the outcome of an attempt.
    pub(super) fn note(&self, attempt: Attempt) {
        self.open().attempts.push(attempt);
    }

    /// The intent at this index.
    pub(super) fn intent(&self, place: usize) -> Intent {
        self.open().intents[place].clone()
    }

    /// A copy of all records.
    pub(super) fn history(&self) -> History {
        self.open().clone()
    }

    fn open(&self) -> MutexGuard<'_, History> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl History {
    /// The history as JSON Lines in the format of Jepsen: `invoke`, then `ok`, `fail` or `info`.
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
            let result = answer.map(|answer| {
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
                line(word, attempt.ended, result.unwrap_or_default()),
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
        // One attempt was lost, and seven intents got two responses each. One of them was rejected.
        assert_eq!(count("invoke"), 15);
        assert_eq!((count("ok"), count("fail"), count("info")), (12, 2, 1));
        assert!(lines.is_sorted_by_key(|line| line["time"].as_u64()));
        assert_eq!(lines[0]["value"]["note"], "alice/k-1");
    }
}
