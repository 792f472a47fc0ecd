//! Defence against request smuggling, and requests that the gateway refuses as ambiguous.
//!
//! A request is ambiguous if the gateway and the service could read it as different requests. The
//! gateway never copies bytes of one connection to another: it parses a request and writes a new
//! one, with new framing (`Content-Length` or `Transfer-Encoding`) and without hop-by-hop headers.
//! So an ambiguity cannot reach the service as such. [`check`] says what is refused, and where.

use hapax_http::{
    Problem,
    problem::{METHOD, REQUEST_INVALID},
};
use http::{
    HeaderMap, Method, Uri, Version,
    header::{HOST, TRANSFER_ENCODING},
    request::Parts,
    uri::Authority,
};

/// Checks a request, and returns the host that it asks for, without the port.
///
/// What is refused, here or before:
///
/// | request | refused by |
/// |---|---|
/// | several different `Content-Length`, or one that is not a number | hyper (400) |
/// | `Transfer-Encoding` whose last coding is not `chunked`, or in HTTP/1.0 | hyper (400) |
/// | a line folded over several (obs-fold), a space before the colon, NUL in a value | hyper (httparse) |
/// | chunk sizes that are not hexadecimal or overflow | hyper (400), and closes the connection |
/// | more than 100 headers, a head longer than the buffer | hyper (431) |
/// | HTTP/2 with `Connection`, `Transfer-Encoding` or another forbidden header; a name with capitals | h2 resets the stream |
/// | HTTP/2 whose body differs from its `Content-Length` | h2 resets the stream |
/// | several `Host`, a `Host` that is not valid, none in HTTP/1.1 | this function (400) |
/// | a URI with an authority that differs from `Host` | this function (400) |
/// | `Transfer-Encoding` other than `chunked` alone, or more than once | this function (400) |
/// | paths with a segment `.` or `..`, also if percent-encoded or with parameters (`..;a`), a backslash or a NUL | this function (400) |
/// | a method with small letters | this function (400) |
/// | both `Content-Length` and `Transfer-Encoding`; a line that ends in a bare LF; a chunk extension longer than 1 KiB | [`Checked`](crate::wire::Checked) closes the connection |
/// | `CONNECT`, `TRACE` | this function (405) |
///
/// # Errors
/// 400 if the request is ambiguous, 405 if its method is not passed on.
pub(crate) fn check(parts: &Parts) -> Result<String, Problem> {
    if [Method::CONNECT, Method::TRACE].contains(&parts.method) {
        return Err(Problem::new(METHOD).detail("this method is not passed on"));
    }
    // Methods are case-sensitive, but some services take `post` for `POST`, which a route may protect.
    let mut letters = parts.method.as_str().bytes();
    if letters.any(|letter| letter.is_ascii_lowercase()) {
        return Err(invalid("the method contains small letters"));
    }
    check_encoding(&parts.headers)?;
    check_path(&parts.uri)?;
    let authority = authority(parts)?;
    Ok(authority.map_or_else(String::new, |authority| host_of(&authority).to_owned()))
}

/// The authority that the request asks for, with its port.
///
/// # Errors
/// 400 if it is not valid, or if `Host` and the URI differ.
pub(crate) fn authority(parts: &Parts) -> Result<Option<Authority>, Problem> {
    let mut hosts = parts.headers.get_all(HOST).iter();
    let host = match (hosts.next(), hosts.next()) {
        (_, Some(_)) => return Err(invalid("the header Host occurs more than once")),
        (None, None) => None,
        (Some(host), None) => {
            let host = host.to_str().ok().filter(|host| !host.contains('@'));
            let host: Option<Authority> = host.and_then(|host| host.parse().ok());
            Some(host.ok_or_else(|| invalid("the header Host is not valid"))?)
        }
    };
    let target = parts.uri.authority().cloned();
    match (host, target) {
        (Some(host), Some(target)) if !is_same(&host, &target) => Err(invalid(
            "the header Host differs from the authority of the URI",
        )),
        (None, None) if parts.version == Version::HTTP_11 => {
            Err(invalid("the header Host is missing"))
        }
        (_, Some(target)) if target.as_str().contains('@') => {
            Err(invalid("the URI contains credentials"))
        }
        (host, target) => Ok(target.or(host)),
    }
}

