//! Tenant of a request: who is the owner of its keys.
//!
//! Two tenants never share a key. The tenant is the stable id of the caller, never a credential. A
//! protected request whose tenant cannot be determined is refused before its body is read. With a source
//! that verifies a credential, this also holds for all other requests, unless the route says otherwise.

pub mod jwt;
pub mod jwks;
pub mod api_keys;
pub mod certificate;

use std::{fmt, sync::Arc};

use hapax::{Clock, key::Tenant};
use hapax_http::{
    Problem,
    problem::{AUTH_INVALID, AUTH_MISSING},
};
use http::{HeaderName, header::AUTHORIZATION, request::Parts};
use serde::{Deserialize, Serialize};

use crate::peer::Peer;
use api_keys::{ApiKeySettings, ApiKeys};
use certificate::{CertificateSettings, Certificates};
use jwt::{JwtSettings, JwtVerifier};

/// The source of the tenant in the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum TenantSettings {
    /// All requests belong to this tenant.
    Fixed(String),
    /// The tenant is the value of this request header. It is trusted, so something in front of the
    /// gateway must set it and remove what clients send.
    Header(String),
    /// The tenant is a claim of a JSON Web Token.
    Jwt(Box<JwtSettings>),
    /// The tenant is that of an API key.
    ApiKeys(ApiKeySettings),
    /// The tenant is named by the client's certificate. The listener needs `client_ca`.
    Certificate(CertificateSettings),
}

impl TenantSettings {
    /// Checks the settings. A runtime is not needed.
    ///
    /// # Errors
    /// Fails if they are not valid. The text continues a sentence that begins with the name of the
    /// setting.
    pub fn check(&self) -> Result<(), String> {
        match self {
            Self::Fixed(name) => fixed(name).map(drop),
            Self::Header(name) => header(name).map(drop),
            Self::Jwt(settings) => settings.check(),
            Self::ApiKeys(settings) => settings.check(),
            Self::Certificate(settings) => Certificates::new(settings).map(drop),
        }
    }
}

impl TenantSettings {
    /// Whether the source verifies a credential of the client.
    pub const fn has_credential(&self) -> bool {
        !matches!(self, Self::Fixed(_) | Self::Header(_))
    }
}

impl Default for TenantSettings {
    fn default() -> Self {
        Self::Fixed("default".to_owned())
    }
}

/// Determines the tenant of a request.
#[derive(Clone)]
pub enum TenantSource {
    /// All requests belong to this tenant.
    Fixed(Tenant),
    /// The tenant is the value of this header.
    Header(HeaderName),
    /// A token names the tenant.
    Jwt(Arc<JwtVerifier>),
    /// The tenant is that of a key.
    ApiKeys(Arc<ApiKeys>),
    /// A certificate names the tenant.
    Certificate(Arc<Certificates>),
}

impl TenantSource {
    /// Builds the source from its settings. It must be called in a runtime of Tokio, because some
    /// sources read keys in the background.
    ///
    /// # Errors
    /// Fails if the settings are not valid. The text continues a sentence that begins with the name
    /// of the setting.
    pub fn new(settings: &TenantSettings, clock: &Clock) -> Result<Self, String> {
        Ok(match settings {
            TenantSettings::Fixed(name) => Self::Fixed(fixed(name)?),
            TenantSettings::Header(name) => Self::Header(header(name)?),
            TenantSettings::Jwt(settings) => {
                Self::Jwt(Arc::new(JwtVerifier::new(settings, clock.clone())?))
            }
            TenantSettings::ApiKeys(settings) => {
                Self::ApiKeys(Arc::new(ApiKeys::new(settings, clock.clone())?))
            }
            TenantSettings::Certificate(settings) => {
                Self::Certificate(Arc::new(Certificates::new(settings)?))
            }
        })
    }

