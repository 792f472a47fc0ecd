//! Twilio: `X-Twilio-Signature`.
//!
//! The signature is HMAC-SHA1 in base64 over the URL that Twilio has requested, followed by the
//! parameters of the form, sorted by name. If the body is not a form, its SHA-256 is in the query
//! as `bodySHA256`, and so in the URL. A request with the header
//! `X-Twilio-Webhooks-Signature-Settings` is signed with HMAC-SHA256.
//!
//! Neither a time nor an id is signed. So an event is recognized by the hash of what is signed: the
//! header `I-Twilio-Idempotency-Token`, with which a sender could make a recorded request a new
//! event, does not decide.

use ring::{digest, hmac};
use subtle::ConstantTimeEq as _;

use super::{
    Presented, Refusal, Verified, form, hashed,
    keys::{HmacKeys, from_base64, from_hex},
};

const SIGNATURE: &str = "x-twilio-signature";
const SETTINGS: &str = "x-twilio-webhooks-signature-settings";
const BODY_HASH: &str = "bodySHA256";
/// The parameters that say what has happened, with the first part of the type.
const KINDS: [(&[u8], &str); 3] = [
    (b"MessageStatus", "message"),
    (b"SmsStatus", "message"),
    (b"CallStatus", "call"),
];

/// Requests that Twilio has signed.
#[derive(Debug)]
pub struct Twilio {
    sha1: HmacKeys,
    sha256: HmacKeys,
    /// The URL without and with its port. Twilio signs one of them.
    urls: [String; 2],
}

impl Twilio {
    /// Creates the scheme with the auth tokens of the account.
    ///
    /// `url` is the public URL of this source, as it is configured at Twilio, without a query.
    ///
    /// # Errors
    /// Fails if `url` is not the URL of an HTTP server, or has a query. The text continues a
    /// sentence that begins with the setting.
    pub fn new<'s>(
        secrets: impl IntoIterator<Item = &'s str>,
        url: &str,
    ) -> Result<Self, &'static str> {
        let secrets: Vec<&[u8]> = secrets.into_iter().map(str::as_bytes).collect();
        let sha1 = hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY;
        Ok(Self {
            sha1: HmacKeys::new(sha1, secrets.iter().copied()),
            sha256: HmacKeys::new(hmac::HMAC_SHA256, secrets.iter().copied()),
            urls: urls(url).ok_or(
                "is not a public URL such as https://example.com/in/twilio, without a query",
            )?,
        })
    }

    pub(super) fn verify(&self, presented: &Presented<'_>) -> Result<Verified, Refusal> {
        let (keys, bytes) = match algorithm(presented)? {
            "HMAC_SHA1" => (&self.sha1, 20),
            "HMAC_SHA256" => (&self.sha256, 32),
            _ => return Err(Refusal::Malformed { part: SETTINGS }),
        };
        let malformed = Refusal::Malformed { part: SIGNATURE };
        let tag = from_base64(presented.header(SIGNATURE)?, bytes).ok_or(malformed)?;
        let parameters = parameters(presented)?;
        let signed_after_url = signed_after_url(presented.query, &parameters);
        let fits = |url: &String| {
            let parts: Vec<&[u8]> = [url.as_bytes()]
                .into_iter()
                .chain(signed_after_url.iter().copied())
                .collect();
            keys.fit(&parts, &[&tag])
        };
        if !self.urls.iter().any(fits) {
            return Err(Refusal::Signature);
        }
        Ok(Verified::one(hashed(&signed_after_url), kind(&parameters)))
    }
}

/// The parts of the signed text that follow the URL.
fn signed_after_url<'a>(
    query: Option<&'a str>,
    parameters: &'a [(Vec<u8>, Vec<u8>)],
) -> Vec<&'a [u8]> {
    let query = query.into_iter().flat_map(|it| [&b"?"[..], it.as_bytes()]);
    let parameters = parameters.iter();
    let parameters = parameters.flat_map(|(name, value)| [name.as_slice(), value.as_slice()]);
    query.chain(parameters).collect()
}

/// The algorithm that the header names.
fn algorithm<'a>(presented: &Presented<'a>) -> Result<&'a str, Refusal> {
    let settings = presented.optional_header(SETTINGS)?.unwrap_or_default();
    let settings = settings.split(',').filter_map(|it| it.split_once('='));
    let mut named = settings.filter(|(name, _)| name.trim() == "algorithm");
    Ok(named.next().map_or("HMAC_SHA1", |(_, value)| value.trim()))
}

/// The name and the value of a parameter, decoded.
type Parameter = (Vec<u8>, Vec<u8>);

