//! Which intent a request states, and whether two requests state the same one.
//!
//! An [`IdempotencyKey`] is the client's name for one intent. A [`Scope`] says
//! where that name is unique: its parts stay apart, so no choice of tenant and
//! key can collide with another. A [`Fingerprint`] is the hash of what was
//! asked; the same key with another fingerprint is a conflict, never a replay.

use std::{borrow::Cow, fmt, sync::Arc};

use sha2::{Digest, Sha256};
use uuid::{Builder, Uuid};

use crate::{
    clock::Random,
    limits::{KEY_BYTES_MAX, SCOPE_PART_BYTES_MAX},
};

mod header;

pub use header::{HeaderError, parse_header};

/// The client's name for one intent: 1 to 255 bytes of `0x20..=0x7E`, case-sensitive.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IdempotencyKey(Arc<str>);

impl IdempotencyKey {
    /// Takes `text` as a key.
    ///
    /// # Errors
    /// Fails when it is empty, too long, or holds a byte that is not visible ASCII or a space.
    pub fn new(text: impl Into<Arc<str>>) -> Result<Self, KeyError> {
        let text = text.into();
        check_length(&text, KEY_BYTES_MAX)?;
        if !text.bytes().all(|byte| (0x20..=0x7e).contains(&byte)) {
            return Err(KeyError::Character);
        }
        Ok(Self(text))
    }

    /// Makes a key that nobody has used: a UUID v4.
    pub fn mint(random: &Random) -> Self {
        let id: Uuid = Builder::from_random_bytes(random.bytes()).into_uuid();
        Self(id.to_string().into())
    }

    /// The key as the client wrote it, without quotes.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The key as a header says it: bare where it can be, quoted where it must be.
    pub fn quoted(&self) -> Cow<'_, str> {
        if self.0.bytes().all(|b| b != b' ' && b != b'"') {
            return Cow::Borrowed(&self.0);
        }
        let escaped = self.0.replace('\\', "\\\\").replace('"', "\\\"");
        Cow::Owned(format!("\"{escaped}\""))
    }

    /// The first 8 bytes of the key's SHA-256 in hex: what logs, spans and events may hold.
    pub fn short_hash(&self) -> String {
        hex(&Sha256::digest(self.0.as_bytes())[..8])
    }
}

impl fmt::Debug for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IdempotencyKey(#{})", self.short_hash())
    }
}

/// What the keys that a service derives from a request begin with. Clients cannot send such keys:
/// one client could otherwise take the key of another one's request.
pub const DERIVED_PREFIX: &str = "derived:";

/// The secret of a store under which its services derive keys from requests.
///
/// Without it nobody can tell from a derived key what it was made of, nor make one.
#[derive(Clone, PartialEq, Eq)]
pub struct DerivationSecret([u8; 32]);

impl DerivationSecret {
    /// A secret as it was stored.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Its 32 bytes.
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
            /// Takes `text` as this part of a scope.
            ///
            /// # Errors
            /// Fails when it is empty or longer than 255 bytes.
            pub fn new(text: impl Into<Arc<str>>) -> Result<Self, KeyError> {
                let text = text.into();
                check_length(&text, SCOPE_PART_BYTES_MAX)?;
                Ok(Self(text))
            }

            /// The text it was made from.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
    };
}
scope_part!(Tenant);
scope_part!(Operation);

/// Where a key is unique.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Scope {
    /// Whose key it is.
    pub tenant: Tenant,
    /// What it is a key for.
    pub operation: Operation,
    /// The key itself.
    pub key: IdempotencyKey,
}

/// The hash of what was asked: SHA-256 over length-prefixed parts.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// A fingerprint as it was stored.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Its 32 bytes.
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
/// Every part is preceded by its length, so that no two lists of parts hash alike.
/// A part that is too long to hold is hashed first and its digest becomes the part.
#[derive(Clone, Debug)]
pub struct FingerprintBuilder(Sha256);

impl FingerprintBuilder {
    /// Starts a fingerprint of format version `version`.
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

    /// Ends the fingerprint.
    pub fn finish(self) -> Fingerprint {
        Fingerprint(self.0.finalize().into())
    }
}

/// Why a text is no key, tenant or operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// It has no character.
    #[error("it is empty")]
    Empty,
    /// It is longer than its bound.
    #[error("it is {bytes} bytes long, at most {max} are allowed")]
    TooLong {
        /// How long it is.
        bytes: usize,
        /// How long it may be.
        max: usize,
    },
    /// It holds a control or non-ASCII character.
    #[error("it holds a character that is not visible ASCII")]
    Character,
}

fn check_length(text: &str, max: usize) -> Result<(), KeyError> {
    match text.len() {
        0 => Err(KeyError::Empty),
        bytes if bytes > max => Err(KeyError::TooLong { bytes, max }),
        _ => Ok(()),
    }
}

/// Lower-case hexadecimal.
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
    fn a_key_does_not_print_itself() {
        let key = IdempotencyKey::new("secret-intent").unwrap();
        assert!(!format!("{key:?}").contains("secret"));
    }
}
