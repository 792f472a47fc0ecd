//! Slack: `X-Slack-Signature: v0=SIGNATURE` and `X-Slack-Request-Timestamp`.
//!
//! The signature is HMAC-SHA256 over `v0:TIME:BODY`, in hexadecimal. An event of the Events API has
//! an id, which its retries repeat. Commands and interactions have none and are not retried: they
//! are recognized by the hash of their body, which contains a `trigger_id`. The handshake
//! `url_verification` gets its challenge as the response, and adds no event.

use ring::hmac;
use serde::Deserialize;

use super::{
    Presented, Refusal, TimeBound, Verified, hashed, identity,
    keys::{HmacKeys, from_hex},
};

const SIGNATURE: &str = "x-slack-signature";
const TIMESTAMP: &str = "x-slack-request-timestamp";
/// Maximum length of a challenge in bytes. Those of Slack have about 60.
const CHALLENGE_BYTES_MAX: usize = 1024;

/// Requests that Slack has signed.
#[derive(Debug)]
pub struct Slack {
    keys: HmacKeys,
}

#[derive(Deserialize)]
struct Body {
    #[serde(rename = "type")]
    kind: Option<String>,
    challenge: Option<String>,
    event_id: Option<String>,
    event: Option<Event>,
}

#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: Option<String>,
}

impl Slack {
    /// Creates the scheme with the signing secrets of the app.
    pub fn new<'s>(secrets: impl IntoIterator<Item = &'s str>) -> Self {
        let secrets = secrets.into_iter().map(str::as_bytes);
        let keys = HmacKeys::new(hmac::HMAC_SHA256, secrets);
        Self { keys }
    }

    pub(super) fn verify(
        &self,
        presented: &Presented<'_>,
        time: TimeBound,
    ) -> Result<Verified, Refusal> {
        let malformed = Refusal::Malformed { part: SIGNATURE };
        let timestamp = presented.header(TIMESTAMP)?;
        let text = presented.header(SIGNATURE)?.strip_prefix("v0=");
        let tag = text.and_then(|text| from_hex(text, 32)).ok_or(malformed)?;
        time.check_text(timestamp, TIMESTAMP)?;
        let parts: [&[u8]; 4] = [b"v0:", timestamp.as_bytes(), b":", presented.body];
        if !self.keys.fit(&parts, &[&tag]) {
            return Err(Refusal::Signature);
        }
        if presented.is_form() {
            return Ok(Verified::one(hashed(&[presented.body]), None));
        }
        let body: Result<Body, _> = serde_json::from_slice(presented.body);
        event(
            presented.body,
            body.map_err(|_| Refusal::Malformed { part: "body" })?,
        )
    }
}

