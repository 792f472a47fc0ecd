//! Client certificate of a webhook: its chain and key, and whether it has expired.
//!
//! A chain that cannot be read, and a key that does not belong to it, are refused when the sink is
//! created. An expired certificate is presented, because the endpoint decides; if an exchange fails
//! then, the error says that the certificate has expired. Neither the chain nor the key is printed.

use std::{mem, sync::Arc};

use hapax::{
    Timestamp,
    sink::{BoxError, SinkError},
};
use rustls::{
    Error, InconsistentKeys,
    client::ResolvesClientCert,
    crypto::ring,
    pki_types::{PrivateKeyDer, pem::PemObject as _},
    sign::{CertifiedKey, SingleCertAndKey},
};
use secrecy::ExposeSecret as _;
use x509_cert::{
    Certificate,
    der::Decode as _,
    time::{Time, Validity},
};

use crate::{
    settings::{ClientCertificateSettings, SettingError, reveal},
    tls,
};

const CERTIFICATE: &str = "client_certificate.certificate";
const KEY: &str = "client_certificate.key";
/// The failures before a certificate is presented.
const UNRELATED: [&str; 4] = ["blocked", "resolve", "connect", "token"];

/// A certificate with its key.
pub(super) struct ClientCertificate {
    key: Arc<SingleCertAndKey>,
    /// `None` if rustls accepts a certificate whose times cannot be read.
    validity: Option<Validity>,
}

/// The certificate is outside the time for which it is valid.
#[derive(Debug, thiserror::Error)]
enum Outdated {
    #[error("client certificate expired at {0}")]
    Expired(Time, #[source] BoxError),
    #[error("client certificate is not valid before {0}")]
    Early(Time, #[source] BoxError),
}

impl ClientCertificate {
    pub(super) fn new(settings: &ClientCertificateSettings) -> Result<Self, SettingError> {
        let chain = reveal(CERTIFICATE, &settings.certificate)?;
        let chain = tls::certificates(chain.expose_secret().as_bytes());
        let chain = chain.ok_or_else(no_certificate)?;
        let key = reveal(KEY, &settings.key)?;
        let key = PrivateKeyDer::from_pem_slice(key.expose_secret().as_bytes());
        let key = key.map_err(|_| no_key())?;
        let keys = ring::default_provider().key_provider;
        let key = keys.load_private_key(key).map_err(|_| no_key())?;
        let certified = CertifiedKey::new(chain, key);
        match certified.keys_match() {
            Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => {}
            Err(Error::InconsistentKeys(_)) => {
                let problem = "does not belong to the certificate";
                return Err(SettingError::new(KEY, problem));
            }
            Err(_) => return Err(no_certificate()),
        }
        let own = certified.end_entity_cert().map_err(|_| no_certificate())?;
        let validity = Certificate::from_der(own).ok();
        Ok(Self {
            validity: validity.map(|it| it.tbs_certificate.validity),
            key: Arc::new(certified.into()),
        })
    }

    /// Presents the certificate to every server that asks for one.
    pub(super) fn resolver(&self) -> Arc<dyn ResolvesClientCert> {
        self.key.clone()
    }

    /// Adds to the failure of an exchange that the certificate is not valid now.
    pub(super) fn explain(&self, mut error: SinkError, now: Timestamp) -> SinkError {
        let Some(validity) = self.validity else {
            return error;
        };
        let is_early = now.as_secs() < seconds(validity.not_before);
        let is_late = now.as_secs() > seconds(validity.not_after);
        if UNRELATED.contains(&error.error_type()) || !(is_early || is_late) {
            return error;
        }
        if let SinkError::Unavailable { source, .. }
        | SinkError::Declined { source, .. }
        | SinkError::Rejected { source, .. }
        | SinkError::Gone { source, .. } = &mut error
        {
            let cause = mem::replace(source, BoxError::from(""));
            *source = if is_late {
                Outdated::Expired(validity.not_after, cause).into()
            } else {
                Outdated::Early(validity.not_before, cause).into()
            };
        }
        error
    }
}

fn seconds(time: Time) -> i64 {
    i64::try_from(time.to_unix_duration().as_secs()).unwrap_or(i64::MAX)
}

fn no_certificate() -> SettingError {
    let problem = "is not a chain of valid certificates (PEM) that begins with that of the client";
    SettingError::new(CERTIFICATE, problem)
}

fn no_key() -> SettingError {
    let problem = "is not a private key (PEM: PKCS#8, PKCS#1 or SEC 1, without a passphrase)";
    SettingError::new(KEY, problem)
}
