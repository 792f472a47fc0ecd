//! The format of a key in a header, the same for every header that contains a key.
//!
//! A value that cannot be parsed is refused and never guessed: two interpretations of one key would
//! cause two effects.

use std::borrow::Cow;

use crate::limits::KEY_BYTES_MAX;

/// Parses a key in a header: a structured-field string (RFC 8941), whose parameters are ignored, or
/// the same text without quotes. `"abc"` and `abc` are the same key.
///
/// # Errors
/// Fails if the value is malformed, empty or too long.
pub fn parse_header(value: &[u8]) -> Result<Cow<'_, str>, HeaderError> {
    read(value).map_err(HeaderError)
}

/// How a key is written in a header.
///
/// A service that compares the text of the header takes two forms of a key for two keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyForm {
    /// The key itself.
    Bare,
    /// A structured-field string, in quotation marks.
    Quoted,
}

impl KeyForm {
    /// The form of a value that [`parse_header`] accepts.
    pub fn of(value: &[u8]) -> Self {
        match value.trim_ascii_start().first() {
            Some(b'"') => Self::Quoted,
            _ => Self::Bare,
        }
    }

    /// The key in this form, without parameters.
    pub fn text(self, key: &str) -> Cow<'_, str> {
        match self {
            Self::Bare => Cow::Borrowed(key),
            Self::Quoted => {
                let escaped = key.replace('\\', "\\\\").replace('"', "\\\"");
                Cow::Owned(format!("\"{escaped}\""))
            }
        }
    }
}

/// Why the value of a header is not a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct HeaderError(&'static str);

type Parsed<T> = Result<T, &'static str>;

fn read(value: &[u8]) -> Parsed<Cow<'_, str>> {
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
        return Err("a key without quotes may contain only visible ASCII, no space and no quote");
    }
    std::str::from_utf8(value).map_err(|_| "the key is not ASCII")
}

/// Parses a structured-field string and returns the rest.
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
                _ => return Err("only a quote or a backslash can follow a backslash"),
            },
            0x20..=0x7e => text.push(char::from(*byte)),
            _ => return Err(NOT_PRINTABLE),
        }
    }
    Err(UNTERMINATED)
}

const NOT_PRINTABLE: &str = "a quoted key may contain only visible ASCII and spaces";

fn printable(bytes: &[u8]) -> Parsed<&str> {
    if !bytes.iter().all(|b| (0x20..=0x7e).contains(b)) {
        return Err(NOT_PRINTABLE);
    }
    std::str::from_utf8(bytes).map_err(|_| NOT_PRINTABLE)
}

/// Checks that the rest consists of structured-field parameters, which are ignored.
fn parameters(mut rest: &[u8]) -> Parsed<()> {
    const MALFORMED: &str = "the text after the quoted key is not a valid parameter";
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
    fn a_key_is_written_in_the_form_in_which_it_was_sent() {
        for value in ["k", r"a\b", r#""k""#, r#""a b""#, r#""a\"\\ b""#] {
            let key = parse_header(value.as_bytes()).unwrap();
            assert_eq!(KeyForm::of(value.as_bytes()).text(&key), value);
        }
        let value = br#" "k";a=1"#;
        let key = parse_header(value).unwrap();
        assert_eq!(KeyForm::of(value).text(&key), r#""k""#);
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
            assert!(parse_header(bad).is_err(), "{bad:?}");
        }
        assert!(parse_header(b"a\x7f").is_err());
        assert!(parse_header(b"a\0").is_err());
    }

    #[track_caller]
    fn check(value: &str, key: Option<&str>) {
        assert_eq!(
            parse_header(value.as_bytes()).ok().as_deref(),
            key,
            "{value:?}"
        );
    }
}