fn event(bytes: &[u8], body: Body) -> Result<Verified, Refusal> {
    if body.kind.as_deref() == Some("url_verification") {
        let part = "challenge";
        let challenge = body.challenge.ok_or(Refusal::Malformed { part })?;
        if challenge.len() > CHALLENGE_BYTES_MAX {
            return Err(Refusal::Malformed { part });
        }
        return Ok(Verified::Challenge(challenge));
    }
    let kind = body.event.and_then(|event| event.kind).or(body.kind);
    let id = match body.event_id {
        Some(id) => identity(&id, "event_id")?,
        None => hashed(&[bytes]),
    };
    Ok(Verified::one(id, kind))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hapax::{Timestamp, key::hex};
    use http::HeaderMap;

    use super::*;
    use crate::ingest::signature::presented::tests::{check_header, headers};

    const FORM: &str = "application/x-www-form-urlencoded";
    const JSON: &str = "application/json";
    // The example of Slack's documentation.
    const SECRET: &str = "8f742231b10e8888abcd99yyyzzz85a5";
    const AT: i64 = 1_531_420_618;
    const BODY: &[u8] = b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow\
        &channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner\
        &command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands\
        %2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN\
        &trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c";
    const TAG: &str = "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503";

    #[test]
    fn the_documented_request_is_verified() {
        let event = Verified::one(hashed(&[BODY]), None);
        assert_eq!(judge(&good(), BODY, 0), Ok(event));
    }

    #[test]
    fn an_event_has_its_id_and_the_type_inside() {
        let body = br#"{"type":"event_callback","event_id":"Ev1","event":{"type":"message"}}"#;
        let event = Verified::one("Ev1".to_owned(), Some("message".to_owned()));
        assert_eq!(judge(&signed(body), body, 0), Ok(event));
    }

    #[test]
    fn the_handshake_gets_its_challenge_only_if_it_is_signed() {
        let body = br#"{"type":"url_verification","challenge":"abc","token":"x"}"#;
        let challenge = Verified::Challenge("abc".to_owned());
        assert_eq!(judge(&signed(body), body, 0), Ok(challenge));
        assert_eq!(judge(&good(), body, 0), Err(Refusal::Signature));
        let long = format!(
            r#"{{"type":"url_verification","challenge":"{}"}}"#,
            "x".repeat(CHALLENGE_BYTES_MAX + 1)
        );
        let part = "challenge";
        let headers = signed(long.as_bytes());
        let refused = judge(&headers, long.as_bytes(), 0);
        assert_eq!(refused, Err(Refusal::Malformed { part }));
    }

    #[test]
    fn both_headers_must_occur_once() {
        for name in [SIGNATURE, TIMESTAMP] {
            check_header(name, &good(), |it| judge(it, BODY, 0));
        }
    }

    #[test]
    fn what_is_changed_or_old_is_refused() {
        let good = good();
        assert_eq!(judge(&good, b"", 0), Err(Refusal::Signature));
        assert_eq!(judge(&good, &BODY[1..], 0), Err(Refusal::Signature));
        assert_eq!(judge(&good, BODY, 301), Err(Refusal::Stale));
        assert_eq!(judge(&good, BODY, -301), Err(Refusal::Stale));
        let mut later = good.clone();
        later.insert(TIMESTAMP, "1531420619".parse().unwrap());
        assert_eq!(judge(&later, BODY, 0), Err(Refusal::Signature));
        let presented = Presented {
            headers: &good,
            query: None,
            body: BODY,
        };
        let refused = Slack::new(["other"]).verify(&presented, time(0));
        assert_eq!(refused, Err(Refusal::Signature));
    }

    #[test]
    fn a_malformed_signature_is_refused() {
        for tag in [
            "",
            "v0=",
            "v0",
            &TAG[3..],
            &TAG[..66],
            &TAG.replace("v0", "v1"),
            &TAG.replace('a', "z"),
        ] {
            let mut headers = good();
            headers.insert(SIGNATURE, tag.parse().unwrap());
            let malformed = Err(Refusal::Malformed { part: SIGNATURE });
            assert_eq!(judge(&headers, BODY, 0), malformed, "{tag}");
        }
    }

    #[test]
    fn a_signed_body_that_is_neither_json_nor_a_form_is_refused() {
        for body in [&b""[..], b"nonsense", br#"{"event_id":1}"#] {
            let malformed = Err(Refusal::Malformed { part: "body" });
            assert_eq!(judge(&signed(body), body, 0), malformed);
        }
    }

    fn good() -> HeaderMap {
        headers(&[
            (SIGNATURE, TAG),
            (TIMESTAMP, "1531420618"),
            ("content-type", FORM),
        ])
    }

    fn signed(body: &[u8]) -> HeaderMap {
        let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes());
        let text = [&b"v0:1531420618:"[..], body].concat();
        let tag = format!("v0={}", hex(hmac::sign(&key, &text).as_ref()));
        headers(&[
            (SIGNATURE, &tag),
            (TIMESTAMP, "1531420618"),
            ("content-type", JSON),
        ])
    }

    fn time(passed: i64) -> TimeBound {
        TimeBound {
            now: Timestamp::from_millis((AT + passed) * 1000),
            tolerance: Duration::from_mins(5),
        }
    }

    fn judge(headers: &HeaderMap, body: &[u8], passed: i64) -> Result<Verified, Refusal> {
        let presented = Presented {
            headers,
            query: None,
            body,
        };
        Slack::new(["rotated", SECRET]).verify(&presented, time(passed))
    }
}
