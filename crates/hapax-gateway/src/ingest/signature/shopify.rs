//! Shopify: `X-Shopify-Hmac-Sha256`.
//!
//! The signature is HMAC-SHA256 over the body, in base64, with the client secret of the app. It
//! covers neither a time nor the headers with the ids, so TLS has to keep a request from being read
//! and sent again under another id. Repeated deliveries have the same `X-Shopify-Event-Id` and the
//! same topic; a request without it is recognized by `X-Shopify-Webhook-Id`.

use ring::hmac;

use super::{
    Presented, Refusal, Verified, identity,
    keys::{HmacKeys, from_base64},
};

const SIGNATURE: &str = "x-shopify-hmac-sha256";
const EVENT_ID: &str = "x-shopify-event-id";
const WEBHOOK_ID: &str = "x-shopify-webhook-id";
const TOPIC: &str = "x-shopify-topic";

/// Requests that Shopify has signed.
#[derive(Debug)]
pub struct Shopify {
    keys: HmacKeys,
}

impl Shopify {
    /// Creates the scheme with the client secrets of the app.
    pub fn new<'s>(secrets: impl IntoIterator<Item = &'s str>) -> Self {
        let secrets = secrets.into_iter().map(str::as_bytes);
        let keys = HmacKeys::new(hmac::HMAC_SHA256, secrets);
        Self { keys }
    }

    pub(super) fn verify(&self, presented: &Presented<'_>) -> Result<Verified, Refusal> {
        let malformed = Refusal::Malformed { part: SIGNATURE };
        let text = presented.header(SIGNATURE)?;
        let tag = from_base64(text, 32).ok_or(malformed)?;
        if !self.keys.fit(&[presented.body], &[&tag]) {
            return Err(Refusal::Signature);
        }
        let topic = presented.optional_header(TOPIC)?;
        let event = presented.optional_header(EVENT_ID)?;
        let id = if let Some(id) = event.filter(|id| !id.is_empty()) {
            // One action of a merchant may be several events with one id and different topics.
            identity(&format!("{id}/{}", topic.unwrap_or_default()), EVENT_ID)?
        } else {
            let id = presented.optional_header(WEBHOOK_ID)?;
            identity(id.unwrap_or_default(), WEBHOOK_ID)?
        };
        Ok(Verified::one(id, topic.map(str::to_owned)))
    }
}

#[cfg(test)]
mod tests {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    use http::HeaderMap;

    use super::*;
    use crate::ingest::signature::presented::tests::{check_header, headers};

    const BODY: &[u8] = br#"{"id":820982911946154508}"#;

    #[test]
    fn a_signed_request_is_one_event_with_its_topic() {
        let topic = || Some("orders/create".to_owned());
        let event = Verified::one("ev_1/orders/create".to_owned(), topic());
        assert_eq!(judge(&good(), BODY), Ok(event));
        let mut old = good();
        old.remove(EVENT_ID);
        let event = Verified::one("wh_1".to_owned(), topic());
        assert_eq!(judge(&old, BODY), Ok(event));
    }

    #[test]
    fn the_signature_must_occur_once() {
        check_header(SIGNATURE, &good(), |it| judge(it, BODY));
    }

    #[test]
    fn what_is_changed_is_refused() {
        for body in [&b""[..], br#"{"id":820982911946154509}"#] {
            assert_eq!(judge(&good(), body), Err(Refusal::Signature));
        }
        let headers = good();
        let presented = Presented {
            headers: &headers,
            query: None,
            body: BODY,
        };
        let other = Shopify::new(["other"]);
        assert_eq!(other.verify(&presented), Err(Refusal::Signature));
    }

    #[test]
    fn a_malformed_signature_is_refused() {
        let tag = good()[SIGNATURE].to_str().unwrap().to_owned();
        for tag in [
            "",
            "AAAA",
            &tag[..43],
            &format!("{tag}="),
            &tag.replace('=', "A"),
            &format!("%{}", &tag[1..]),
        ] {
            let mut headers = good();
            headers.insert(SIGNATURE, tag.parse().unwrap());
            let malformed = Err(Refusal::Malformed { part: SIGNATURE });
            assert_eq!(judge(&headers, BODY), malformed, "{tag}");
        }
    }

    #[test]
    fn a_request_without_an_id_is_no_event() {
        let mut headers = good();
        headers.remove(EVENT_ID);
        headers.remove(WEBHOOK_ID);
        let refusal = Refusal::NoId { part: WEBHOOK_ID };
        assert_eq!(judge(&headers, BODY), Err(refusal));
    }

    fn good() -> HeaderMap {
        let key = hmac::Key::new(hmac::HMAC_SHA256, b"hush");
        let tag = STANDARD.encode(hmac::sign(&key, BODY));
        headers(&[
            (SIGNATURE, &tag),
            (EVENT_ID, "ev_1"),
            (WEBHOOK_ID, "wh_1"),
            (TOPIC, "orders/create"),
        ])
    }

    fn judge(headers: &HeaderMap, body: &[u8]) -> Result<Verified, Refusal> {
        let presented = Presented {
            headers,
            query: None,
            body,
        };
        Shopify::new(["rotated", "hush"]).verify(&presented)
    }
}
