//! What the shop answered, byte for byte.

use bytes::Bytes;
use serde_json::Value;

/// An answer, whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Bytes,
}

impl Answer {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(found, _)| found == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Whether the same request would be told something else later.
    pub(super) fn is_passing(&self) -> bool {
        matches!(self.status, 408 | 425 | 429 | 500..)
            || self.status == 409 && self.header("retry-after").is_some()
    }

    /// Whether an effect was acknowledged.
    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The id of what was made.
    pub(super) fn id(&self) -> Option<String> {
        self.json()["id"].as_str().map(str::to_owned)
    }

    /// The answer as JSON; null where it is none.
    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// What a replay repeats byte for byte: all but what belongs to one exchange.
    pub(super) fn stored(&self) -> Self {
        // A shop that stops says so to whoever it answers last.
        const OF_ONE_EXCHANGE: [&str; 4] =
            ["connection", "date", "idempotency-status", "x-request-id"];
        let mut stored = self.clone();
        stored
            .headers
            .retain(|(name, _)| !OF_ONE_EXCHANGE.contains(&name.as_str()));
        stored.headers.sort();
        stored
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kill::sample::answer;

    #[test]
    fn only_an_answer_that_would_not_come_again_is_passing() {
        let in_progress = |status| {
            let mut answer = answer(status, "", &Value::Null);
            answer
                .headers
                .push(("retry-after".to_owned(), "1".to_owned()));
            answer.is_passing()
        };
        assert!(in_progress(409) && in_progress(503));
        for lasting in [200, 201, 402, 404, 409, 422] {
            assert!(!answer(lasting, "", &Value::Null).is_passing(), "{lasting}");
        }
    }

    #[test]
    fn what_belongs_to_one_exchange_is_not_stored() {
        let (first, replay) = (
            answer(201, "stored", &Value::Null),
            answer(201, "replayed", &Value::Null),
        );
        assert_eq!(first.stored(), replay.stored());
        let mut last = replay.clone();
        last.headers
            .push(("connection".to_owned(), "close".to_owned()));
        assert_eq!(first.stored(), last.stored());
        let mut tagged = replay.clone();
        tagged.headers.push(("etag".to_owned(), "\"1\"".to_owned()));
        assert_ne!(first.stored(), tagged.stored());
    }
}