    /// The headers that name the tenant. A client must not remove them.
    pub fn headers(&self) -> Vec<HeaderName> {
        match self {
            Self::Fixed(_) | Self::Certificate(_) => Vec::new(),
            Self::Header(name) => vec![name.clone()],
            Self::Jwt(_) => vec![AUTHORIZATION],
            Self::ApiKeys(keys) => vec![keys.header().cloned().unwrap_or(AUTHORIZATION)],
        }
    }

    /// The header with a credential of the gateway, which the service must not receive.
    pub fn secret(&self) -> Option<HeaderName> {
        match self {
            Self::ApiKeys(keys) => Some(keys.header().cloned().unwrap_or(AUTHORIZATION)),
            Self::Fixed(_) | Self::Header(_) | Self::Jwt(_) | Self::Certificate(_) => None,
        }
    }

    /// Returns the tenant of a request.
    ///
    /// # Errors
    /// 401 if the request does not say which tenant it belongs to, 503 if the keys that verify its
    /// credential cannot be read.
    pub async fn tenant(&self, parts: &Parts) -> Result<Tenant, Problem> {
        match self {
            Self::Fixed(tenant) => Ok(tenant.clone()),
            Self::Header(name) => in_header(name, parts),
            Self::Jwt(verifier) => verifier.tenant(&parts.headers).await.map_err(Problem::from),
            Self::ApiKeys(keys) => keys.tenant(&parts.headers).map_err(Problem::from),
            Self::Certificate(certificates) => {
                let peer = parts.extensions.get::<Peer>();
                let certificate = peer.and_then(|peer| peer.certificate.as_deref());
                let tenant = certificates.tenant(certificate.map(AsRef::as_ref));
                tenant.map_err(Problem::from)
            }
        }
    }
}

impl fmt::Debug for TenantSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fixed(_) => "Fixed",
            Self::Header(_) => "Header",
            Self::Jwt(_) => "Jwt",
            Self::ApiKeys(_) => "ApiKeys",
            Self::Certificate(_) => "Certificate",
        })
    }
}

fn fixed(name: &str) -> Result<Tenant, String> {
    Tenant::new(name).map_err(|error| format!("is not the name of a tenant: {error}"))
}

fn header(name: &str) -> Result<HeaderName, String> {
    name.parse()
        .map_err(|_| format!("expected the name of a header, got {name:?}"))
}

fn in_header(name: &HeaderName, parts: &Parts) -> Result<Tenant, Problem> {
    let mut values = parts.headers.get_all(name).iter();
    let Some(value) = values.next() else {
        return Err(Problem::new(AUTH_MISSING).detail(format!("expected the header {name}")));
    };
    let invalid = || Problem::new(AUTH_INVALID).detail(format!("the header {name} is not valid"));
    if values.next().is_some() {
        return Err(invalid());
    }
    let text = value.to_str().map_err(|_| invalid())?;
    // A tab is the only control character that the text of a header may contain.
    if text.contains('\t') {
        return Err(invalid());
    }
    Tenant::new(text).map_err(|_| invalid())
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[tokio::test]
    async fn a_header_that_occurs_twice_names_no_tenant() {
        let source = TenantSettings::Header("x-tenant".to_owned());
        let source = TenantSource::new(&source, &Clock::system()).unwrap();
        let request = Request::builder().header("x-tenant", "alice");
        let (one, ()) = request.body(()).unwrap().into_parts();
        assert_eq!(source.tenant(&one).await.unwrap().as_str(), "alice");
        let request = Request::builder().header("x-tenant", "alice");
        let request = request.header("x-tenant", "bob");
        let (two, ()) = request.body(()).unwrap().into_parts();
        assert!(source.tenant(&two).await.is_err());
        let request = Request::builder().header("x-tenant", "alice\tbob");
        let (tab, ()) = request.body(()).unwrap().into_parts();
        assert!(source.tenant(&tab).await.is_err());
        let (none, ()) = Request::new(()).into_parts();
        assert!(source.tenant(&none).await.is_err());
    }
}
