//! Header parsing: the value of `Idempotency-Key`.
//!
//! The quoted string of RFC 9651 and the bare value are the same key: `"abc"` and `abc`. Parameters
//! after the quoted string are ignored. A key has 1 to 255 bytes of visible ASCII, and spaces
//! inside quotes; everything else is refused.

use crate::{bugs::Bug, profile::KeyPolicy};

const BYTES_MAX: usize = 255;
/// Where [`Bug::LongKeyTruncated`] cuts.
const TRUNCATED_BYTES: usize = 64;

/// The reason why the header is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InvalidKey(pub(crate) &'static str);

/// The key of a request with these header values; `None` without a header.
pub(crate) fn parse(
    values: &[&[u8]],
    policy: KeyPolicy,
    bug: Option<Bug>,
) -> Result<Option<String>, InvalidKey> {
    let value = match values {
        [] => return Ok(None),
        [value] => *value,
        [first, ..] if bug == Some(Bug::TwoHeadersFirstWins) => *first,
        _ => return Err(InvalidKey("the header was sent more than once")),
    };
    let (key, parameters) = match value.strip_prefix(b"\"") {
        Some(rest) => quoted(rest, bug)?,
        None => (bare(value, bug)?, &value[value.len()..]),
    };
    if key.is_empty() && bug != Some(Bug::EmptyKeyAccepted) {
        return Err(InvalidKey("the key is empty"));
    }
    if key.len() > BYTES_MAX && bug != Some(Bug::LongKeyAccepted) {
        return Err(InvalidKey("the key has more than 255 bytes"));
    }
    if policy == KeyPolicy::OptionalUuidV7 {
        check_uuid(&key, bug)?;
    }
    Ok(Some(deviate(text(&key), value, parameters, bug)))
}

/// The key after an opening quote, and what follows the closing quote.
fn quoted(value: &[u8], bug: Option<Bug>) -> Result<(Vec<u8>, &[u8]), InvalidKey> {
    let mut key = Vec::new();
    let mut at = 0;
    while let Some(byte) = value.get(at) {
        match byte {
            b'"' => {
                let parameters = &value[at + 1..];
                let is_end = parameters.is_empty() || parameters.starts_with(b";");
                if !is_end || !parameters.iter().all(|byte| (0x20..0x7F).contains(byte)) {
                    return Err(InvalidKey("only parameters may follow the quoted key"));
                }
                return Ok((key, parameters));
            }
            b'\\' => {
                at += 1;
                match value.get(at).copied() {
                    Some(escaped @ (b'"' | b'\\')) => {
                        if bug == Some(Bug::EscapesKept) {
                            key.push(b'\\');
                        }
                        key.push(escaped);
                    }
                    _ => return Err(InvalidKey("a backslash must escape a quote or a backslash")),
                }
            }
            _ if is_allowed(*byte, 0x20, bug) => key.push(*byte),
            _ => return Err(InvalidKey("the key has control or non-ASCII characters")),
        }
        at += 1;
    }
    if bug == Some(Bug::UnterminatedQuoteAccepted) {
        return Ok((key, &value[value.len()..]));
    }
    Err(InvalidKey("the closing quote is missing"))
}

/// A key without quotes.
fn bare(value: &[u8], bug: Option<Bug>) -> Result<Vec<u8>, InvalidKey> {
    if value.contains(&b'"') {
        return Err(InvalidKey("a key without quotes may not contain one"));
    }
    if value.iter().all(|byte| is_allowed(*byte, 0x21, bug)) {
        return Ok(value.to_vec());
    }
    Err(InvalidKey(
        "a key without quotes has visible ASCII characters only",
    ))
}

fn is_allowed(byte: u8, lowest: u8, bug: Option<Bug>) -> bool {
    match byte {
        0x80.. => bug == Some(Bug::NonAsciiAccepted),
        0..0x20 | 0x7F => bug == Some(Bug::ControlAccepted),
        _ => byte >= lowest,
    }
}

/// Checks that the key is a UUID of version 7.
fn check_uuid(key: &[u8], bug: Option<Bug>) -> Result<(), InvalidKey> {
    let is_uuid = key.len() == 36
        && key.iter().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        });
    if !is_uuid {
        return Err(InvalidKey("the key is not a UUID"));
    }
    let is_version_7 =
        key[14] == b'7' && matches!(key[19], b'8' | b'9' | b'a'..=b'b' | b'A'..=b'B');
    if bug != Some(Bug::UuidVersionUnchecked) && !is_version_7 {
        return Err(InvalidKey("the key is not a UUID of version 7"));
    }
    Ok(())
}

/// One character for each byte, so that two keys are equal only if their bytes are.
fn text(key: &[u8]) -> String {
    key.iter().map(|byte| char::from(*byte)).collect()
}

