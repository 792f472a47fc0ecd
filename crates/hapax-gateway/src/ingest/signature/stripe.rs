//! Stripe: `Stripe-Signature: t=TIME,v1=SIGNATURE,...`.
//!
//! A signature is HMAC-SHA256 over `TIME.BODY`, in hexadecimal. The header has one for each secret
//! that is active while a secret is rotated. Stripe signs every attempt separately; the event's id is in
//! the body.

use hapax::limits::SIGNATURES_MAX;
use ring::hmac;
use serde::Deserialize;

use super::{
    Presented, Refusal, TimeBound, Verified, identity,
    keys::{HmacKeys, from_hex},
};

const HEADER: &str = "stripe-signature";

/// Requests that Stripe has signed.
#[derive(Debug)]
pub struct Stripe {
    keys: HmacKeys,
}

#[derive(Deserialize)]
struct Body {
    #[serde(default)]
    id: String,
    #[serde(rename = "type")]
    kind: Option<String>,
}

impl Stripe {
    /// Creates the scheme with the signing secrets of the endpoint (`whsec_...`), which are used as
    /// they are written.
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
        let malformed = Refusal::Malformed { part: HEADER };
        let header = presented.header(HEADER)?;
        let (timestamp, tags) = parse(header).ok_or(malformed)?;
        time.check_text(timestamp, HEADER)?;
        let parts: [&[u8]; 3] = [timestamp.as_bytes(), b".", presented.body];
        let tags: Vec<&[u8]> = tags.iter().map(Vec::as_slice).collect();
        if !self.keys.fit(&parts, &tags) {
            return Err(Refusal::Signature);
        }
        let body: Result<Body, _> = serde_json::from_slice(presented.body);
        let body = body.map_err(|_| Refusal::Malformed { part: "body" })?;
        Ok(Verified::one(identity(&body.id, "id")?, body.kind))
    }
}

/// The time, which occurs once, and the signatures that are well-formed, at least one.
fn parse(header: &str) -> Option<(&str, Vec<Vec<u8>>)> {
    let (mut timestamp, mut tags) = (None, Vec::new());
    if header.split(',').count() > SIGNATURES_MAX {
        return None;
    }
    for entry in header.split(',') {
        match entry.trim().split_once('=')? {
            ("t", value) if timestamp.is_none() => timestamp = Some(value),
            ("t", _) => return None,
            ("v1", value) => tags.extend(from_hex(value, 32)),
            // Other schemes: `v0` signs test events.
            _ => {}
        }
    }
    timestamp.zip(Some(tags).filter(|it| !it.is_empty()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hapax::{Timestamp, key::hex};
    use http::HeaderMap;

    use super::*;
    use crate::ingest::signature::presented::tests::{check_header, headers};

    const BODY: &[u8] = br#"{"id":"evt_1","object":"event","type":"invoice.paid"}"#;
    const AT: i64 = 1_700_000_000;

    #[test]
    fn a_signed_request_is_one_event_with_its_id_and_type() {
        let event = Verified::one("evt_1".to_owned(), Some("invoice.paid".to_owned()));
        let good = signed("whsec_a", BODY);
        assert_eq!(judge(&good, BODY, 0), Ok(event.clone()));
        assert_eq!(
            judge(&signed("whsec_b", BODY), BODY, 300),
            Ok(event.clone())
        );
        // While a secret is rotated, the header has a signature of each.
        let [old, new] = ["whsec_old", "whsec_a"].map(|it| tag(it, BODY));
        let both = format!("t={AT},v1={old}, v1={new},v0=test");
        assert_eq!(judge(&headers(&[(HEADER, &both)]), BODY, -300), Ok(event));
    }

    #[test]
    fn the_header_must_occur_once() {
        check_header(HEADER, &signed("whsec_a", BODY), |it| judge(it, BODY, 0));
    }

    #[test]
    fn what_is_changed_or_old_is_refused() {
        let good = signed("whsec_a", BODY);
        let other = signed("whsec_other", BODY);
        assert_eq!(judge(&other, BODY, 0), Err(Refusal::Signature));
        assert_eq!(judge(&good, b"", 0), Err(Refusal::Signature));
        let mut changed = BODY.to_vec();
        changed[8] ^= 1;
        assert_eq!(judge(&good, &changed, 0), Err(Refusal::Signature));
        assert_eq!(judge(&good, BODY, 301), Err(Refusal::Stale));
        assert_eq!(judge(&good, BODY, -301), Err(Refusal::Stale));
        let later = format!("t={},v1={}", AT + 1, tag("whsec_a", BODY));
        let later = headers(&[(HEADER, &later)]);
        assert_eq!(judge(&later, BODY, 0), Err(Refusal::Signature));
    }

    #[test]
    fn a_malformed_header_is_refused() {
        let tag = tag("whsec_a", BODY);
        let many = format!("t={AT}{}", format!(",v1={tag}").repeat(SIGNATURES_MAX));
        for header in [
            "",
            "t",
            ",",
            &format!("t={AT}"),
            &format!("v1={tag}"),
            &format!("t={AT},v0={tag}"),
            &format!("t={AT},v1="),
            &format!("t={AT},v1={}", &tag[1..]),
            &format!("t={AT},v1={tag}00"),
            &format!("t={AT},v1={}", tag.replace(['0', '1', '2'], "g")),
            &format!("t={AT},t={AT},v1={tag}"),
            &format!("t=-{AT},v1={tag}"),
            &format!("t= {AT},v1={tag}"),
            &many,
        ] {
            let headers = headers(&[(HEADER, header)]);
            let malformed = Err(Refusal::Malformed { part: HEADER });
            assert_eq!(judge(&headers, BODY, 0), malformed, "{header}");
        }
    }

    #[test]
    fn a_signed_body_without_an_id_is_no_event() {
        let malformed = Refusal::Malformed { part: "body" };
        let absent = Refusal::NoId { part: "id" };
        let cases: [(&[u8], Refusal); 7] = [
            (b"", malformed),
            (b"{", malformed),
            (b"[]", malformed),
            (br#"{"id":1}"#, malformed),
            // Parsers differ on which one counts.
            (br#"{"id":"a","id":"b"}"#, malformed),
            (b"{}", absent),
            (br#"{"id":""}"#, absent),
        ];
        for (body, refusal) in cases {
            assert_eq!(judge(&signed("whsec_a", body), body, 0), Err(refusal));
        }
    }

    fn tag(secret: &str, body: &[u8]) -> String {
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
        let signed = [AT.to_string().as_bytes(), b".", body].concat();
        hex(hmac::sign(&key, &signed).as_ref())
    }

    fn signed(secret: &str, body: &[u8]) -> HeaderMap {
        let value = format!("t={AT},v1={}", tag(secret, body));
        headers(&[(HEADER, &value)])
    }

    fn judge(headers: &HeaderMap, body: &[u8], passed: i64) -> Result<Verified, Refusal> {
        let presented = Presented {
            headers,
            query: None,
            body,
        };
        let time = TimeBound {
            now: Timestamp::from_millis((AT + passed) * 1000),
            tolerance: Duration::from_mins(5),
        };
        Stripe::new(["whsec_a", "whsec_b"]).verify(&presented, time)
    }
}
