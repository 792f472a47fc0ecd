//! Keys of Standard Webhooks and their text format.
//!
//! The prefix of a text says which kind of key it is. Nothing in this module prints a secret unless
//! `reveal` is called, and no error contains the text that was refused.

use std::{fmt, str::FromStr};

use base64::{
    Engine as _,
    alphabet::STANDARD,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use ed25519_dalek::{
    PUBLIC_KEY_LENGTH, Signature,
    ed25519::signature::{MultipartSigner as _, MultipartVerifier as _},
};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// Base64 with padding; padding is optional when a key is parsed.
pub(super) const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A shared secret (`whsec_...`): HMAC-SHA256, scheme `v1`.
#[derive(Clone)]
pub struct Secret {
    bytes: Box<[u8]>,
    keyed: Hmac<Sha256>,
}

impl Secret {
    /// Minimum length of a secret in bytes.
    pub const BYTES_MIN: usize = 24;
    /// Maximum length of a secret in bytes.
    pub const BYTES_MAX: usize = 64;

    /// Creates a secret of 32 random bytes.
    pub fn mint(random: [u8; 32]) -> Self {
        Self::of(Box::from(random))
    }

    /// Formats the secret as `whsec_...`.
    pub fn reveal(&self) -> String {
        format!("whsec_{}", BASE64.encode(&self.bytes))
    }

    fn of(bytes: Box<[u8]>) -> Self {
        let keyed = Hmac::new_from_slice(&bytes).expect("HMAC takes a key of any length");
        Self { bytes, keyed }
    }

    pub(super) fn tag(&self, parts: &[&[u8]]) -> [u8; 32] {
        let mut mac = self.keyed.clone();
        for part in parts {
            mac.update(part);
        }
        mac.finalize().into_bytes().into()
    }
}

impl FromStr for Secret {
    type Err = KeyTextError;

    fn from_str(text: &str) -> Result<Self, KeyTextError> {
        let bytes = decode(text, "whsec_")?;
        if !(Self::BYTES_MIN..=Self::BYTES_MAX).contains(&bytes.len()) {
            return Err(KeyTextError::Length {
                bytes: bytes.len(),
                allowed: "24 to 64",
            });
        }
        Ok(Self::of(bytes.into()))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(whsec_..)")
    }
}

/// The sender's half of a key pair (`whsk_...`): ed25519, scheme `v1a`.
#[derive(Clone)]
pub struct SigningKey(ed25519_dalek::SigningKey);

impl SigningKey {
    /// Creates a key pair from 32 random bytes.
    pub fn mint(random: [u8; 32]) -> Self {
        Self(ed25519_dalek::SigningKey::from_bytes(&random))
    }

    /// The receiver's half.
    pub fn verifying_key(&self) -> VerifyingKey {
        VerifyingKey(self.0.verifying_key())
    }

    pub(super) fn sign(&self, parts: &[&[u8]]) -> [u8; 64] {
        self.0.multipart_sign(parts).to_bytes()
    }

    /// Formats the key pair as `whsk_...`.
    pub fn reveal(&self) -> String {
        format!("whsk_{}", BASE64.encode(self.0.to_keypair_bytes()))
    }
}

impl FromStr for SigningKey {
    type Err = KeyTextError;

    fn from_str(text: &str) -> Result<Self, KeyTextError> {
        let pair = exactly(&decode(text, "whsk_")?, "64")?;
        ed25519_dalek::SigningKey::from_keypair_bytes(&pair)
            .map(Self)
            .map_err(|_| KeyTextError::NotAKey)
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey(whsk_.. of {})", self.verifying_key())
    }
}

/// The receiver's half of a key pair (`whpk_...`): ed25519, scheme `v1a`.
#[derive(Clone, PartialEq, Eq)]
pub struct VerifyingKey(ed25519_dalek::VerifyingKey);

impl VerifyingKey {
    pub(super) fn fits(&self, parts: &[&[u8]], signature: &[u8; 64]) -> bool {
        let signature = Signature::from_bytes(signature);
        self.0.multipart_verify(parts, &signature).is_ok()
    }
}

impl FromStr for VerifyingKey {
    type Err = KeyTextError;

    fn from_str(text: &str) -> Result<Self, KeyTextError> {
        let bytes: [u8; PUBLIC_KEY_LENGTH] = exactly(&decode(text, "whpk_")?, "32")?;
        let key = ed25519_dalek::VerifyingKey::from_bytes(&bytes);
        match key {
            Ok(key) if !key.is_weak() => Ok(Self(key)),
            _ => Err(KeyTextError::NotAKey),
        }
    }
}

impl fmt::Display for VerifyingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "whpk_{}", BASE64.encode(self.0.as_bytes()))
    }
}

impl fmt::Debug for VerifyingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VerifyingKey({self})")
    }
}

/// A key of a sender.
#[derive(Clone, Debug)]
pub enum Signer {
    /// A secret that the receiver knows too.
    V1(Secret),
    /// The sender's half of a key pair.
    V1a(SigningKey),
}

impl Signer {
    /// Formats the key as `whsec_...` or `whsk_...`.
    pub fn reveal(&self) -> String {
        match self {
            Self::V1(secret) => secret.reveal(),
            Self::V1a(pair) => pair.reveal(),
        }
    }
}

impl FromStr for Signer {
    type Err = KeyTextError;

    fn from_str(text: &str) -> Result<Self, KeyTextError> {
        if text.starts_with("whsk_") {
            text.parse().map(Self::V1a)
        } else {
            text.parse().map(Self::V1)
        }
    }
}

/// A key of a receiver.
#[derive(Clone, Debug)]
pub enum Verifier {
    /// A secret that the sender knows too.
    V1(Secret),
    /// The public half of the sender's key pair.
    V1a(VerifyingKey),
}

impl FromStr for Verifier {
    type Err = KeyTextError;

    fn from_str(text: &str) -> Result<Self, KeyTextError> {
        if text.starts_with("whpk_") {
            text.parse().map(Self::V1a)
        } else {
            text.parse().map(Self::V1)
        }
    }
}

/// Why a text is not a key. The error does not contain the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyTextError {
    /// The prefix is wrong.
    #[error("key does not begin with {prefix}")]
    Prefix {
        /// The expected prefix.
        prefix: &'static str,
    },
    /// The text after the prefix is not base64.
    #[error("key is not base64 after its prefix")]
    Base64,
    /// The key is too short or too long.
    #[error("key has {bytes} bytes, expected {allowed}")]
    Length {
        /// The length of the key in bytes.
        bytes: usize,
        /// The allowed lengths.
        allowed: &'static str,
    },
    /// The bytes are not an ed25519 key, are a weak one, or are two halves that do not belong
    /// together.
    #[error("key is not a usable ed25519 key")]
    NotAKey,
}

fn decode(text: &str, prefix: &'static str) -> Result<Vec<u8>, KeyTextError> {
    let encoded = text
        .strip_prefix(prefix)
        .ok_or(KeyTextError::Prefix { prefix })?;
    BASE64.decode(encoded).map_err(|_| KeyTextError::Base64)
}

fn exactly<const N: usize>(bytes: &[u8], allowed: &'static str) -> Result<[u8; N], KeyTextError> {
    bytes.try_into().map_err(|_| KeyTextError::Length {
        bytes: bytes.len(),
        allowed,
    })
}
