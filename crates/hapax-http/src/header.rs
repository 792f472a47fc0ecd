//! The request headers of the contract, and how they are read.
//!
//! `Idempotency-Key` is a structured-field string (RFC 8941) or the same text
//! bare: `"abc"` and `abc` are one key. What does not parse is refused, never
//! guessed at: two readings of one key would be two effects.

use std::{borrow::Cow, time::Duration};

use hapax::{key::IdempotencyKey, limits::KEY_BYTES_MAX};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::problem::{KEY_INVALID, Problem, REQUEST_TIMEOUT_INVALID};

/// The header that names an intent, on requests and on their answers.
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// The header that says how an answer came about: `stored`, `replayed` or `bypassed`.
pub const IDEMPOTENCY_STATUS: HeaderName = HeaderName::from_static("idempotency-status");
/// The header that marks a replay in the profile `stripe`.
pub const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
/// The header that says how many milliseconds the client has left.
pub const REQUEST_TIMEOUT: HeaderName = HeaderName::from_static("x-request-timeout");

/// The response headers that a browser's script can read only when CORS exposes them.
pub const EXPOSED_HEADERS: [HeaderName; 7] = [
    IDEMPOTENCY_KEY,
    IDEMPOTENCY_STATUS,
    IDEMPOTENT_REPLAYED,
    http::header::RETRY_AFTER,
    http::header::LOCATION,
    http::header::ETAG,
    crate::request_id::REQUEST_ID,
];

/// Digits of a client's budget: more milliseconds than any request takes.
const TIMEOUT_DIGITS_MAX: usize = 12;

/// Reads the key; `None` when the header is absent.
pub(crate) fn key(headers: &HeaderMap) -> Result<Option<Cow<'_, str>>, Problem> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    let parsed = match values.next() {
        Some(_) => Err("the header is given twice"),
        None => parse_key(value.as_bytes()),
    };
    parsed
        .map(Some)
        .map_err(|why| Problem::new(KEY_INVALID).detail(why))
}

/// Reads how much time the client has left; `None` when it does not say.
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
            .detail("it must be a whole number of milliseconds, given once")),
    }
}

/// Writes a key as a header value: bare where it can be, quoted where it must be.
pub(crate) fn echo(key: &IdempotencyKey) -> HeaderValue {
    HeaderValue::from_str(&key.quoted()).expect("a key is visible ASCII")
}

type Parsed<T> = Result<T, &'static str>;

pub(crate) fn parse_key(value: &[u8]) -> Parsed<Cow<'_, str>> {
    let value = value.trim_ascii();
    let key = if value.first() == Some(&b'"') {
        let (key, rest) = quoted(value)?;
        parameters(rest)?;
        key
    } else {
        Cow::Borrowed(bare(value)?)
    };
    match key.len() {
        0 => Err("the key is empty"),
        1..=KEY_BYTES_MAX => Ok(key),
        _ => Err("the key is longer than 255 bytes"),
    }
}

fn bare(value: &[u8]) -> Parsed<&str> {
    if !value
        .iter()
        .all(|b| (0x21..=0x7e).contains(b) && *b != b'"')
    {
        return Err("a bare key holds visible ASCII without spaces and quotes");
    }
    std::str::from_utf8(value).map_err(|_| "the key is not ASCII")
}

/// Reads a structured-field string and what follows it.
fn quoted(value: &[u8]) -> Parsed<(Cow<'_, str>, &[u8])> {
    const UNTERMINATED: &str = "the quoted key is not terminated";
    let inner = &value[1..];
    let stop = inner.iter().position(|b| matches!(b, b'"' | b'\\'));
    let stop = stop.ok_or(UNTERMINATED)?;
    if inner[stop] == b'"' {
        return Ok((
            Cow::Borrowed(printable(&inner[..stop])?),
            &inner[stop + 1..],
        ));
    }
    let mut text = printable(&inner[..stop])?.to_owned();
    let mut bytes = inner[stop..].iter().enumerate();
    while let Some((place, byte)) = bytes.next() {
        match byte {
            b'"' => return Ok((Cow::Owned(text), &inner[stop + place + 1..])),
            b'\\' => match bytes.next() {
                Some((_, escaped @ (b'"' | b'\\'))) => text.push(char::from(*escaped)),
                _ => return Err("only a quote and a backslash can be escaped"),
            },
            0x20..=0x7e => text.push(char::from(*byte)),
            _ => return Err(NOT_PRINTABLE),
        }
    }
    Err(UNTERMINATED)
}

