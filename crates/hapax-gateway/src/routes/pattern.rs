//! Path patterns: `/orders`, `/orders/{id}`, `/files/{*rest}`.
//!
//! A parameter matches one segment that is not empty; the rest matches any number of segments. Paths
//! are compared after unreserved characters are percent-decoded, because `/%6Frders` and `/orders`
//! are the same path (RFC 3986). Other escapes, such as `%2F`, stay as they are.

use std::borrow::Cow;

/// A path pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    segments: Vec<Segment>,
}

/// A segment of a pattern. The order is that of specificity.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Segment {
    Literal(String),
    Parameter,
    Rest,
}

impl Pattern {
    /// Parses the setting `path`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let expected = || {
            format!(
                "expected a path such as \"/orders\", \"/orders/{{id}}\" or \"/files/{{*rest}}\", \
                 got {text:?}"
            )
        };
        if !text.starts_with('/') || text.contains(['?', '#', ' ']) || !text.is_ascii() {
            return Err(expected());
        }
        let decoded = decoded(text);
        let parsed: Option<Vec<Segment>> = segments(&decoded).map(segment).collect();
        let segments = parsed.ok_or_else(expected)?;
        let rest = segments.iter().position(|it| *it == Segment::Rest);
        if rest.is_some_and(|at| at + 1 != segments.len()) {
            return Err("has segments after {*rest}, which must be the last one".to_owned());
        }
        Ok(Self { segments })
    }

    /// The specificity: patterns that sort first are more specific. A pattern that ends is more
    /// specific than a longer one, which does not match the same paths unless it has a rest.
    pub(super) fn rank(&self) -> Vec<Segment> {
        self.segments.clone()
    }

    /// Whether the two match exactly the same paths.
    pub(super) fn matches_like(&self, other: &Self) -> bool {
        self == other
    }

    /// Whether the segments of a decoded path match.
    pub(super) fn matches(&self, path: &[&str]) -> bool {
        let mut path = path.iter();
        for segment in &self.segments {
            let is_matching = match (segment, path.next()) {
                (Segment::Rest, Some(_)) => return true,
                (Segment::Literal(literal), Some(sent)) => literal == sent,
                (Segment::Parameter, Some(sent)) => !sent.is_empty(),
                (_, None) => false,
            };
            if !is_matching {
                return false;
            }
        }
        path.next().is_none()
    }
}

fn segment(text: &str) -> Option<Segment> {
    let inner = text
        .strip_prefix('{')
        .and_then(|text| text.strip_suffix('}'));
    match inner {
        None if text.contains(['{', '}', '*']) => None,
        None => Some(Segment::Literal(text.to_owned())),
        Some(name) => {
            let (name, segment) = match name.strip_prefix('*') {
                Some(name) => (name, Segment::Rest),
                None => (name, Segment::Parameter),
            };
            let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
            (!name.is_empty() && name.chars().all(is_name)).then_some(segment)
        }
    }
}

/// The segments of a path that begins with a slash.
pub(super) fn segments(path: &str) -> impl Iterator<Item = &str> {
    path.strip_prefix('/').unwrap_or(path).split('/')
}

/// Decodes the escapes of unreserved characters.
pub(super) fn decoded(path: &str) -> Cow<'_, str> {
    if !path.contains('%') {
        return Cow::Borrowed(path);
    }
    let mut decoded = String::with_capacity(path.len());
    let mut rest = path;
    while let Some(at) = rest.find('%') {
        decoded.push_str(&rest[..at]);
        let hex = rest.get(at + 1..at + 3);
        let byte = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        let is_unreserved =
            |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
        if let Some(byte) = byte.filter(is_unreserved) {
            decoded.push(char::from(byte));
            rest = &rest[at + 3..];
        } else {
            decoded.push('%');
            rest = &rest[at + 1..];
        }
    }
    decoded.push_str(rest);
    Cow::Owned(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_that_is_not_valid_is_refused() {
        for bad in [
            "",
            "orders",
            "/a?b",
            "/{",
            "/{id",
            "/a{id}",
            "/{*rest}/b",
            "/{}",
            "/*",
        ] {
            assert!(Pattern::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn escapes_of_unreserved_characters_are_decoded_and_no_others() {
        assert_eq!(
            decoded("/%6Frders/%2e%2E/%2Fx/%zz/%"),
            "/orders/../%2Fx/%zz/%"
        );
        assert_eq!(decoded("/a%C3%A9"), "/a%C3%A9");
    }
}
