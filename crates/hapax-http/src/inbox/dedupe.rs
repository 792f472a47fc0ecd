//! Identity of a received message: the sender's id, or a key that is derived from the payload.
//!
//! Some senders report one fact in several messages with different ids. A derived key contains what
//! identifies the fact, so all of these messages are one message for the inbox. A message without
//! the value from which its key is derived is refused: under its id it would be a new fact, and under
//! an empty key all such messages would be the same fact.

use std::{borrow::Cow, collections::BTreeMap, str::FromStr};

use axum::body::Bytes;
use hapax::{inbox::Message, key::hex, limits::MESSAGE_ID_BYTES_MAX};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use crate::{
    body::{Room, canonical_json},
    problem::{Problem, REQUEST_INVALID},
};

/// By what repeated messages are recognized.
///
/// It is parsed from a text:
///
/// - `id`: the sender's id, from `webhook-id`. This is the default.
/// - `payload`: the payload. JSON is compared in canonical form, other payloads byte for byte.
/// - a JSON pointer (RFC 6901) such as `/data/refund/id`: the value there, together with the
///   message's member `type`, if it has one. The rest of the payload is not compared.
///
/// ```
/// use hapax_http::DedupeKey;
///
/// let key: DedupeKey = "/data/refund/id".parse().expect("a JSON pointer");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DedupeKey(Kind);

/// Why a text is not a [`DedupeKey`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected \"id\", \"payload\" or a JSON pointer such as \"/data/id\", got {0:?}")]
pub struct DedupeKeyError(String);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Kind {
    #[default]
    Id,
    Payload,
    Pointer {
        text: String,
        /// The names from the root to the value.
        names: Vec<String>,
    },
}

/// The keys of a route.
#[derive(Clone, Debug, Default)]
pub(super) struct Dedupe {
    pub(super) any: DedupeKey,
    /// Keys of single types of messages.
    pub(super) types: BTreeMap<String, DedupeKey>,
}

impl FromStr for DedupeKey {
    type Err = DedupeKeyError;

    fn from_str(text: &str) -> Result<Self, DedupeKeyError> {
        let wrong = || DedupeKeyError(text.to_owned());
        Ok(Self(match text {
            "id" => Kind::Id,
            "payload" => Kind::Payload,
            pointer => {
                let names = pointer.strip_prefix('/').ok_or_else(wrong)?;
                let names = names.split('/').map(unescaped).collect::<Option<_>>();
                Kind::Pointer {
                    text: pointer.to_owned(),
                    names: names.ok_or_else(wrong)?,
                }
            }
        }))
    }
}

impl Dedupe {
    /// The message of a verified request.
    ///
    /// # Errors
    /// 400 if a name is not valid, or if the key cannot be derived.
    pub(super) async fn message(
        &self,
        consumer: &str,
        source: &str,
        id: &str,
        body: &Bytes,
        room: &Room,
    ) -> Result<Message, Problem> {
        let sent = || {
            Message::new(consumer, source, id, body).map_err(|error| {
                Problem::new(REQUEST_INVALID).detail(format!("webhook-id: {error}"))
            })
        };
        if self.any.0 == Kind::Id && self.types.is_empty() {
            return sent();
        }
        let json = canonical_json(body, room).await?;
        let kind = json.as_deref().and_then(|json| member(json, "type"));
        let name = kind.and_then(|kind| serde_json::from_str::<String>(kind).ok());
        let rule = name.and_then(|name| self.types.get(&name));
        let (id, key) = match &rule.unwrap_or(&self.any).0 {
            Kind::Id => return sent(),
            Kind::Payload => {
                let payload = json.as_deref().map_or(&**body, str::as_bytes);
                (hashed(payload), Cow::Borrowed(payload))
            }
            Kind::Pointer { text, names } => {
                let key = fact(json.as_deref(), kind, names).ok_or_else(|| absent(text))?;
                let is_short = key.len() <= MESSAGE_ID_BYTES_MAX;
                let id = if is_short {
                    key.clone()
                } else {
                    hashed(key.as_bytes())
                };
                (id, Cow::Owned(key.into_bytes()))
            }
        };
        Message::new(consumer, source, id, &key).map_err(Problem::internal)
    }
}

