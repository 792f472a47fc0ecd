//! Signature algorithms of JSON Web Tokens, and the key material that each of them needs.
//!
//! The header of a token names an algorithm, and a token is never verified with key material of
//! another kind: a public RSA key is not a secret of HMAC, and a P-384 key does not verify ES256.
//! `none` is not an algorithm here. The signatures are verified by ring, which refuses RSA keys of
//! less than 2048 bits, points that are not on the curve, and ECDSA signatures in DER form.

use std::fmt;

use ring::{
    hmac,
    signature::{
        ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256,
        RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256,
        RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, RsaPublicKeyComponents,
        UnparsedPublicKey,
    },
};
use serde::{Deserialize, Serialize};

/// The signature algorithm of a token (RFC 7518, RFC 8037).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
pub enum Algorithm {
    /// RSA PKCS #1 v1.5 with SHA-256.
    #[serde(rename = "RS256")]
    Rs256,
    /// RSA PKCS #1 v1.5 with SHA-384.
    #[serde(rename = "RS384")]
    Rs384,
    /// RSA PKCS #1 v1.5 with SHA-512.
    #[serde(rename = "RS512")]
    Rs512,
    /// RSA-PSS with SHA-256.
    #[serde(rename = "PS256")]
    Ps256,
    /// RSA-PSS with SHA-384.
    #[serde(rename = "PS384")]
    Ps384,
    /// RSA-PSS with SHA-512.
    #[serde(rename = "PS512")]
    Ps512,
    /// ECDSA on P-256 with SHA-256.
    #[serde(rename = "ES256")]
    Es256,
    /// ECDSA on P-384 with SHA-384.
    #[serde(rename = "ES384")]
    Es384,
    /// Ed25519.
    #[serde(rename = "EdDSA")]
    EdDsa,
    /// HMAC with SHA-256 and a shared secret.
    #[serde(rename = "HS256")]
    Hs256,
}

impl Algorithm {
    /// The algorithms whose keys can be published.
    pub const ASYMMETRIC: [Self; 9] = [
        Self::Rs256,
        Self::Rs384,
        Self::Rs512,
        Self::Ps256,
        Self::Ps384,
        Self::Ps512,
        Self::Es256,
        Self::Es384,
        Self::EdDsa,
    ];

    /// The algorithm with this name, which is case-sensitive. `Ed25519` is the name of `EdDSA` in
    /// RFC 9864.
    pub fn named(name: &str) -> Option<Self> {
        if name == "Ed25519" {
            return Some(Self::EdDsa);
        }
        let mut all = Self::ASYMMETRIC.into_iter().chain([Self::Hs256]);
        all.find(|algorithm| algorithm.name() == name)
    }

    /// The name in the header of a token.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rs256 => "RS256",
            Self::Rs384 => "RS384",
            Self::Rs512 => "RS512",
            Self::Ps256 => "PS256",
            Self::Ps384 => "PS384",
            Self::Ps512 => "PS512",
            Self::Es256 => "ES256",
            Self::Es384 => "ES384",
            Self::EdDsa => "EdDSA",
            Self::Hs256 => "HS256",
        }
    }

    /// Whether tokens of this algorithm are verified with a shared secret.
    pub const fn is_symmetric(self) -> bool {
        matches!(self, Self::Hs256)
    }

    /// Whether the key material is of the kind that the algorithm needs.
    pub(crate) const fn fits(self, material: &Material) -> bool {
        match self {
            Self::Rs256 | Self::Rs384 | Self::Rs512 | Self::Ps256 | Self::Ps384 | Self::Ps512 => {
                matches!(material, Material::Rsa(_))
            }
            Self::Es256 => matches!(material, Material::P256(_)),
            Self::Es384 => matches!(material, Material::P384(_)),
            Self::EdDsa => matches!(material, Material::Ed25519(_)),
            Self::Hs256 => matches!(material, Material::Secret(_)),
        }
    }
}

/// The key material that verifies a signature.
pub(crate) enum Material {
    /// A public RSA key, big-endian without leading zeros.
    Rsa(RsaPublicKeyComponents<Vec<u8>>),
    /// A point on P-256, uncompressed.
    P256([u8; 65]),
    /// A point on P-384, uncompressed.
    P384([u8; 97]),
    /// A public Ed25519 key.
    Ed25519([u8; 32]),
    /// A shared secret.
    Secret(hmac::Key),
}

