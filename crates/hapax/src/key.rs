//! Idempotency keys, their scope, and the fingerprint of a request.
//!
//! An [`IdempotencyKey`] is the client's name for one intended operation. A [`Scope`] says where
//! that name is unique; its parts are separate, so that no combination of tenant and key collides
//! with another. A [`Fingerprint`] is a hash of the request: the same key with another fingerprint
//! is a conflict, never a replay.

use std::{borrow::Cow, fmt, sync::Arc};

use sha2::{Digest, Sha256};
use uuid::{Builder, Uuid};

use crate::{
    clock::{Random, Timestamp},
    limits::{KEY_BYTES_MAX, SCOPE_PART_BYTES_MAX},
};

mod header;

pub use header::{HeaderError, KeyForm, parse_header};

/// A client's name for one intended operation: 1 to 255 bytes of `0x20..=0x7E`, case-sensitive.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IdempotencyKey(Arc<str>);

impl IdempotencyKey {
    /// Parses a key.
    ///
    /// # Errors
    /// Fails if the text is empty or too long, or contains a byte that is neither visible ASCII nor
    /// a space.
    pub fn new(text: impl Into<Arc<str>>) -> Result<Self, KeyError> {
        let text = text.into();
        check_length(&text, KEY_BYTES_MAX)?;
        if !text.bytes().all(|byte| (0x20..=0x7e).contains(&byte)) {
            return Err(KeyError::Character);
        }
        Ok(Self(text))
    }

    /// Generates a new key, a UUID v4.
    pub fn mint(random: &Random) -> Self {
        let id: Uuid = Builder::from_random_bytes(random.bytes()).into_uuid();
        Self(id.to_string().into())
    }

    /// Generates a new key, a UUID v7: the milliseconds of `now`, and random bits.
    pub fn mint_v7(now: Timestamp, random: &Random) -> Self {
        let millis = u64::try_from(now.as_millis()).unwrap_or_default();
        let mut bits = [0; 10];
        bits.copy_from_slice(&random.bytes()[..10]);
        let id = Builder::from_unix_timestamp_millis(millis, &bits).into_uuid();
        Self(id.to_string().into())
    }

    /// The key as the client sent it, without quotes.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The key as the value of a header: without quotes if possible, quoted if necessary.
    pub fn quoted(&self) -> Cow<'_, str> {
        if self.0.bytes().all(|b| b != b' ' && b != b'"') {
            return Cow::Borrowed(&self.0);
        }
        let escaped = self.0.replace('\\', "\\\\").replace('"', "\\\"");
        Cow::Owned(format!("\"{escaped}\""))
    }

    /// The first 8 bytes of the key's SHA-256 in hex. Logs, spans and events contain this instead
    /// of the key.
    pub fn short_hash(&self) -> String {
        short_hash(&self.0)
    }
}

/// The [`IdempotencyKey::short_hash`] of a key that is borrowed as text.
pub fn short_hash(key: &str) -> String {
    hex(&Sha256::digest(key.as_bytes())[..8])
}

impl fmt::Debug for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IdempotencyKey(#{})", self.short_hash())
    }
}

/// Prefix of the keys that a service derives from a request. Clients cannot send such keys;
/// otherwise one client could use up the key of another client's request.
pub const DERIVED_PREFIX: &str = "derived:";

/// The secret with which the services of a store derive keys from requests.
///
/// Without the secret it is not possible to compute a derived key, or to find out from which values
/// it was derived.
#[derive(Clone, PartialEq, Eq)]
pub struct DerivationSecret([u8; 32]);

impl DerivationSecret {
    /// Creates a secret from its stored bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 32 bytes of the secret.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for DerivationSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DerivationSecret")
    }
}

/// The stable id of the authenticated principal, never its credential.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tenant(Arc<str>);

/// A method and a route template, such as `POST /orders`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Operation(Arc<str>);

macro_rules! scope_part {
    ($name:ident) => {
        impl $name {
            /// Parses this part of a scope.
            ///
            /// # Errors
            /// Fails if the text is empty or longer than 255 bytes.
            pub fn new(text: impl Into<Arc<str>>) -> Result<Self, KeyError> {
                let text = text.into();
                check_length(&text, SCOPE_PART_BYTES_MAX)?;
                Ok(Self(text))
            }

            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
    };
}
scope_part!(Tenant);
scope_part!(Operation);

/// The scope in which a key is unique.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Scope {
    /// The tenant that the key belongs to.
    pub tenant: Tenant,
    /// The operation that the key is used for.
    pub operation: Operation,
    /// The key.
    pub key: IdempotencyKey,
}

