//! Hop-by-hop headers (RFC 9110, section 7.6.1), which belong to one connection.
//!
//! These are the headers that `Connection` lists, and a fixed list. `Connection` cannot name headers
//! that are needed to understand the message, such as `Host` or `Content-Type`: a client could
//! otherwise remove a header that something in front of the gateway has set, such as the tenant. A
//! name that is protected stays, even if `Connection` lists it.

use hapax_http::header::HOP_BY_HOP;
use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{
        AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE,
        CONTENT_TYPE, COOKIE, HOST, TE, TRAILER, UPGRADE,
    },
};

/// Headers that `Connection` cannot remove.
const NEVER_LISTED: [HeaderName; 10] = [
    AUTHORIZATION,
    CACHE_CONTROL,
    CONTENT_ENCODING,
    CONTENT_LENGTH,
    CONTENT_RANGE,
    CONTENT_TYPE,
    COOKIE,
    HOST,
    TRAILER,
    HeaderName::from_static("idempotency-key"),
];

/// Removes the hop-by-hop headers. `protected` are headers that `Connection` cannot remove.
///
/// `TE: trailers` is kept, because the gateway passes trailers on.
pub fn remove_hop_by_hop(headers: &mut HeaderMap, protected: &[HeaderName]) {
    let wants_trailers = contains(headers, &TE, "trailers");
    let listed: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
        .filter(|name| !NEVER_LISTED.contains(name) && !protected.contains(name))
        .filter(|name| !name.as_str().starts_with("x-forwarded-") && name != "forwarded")
        .collect();
    for name in HOP_BY_HOP.iter().chain(&listed) {
        headers.remove(name);
    }
    if wants_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
}

/// The protocol of an upgrade that the headers ask for or confirm, such as `websocket`.
pub fn upgrade_of(headers: &HeaderMap) -> Option<HeaderValue> {
    if contains(headers, &CONNECTION, "upgrade") {
        headers.get(UPGRADE).cloned()
    } else {
        None
    }
}

/// Whether a header with a list contains a word.
fn contains(headers: &HeaderMap, name: &HeaderName, word: &str) -> bool {
    headers
        .get_all(name)
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .any(|item| item.trim_ascii().eq_ignore_ascii_case(word.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_one_connection_are_removed() {
        let mut sent = headers(&[
            ("connection", "close, X-Hop"),
            ("connection", "keep-alive"),
            ("x-hop", "1"),
            ("keep-alive", "timeout=5"),
            ("transfer-encoding", "chunked"),
            ("te", "gzip, trailers"),
            ("upgrade", "h2c"),
            ("x-stays", "1"),
        ]);
        remove_hop_by_hop(&mut sent, &[]);
        assert_eq!(sent, headers(&[("te", "trailers"), ("x-stays", "1")]));
    }

    #[test]
    fn a_client_cannot_remove_a_header_that_the_service_needs() {
        let kept = [
            ("host", "a"),
            ("authorization", "b"),
            ("idempotency-key", "k"),
            ("x-forwarded-for", "1.2.3.4"),
            ("x-tenant", "alice"),
        ];
        let mut sent = headers(&kept);
        let list = "host, authorization, idempotency-key, x-forwarded-for, x-tenant";
        sent.insert(CONNECTION, HeaderValue::from_static(list));
        remove_hop_by_hop(&mut sent, &[HeaderName::from_static("x-tenant")]);
        assert_eq!(sent, headers(&kept));
    }

    #[test]
    fn an_upgrade_needs_both_headers() {
        let both = [
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "websocket"),
        ];
        assert_eq!(upgrade_of(&headers(&both)).unwrap(), "websocket");
        assert!(upgrade_of(&headers(&both[1..])).is_none());
        assert!(upgrade_of(&headers(&both[..1])).is_none());
    }

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let line = |(name, value): &(&'static str, &'static str)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        };
        let mut headers = HeaderMap::new();
        for (name, value) in lines.iter().map(line) {
            headers.append(name, value);
        }
        headers
    }
}