/// The key that the server uses: the parsed key, unless a bug changes it.
fn deviate(mut key: String, value: &[u8], parameters: &[u8], bug: Option<Bug>) -> String {
    match bug {
        Some(Bug::QuotedAndBareDiffer) if value.starts_with(b"\"") => format!("\"{key}\""),
        Some(Bug::ParametersPartOfKey) => key + &text(parameters),
        Some(Bug::LongKeyTruncated) => {
            // Without the bug that accepts non-ASCII, every character is one byte.
            key.truncate(TRUNCATED_BYTES);
            key
        }
        Some(Bug::CaseInsensitiveKey) => key.to_lowercase(),
        _ => key,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(value: &[u8], bug: Option<Bug>) -> Option<String> {
        let parsed = parse(&[value], KeyPolicy::Required, bug);
        parsed.ok().flatten()
    }

    #[track_caller]
    fn check(value: &str, expected: Option<&str>) {
        assert_eq!(key(value.as_bytes(), None).as_deref(), expected, "{value}");
    }

    #[test]
    fn quoted_and_bare_are_the_same_key() {
        check("abc", Some("abc"));
        check(r#""abc""#, Some("abc"));
        check(r#""abc";a=1;b"#, Some("abc"));
        check(r#""a b""#, Some("a b"));
        check(r#""a\"\\b""#, Some(r#"a"\b"#));
        check(r"a\b,c;d", Some(r"a\b,c;d"));
    }

    #[test]
    fn malformed_keys_are_refused() {
        for wrong in [
            "",
            "\"\"",
            "\"abc",
            "a b",
            "a\"b",
            "\"a\"b",
            "\"a\", \"b\"",
            "\"a\\",
            "\"a\\n\"",
            "a\tb",
            "\"a\u{1}\"",
            "\u{7f}",
            "é",
            "\"é\"",
            "\"a\";é",
        ] {
            check(wrong, None);
        }
        check(&"k".repeat(255), Some(&"k".repeat(255)));
        check(&"k".repeat(256), None);
        let twice = parse(&[b"a".as_slice(), b"a"], KeyPolicy::Required, None);
        assert!(twice.is_err());
        assert_eq!(parse(&[], KeyPolicy::Required, None), Ok(None));
    }

    #[test]
    fn iceberg_takes_only_uuids_of_version_7() {
        let parsed = |value: &str, bug| {
            parse(&[value.as_bytes()], KeyPolicy::OptionalUuidV7, bug)
                .is_ok_and(|key| key.is_some())
        };
        assert!(parsed("01890a5d-ac96-774b-bcce-b302099a8057", None));
        assert!(parsed("\"01890a5d-ac96-774b-bcce-b302099a8057\"", None));
        let version_4 = "01890a5d-ac96-474b-bcce-b302099a8057";
        assert!(!parsed(version_4, None));
        assert!(parsed(version_4, Some(Bug::UuidVersionUnchecked)));
        assert!(!parsed("01890a5d-ac96-774b-ccce-b302099a8057", None));
        assert!(!parsed("01890a5dac96774bbcceb302099a8057", None));
        assert!(!parsed("key", Some(Bug::UuidVersionUnchecked)));
    }

    #[test]
    fn bugs_of_the_header_change_or_accept_keys() {
        let with = |value: &str, bug| key(value.as_bytes(), Some(bug));
        assert_eq!(
            with("\"k\"", Bug::QuotedAndBareDiffer).as_deref(),
            Some("\"k\"")
        );
        assert_eq!(
            with("\"k\";a", Bug::ParametersPartOfKey).as_deref(),
            Some("k;a")
        );
        assert_eq!(
            with(r#""a\\b""#, Bug::EscapesKept).as_deref(),
            Some(r"a\\b")
        );
        assert_eq!(
            with("\"k", Bug::UnterminatedQuoteAccepted).as_deref(),
            Some("k")
        );
        assert_eq!(with("", Bug::EmptyKeyAccepted).as_deref(), Some(""));
        assert_eq!(with("K", Bug::CaseInsensitiveKey).as_deref(), Some("k"));
        assert_eq!(with("a\tb", Bug::ControlAccepted).as_deref(), Some("a\tb"));
        assert!(with("é", Bug::NonAsciiAccepted).is_some());
        let long = "k".repeat(300);
        assert_eq!(with(&long, Bug::LongKeyAccepted), Some(long.clone()));
        let cut = with(&long[..200], Bug::LongKeyTruncated);
        assert_eq!(cut, Some("k".repeat(64)));
        let first = parse(
            &[b"a".as_slice(), b"b"],
            KeyPolicy::Required,
            Some(Bug::TwoHeadersFirstWins),
        );
        assert_eq!(first, Ok(Some("a".to_owned())));
    }
}
