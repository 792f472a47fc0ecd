//! Why a client certificate is refused, and the response for it.

use hapax_http::{
    Problem,
    problem::{AUTH_INVALID, AUTH_MISSING},
};
use http::{HeaderValue, header::WWW_AUTHENTICATE};

/// Why a certificate was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CertificateRefusal {
    /// The client has presented no certificate.
    #[error("a client certificate is needed")]
    Missing,
    /// The certificate is not valid DER, or too large.
    #[error("the client certificate cannot be read")]
    Malformed,
    /// The certificate has no name of the configured kind.
    #[error("the client certificate has no name of the expected kind")]
    NoName,
    /// The certificate has several names of the configured kind.
    #[error("the client certificate has several names of the expected kind")]
    Ambiguous,
    /// No name of the certificate is in the list.
    #[error("the name of the client certificate is not known")]
    NotListed,
    /// The name is too long, or contains a control character.
    #[error("the name of the client certificate is not a valid tenant")]
    Tenant,
}

impl From<CertificateRefusal> for Problem {
    fn from(refusal: CertificateRefusal) -> Self {
        let code = match refusal {
            CertificateRefusal::Missing => AUTH_MISSING,
            _ => AUTH_INVALID,
        };
        // No scheme is registered for certificates, and a 401 has to name one.
        let challenge = HeaderValue::from_static(r#"ClientCertificate realm="hapax""#);
        Self::new(code)
            .detail(refusal.to_string())
            .header(WWW_AUTHENTICATE, challenge)
    }
}
