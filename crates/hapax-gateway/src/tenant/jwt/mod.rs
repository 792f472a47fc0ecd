//! Tenant from a JSON Web Token in the `Authorization` header.
//!
//! A token is accepted if its algorithm is configured, its key is of the kind of that algorithm,
//! its signature is valid, its times, issuer and audience are right, and one claim is the name of a
//! tenant. The order is: form, algorithm, key, signature, claims; nothing in a token is believed
//! before its signature is verified. Refused under every configuration: `none`, encrypted and
//! nested tokens, critical extensions, keys inside the token, duplicate members, tokens that never
//! expire.
//!
//! The verification uses ring directly. The crate `jsonwebtoken` (12.0) was weighed: it has no
//! ring, only aws-lc or second implementations of RSA, P-256 and P-384, and what it leaves to its
//! caller (duplicate members, types, key sources) is most of this module.

mod algorithm;
mod bearer;
mod claims;
mod json;
mod refusal;
mod settings;
mod token;

use std::{fmt, sync::Arc};

use hapax::{Clock, key::Tenant};
use http::HeaderMap;

pub use algorithm::Algorithm;
pub(super) use algorithm::Material;
pub(super) use bearer::{Bearer, bearer};
pub(super) use json::object;
pub use refusal::JwtRefusal;
pub use settings::JwtSettings;

use self::{claims::Expected, token::Token};
use super::jwks::{Jwks, KeyLookupError, VerificationKey};

/// Verifies bearer tokens and reads their tenant.
pub struct JwtVerifier {
    algorithms: Vec<Algorithm>,
    keys: Keys,
    expected: Expected,
    clock: Clock,
}

/// Where the keys are from.
enum Keys {
    /// The configuration has one shared secret.
    Secret(Arc<VerificationKey>),
    /// A key set has public keys.
    Set(Jwks),
}

impl JwtVerifier {
    /// Returns the tenant of a request.
    ///
    /// # Errors
    /// Fails if the request has no valid token, or if the keys cannot be read.
    pub async fn tenant(&self, headers: &HeaderMap) -> Result<Tenant, JwtRefusal> {
        match bearer(headers) {
            Bearer::Token(token) => self.verify(token).await,
            Bearer::Missing => Err(JwtRefusal::Missing),
            Bearer::Invalid => Err(JwtRefusal::Header),
        }
    }

    /// Verifies a token and returns its tenant.
    ///
    /// # Errors
    /// Fails if the token is not valid, or if the keys cannot be read.
    pub async fn verify(&self, token: &str) -> Result<Tenant, JwtRefusal> {
        let token = Token::parse(token)?;
        if !self.algorithms.contains(&token.algorithm) {
            return Err(JwtRefusal::Algorithm);
        }
        let key = self.key(&token).await?;
        let signed = token.signed.as_bytes();
        key.material
            .verify(token.algorithm, signed, &token.signature)
            .map_err(|_| JwtRefusal::Signature)?;
        self.expected.check(&token.claims()?, self.clock.now())
    }

    async fn key(&self, token: &Token<'_>) -> Result<Arc<VerificationKey>, JwtRefusal> {
        match &self.keys {
            Keys::Secret(key) => Ok(Arc::clone(key)),
            Keys::Set(set) => {
                let found = set.find(token.key_id.as_deref(), token.algorithm).await;
                found.map_err(|error| match error {
                    KeyLookupError::Unknown => JwtRefusal::UnknownKey,
                    KeyLookupError::Ambiguous => JwtRefusal::NoKeyId,
                    KeyLookupError::Unfit => JwtRefusal::KeyMismatch,
                    KeyLookupError::Unavailable => JwtRefusal::KeysUnavailable,
                })
            }
        }
    }
}

impl fmt::Debug for JwtVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JwtVerifier")
            .field("algorithms", &self.algorithms)
            .finish_non_exhaustive()
    }
}
