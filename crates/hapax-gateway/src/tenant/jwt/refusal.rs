//! Why a bearer token is refused, and the response for it.
//!
//! The response names the check that has failed, as RFC 6750 describes, and nothing of the token or
//! of the keys. A missing key source is not the fault of the client: it is a 503, because a 401
//! would make clients throw away good tokens.

use std::time::Duration;

use hapax_http::{
    Problem,
    problem::{AUTH_INVALID, AUTH_MISSING, UNAVAILABLE},
};
use http::{HeaderValue, header::WWW_AUTHENTICATE};

/// When a client is asked to try again while the keys cannot be read.
const RETRY_AFTER: Duration = Duration::from_secs(10);

/// Why a token was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JwtRefusal {
    /// The request has no bearer token.
    #[error("a bearer token is needed")]
    Missing,
    /// The request has several `Authorization` headers, or one that is not `Bearer` and a token.
    #[error("expected exactly one Authorization header with the scheme Bearer")]
    Header,
    /// The token is too long.
    #[error("the token is too long")]
    TooLong,
    /// The token is not three parts of canonical base64url with a JSON header and JSON claims, or a
    /// member occurs twice.
    #[error("the token is malformed")]
    Malformed,
    /// The token is encrypted or compressed.
    #[error("encrypted and compressed tokens are not accepted")]
    Encrypted,
    /// The token contains another token.
    #[error("nested tokens are not accepted")]
    Nested,
    /// The token has another purpose, such as a logout token.
    #[error("the type of the token is not JWT or at+jwt")]
    Type,
    /// The algorithm is unknown or not configured.
    #[error("the algorithm of the token is not accepted")]
    Algorithm,
    /// The header has a `crit` or `b64` member.
    #[error("critical extensions are not accepted")]
    Critical,
    /// No key has the id of the token.
    #[error("the key of the token is unknown")]
    UnknownKey,
    /// The token has no key id, and several keys fit its algorithm.
    #[error("the token does not name its key")]
    NoKeyId,
    /// The key of the token is of another kind than its algorithm, or is meant for another one.
    #[error("the key of the token does not fit its algorithm")]
    KeyMismatch,
    /// The keys could not be read for too long. Other tokens would fail as well.
    #[error("the keys that verify tokens cannot be read now")]
    KeysUnavailable,
    /// The signature is wrong.
    #[error("the signature of the token is not valid")]
    Signature,
    /// The token has no time of expiry, or a time in it is not a number of seconds.
    #[error("the token has no valid time of expiry, or another time in it is not valid")]
    Time,
    /// The token has expired.
    #[error("the token has expired")]
    Expired,
    /// The token is not valid yet.
    #[error("the token is not valid yet")]
    NotYetValid,
    /// The token was issued in the future.
    #[error("the token was issued in the future")]
    IssuedInFuture,
    /// The issuer is missing or wrong.
    #[error("the issuer of the token is not accepted")]
    Issuer,
    /// The audience is missing or wrong.
    #[error("the token is meant for another audience")]
    Audience,
    /// The claim of the tenant is missing.
    #[error("the token does not name a tenant")]
    ClaimMissing,
    /// The claim of the tenant is not a string.
    #[error("the tenant in the token is not a string")]
    ClaimType,
    /// The claim of the tenant is not a valid name.
    #[error("the tenant in the token is not a valid name")]
    Tenant,
}

impl From<JwtRefusal> for Problem {
    fn from(refusal: JwtRefusal) -> Self {
        let (code, challenge) = match refusal {
            JwtRefusal::KeysUnavailable => {
                return Self::new(UNAVAILABLE)
                    .detail(refusal.to_string())
                    .retry_after(RETRY_AFTER);
            }
            // RFC 6750: a request without a credential gets no `error` parameter.
            JwtRefusal::Missing => (AUTH_MISSING, r#"Bearer realm="hapax""#),
            _ => (
                AUTH_INVALID,
                r#"Bearer realm="hapax", error="invalid_token""#,
            ),
        };
        Self::new(code)
            .detail(refusal.to_string())
            .header(WWW_AUTHENTICATE, HeaderValue::from_static(challenge))
    }
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse as _;

    use super::*;

    #[test]
    fn a_refusal_is_a_401_with_a_challenge_and_missing_keys_are_a_503() {
        let response = |refusal: JwtRefusal| Problem::from(refusal).into_response();
        let missing = response(JwtRefusal::Missing);
        assert_eq!(missing.status(), 401);
        assert_eq!(
            missing.headers()[WWW_AUTHENTICATE],
            r#"Bearer realm="hapax""#
        );
        let expired = response(JwtRefusal::Expired);
        assert_eq!(expired.status(), 401);
        let challenge = expired.headers()[WWW_AUTHENTICATE].to_str().unwrap();
        assert!(challenge.contains("invalid_token"), "{challenge}");
        let unavailable = response(JwtRefusal::KeysUnavailable);
        assert_eq!(unavailable.status(), 503);
        assert!(!unavailable.headers().contains_key(WWW_AUTHENTICATE));
    }
}