/// The signature does not belong to the message and the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WrongSignature;

impl Material {
    /// Whether two keys are of one kind, so that an algorithm cannot tell them apart.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }

    /// Whether two public keys are the same key. Secrets are never compared.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Rsa(one), Self::Rsa(other)) => one.n == other.n && one.e == other.e,
            (Self::P256(one), Self::P256(other)) => one == other,
            (Self::P384(one), Self::P384(other)) => one == other,
            (Self::Ed25519(one), Self::Ed25519(other)) => one == other,
            _ => false,
        }
    }

    /// Verifies a signature. Fails as well if the algorithm does not fit the key.
    pub(crate) fn verify(
        &self,
        algorithm: Algorithm,
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), WrongSignature> {
        let verified = match (algorithm, self) {
            (Algorithm::Rs256, Self::Rsa(key)) => {
                key.verify(&RSA_PKCS1_2048_8192_SHA256, message, signature)
            }
            (Algorithm::Rs384, Self::Rsa(key)) => {
                key.verify(&RSA_PKCS1_2048_8192_SHA384, message, signature)
            }
            (Algorithm::Rs512, Self::Rsa(key)) => {
                key.verify(&RSA_PKCS1_2048_8192_SHA512, message, signature)
            }
            (Algorithm::Ps256, Self::Rsa(key)) => {
                key.verify(&RSA_PSS_2048_8192_SHA256, message, signature)
            }
            (Algorithm::Ps384, Self::Rsa(key)) => {
                key.verify(&RSA_PSS_2048_8192_SHA384, message, signature)
            }
            (Algorithm::Ps512, Self::Rsa(key)) => {
                key.verify(&RSA_PSS_2048_8192_SHA512, message, signature)
            }
            (Algorithm::Es256, Self::P256(key)) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, key).verify(message, signature)
            }
            (Algorithm::Es384, Self::P384(key)) => {
                UnparsedPublicKey::new(&ECDSA_P384_SHA384_FIXED, key).verify(message, signature)
            }
            (Algorithm::EdDsa, Self::Ed25519(key)) => {
                UnparsedPublicKey::new(&ED25519, key).verify(message, signature)
            }
            (Algorithm::Hs256, Self::Secret(key)) => hmac::verify(key, message, signature),
            _ => return Err(WrongSignature),
        };
        verified.map_err(|_| WrongSignature)
    }
}

impl fmt::Debug for Material {
    /// Prints the kind only.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rsa(_) => "Rsa",
            Self::P256(_) => "P256",
            Self::P384(_) => "P384",
            Self::Ed25519(_) => "Ed25519",
            Self::Secret(_) => "Secret",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_an_algorithm_is_case_sensitive_and_none_is_not_one() {
        for algorithm in Algorithm::ASYMMETRIC {
            assert_eq!(Algorithm::named(algorithm.name()), Some(algorithm));
            let lower = algorithm.name().to_ascii_lowercase();
            assert_eq!(Algorithm::named(&lower), None);
        }
        for name in ["none", "None", "NONE", "", " RS256", "ES256K", "HS512"] {
            assert_eq!(Algorithm::named(name), None, "{name:?}");
        }
    }

    #[test]
    fn a_key_verifies_only_algorithms_of_its_own_kind() {
        let secret = Material::Secret(hmac::Key::new(hmac::HMAC_SHA256, &[7; 32]));
        for algorithm in Algorithm::ASYMMETRIC {
            assert!(!algorithm.fits(&secret));
            assert_eq!(secret.verify(algorithm, b"", b""), Err(WrongSignature));
        }
        let point = Material::P256([4; 65]);
        assert!(Algorithm::Es256.fits(&point) && !Algorithm::Es384.fits(&point));
        assert_eq!(
            point.verify(Algorithm::Es256, b"", &[0; 64]),
            Err(WrongSignature)
        );
        assert_eq!(format!("{secret:?} {point:?}"), "Secret P256");
    }
}