/// The signed parameters in their order: those of the form, or none if the hash of the body is
/// signed.
fn parameters(presented: &Presented<'_>) -> Result<Vec<Parameter>, Refusal> {
    let query = presented.query.unwrap_or_default().as_bytes();
    let mut hashes = form::pairs(query).filter(|(name, _)| name == BODY_HASH.as_bytes());
    let hash = hashes.next();
    if hashes.next().is_some() {
        return Err(Refusal::Repeated { part: BODY_HASH });
    }
    if let Some((_, hash)) = hash {
        let hash = str::from_utf8(&hash).ok();
        let hash = hash.and_then(|text| from_hex(text, 32));
        let hash = hash.ok_or(Refusal::Malformed { part: BODY_HASH })?;
        let own = digest::digest(&digest::SHA256, presented.body);
        let own: &[u8] = own.as_ref();
        let fits: bool = own.ct_eq(&hash).into();
        return fits.then(Vec::new).ok_or(Refusal::Signature);
    }
    if !presented.is_form() && !presented.body.is_empty() {
        // Nothing in the signed text would depend on this body.
        return Err(Refusal::Missing { part: BODY_HASH });
    }
    let mut parameters: Vec<_> = form::pairs(presented.body).collect();
    parameters.sort_unstable();
    parameters.dedup();
    Ok(parameters)
}

fn kind(parameters: &[Parameter]) -> Option<String> {
    KINDS.iter().find_map(|(parameter, group)| {
        let mut values = parameters.iter().filter(|(name, _)| name == parameter);
        let (_, value) = values.next()?;
        let value = str::from_utf8(value).ok()?;
        Some(format!("{group}.{value}"))
    })
}

/// The URL without its port, and with it: that of the scheme if it has none.
fn urls(url: &str) -> Option<[String; 2]> {
    let (scheme, rest) = url.split_once("://")?;
    let standard = match scheme {
        "https" => ":443",
        "http" => ":80",
        _ => return None,
    };
    if url.contains(['?', '#']) || !url.chars().all(|it| it.is_ascii_graphic()) {
        return None;
    }
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host_at = authority.rfind('@').map_or(0, |at| at + 1);
    // A colon begins the port only after the bracket of an IPv6 address.
    let after = authority.rfind(']').unwrap_or(host_at);
    let port_at = authority[after..].find(':').map(|at| after + at);
    let (host, port) = authority.split_at(port_at.unwrap_or(authority.len()));
    if host.len() == host_at {
        return None;
    }
    let port = if port.is_empty() { standard } else { port };
    let with = |port| format!("{scheme}://{host}{port}{path}");
    Some([with(""), with(port)])
}

#[cfg(test)]
mod tests {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    use hapax::key::hex;
    use http::HeaderMap;

    use super::*;
    use crate::ingest::signature::presented::tests::{check_header, headers};

    const FORM: &str = "application/x-www-form-urlencoded";
    // The example of Twilio's documentation.
    const TOKEN: &str = "12345";
    const URL: &str = "https://mycompany.com/myapp.php";
    const QUERY: &str = "foo=1&bar=2";
    const BODY: &[u8] = b"CallSid=CA1234567890ABCDE&Caller=%2B14158675309&Digits=1234\
        &From=%2B14158675309&To=%2B18005551212";
    const TAG: &str = "RSOYDt4T1cUTdK1PDd93/VVr8B8=";

    #[test]
    fn the_documented_request_is_verified() {
        assert!(judge(URL, &good(), BODY, QUERY).is_ok());
        // The order of a form is not signed, and its event is the same.
        let turned = b"To=%2B18005551212&From=%2b14158675309&Digits=1234\
            &Caller=%2B14158675309&CallSid=CA1234567890ABCDE";
        let same = judge(URL, &good(), turned, QUERY);
        assert_eq!(same, judge(URL, &good(), BODY, QUERY));
    }

    #[test]
    fn the_url_is_tried_with_and_without_its_port() {
        for (configured, signed, fits) in [
            ("https://a.example/in/t", "https://a.example:443/in/t", true),
            ("https://a.example:443/in/t", "https://a.example/in/t", true),
            ("http://u:p@[::1]/in/t", "http://u:p@[::1]:80/in/t", true),
            (
                "https://a.example:8443/in/t",
                "https://a.example/in/t",
                true,
            ),
            (
                "https://a.example/in/t",
                "https://a.example:8443/in/t",
                false,
            ),
            ("https://a.example/in/t", "https://b.example/in/t", false),
            ("https://a.example/in/t", "https://a.example/in/T", false),
        ] {
            let headers = form(&tag(TOKEN, signed.as_bytes()));
            let verified = judge_without_query(configured, &headers, b"");
            assert_eq!(verified.is_ok(), fits, "{configured} {signed}");
        }
    }

    #[test]
    fn a_url_that_twilio_could_not_request_is_refused() {
        for url in [
            "",
            "a.example/in",
            "ftp://a.example/",
            "https://",
            "https:///in",
            "https://u@/in",
            "https://:443/in",
            "https://a.example/in?a=b",
            "https://a.example/in#a",
            "https://a.example/in t",
        ] {
            assert!(Twilio::new([TOKEN], url).is_err(), "{url}");
        }
    }

