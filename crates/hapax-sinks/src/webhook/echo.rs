//! Secrets in the body of a response.
//!
//! Some endpoints send the headers of a request back, and the beginning of a response is stored in
//! the log of attempts. So the secrets that were sent are replaced by `***`. Their literal text is
//! found, and how a string of JSON contains it: an endpoint that encodes a secret otherwise can show it.

use std::{borrow::Cow, cmp::Reverse};

use bytes::Bytes;

use crate::limits::ECHO_BYTES_MIN;

const HIDDEN: &[u8] = b"***";

/// Replaces every occurrence of the secrets, and the beginning of one with which a body that was cut
/// off ends.
pub(crate) fn mask(mut body: Bytes, secrets: &[&str]) -> Bytes {
    let long_enough = |secret: &&str| secret.len() >= ECHO_BYTES_MIN;
    let secrets = secrets.iter().copied().filter(long_enough);
    let mut secrets: Vec<Cow<'_, str>> = secrets.flat_map(forms).collect();
    // A secret may contain another one.
    secrets.sort_by_key(|secret| Reverse(secret.len()));
    let secrets: Vec<&[u8]> = secrets.iter().map(|secret| secret.as_bytes()).collect();
    for secret in &secrets {
        if let Some(masked) = replaced(&body, secret) {
            body = masked.into();
        }
    }
    let cut = secrets.iter().filter_map(|secret| beginning(&body, secret));
    match cut.max() {
        None => body,
        Some(bytes) => [&body[..body.len() - bytes], HIDDEN].concat().into(),
    }
}

/// A secret, and the forms in which a string of JSON contains it, if they differ. Some writers escape
/// slashes, which base64 has.
fn forms(secret: &str) -> impl Iterator<Item = Cow<'_, str>> {
    let quoted = secret.replace('\\', r"\\").replace('"', r#"\""#);
    let slashed = quoted.replace('/', r"\/");
    let others = [quoted, slashed].into_iter();
    let others = others.filter(move |form| form != secret);
    std::iter::once(Cow::Borrowed(secret)).chain(others.map(Cow::Owned))
}

/// The body without the secret; `None` if it does not contain the secret.
fn replaced(body: &[u8], secret: &[u8]) -> Option<Vec<u8>> {
    let mut masked = Vec::new();
    let mut rest = body;
    while let Some(at) = rest.windows(secret.len()).position(|it| it == secret) {
        masked.extend_from_slice(&rest[..at]);
        masked.extend_from_slice(HIDDEN);
        rest = &rest[at + secret.len()..];
    }
    if masked.is_empty() {
        return None;
    }
    masked.extend_from_slice(rest);
    Some(masked)
}

/// The length of the beginning of the secret with which the body ends.
fn beginning(body: &[u8], secret: &[u8]) -> Option<usize> {
    let mut lengths = (ECHO_BYTES_MIN..secret.len()).rev();
    lengths.find(|length| body.ends_with(&secret[..*length]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_masked_wherever_it_occurs() {
        check("a hunter2 b hunter2", &["hunter2"], "a *** b ***");
        check("hunter2", &["hunter2"], "***");
        check("nothing", &["hunter2"], "nothing");
        check("", &["hunter2"], "");
    }

    #[test]
    fn the_longer_of_two_secrets_is_masked_first() {
        check("Bearer hunter2", &["hunter2", "Bearer hunter2"], "***");
    }

    #[test]
    fn the_beginning_of_a_secret_at_the_end_is_masked() {
        check("a hunter", &["hunter2"], "a ***");
        check("a hunt", &["hunter2"], "a hunt");
    }

    #[test]
    fn a_secret_in_a_string_of_json_is_masked() {
        let secret = r#"hun"ter\2/3"#;
        check(r#"{"a": "hun\"ter\\2/3"}"#, &[secret], r#"{"a": "***"}"#);
        check(r#"{"a": "hun\"ter\\2\/3"}"#, &[secret], r#"{"a": "***"}"#);
        check(r#"hun"ter\2/3"#, &[secret], "***");
        check(r#"{"a": "hun\"ter"#, &[secret], r#"{"a": "***"#);
    }

    #[test]
    fn a_text_that_occurs_by_chance_is_no_secret() {
        check("a test", &["test", ""], "a test");
    }

    #[track_caller]
    fn check(body: &'static str, secrets: &[&str], expected: &str) {
        assert_eq!(mask(Bytes::from_static(body.as_bytes()), secrets), expected);
    }
}
