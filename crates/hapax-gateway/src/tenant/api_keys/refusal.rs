//! Why an API key is refused, and the response for it.
//!
//! A key that is unknown and a key that is wrong get the same response.

use hapax_http::{
    Problem,
    problem::{AUTH_INVALID, AUTH_MISSING},
};
use http::{HeaderValue, header::WWW_AUTHENTICATE};

/// Why a key was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ApiKeyRefusal {
    /// The request has no key.
    #[error("an API key is needed")]
    Missing,
    /// The request has several keys, or a header that does not contain one.
    #[error("expected exactly one header with an API key")]
    Header,
    /// The key is not in the table.
    #[error("the API key is not valid")]
    Unknown,
    /// The key is disabled.
    #[error("the API key is disabled")]
    Disabled,
    /// The key has expired.
    #[error("the API key has expired")]
    Expired,
}

impl From<ApiKeyRefusal> for Problem {
    fn from(refusal: ApiKeyRefusal) -> Self {
        let code = match refusal {
            ApiKeyRefusal::Missing => AUTH_MISSING,
            _ => AUTH_INVALID,
        };
        let challenge = HeaderValue::from_static(r#"Bearer realm="hapax""#);
        Self::new(code)
            .detail(refusal.to_string())
            .header(WWW_AUTHENTICATE, challenge)
    }
}
