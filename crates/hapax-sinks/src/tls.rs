//! The one TLS of the brokers' sinks: rustls with ring.
//!
//! A far side has to show a certificate for the name that was dialled, from
//! the web's authorities or from those that the destination trusts beside
//! them. There is no way to trust anybody.

use std::sync::Arc;
#[cfg(any(feature = "nats", feature = "redis"))]
use std::{error::Error, io};

use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject as _},
};

/// What is said to be a certificate is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("certificate to trust is no PEM")]
pub(crate) struct NotPem;

/// Trusts the web's authorities and those in these PEM texts.
pub(crate) fn client(trusted: &[Vec<u8>]) -> Result<ClientConfig, NotPem> {
    let mut roots = RootCertStore::empty();
    roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    for text in trusted {
        let mut found = false;
        for certificate in CertificateDer::pem_slice_iter(text) {
            let certificate = certificate.map_err(|_| NotPem)?;
            roots.add(certificate).map_err(|_| NotPem)?;
            found = true;
        }
        if !found {
            return Err(NotPem);
        }
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder
        .with_safe_default_protocol_versions()
        .expect("ring knows the versions of TLS");
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// Whether it is TLS that failed, somewhere down there.
#[cfg(any(feature = "nats", feature = "redis"))]
pub(crate) fn is_at_fault(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let error = match error.downcast_ref::<Arc<dyn Error + Send + Sync>>() {
            Some(shared) => &**shared,
            None => error,
        };
        let inner = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref);
        if error.is::<rustls::Error>()
            || inner.is_some_and(<dyn Error + Send + Sync>::is::<rustls::Error>)
        {
            return true;
        }
        cause = error.source();
    }
    false
}