/// The value at the end of the path, with the type of the message, as a JSON array. `None` if there
/// is no value, or it is null or empty.
fn fact(json: Option<&str>, kind: Option<&str>, names: &[String]) -> Option<String> {
    let value = names
        .iter()
        .try_fold(json?, |json, name| member(json, name));
    let value = value.filter(|value| !["null", "\"\"", "[]", "{}"].contains(value))?;
    Some(match kind {
        Some(kind) => format!("[{kind},{value}]"),
        None => format!("[{value}]"),
    })
}

/// A member of an object or an element of an array, in canonical form.
fn member<'a>(json: &'a str, name: &str) -> Option<&'a str> {
    if json.starts_with('{') {
        let members: BTreeMap<String, &'a RawValue> = serde_json::from_str(json).ok()?;
        return members.get(name).copied().map(RawValue::get);
    }
    let index: usize = name.parse().ok()?;
    let is_exact = index.to_string() == name;
    let elements: Vec<&'a RawValue> = serde_json::from_str(json).ok()?;
    let element = elements.get(index).filter(|_| is_exact);
    element.copied().map(RawValue::get)
}

/// A name of a JSON pointer, in which `~1` is `/` and `~0` is `~`.
fn unescaped(name: &str) -> Option<String> {
    let mut parts = name.split('~');
    let mut plain = parts.next()?.to_owned();
    for part in parts {
        let (escaped, rest) = match part.as_bytes().first()? {
            b'0' => ('~', &part[1..]),
            b'1' => ('/', &part[1..]),
            _ => return None,
        };
        plain.push(escaped);
        plain.push_str(rest);
    }
    Some(plain)
}

fn hashed(key: &[u8]) -> String {
    format!("sha256:{}", hex(&Sha256::digest(key)))
}

fn absent(pointer: &str) -> Problem {
    Problem::new(REQUEST_INVALID).detail(format!(
        "the payload has no value at {pointer}, by which this route recognizes repeated messages"
    ))
}

#[cfg(test)]
mod tests {
    use hapax::limits::BODY_FILE_BYTES;

    use super::*;

    #[test]
    fn a_key_is_read_from_a_word_or_a_pointer() {
        for good in ["id", "payload", "/a", "/", "/a/0/b~1c~0", "/a b/\u{e9}"] {
            assert!(good.parse::<DedupeKey>().is_ok(), "{good:?}");
        }
        for bad in ["", "Id", "a/b", "#/a", "$.a", "/a~", "/a~2", "/~/b"] {
            let error = bad.parse::<DedupeKey>().unwrap_err();
            assert!(error.to_string().contains("JSON pointer"), "{bad:?}");
        }
    }

