//! The bearer token of a request.
//!
//! A request with two `Authorization` headers is refused, because the service
//! could read the other one. A query parameter is never read.

use http::{HeaderMap, header::AUTHORIZATION};

/// The content of the `Authorization` header of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bearer<'a> {
    /// One token.
    Token(&'a str),
    /// There is no such header.
    Missing,
    /// There are several, or it has another scheme or no token.
    Invalid,
}

/// Reads the bearer token.
pub(crate) fn bearer(headers: &HeaderMap) -> Bearer<'_> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let Some(value) = values.next() else {
        return Bearer::Missing;
    };
    if values.next().is_some() {
        return Bearer::Invalid;
    }
    let Some((scheme, token)) = value.to_str().ok().and_then(|text| text.split_once(' ')) else {
        return Bearer::Invalid;
    };
    let token = token.trim_start_matches(' ');
    let is_plain = |byte: u8| byte.is_ascii_graphic() && byte != b',';
    if !scheme.eq_ignore_ascii_case("bearer") || token.is_empty() || !token.bytes().all(is_plain) {
        return Bearer::Invalid;
    }
    Bearer::Token(token)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn exactly_one_header_with_one_token_is_read() {
        check(&[], Bearer::Missing);
        check(&["Bearer a.b.c"], Bearer::Token("a.b.c"));
        check(&["bEARER   a.b.c"], Bearer::Token("a.b.c"));
        for values in [
            &["Bearer a.b.c", "Bearer a.b.c"][..],
            &["Bearer"],
            &["Bearer "],
            &["Bearer a.b.c "],
            &["Bearer a b"],
            &["Bearer a, Bearer b"],
            &["Bearer\ta.b.c"],
            &["Basic YTpi"],
            &["a.b.c"],
            &[""],
            &["Bearer caf\u{e9}"],
        ] {
            check(values, Bearer::Invalid);
        }
    }

    #[track_caller]
    fn check(values: &[&'static str], expected: Bearer<'_>) {
        let mut headers = HeaderMap::new();
        for value in values {
            let value = HeaderValue::from_bytes(value.as_bytes()).unwrap();
            headers.append(AUTHORIZATION, value);
        }
        assert_eq!(bearer(&headers), expected, "{values:?}");
    }
}
