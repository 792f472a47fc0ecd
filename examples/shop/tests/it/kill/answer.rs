//! Response of the shop, with all headers and the exact body.

use bytes::Bytes;
use serde_json::Value;

/// A complete response.
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

    /// Whether the same request may get another response later.
    pub(super) fn is_passing(&self) -> bool {
        matches!(self.status, 408 | 425 | 429 | 500..)
            || self.status == 409 && self.header("retry-after").is_some()
    }

    /// Whether the response acknowledges an effect.
    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The id of the created resource.
    pub(super) fn id(&self) -> Option<String> {
        self.json()["id"].as_str().map(str::to_owned)
    }

    /// The body as JSON, or null if it is not valid JSON.
    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// Returns what a replay repeats exactly: everything except the headers of a single exchange.
    pub(super) fn stored(&self) -> Self {
        // A shop that is stopping adds `Connection: close` to its last responses.
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
