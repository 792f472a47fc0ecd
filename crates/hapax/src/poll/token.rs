//! Bearer tokens of polling endpoints.
//!
//! A token is shown once, when it is made. The store has its SHA-256 only: a token has 256 random
//! bits, so it cannot be found from the hash.

use std::fmt;

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

/// The beginning of each token, so that a program that searches for secrets recognizes it.
const PREFIX: &str = "hxp_";
/// Length of a token in bytes: the prefix, and 32 bytes in base64.
const TOKEN_BYTES: usize = PREFIX.len() + 43;

/// A bearer token, for its owner.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// Creates a token from 32 bytes of the operating system's randomness.
    pub fn mint(random: [u8; 32]) -> Self {
        Self(format!("{PREFIX}{}", BASE64_URL_SAFE_NO_PAD.encode(random)))
    }

    /// The token as text, which the consumer sends.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// The hash of the token, which the store keeps.
    pub fn hash(&self) -> TokenHash {
        TokenHash::of(self.0.as_bytes())
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(hxp_..)")
    }
}

/// The SHA-256 of a token.
#[derive(Clone, Copy)]
pub struct TokenHash([u8; 32]);

impl TokenHash {
    /// Creates a hash from its stored bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 32 bytes of the hash.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The hash of the text that a client sent.
    pub(super) fn of(token: &[u8]) -> Self {
        Self(Sha256::digest(token).into())
    }

    /// Whether both are the hash of the same token. The duration does not depend on the bytes.
    pub fn matches(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenHash")
    }
}

/// Whether a text may be a token. What cannot be one is refused without a look at the database.
pub(super) fn is_token(text: &[u8]) -> bool {
    text.len() == TOKEN_BYTES && text.starts_with(PREFIX.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_matches_its_hash_and_no_other() {
        let (one, other) = (Token::mint([1; 32]), Token::mint([2; 32]));
        assert!(is_token(one.reveal().as_bytes()));
        assert!(TokenHash::of(one.reveal().as_bytes()).matches(&one.hash()));
        assert!(!one.hash().matches(&other.hash()));
        assert!(!format!("{one:?} {:?}", one.hash()).contains(&one.reveal()[4..]));
    }

    #[test]
    fn a_text_of_another_length_or_kind_is_not_a_token() {
        let token = Token::mint([7; 32]);
        let token = token.reveal();
        for text in [
            "",
            "hxp_",
            &token[1..],
            &format!("{token}A"),
            &token.to_uppercase(),
        ] {
            assert!(!is_token(text.as_bytes()), "{text}");
        }
    }
}
