//! Payloads, and the templates that they are made from.

use crate::http::Target;

/// The random numbers and the counter of a run. Two runs with the same seed have the same ones.
#[derive(Debug)]
pub(crate) struct Numbers {
    random: fastrand::Rng,
    counter: u64,
}

impl Numbers {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            random: fastrand::Rng::with_seed(seed),
            counter: 0,
        }
    }

    /// Returns the next number of the counter, starting with 1.
    pub(crate) fn next(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }

    /// Returns a random UUID, version 4.
    pub(crate) fn uuid(&mut self) -> String {
        uuid::Builder::from_random_bytes(self.random.u128(..).to_be_bytes())
            .into_uuid()
            .to_string()
    }

    /// Returns a UUID, version 7, of the time `unix_ms`.
    pub(crate) fn uuid_v7(&mut self, unix_ms: u64) -> String {
        let random = self.random.u128(..).to_be_bytes();
        let mut tail = [0; 10];
        tail.copy_from_slice(&random[..10]);
        uuid::Builder::from_unix_timestamp_millis(unix_ms, &tail)
            .into_uuid()
            .to_string()
    }
}

/// A body with placeholders: `{{uuid}}` is a new UUID, `{{n}}` a number that no other payload of the
/// run has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template(pub(crate) String);

impl Template {
    /// What is filled.
    pub(crate) const PLACEHOLDERS: [&str; 2] = ["{{uuid}}", "{{n}}"];

    /// Returns the body with the placeholders filled.
    pub(crate) fn fill(&self, numbers: &mut Numbers) -> Vec<u8> {
        let mut body = self.0.clone();
        if body.contains("{{n}}") {
            body = body.replace("{{n}}", &numbers.next().to_string());
        }
        while let Some(at) = body.find("{{uuid}}") {
            body.replace_range(at..at + "{{uuid}}".len(), &numbers.uuid());
        }
        body.into_bytes()
    }
}

/// What one request means: where it goes, and its body. The key is not part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Payload {
    pub(crate) target: Target,
    pub(crate) content_type: String,
    pub(crate) body: Vec<u8>,
}

impl Payload {
    /// Returns the body as text.
    pub(crate) fn text(&self) -> Option<&str> {
        std::str::from_utf8(&self.body).ok()
    }

    /// Returns the payload with another body.
    #[must_use]
    pub(crate) fn with_body(&self, body: impl Into<Vec<u8>>) -> Self {
        Self {
            body: body.into(),
            ..self.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_filled_the_same_way_under_one_seed() {
        let template = Template(r#"{"a":"{{uuid}}","b":"{{uuid}}","n":{{n}}}"#.to_owned());
        let one = template.fill(&mut Numbers::new(7));
        let two = template.fill(&mut Numbers::new(7));
        assert_eq!(one, two);
        assert_ne!(one, template.fill(&mut Numbers::new(8)));
        let value: serde_json::Value = serde_json::from_slice(&one).expect("valid JSON");
        assert_ne!(value["a"], value["b"]);
        assert_eq!(value["n"], 1);
    }
}