    #[tokio::test]
    async fn equal_facts_have_one_identity_and_others_do_not() {
        let at = "/data/refund/id";
        let one = r#"{"type":"refund.succeeded","timestamp":1,"data":{"refund":{"id":"rf_1"}}}"#;
        let again = r#"{ "data": {"refund": {"id": "rf\u005f1"}}, "type": "refund.succeeded" }"#;
        let (one, again) = (
            of(at, "m1", one).await.unwrap(),
            of(at, "m2", again).await.unwrap(),
        );
        assert_eq!(one.message_id, r#"["refund.succeeded","rf_1"]"#);
        assert_eq!(one, again);
        let mut ids = vec![one.message_id];
        for other in [
            r#"{"type":"refund.failed","data":{"refund":{"id":"rf_1"}}}"#,
            r#"{"type":"refund.succeeded","data":{"refund":{"id":"rf_2"}}}"#,
            r#"{"data":{"refund":{"id":"rf_1"}}}"#,
            r#"{"data":{"refund":{"id":1}}}"#,
            r#"{"data":{"refund":{"id":"1"}}}"#,
            // As doubles, the two are equal.
            r#"{"data":{"refund":{"id":9007199254740992}}}"#,
            r#"{"data":{"refund":{"id":9007199254740993}}}"#,
            r#"{"data":{"refund":{"id":{"a":1}}}}"#,
        ] {
            ids.push(of(at, "m1", other).await.unwrap().message_id);
        }
        ids.sort_unstable();
        let count = ids.len();
        ids.dedup();
        assert_eq!(ids.len(), count, "{ids:?}");
    }

    #[tokio::test]
    async fn a_payload_without_the_value_is_refused() {
        for json in [
            "",
            "nonsense",
            "1",
            "[]",
            "{}",
            r#"{"a":1}"#,
            r#"{"a":{"b":null}}"#,
            r#"{"a":{"b":""}}"#,
            r#"{"a":{"b":{}}}"#,
            r#"{"a":[{"b":1}]}"#,
            r#"{"a":"b"}"#,
            // Parsers differ on which one counts.
            r#"{"a":{"b":1,"b":2}}"#,
            &"[".repeat(1_000),
        ] {
            assert!(of("/a/b", "msg", json).await.is_err(), "{json}");
        }
        for (pointer, json) in [("/a/01", r#"{"a":[1,2]}"#), ("/a/-", r#"{"a":[1]}"#)] {
            assert!(of(pointer, "msg", json).await.is_err(), "{pointer}");
        }
        let found = of("/a/1", "msg", r#"{"a":[1,2]}"#).await.unwrap();
        assert_eq!(found.message_id, "[2]");
    }

    #[tokio::test]
    async fn a_long_value_is_hashed_and_has_one_identity_too() {
        let json = |last| format!("{{\"a\":\"{}{last}\"}}", "x".repeat(300));
        let [one, again, other] = [json("1"), json("1"), json("2")];
        let one = of("/a", "m1", &one).await.unwrap();
        assert!(one.message_id.starts_with("sha256:"), "{}", one.message_id);
        assert_eq!(one, of("/a", "m2", &again).await.unwrap());
        assert_ne!(one, of("/a", "m1", &other).await.unwrap());
    }

    #[tokio::test]
    async fn payloads_are_compared_in_canonical_form_or_byte_for_byte() {
        let one = of("payload", "m1", r#"{"a":1,"b":2}"#).await.unwrap();
        assert_eq!(
            one,
            of("payload", "m2", r#"{"b": 2, "a": 1}"#).await.unwrap()
        );
        assert_ne!(one, of("payload", "m1", r#"{"a":1,"b":3}"#).await.unwrap());
        let plain = of("payload", "m1", "a=1").await.unwrap();
        assert_eq!(plain, of("payload", "m2", "a=1").await.unwrap());
        assert_ne!(plain, of("payload", "m1", "a=1 ").await.unwrap());
        assert!(of("payload", "m1", r#"{"a":1,"a":1}"#).await.is_err());
        // Longer than what is sorted on the worker itself.
        let long = format!("{{\"b\":1,\"a\":\"{}\"}}", "x".repeat(100_000));
        assert!(of("payload", "m1", &long).await.is_ok());
    }

    #[tokio::test]
    async fn a_type_may_have_a_key_of_its_own() {
        let by_id: DedupeKey = "/id".parse().unwrap();
        let dedupe = Dedupe {
            any: DedupeKey::default(),
            types: BTreeMap::from([("refund".to_owned(), by_id)]),
        };
        for (json, id) in [
            (r#"{"type":"refund","id":"r"}"#, r#"["refund","r"]"#),
            (r#"{"type":"ping"}"#, "msg"),
            (r#"{"type":1,"id":"r"}"#, "msg"),
            ("nonsense", "msg"),
        ] {
            let message = built(&dedupe, "msg", json).await.unwrap();
            assert_eq!(message.message_id, id, "{json}");
        }
        assert!(built(&dedupe, "msg", r#"{"type":"refund"}"#).await.is_err());
    }

    async fn of(key: &str, id: &str, json: &str) -> Result<Message, Problem> {
        let dedupe = Dedupe {
            any: key.parse().unwrap(),
            types: BTreeMap::new(),
        };
        built(&dedupe, id, json).await
    }

    async fn built(dedupe: &Dedupe, id: &str, json: &str) -> Result<Message, Problem> {
        let (body, room) = (Bytes::from(json.to_owned()), Room::new(BODY_FILE_BYTES));
        dedupe.message("ledger", "bank", id, &body, &room).await
    }
}