    #[test]
    fn a_body_that_is_no_form_is_signed_by_its_hash() {
        let body = br#"[{"id":"1"}]"#;
        let hash = hex(digest::digest(&digest::SHA256, body).as_ref());
        let query = format!("a=b&bodySHA256={hash}");
        let signed = format!("{URL}?{query}");
        let json = json(&tag(TOKEN, signed.as_bytes()));
        assert!(judge(URL, &json, body, &query).is_ok());
        let refused = judge(URL, &json, b"[]", &query);
        assert_eq!(refused, Err(Refusal::Signature));
        let twice = format!("{query}&bodySHA256={hash}");
        let refused = judge(URL, &json, body, &twice);
        assert_eq!(refused, Err(Refusal::Repeated { part: BODY_HASH }));
        let short = format!("bodySHA256={}", &hash[1..]);
        let refused = judge(URL, &json, body, &short);
        assert_eq!(refused, Err(Refusal::Malformed { part: BODY_HASH }));
    }

    #[test]
    fn a_body_that_is_not_signed_is_refused() {
        let headers = json(&tag(TOKEN, URL.as_bytes()));
        let refused = judge_without_query(URL, &headers, b"{}");
        assert_eq!(refused, Err(Refusal::Missing { part: BODY_HASH }));
        assert!(judge_without_query(URL, &headers, b"").is_ok());
    }

    #[test]
    fn a_parameter_that_occurs_twice_is_signed_once() {
        let body = b"a=2&a=1&a=2&MessageStatus=sent";
        let headers = form(&tag(
            TOKEN,
            format!("{URL}MessageStatussenta1a2").as_bytes(),
        ));
        let verified = judge_without_query(URL, &headers, body);
        let Ok(Verified::Events(events)) = verified else {
            panic!("{verified:?}");
        };
        assert_eq!(events[0].kind.as_deref(), Some("message.sent"));
    }

    #[test]
    fn a_shared_key_signs_with_sha256() {
        let key = hmac::Key::new(hmac::HMAC_SHA256, TOKEN.as_bytes());
        let tag = STANDARD.encode(hmac::sign(&key, URL.as_bytes()));
        let mut headers = form(&tag);
        let settings = "key=webhooks_1, algorithm=HMAC_SHA256";
        headers.insert(SETTINGS, settings.parse().unwrap());
        assert!(judge_without_query(URL, &headers, b"").is_ok());
        headers.insert(SETTINGS, "algorithm=HMAC_MD5".parse().unwrap());
        let refused = judge_without_query(URL, &headers, b"");
        assert_eq!(refused, Err(Refusal::Malformed { part: SETTINGS }));
    }

    #[test]
    fn the_signature_must_occur_once() {
        check_header(SIGNATURE, &good(), |it| judge(URL, it, BODY, QUERY));
    }

    #[test]
    fn what_is_changed_is_refused() {
        let signature = Err(Refusal::Signature);
        assert_eq!(judge(URL, &good(), b"", QUERY), signature);
        assert_eq!(judge(URL, &good(), &BODY[1..], QUERY), signature);
        assert_eq!(judge(URL, &good(), BODY, "foo=1&bar=3"), signature);
        let more = [BODY, b"&a="].concat();
        assert_eq!(judge(URL, &good(), &more, QUERY), signature);
        let other = form(&tag("other", b"x"));
        assert_eq!(judge(URL, &other, BODY, QUERY), signature);
    }

    #[test]
    fn a_malformed_signature_is_refused() {
        for tag in [
            "",
            "AAAA",
            &TAG[..27],
            &format!("{TAG}="),
            &TAG.replace('/', "_"),
        ] {
            let malformed = Err(Refusal::Malformed { part: SIGNATURE });
            assert_eq!(judge(URL, &form(tag), BODY, QUERY), malformed, "{tag}");
        }
    }

    fn tag(token: &str, signed: &[u8]) -> String {
        let sha1 = hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY;
        let key = hmac::Key::new(sha1, token.as_bytes());
        STANDARD.encode(hmac::sign(&key, signed))
    }

    fn good() -> HeaderMap {
        form(TAG)
    }

    fn form(tag: &str) -> HeaderMap {
        headers(&[(SIGNATURE, tag), ("content-type", FORM)])
    }

    fn json(tag: &str) -> HeaderMap {
        headers(&[(SIGNATURE, tag), ("content-type", "application/json")])
    }

    fn judge(
        url: &str,
        headers: &HeaderMap,
        body: &[u8],
        query: &str,
    ) -> Result<Verified, Refusal> {
        let presented = Presented {
            headers,
            query: Some(query),
            body,
        };
        let twilio = Twilio::new(["rotated", TOKEN], url).unwrap();
        twilio.verify(&presented)
    }

    fn judge_without_query(
        url: &str,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Result<Verified, Refusal> {
        let presented = Presented {
            headers,
            query: None,
            body,
        };
        let twilio = Twilio::new(["rotated", TOKEN], url).unwrap();
        twilio.verify(&presented)
    }
}
