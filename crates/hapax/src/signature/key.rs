//! The keys of Standard Webhooks, read and written as people hand them around.
//!
//! A text says by its prefix what it is. Nothing here prints a secret unless
//! it is asked to reveal it, and no error repeats the text it refused.

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

/// Base64 with padding, and without it where people type it.
pub(super) const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A secret that both sides know (`whsec_...`): HMAC-SHA256, scheme `v1`.
#[derive(Clone)]
pub struct Secret {
    bytes: Box<[u8]>,
    keyed: Hmac<Sha256>,
}

impl Secret {
    /// The fewest bytes of a secret.
    pub const BYTES_MIN: usize = 24;
    /// The most bytes of a secret.
    pub const BYTES_MAX: usize = 64;

    /// Makes a secret of 32 bytes that nobody can guess.
    pub fn mint(random: [u8; 32]) -> Self {
        Self::of(Box::from(random))
    }

    /// Writes the secret out as `whsec_...`, for the one who is to know it.
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
    /// Makes a key pair of 32 bytes that nobody can guess.
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

    /// Writes the key pair out as `whsk_...`, for the one who is to sign.
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

/// What a sender signs with.
#[derive(Clone, Debug)]
pub enum Signer {
    /// A secret that the receiver knows too.
    V1(Secret),
    /// Its own half of a key pair.
    V1a(SigningKey),
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

/// What a receiver verifies with.
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

/// Why a text is no key; it never repeats the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyTextError {
    /// It does not begin as this kind of key does.
    #[error("key does not begin with {prefix}")]
    Prefix {
        /// How it should begin.
        prefix: &'static str,
    },
    /// What follows the prefix is not base64.
    #[error("key is not base64 after its prefix")]
    Base64,
    /// It is too short or too long.
    #[error("key has {bytes} bytes, {allowed} are allowed")]
    Length {
        /// How many bytes it has.
        bytes: usize,
        /// How many it may have.
        allowed: &'static str,
    },
    /// Its bytes are no ed25519 key, a weak one, or two halves that do not belong together.
    #[error("key is no usable ed25519 key")]
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
