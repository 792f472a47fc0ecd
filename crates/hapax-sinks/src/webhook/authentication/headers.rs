//! Configured headers of a webhook, and the value of `authorization` for a user and a password.
//!
//! Names that the sink or HTTP itself sets are refused. Values are marked as sensitive, so that they
//! are neither printed nor put into the compression tables of HTTP/2.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{HeaderMap, HeaderName, HeaderValue};
use secrecy::ExposeSecret as _;

use crate::{
    limits::{WEBHOOK_HEADERS_BYTES_MAX, WEBHOOK_HEADERS_MAX},
    secret::Secret,
    settings::{SettingError, reveal},
};

/// The names that the sink sets, and those that belong to the connection and the framing of HTTP.
const RESERVED: [&str; 20] = [
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "date",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "max-forwards",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "traceparent",
    "tracestate",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "via",
];
/// The beginning of the names of Standard Webhooks.
const RESERVED_PREFIX: &str = "webhook-";

/// Reads the setting `headers`.
pub(super) fn read(headers: &BTreeMap<String, Secret>) -> Result<HeaderMap, SettingError> {
    let count = headers.len();
    if count > WEBHOOK_HEADERS_MAX {
        let problem = format!("must be at most {WEBHOOK_HEADERS_MAX} headers, not {count}");
        return Err(SettingError::new("headers", problem));
    }
    let mut read = HeaderMap::with_capacity(count);
    let mut bytes = 0;
    for (text, secret) in headers {
        let setting = format!("headers.{text}");
        let name = name(text).map_err(|problem| SettingError::new(&setting, problem))?;
        let revealed = reveal(&setting, secret)?;
        let value = value(revealed.expose_secret()).ok_or_else(|| {
            let problem = "has a value with characters other than printable ASCII";
            SettingError::new(&setting, problem)
        })?;
        bytes += text.len() + value.len();
        if read.insert(name, value).is_some() {
            let problem = "is set twice: upper and lower case are the same in a header's name";
            return Err(SettingError::new(setting, problem));
        }
    }
    if bytes > WEBHOOK_HEADERS_BYTES_MAX {
        let problem =
            format!("must be at most {WEBHOOK_HEADERS_BYTES_MAX} bytes together, not {bytes}");
        return Err(SettingError::new("headers", problem));
    }
    Ok(read)
}

/// The value of `authorization` by RFC 7617.
pub(super) fn basic(user: &str, password: &str) -> HeaderValue {
    let encoded = STANDARD.encode(format!("{user}:{password}"));
    let value = HeaderValue::try_from(format!("Basic {encoded}"));
    let mut value = value.expect("base64 is printable ASCII");
    value.set_sensitive(true);
    value
}

/// A value that is not printed; `None` if a header cannot have it.
pub(super) fn value(text: &str) -> Option<HeaderValue> {
    let printable = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
    let value = HeaderValue::from_str(text).ok();
    let mut value = value.filter(|_| text.bytes().all(printable))?;
    value.set_sensitive(true);
    Some(value)
}

fn name(text: &str) -> Result<HeaderName, &'static str> {
    let name: HeaderName = text
        .parse()
        .map_err(|_| "is not a valid name of a header")?;
    let is_reserved =
        name.as_str().starts_with(RESERVED_PREFIX) || RESERVED.contains(&name.as_str());
    if is_reserved {
        return Err("cannot be configured: the header is set by the sink or belongs to HTTP");
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_of_the_sink_or_of_http_cannot_be_configured() {
        for name in RESERVED.iter().chain(&["Webhook-Id", "webhook-x", "HOST"]) {
            let error = read(&one(name, "x")).unwrap_err();
            assert_eq!(error.setting, format!("headers.{name}"));
            assert!(error.problem.contains("cannot be configured"), "{error}");
        }
        let read = read(&one("X-Api-Key", "hunter2")).unwrap();
        assert_eq!(read["x-api-key"], "hunter2");
        assert!(!format!("{read:?}").contains("hunter2"));
    }

    #[test]
    fn a_name_or_a_value_that_no_header_can_have_is_refused_and_not_shown() {
        for name in ["", "a b", "é", "a:"] {
            let error = read(&one(name, "x")).unwrap_err();
            assert!(error.problem.contains("not a valid name"), "{error}");
        }
        for value in ["hunter2\r\nx: y", "hunter2\u{7f}", "hunter2é", "hunter2\t"] {
            let error = read(&one("x-api-key", value)).unwrap_err();
            assert_eq!(error.setting, "headers.x-api-key");
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
        let mut twice = one("x-api-key", "a");
        twice.insert("X-Api-Key".to_owned(), "b".into());
        assert!(read(&twice).unwrap_err().problem.contains("twice"));
    }

    #[test]
    fn the_number_and_the_size_of_headers_are_bounded() {
        let many = |count: usize| -> BTreeMap<String, Secret> {
            (0..count).map(|n| (format!("x-{n}"), "a".into())).collect()
        };
        assert!(read(&many(WEBHOOK_HEADERS_MAX)).is_ok());
        let error = read(&many(WEBHOOK_HEADERS_MAX + 1)).unwrap_err();
        assert_eq!(error.setting, "headers");
        let long = "a".repeat(WEBHOOK_HEADERS_BYTES_MAX);
        let error = read(&one("x", &long)).unwrap_err();
        assert!(error.problem.contains("6144 bytes"), "{error}");
        assert!(read(&one("x", &long[1..])).is_ok());
    }

    #[test]
    fn a_user_and_a_password_are_those_of_the_standard() {
        let value = basic("Aladdin", "open sesame");
        assert_eq!(value, "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
        assert!(value.is_sensitive());
    }

    fn one(name: &str, value: &str) -> BTreeMap<String, Secret> {
        BTreeMap::from([(name.to_owned(), value.into())])
    }
}
