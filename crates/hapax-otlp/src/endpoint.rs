//! Address of the collector and headers of every request.

use std::{fmt, str::FromStr};

use http::{HeaderMap, HeaderName, HeaderValue, Uri};

/// The path of traces, relative to a collector's address.
const PATH: &str = "/v1/traces";

/// The address of a collector, as in `OTEL_EXPORTER_OTLP_ENDPOINT`: `http://127.0.0.1:4318`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint(Uri);

impl Endpoint {
    /// The URI to which traces are posted: the address with `/v1/traces`.
    pub(crate) fn traces(&self) -> &Uri {
        &self.0
    }
}

/// The address is not valid. The error does not contain it, because it may contain a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is the address of an OTLP collector over HTTP, such as http://127.0.0.1:4318")]
pub struct EndpointError;

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let base: Uri = text.parse().map_err(|_| EndpointError)?;
        let is_http = matches!(base.scheme_str(), Some("http" | "https"));
        let authority = base.authority().ok_or(EndpointError)?;
        let has_login = authority.as_str().contains('@');
        if !is_http || has_login || base.query().is_some() {
            return Err(EndpointError);
        }
        let text = format!("{}{PATH}", text.trim_end_matches('/'));
        text.parse().map(Self).map_err(|_| EndpointError)
    }
}

/// Parses `OTEL_EXPORTER_OTLP_HEADERS`: `name=value,...`, with percent-encoded values.
///
/// Returns `None` if it is not such a list.
pub fn headers_of(text: &str) -> Option<Vec<(String, String)>> {
    let pairs = text.split(',').map(str::trim).filter(|it| !it.is_empty());
    let read = |pair: &str| {
        let (name, value) = pair.split_once('=')?;
        Some((name.trim().to_owned(), decoded(value.trim())?))
    };
    pairs.map(read).collect()
}

fn decoded(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(bytes).ok()
}

/// Headers of every request to the collector. They are never printed, because they often contain
/// tokens.
#[derive(Clone, Default)]
pub struct Headers(HeaderMap);

impl Headers {
    /// Adds a header. Returns false if the name or the value is not valid.
    #[must_use]
    pub fn add(&mut self, name: &str, value: &str) -> bool {
        let name = name.parse::<HeaderName>();
        let (Ok(name), Ok(mut value)) = (name, value.parse::<HeaderValue>()) else {
            return false;
        };
        value.set_sensitive(true);
        self.0.append(name, value);
        true
    }

    pub(crate) fn map(&self) -> &HeaderMap {
        &self.0
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traces_go_below_the_address() {
        check(
            "http://127.0.0.1:4318",
            Some("http://127.0.0.1:4318/v1/traces"),
        );
        check(
            "http://127.0.0.1:4318/",
            Some("http://127.0.0.1:4318/v1/traces"),
        );
        check(
            "https://otel.example.com/in",
            Some("https://otel.example.com/in/v1/traces"),
        );
        check("127.0.0.1:4318", None);
        check("grpc://127.0.0.1:4317", None);
        check("http://user:secret@127.0.0.1:4318", None);
        check("http://127.0.0.1:4318/?token=secret", None);
        check("", None);
    }

    #[test]
    fn what_a_header_holds_is_not_printed() {
        let mut headers = Headers::default();
        assert!(headers.add("x-api-key", "secret"));
        assert!(!headers.add("not a name", "x") && !headers.add("x", "line\nbreak"));
        assert_eq!(format!("{headers:?}"), r#"["x-api-key"]"#);
    }

    #[test]
    fn the_headers_of_the_environment_are_a_list_in_percent_encoding() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let read = headers_of("authorization=Basic%20abc%3D, x-tenant=a=b");
        let expected = vec![pair("authorization", "Basic abc="), pair("x-tenant", "a=b")];
        assert_eq!(read, Some(expected));
        assert_eq!(headers_of(""), Some(vec![]));
        for bad in ["name", "a=%2", "a=%zz", "a=%ff"] {
            assert_eq!(headers_of(bad), None, "{bad}");
        }
    }

    #[track_caller]
    fn check(text: &str, expected: Option<&str>) {
        let traces = text.parse::<Endpoint>().ok();
        let traces = traces.map(|endpoint| endpoint.traces().to_string());
        assert_eq!(traces.as_deref(), expected, "{text}");
    }
}
