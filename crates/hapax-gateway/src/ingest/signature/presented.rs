//! A request as it is presented to a scheme: headers, query and body.
//!
//! A header is read only if it occurs once and is short visible ASCII.

use http::{HeaderMap, header::CONTENT_TYPE};

use super::Refusal;

/// Maximum length of a header that a scheme reads, in bytes. The longest signature, RSA with 8192
/// bits in base64, has 1368.
const HEADER_BYTES_MAX: usize = 4096;

/// The parts of a request that are verified.
#[derive(Clone, Copy, Debug)]
pub struct Presented<'a> {
    /// The headers.
    pub headers: &'a HeaderMap,
    /// The query of the URL as it arrived, without the question mark.
    pub query: Option<&'a str>,
    /// The body, byte for byte.
    pub body: &'a [u8],
}

impl<'a> Presented<'a> {
    /// The value of a header that must be present.
    pub(super) fn header(&self, name: &'static str) -> Result<&'a str, Refusal> {
        let value = self.optional_header(name)?;
        value.ok_or(Refusal::Missing { part: name })
    }

    /// The value of a header that may be absent.
    pub(super) fn optional_header(&self, name: &'static str) -> Result<Option<&'a str>, Refusal> {
        let mut values = self.headers.get_all(name).iter();
        let Some(value) = values.next() else {
            return Ok(None);
        };
        if values.next().is_some() {
            return Err(Refusal::Repeated { part: name });
        }
        let text = value.to_str().ok();
        let text = text.filter(|it| it.len() <= HEADER_BYTES_MAX);
        text.map(Some).ok_or(Refusal::Malformed { part: name })
    }

    /// Whether the body is a form, by its content type.
    pub(super) fn is_form(&self) -> bool {
        let value = self.headers.get(CONTENT_TYPE);
        let text = value.and_then(|it| it.to_str().ok()).unwrap_or_default();
        let essence = text.split(';').next().unwrap_or_default().trim();
        essence.eq_ignore_ascii_case("application/x-www-form-urlencoded")
    }
}

/// Requests of the tests of the schemes.
#[cfg(test)]
pub(super) mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    /// Headers from their names and values.
    pub(crate) fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for &(name, value) in pairs {
            let value = HeaderValue::from_bytes(value.as_bytes()).unwrap();
            headers.append(HeaderName::from_static(name), value);
        }
        headers
    }

    /// Checks what every scheme refuses about a header: that it is missing, repeated, not ASCII,
    /// and much too long.
    #[track_caller]
    pub(crate) fn check_header(
        name: &'static str,
        good: &HeaderMap,
        verify: impl Fn(&HeaderMap) -> Result<super::super::Verified, Refusal>,
    ) {
        assert!(verify(good).is_ok());
        let mut without = good.clone();
        let value = without.remove(name).expect("the header is there");
        assert_eq!(verify(&without), Err(Refusal::Missing { part: name }));
        let mut twice = good.clone();
        twice.append(name, value);
        assert_eq!(verify(&twice), Err(Refusal::Repeated { part: name }));
        let malformed = Err(Refusal::Malformed { part: name });
        for wrong in ["é".to_owned(), "x".repeat(100_000)] {
            let mut headers = good.clone();
            let value = HeaderValue::from_bytes(wrong.as_bytes()).unwrap();
            headers.insert(name, value);
            assert_eq!(verify(&headers), malformed);
        }
    }

    #[test]
    fn a_form_is_recognized_by_its_content_type() {
        for (text, is_form) in [
            ("application/x-www-form-urlencoded", true),
            ("Application/X-WWW-Form-Urlencoded; charset=UTF-8", true),
            ("application/json", false),
            ("", false),
        ] {
            let headers = headers(&[("content-type", text)]);
            let (query, body) = (None, &b""[..]);
            let presented = Presented {
                headers: &headers,
                query,
                body,
            };
            assert_eq!(presented.is_form(), is_form, "{text}");
        }
    }
}