fn is_same(one: &Authority, other: &Authority) -> bool {
    one.as_str().eq_ignore_ascii_case(other.as_str())
}

fn host_of(authority: &Authority) -> &str {
    authority.host()
}

fn check_encoding(headers: &HeaderMap) -> Result<(), Problem> {
    let mut values = headers.get_all(TRANSFER_ENCODING).iter();
    let (first, second) = (values.next(), values.next());
    let is_chunked = first.is_none_or(|value| {
        let value = value.as_bytes().trim_ascii();
        value.eq_ignore_ascii_case(b"chunked")
    });
    if second.is_some() || !is_chunked {
        return Err(invalid("Transfer-Encoding must be chunked, and occur once"));
    }
    Ok(())
}

/// Refuses paths that a service may resolve to another path, and so to another route.
fn check_path(uri: &Uri) -> Result<(), Problem> {
    let path = uri.path();
    if !path.starts_with('/') && path != "*" {
        return Err(invalid("the path must begin with a slash"));
    }
    let lower = path.to_ascii_lowercase();
    if lower.contains('\\') || lower.contains("%5c") || lower.contains("%00") {
        return Err(invalid("the path contains a backslash or a NUL"));
    }
    let plain = lower.replace("%2e", ".").replace("%2f", "/");
    let plain = plain.replace("%3b", ";");
    // Servlet containers remove the parameters of a segment before they resolve it.
    let is_relative = plain.split('/').any(|segment| {
        let name = segment.split_once(';').map_or(segment, |(name, _)| name);
        name == "." || name == ".."
    });
    if is_relative {
        return Err(invalid("the path contains a segment \".\" or \"..\""));
    }
    Ok(())
}

fn invalid(detail: &'static str) -> Problem {
    Problem::new(REQUEST_INVALID).detail(detail)
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[test]
    fn a_path_that_a_service_may_resolve_otherwise_is_refused() {
        for path in [
            "/a/../b",
            "/a/%2e%2E/b",
            "/a/..",
            "/./a",
            "/a\\b",
            "/a%5cb",
            "/a%00",
            "/x%2f..%2Fb",
            "/a/..;/b",
            "/a/.;x=1/b",
            "/a/%2e.%3Bx",
        ] {
            assert!(checked(path, &[("host", "a")]).is_err(), "{path}");
        }
        for path in ["/", "/a.b/..c/...", "/a//b", "/a%2Fb", "/a;x=../b;"] {
            assert_eq!(checked(path, &[("host", "a")]).ok().as_deref(), Some("a"));
        }
    }

    #[test]
    fn a_request_has_exactly_one_host() {
        let host = |lines: &[(&'static str, &'static str)]| checked("/", lines).ok();
        assert_eq!(
            host(&[("host", "A.example:8080")]).as_deref(),
            Some("A.example")
        );
        assert_eq!(host(&[("host", "a"), ("host", "a")]), None);
        assert_eq!(host(&[]), None);
        assert_eq!(host(&[("host", "user@a")]), None);
        let absolute = |host| checked("http://a.example/x", &[("host", host)]).ok();
        assert_eq!(absolute("a.example").as_deref(), Some("a.example"));
        assert_eq!(absolute("b.example"), None);
    }

    #[test]
    fn a_transfer_encoding_other_than_chunked_is_refused() {
        let sent = |value| checked("/", &[("host", "a"), ("transfer-encoding", value)]).is_ok();
        assert!(sent("chunked") && sent(" Chunked "));
        assert!(!sent("gzip, chunked") && !sent("identity") && !sent("chunked, chunked"));
    }

    #[test]
    fn a_method_with_small_letters_is_refused() {
        for (method, is_passed) in [
            ("POST", true),
            ("QUERY", true),
            ("post", false),
            ("Post", false),
        ] {
            let request = Request::builder()
                .method(method)
                .uri("/")
                .header("host", "a");
            let (parts, ()) = request.body(()).unwrap().into_parts();
            assert_eq!(check(&parts).is_ok(), is_passed, "{method}");
        }
    }

    fn checked(uri: &str, lines: &[(&'static str, &'static str)]) -> Result<String, Problem> {
        let mut request = Request::post(uri);
        for (name, value) in lines {
            request = request.header(*name, *value);
        }
        match request.body(()) {
            Ok(request) => check(&request.into_parts().0),
            Err(_) => Err(invalid("the URI is not valid")),
        }
    }
}