/// The hash of a request: SHA-256 over length-prefixed parts.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// Creates a fingerprint from its stored bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 32 bytes of the fingerprint.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({}..)", hex(&self.0[..4]))
    }
}

/// Builds a [`Fingerprint`] part by part.
///
/// Every part is preceded by its length, so that different lists of parts have different hashes. A
/// part that is too long to be held in memory is hashed first, and its digest becomes the part.
#[derive(Clone, Debug)]
pub struct FingerprintBuilder(Sha256);

impl FingerprintBuilder {
    /// Starts a fingerprint of the format version `version`.
    pub fn new(version: u8) -> Self {
        Self(Sha256::new_with_prefix([version]))
    }

    /// Adds one part.
    #[must_use]
    pub fn part(mut self, bytes: &[u8]) -> Self {
        self.0.update((bytes.len() as u64).to_be_bytes());
        self.0.update(bytes);
        self
    }

    /// Finishes the fingerprint.
    pub fn finish(self) -> Fingerprint {
        Fingerprint(self.0.finalize().into())
    }
}

/// Why a text is not a valid key, tenant or operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The text is empty.
    #[error("it is empty")]
    Empty,
    /// The text is too long.
    #[error("it is {bytes} bytes long, at most {max} are allowed")]
    TooLong {
        /// The length of the text in bytes.
        bytes: usize,
        /// The maximum length in bytes.
        max: usize,
    },
    /// The text contains a control character or a character that is not ASCII.
    #[error("it contains a character that is neither visible ASCII nor a space")]
    Character,
}

fn check_length(text: &str, max: usize) -> Result<(), KeyError> {
    match text.len() {
        0 => Err(KeyError::Empty),
        bytes if bytes > max => Err(KeyError::TooLong { bytes, max }),
        _ => Ok(()),
    }
}

/// Formats bytes as lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble)]);
    bytes
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_one_to_255_bytes_of_visible_ascii() {
        assert!(IdempotencyKey::new("a b~!").is_ok());
        assert!(IdempotencyKey::new("k".repeat(255)).is_ok());
        assert_eq!(IdempotencyKey::new(""), Err(KeyError::Empty));
        let long = IdempotencyKey::new("k".repeat(256));
        assert_eq!(
            long,
            Err(KeyError::TooLong {
                bytes: 256,
                max: 255
            })
        );
        for bad in ["tab\t", "nul\0", "del\x7f", "caf\u{e9}"] {
            assert_eq!(
                IdempotencyKey::new(bad),
                Err(KeyError::Character),
                "{bad:?}"
            );
        }
    }

    #[test]
    fn parts_that_join_to_the_same_bytes_have_different_fingerprints() {
        let of = |parts: &[&[u8]]| {
            parts
                .iter()
                .fold(FingerprintBuilder::new(1), |b, part| b.part(part))
                .finish()
        };
        assert_ne!(of(&[b"ab", b"c"]), of(&[b"a", b"bc"]));
        assert_ne!(of(&[b"abc"]), of(&[b"abc", b""]));
        assert_eq!(of(&[b"ab", b"c"]), of(&[b"ab", b"c"]));
    }

    #[test]
    fn a_key_is_quoted_where_a_space_or_a_quote_demands_it() {
        let quoted = |text: &str| IdempotencyKey::new(text).unwrap().quoted().into_owned();
        assert_eq!(quoted("a,b\\c"), "a,b\\c");
        assert_eq!(quoted("a b"), "\"a b\"");
        assert_eq!(quoted("a\"b\\c"), "\"a\\\"b\\\\c\"");
    }

    #[test]
    fn a_generated_key_has_the_version_and_the_time_that_are_asked_for() {
        let random = Random::new(|| u64::MAX);
        let of = |millis| IdempotencyKey::mint_v7(Timestamp::from_millis(millis), &random);
        let expected = "017f22e2-79b0-7fff-bfff-ffffffffffff";
        assert_eq!(of(0x017f_22e2_79b0).as_str(), expected);
        assert_eq!(of(-1).as_str(), "00000000-0000-7fff-bfff-ffffffffffff");
        let minted = IdempotencyKey::mint(&random);
        assert_eq!(minted.as_str(), "ffffffff-ffff-4fff-bfff-ffffffffffff");
    }

    #[test]
    fn a_key_does_not_print_itself() {
        let key = IdempotencyKey::new("secret-intent").unwrap();
        assert!(!format!("{key:?}").contains("secret"));
    }
}