const NOT_PRINTABLE: &str = "a quoted key holds visible ASCII and spaces";

fn printable(bytes: &[u8]) -> Parsed<&str> {
    if !bytes.iter().all(|b| (0x20..=0x7e).contains(b)) {
        return Err(NOT_PRINTABLE);
    }
    std::str::from_utf8(bytes).map_err(|_| NOT_PRINTABLE)
}

/// Checks that what follows the key is structured-field parameters, which are ignored.
fn parameters(mut rest: &[u8]) -> Parsed<()> {
    const MALFORMED: &str = "what follows the quoted key is no parameter";
    while !rest.is_empty() {
        rest = rest.strip_prefix(b";").ok_or(MALFORMED)?.trim_ascii_start();
        let name = span(rest, |b| {
            b.is_ascii_lowercase() || b.is_ascii_digit() || b"_-.*".contains(&b)
        });
        let starts = rest
            .first()
            .is_some_and(|b| b.is_ascii_lowercase() || *b == b'*');
        if !starts {
            return Err(MALFORMED);
        }
        rest = &rest[name..];
        if let Some(value) = rest.strip_prefix(b"=") {
            rest = parameter_value(value).ok_or(MALFORMED)?;
        }
    }
    Ok(())
}

fn parameter_value(value: &[u8]) -> Option<&[u8]> {
    match value.first()? {
        b'"' => quoted(value).ok().map(|(_, rest)| rest),
        b':' => {
            let inner = &value[1..];
            let end = span(inner, |b| b.is_ascii_alphanumeric() || b"+/=".contains(&b));
            inner[end..].strip_prefix(b":")
        }
        _ => {
            let end = span(value, |b| {
                b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/?".contains(&b)
            });
            (end > 0).then(|| &value[end..])
        }
    }
}

fn span(bytes: &[u8], wanted: impl Fn(u8) -> bool) -> usize {
    bytes
        .iter()
        .position(|b| !wanted(*b))
        .unwrap_or(bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_key_and_a_bare_one_are_the_same() {
        check("abc", Some("abc"));
        check("\"abc\"", Some("abc"));
        check("a,b;c", Some("a,b;c"));
        check("\"a b,c;d\"", Some("a b,c;d"));
        check(
            "8e03978e-40d5-43dd-bc93-6894a57f9324",
            Some("8e03978e-40d5-43dd-bc93-6894a57f9324"),
        );
    }

    #[test]
    fn escapes_count_as_the_character_they_stand_for() {
        check(r#""a\"b\\c""#, Some(r#"a"b\c"#));
        check(r#""\\""#, Some(r"\"));
        check(r#""a\b""#, None);
        check(r#""a\""#, None);
        let longest = format!("\"{}\"", r"\\".repeat(255));
        check(&longest, Some(&r"\".repeat(255)));
    }

    #[test]
    fn parameters_are_ignored_and_anything_else_behind_the_key_is_refused() {
        check("\"k\";a=1", Some("k"));
        check(
            "\"k\"; a=1;b;c=\"x;\\\"y\";d=:aGk=:;e=?1;*f=tok/en",
            Some("k"),
        );
        for bad in [
            "\"k\"x",
            "\"k\" ;a",
            "\"k\";",
            "\"k\";A=1",
            "\"k\";a=",
            "\"k\", \"l\"",
        ] {
            check(bad, None);
        }
    }

    #[test]
    fn a_key_that_breaks_the_grammar_is_refused() {
        for bad in ["", "\"\"", "\"abc", "a b", "a\"b", "\"", "abc\"", "\t"] {
            check(bad, None);
        }
        check(&"k".repeat(255), Some(&"k".repeat(255)));
        check(&"k".repeat(256), None);
        check(&format!("\"{}\"", "k".repeat(256)), None);
    }

    #[test]
    fn control_and_non_ascii_characters_are_refused() {
        for bad in [
            &b"a\tb"[..],
            b"\"a\tb\"",
            b"caf\xc3\xa9",
            b"\"caf\xe9\"",
            b"\"a\\\"\xff\"",
        ] {
            assert!(parse_key(bad).is_err(), "{bad:?}");
        }
        assert!(parse_key(b"a\x7f").is_err());
        assert!(parse_key(b"a\0").is_err());
    }

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
            assert_eq!(parse_key(sent.as_bytes()).as_deref(), Ok(text));
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

    #[track_caller]
    fn check(value: &str, key: Option<&str>) {
        assert_eq!(
            parse_key(value.as_bytes()).ok().as_deref(),
            key,
            "{value:?}"
        );
    }
}
