//! Tenant from the client certificate of a TLS connection.
//!
//! rustls has verified the certificate against the configured authorities before this module sees
//! it, and the module reads one name from it: the common name of the subject, or an alternative
//! name that is a URI, a DNS name or a mail address. The name is the tenant, or a list maps names
//! to tenants. A certificate whose name is not unique is refused, because another reader could take
//! the other one.

mod names;
mod refusal;

use std::{collections::BTreeMap, fmt};

use hapax::key::Tenant;
use serde::{Deserialize, Serialize};

pub use refusal::CertificateRefusal;

/// Which name of a certificate is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CertificateName {
    /// The common name of the subject (CN).
    CommonName,
    /// The alternative name that is a URI, such as a SPIFFE id.
    #[default]
    Uri,
    /// The alternative name that is a DNS name, in lower case.
    Dns,
    /// The alternative name that is a mail address.
    Email,
}

/// Client certificates.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct CertificateSettings {
    /// Which name is read.
    pub name: CertificateName,
    /// The tenants by name. Empty: the name is the tenant. Otherwise, a certificate without a name
    /// in the list is refused, and further names that are not in the list do not matter.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tenants: BTreeMap<String, String>,
}

/// Finds the tenant of a client certificate.
pub struct Certificates {
    name: CertificateName,
    tenants: BTreeMap<String, Tenant>,
}

impl Certificates {
    /// Checks the settings.
    ///
    /// # Errors
    /// Fails if a tenant is not a valid name. The text continues a sentence that begins with the
    /// name of the section.
    pub fn new(settings: &CertificateSettings) -> Result<Self, String> {
        let mut tenants = BTreeMap::new();
        for (name, tenant) in &settings.tenants {
            let tenant = Tenant::new(tenant.as_str());
            let tenant = tenant.map_err(|error| format!("tenants.{name:?}: {error}"))?;
            let name = match settings.name {
                CertificateName::Dns => name.to_ascii_lowercase(),
                _ => name.clone(),
            };
            tenants.insert(name, tenant);
        }
        Ok(Self {
            name: settings.name,
            tenants,
        })
    }

    /// Returns the tenant of the certificate that a client has presented, in DER. It must be the
    /// verified certificate of the client itself, not one of its authorities.
    ///
    /// # Errors
    /// Fails if there is none, or if its name is missing, ambiguous, not in the list or not valid.
    pub fn tenant(&self, certificate: Option<&[u8]>) -> Result<Tenant, CertificateRefusal> {
        let certificate = certificate.ok_or(CertificateRefusal::Missing)?;
        let mut names = names::read(certificate, self.name)?;
        if names.is_empty() {
            return Err(CertificateRefusal::NoName);
        }
        if !self.tenants.is_empty() {
            return self.listed(&names);
        }
        match (names.pop(), names.pop()) {
            (Some(name), None) => Tenant::new(name).map_err(|_| CertificateRefusal::Tenant),
            _ => Err(CertificateRefusal::Ambiguous),
        }
    }

    fn listed(&self, names: &[String]) -> Result<Tenant, CertificateRefusal> {
        let mut found = names.iter().filter_map(|name| self.tenants.get(name));
        let tenant = found.next().ok_or(CertificateRefusal::NotListed)?;
        if found.any(|other| other != tenant) {
            return Err(CertificateRefusal::Ambiguous);
        }
        Ok(tenant.clone())
    }
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates")
            .field("name", &self.name)
            .field("tenants", &self.tenants.len())
            .finish()
    }
}
