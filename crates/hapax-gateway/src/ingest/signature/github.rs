//! GitHub: `X-Hub-Signature-256: sha256=SIGNATURE`.
//!
//! The signature is HMAC-SHA256 over the body, in hexadecimal. It covers neither a time nor the
//! header `X-GitHub-Delivery`, by which deliveries are recognized, so TLS has to keep a request
//! from being read and sent again under another id. GitHub does not retry by itself; a redelivery
//! has the same id.

use ring::hmac;
use serde::Deserialize;

use super::{
    Presented, Refusal, Verified, identity,
    keys::{HmacKeys, from_hex},
};

const SIGNATURE: &str = "x-hub-signature-256";
const ID: &str = "x-github-delivery";
const EVENT: &str = "x-github-event";

/// Requests that GitHub has signed.
#[derive(Debug)]
pub struct GitHub {
    keys: HmacKeys,
}

#[derive(Deserialize)]
struct Body {
    action: Option<String>,
}

impl GitHub {
    /// Creates the scheme with the secrets of the webhook.
    pub fn new<'s>(secrets: impl IntoIterator<Item = &'s str>) -> Self {
        let secrets = secrets.into_iter().map(str::as_bytes);
        let keys = HmacKeys::new(hmac::HMAC_SHA256, secrets);
        Self { keys }
    }

    pub(super) fn verify(&self, presented: &Presented<'_>) -> Result<Verified, Refusal> {
        let malformed = Refusal::Malformed { part: SIGNATURE };
        let text = presented.header(SIGNATURE)?.strip_prefix("sha256=");
        let tag = text.and_then(|text| from_hex(text, 32)).ok_or(malformed)?;
        if !self.keys.fit(&[presented.body], &[&tag]) {
            return Err(Refusal::Signature);
        }
        let id = presented.optional_header(ID)?.unwrap_or_default();
        let kind = presented.optional_header(EVENT)?.map(|event| {
            // The body is a form if the webhook is configured so; it then has no action here.
            let body: Option<Body> = serde_json::from_slice(presented.body).ok();
            match body.and_then(|body| body.action) {
                Some(action) => format!("{event}.{action}"),
                None => event.to_owned(),
            }
        });
        Ok(Verified::one(identity(id, ID)?, kind))
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;

    use super::*;
    use crate::ingest::signature::presented::tests::{check_header, headers};

    // The example of GitHub's documentation.
    const SECRET: &str = "It's a Secret to Everybody";
    const BODY: &[u8] = b"Hello, World!";
    const TAG: &str = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";

    #[test]
    fn the_documented_request_is_verified() {
        let event = Verified::one("72d3162e".to_owned(), Some("push".to_owned()));
        assert_eq!(judge(&good(TAG), BODY), Ok(event));
    }

    #[test]
    fn the_action_is_part_of_the_type() {
        let body = br#"{"action":"opened","number":1}"#;
        let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes());
        let tag = hapax::key::hex(hmac::sign(&key, body).as_ref());
        let verified = judge(&good(&format!("sha256={tag}")), body);
        let event = Verified::one("72d3162e".to_owned(), Some("push.opened".to_owned()));
        assert_eq!(verified, Ok(event));
    }

    #[test]
    fn the_signature_must_occur_once() {
        check_header(SIGNATURE, &good(TAG), |it| judge(it, BODY));
    }

    #[test]
    fn what_is_changed_is_refused() {
        for body in [&b""[..], b"Hello, World?", b"Hello, World! "] {
            assert_eq!(judge(&good(TAG), body), Err(Refusal::Signature));
        }
        let other = GitHub::new(["other"]);
        let headers = good(TAG);
        let presented = Presented {
            headers: &headers,
            query: None,
            body: BODY,
        };
        assert_eq!(other.verify(&presented), Err(Refusal::Signature));
        let changed = TAG.replace("7571", "7572");
        assert_eq!(judge(&good(&changed), BODY), Err(Refusal::Signature));
    }

    #[test]
    fn a_malformed_signature_is_refused() {
        for tag in [
            "",
            "sha256=",
            &TAG[7..],
            &TAG[..70],
            &format!("{TAG}00"),
            &TAG.replace("sha256", "sha1"),
            &TAG.replace('e', "x"),
            &format!("{TAG},{TAG}"),
        ] {
            let malformed = Err(Refusal::Malformed { part: SIGNATURE });
            assert_eq!(judge(&good(tag), BODY), malformed, "{tag}");
        }
    }

    #[test]
    fn a_request_without_an_id_is_no_event() {
        let mut headers = good(TAG);
        headers.remove(ID);
        assert_eq!(judge(&headers, BODY), Err(Refusal::NoId { part: ID }));
        let mut twice = good(TAG);
        twice.append(ID, "other".parse().unwrap());
        assert_eq!(judge(&twice, BODY), Err(Refusal::Repeated { part: ID }));
    }

    fn good(tag: &str) -> HeaderMap {
        headers(&[(SIGNATURE, tag), (ID, "72d3162e"), (EVENT, "push")])
    }

    fn judge(headers: &HeaderMap, body: &[u8]) -> Result<Verified, Refusal> {
        let presented = Presented {
            headers,
            query: None,
            body,
        };
        GitHub::new(["rotated", SECRET]).verify(&presented)
    }
}
