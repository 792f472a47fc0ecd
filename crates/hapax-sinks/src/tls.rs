//! TLS of the broker sinks: rustls with ring.
//!
//! A server has to present a certificate for its host name, issued by a public authority or by one
//! that the destination trusts in addition. Verification cannot be disabled.

use std::sync::Arc;
#[cfg(any(feature = "nats", feature = "redis"))]
use std::{error::Error, io};

use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject as _},
};

/// The certificate is not valid PEM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("certificate to trust is not PEM")]
pub(crate) struct NotPem;

/// Trusts the public authorities and those in these PEM texts.
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
        .expect("ring supports TLS 1.2 and 1.3");
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// Whether TLS is the cause of an error.
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
