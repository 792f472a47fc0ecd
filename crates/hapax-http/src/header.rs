//! Headers of the HTTP contract, and how request headers are parsed.
//!
//! [`hapax::key::parse_header`] parses the text of `Idempotency-Key`; this module checks that the
//! header occurs only once. A header that does not parse is refused, because two interpretations of
//! one key would be two effects.

use std::{borrow::Cow, time::Duration};

use hapax::key::{self, IdempotencyKey};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::problem::{KEY_INVALID, Problem, REQUEST_TIMEOUT_INVALID};

/// The idempotency key, on requests and responses.
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// The header that says where a response comes from: `stored`, `replayed` or `bypassed`.
pub const IDEMPOTENCY_STATUS: HeaderName = HeaderName::from_static("idempotency-status");
/// The header that marks a replay in the profile `stripe`.
pub const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
/// The response headers that only the layer sets. Those of a handler are removed.
pub(crate) const OWN_HEADERS: [HeaderName; 3] =
    [IDEMPOTENCY_KEY, IDEMPOTENCY_STATUS, IDEMPOTENT_REPLAYED];
/// Hop-by-hop headers (RFC 9110, section 7.6.1). `Connection` may list more.
pub const HOP_BY_HOP: [HeaderName; 8] = [
    http::header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    http::header::PROXY_AUTHENTICATE,
    http::header::PROXY_AUTHORIZATION,
    http::header::TE,
    http::header::TRANSFER_ENCODING,
    http::header::UPGRADE,
];
/// The header with the number of milliseconds that the client is still willing to wait.
pub const REQUEST_TIMEOUT: HeaderName = HeaderName::from_static("x-request-timeout");

/// The header with the number of the attempt, which the client counts from 1. It is logged and
/// traced, and a request that says that it is a retry makes no optimistic claim. It never decides
/// about the response.
pub const IDEMPOTENCY_ATTEMPT: HeaderName = HeaderName::from_static("idempotency-attempt");

/// The response headers that CORS must expose so that scripts in a browser can read them.
pub const EXPOSED_HEADERS: [HeaderName; 7] = [
    IDEMPOTENCY_KEY,
    IDEMPOTENCY_STATUS,
    IDEMPOTENT_REPLAYED,
    http::header::RETRY_AFTER,
    http::header::LOCATION,
    http::header::ETAG,
    crate::request_id::REQUEST_ID,
];

/// Maximum number of digits in `X-Request-Timeout`: more milliseconds than any request takes.
const TIMEOUT_DIGITS_MAX: usize = 12;

/// Parses the key. Returns `None` if the header is absent.
pub(crate) fn key(headers: &HeaderMap) -> Result<Option<Cow<'_, str>>, Problem> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    let invalid = |why: String| Problem::new(KEY_INVALID).detail(why);
    if values.next().is_some() {
        return Err(invalid("the header occurs more than once".to_owned()));
    }
    let read = key::parse_header(value.as_bytes());
    read.map(Some).map_err(|why| invalid(why.to_string()))
}

/// Parses the time that the client has left. Returns `None` if the header is absent.
pub(crate) fn budget(headers: &HeaderMap) -> Result<Option<Duration>, Problem> {
    let mut values = headers.get_all(REQUEST_TIMEOUT).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    let text = value.to_str().unwrap_or_default();
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let sane = digits && (1..=TIMEOUT_DIGITS_MAX).contains(&text.len());
    match text.parse() {
        Ok(millis) if sane && values.next().is_none() => Ok(Some(Duration::from_millis(millis))),
        _ => Err(Problem::new(REQUEST_TIMEOUT_INVALID)
            .detail("expected one whole number of milliseconds")),
    }
}

/// Parses the number of the attempt. A value that is not a number from 1 on is ignored.
pub(crate) fn attempt(headers: &HeaderMap) -> Option<u32> {
    let text = headers.get(IDEMPOTENCY_ATTEMPT)?.to_str().ok()?;
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|number| digits && *number > 0)
}

/// Formats a key as a header value: without quotes if possible, otherwise with quotes.
pub(crate) fn echo(key: &IdempotencyKey) -> HeaderValue {
    HeaderValue::from_str(&key.quoted()).expect("a key is visible ASCII")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_given_twice_is_refused_even_when_both_are_equal() {
        let mut headers = HeaderMap::new();
        headers.append(IDEMPOTENCY_KEY, HeaderValue::from_static("k"));
        headers.append(IDEMPOTENCY_KEY, HeaderValue::from_static("k"));
        assert!(key(&headers).is_err());
    }

    #[test]
    fn an_echoed_key_reads_back_as_itself() {
        for text in ["abc", "a b", "a\"b", "a\\b", "a\\ \"b", "~!,;"] {
            let sent = echo(&IdempotencyKey::new(text).unwrap());
            assert_eq!(key::parse_header(sent.as_bytes()).as_deref(), Ok(text));
        }
    }

    #[test]
    fn a_budget_is_a_whole_number_of_milliseconds() {
        let millis = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(REQUEST_TIMEOUT, HeaderValue::from_static(text));
            budget(&headers).ok().flatten().map(|time| time.as_millis())
        };
        assert_eq!(millis("0"), Some(0));
        assert_eq!(millis("1500"), Some(1500));
        for bad in ["", "-1", "+1", "1.5", "1s", "soon", "9999999999999", "1, 2"] {
            assert_eq!(millis(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn an_attempt_that_is_not_a_number_is_ignored() {
        let number = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(IDEMPOTENCY_ATTEMPT, HeaderValue::from_static(text));
            attempt(&headers)
        };
        assert_eq!(
            (number("1"), number("4294967295")),
            (Some(1), Some(u32::MAX))
        );
        for bad in ["", "0", "-1", "+1", "1.5", "one", "4294967296"] {
            assert_eq!(number(bad), None, "{bad:?}");
        }
    }
}
