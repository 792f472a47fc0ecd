//! Secrets of HMAC schemes, and the texts in which signatures arrive.
//!
//! All keys are compared with all signatures in constant time. So the duration says neither how far
//! a wrong signature is right, nor which of several secrets it matches.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ring::hmac;
use subtle::{Choice, ConstantTimeEq as _};

/// The keys of a source. More than one is configured while a secret is rotated.
pub(super) struct HmacKeys(Vec<hmac::Key>);

impl HmacKeys {
    /// Creates the keys of an algorithm.
    pub(super) fn new<'s>(
        algorithm: hmac::Algorithm,
        secrets: impl IntoIterator<Item = &'s [u8]>,
    ) -> Self {
        let secrets = secrets.into_iter();
        Self(secrets.map(|it| hmac::Key::new(algorithm, it)).collect())
    }

    /// Whether one of `tags` is the tag of the joined `parts` under one of the keys.
    pub(super) fn fit(&self, parts: &[&[u8]], tags: &[&[u8]]) -> bool {
        let mut fits = Choice::from(0);
        for key in &self.0 {
            let mut mac = hmac::Context::with_key(key);
            for part in parts {
                mac.update(part);
            }
            let signed = mac.sign();
            let own: &[u8] = signed.as_ref();
            for given in tags {
                fits |= own.ct_eq(given);
            }
        }
        fits.into()
    }
}

impl fmt::Debug for HmacKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HmacKeys(..)")
    }
}

/// Decodes hexadecimal digits of exactly `bytes` bytes.
pub(super) fn from_hex(text: &str, bytes: usize) -> Option<Vec<u8>> {
    // The length of the text is checked first, so that a long one costs nothing.
    if text.len() != bytes * 2 {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pairs = text.as_bytes().chunks_exact(2);
    pairs
        .map(|pair| u8::try_from(digit(pair[0])? * 16 + digit(pair[1])?).ok())
        .collect()
}

/// Decodes padded base64 of exactly `bytes` bytes.
pub(super) fn from_base64(text: &str, bytes: usize) -> Option<Vec<u8>> {
    if text.len() != bytes.div_ceil(3) * 4 {
        return None;
    }
    let decoded = STANDARD.decode(text).ok();
    decoded.filter(|it| it.len() == bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_tag_under_any_key_fits() {
        let keys = HmacKeys::new(hmac::HMAC_SHA256, [&b"one"[..], &b"two"[..]]);
        let tag = |secret: &[u8]| hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), b"ab");
        let [one, two, other] = [tag(b"one"), tag(b"two"), tag(b"other")];
        let parts: [&[u8]; 2] = [b"a", b"b"];
        assert!(keys.fit(&parts, &[one.as_ref()]));
        assert!(keys.fit(&parts, &[other.as_ref(), two.as_ref()]));
        assert!(!keys.fit(&parts, &[other.as_ref()]));
        assert!(!keys.fit(&parts, &[&one.as_ref()[..31]]));
        assert!(!keys.fit(&parts, &[b""]));
        assert!(!keys.fit(&parts, &[]));
        let none = HmacKeys::new(hmac::HMAC_SHA256, []);
        assert!(!none.fit(&parts, &[one.as_ref()]));
    }

    #[test]
    fn texts_of_another_length_or_alphabet_are_not_decoded() {
        assert_eq!(from_hex("00fF", 2), Some(vec![0, 255]));
        for text in ["", "00", "00f", "00fg", "é00", "+1+1", "00ff00"] {
            assert_eq!(from_hex(text, 2), None, "{text}");
        }
        assert_eq!(from_base64("AP8=", 2), Some(vec![0, 255]));
        for text in ["", "AP8", "AP9=", "AP-=", "AAAA", "AAAAAAAA", "é=="] {
            assert_eq!(from_base64(text, 2), None, "{text}");
        }
    }

    #[test]
    fn debug_prints_no_key() {
        let keys = HmacKeys::new(hmac::HMAC_SHA256, [&b"planted"[..]]);
        assert_eq!(format!("{keys:?}"), "HmacKeys(..)");
    }
}
