//! TLS of the sinks: rustls with ring.
//!
//! A server has to present a certificate for its host name, issued by a public authority or by one
//! that the destination trusts in addition. Verification cannot be disabled.

#[cfg(any(feature = "nats", feature = "redis"))]
use std::{error::Error, io};
use std::{path::Path, sync::Arc};

use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject as _},
};

use crate::{limits::CA_BYTES_MAX, secret::read_bounded, settings::SettingError};

/// Reads the setting `ca`. Returns a configuration that trusts the public authorities and those of
/// the file, and the content of the file, empty if there is none.
pub(crate) fn read(ca: Option<&Path>) -> Result<(ClientConfig, Vec<u8>), SettingError> {
    let mut roots = RootCertStore::empty();
    roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    let mut content = Vec::new();
    if let Some(path) = ca {
        let unreadable = |error| SettingError::new("ca", format_args!("cannot be read: {error}"));
        content = read_bounded(path, CA_BYTES_MAX)
            .map_err(unreadable)?
            .ok_or_else(too_large)?;
        for certificate in certificates(&content).ok_or_else(not_valid)? {
            roots.add(certificate).map_err(|_| not_valid())?;
        }
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder
        .with_safe_default_protocol_versions()
        .expect("ring supports TLS 1.2 and 1.3");
    let config = builder.with_root_certificates(roots).with_no_client_auth();
    Ok((config, content))
}

/// The error about a file without a valid certificate.
pub(crate) fn not_valid() -> SettingError {
    SettingError::new("ca", "is not a file of valid certificates (PEM)")
}

/// The error about a file that is larger than any list of certificates.
fn too_large() -> SettingError {
    let bytes = CA_BYTES_MAX;
    SettingError::new(
        "ca",
        format_args!("is larger than {bytes} bytes: expected a file of certificates (PEM)"),
    )
}

/// The certificates of a PEM file or the one of a DER file. `None` if there is none.
pub(crate) fn certificates(content: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    if !content.starts_with(b"-----") && !content.is_ascii() {
        return Some(vec![CertificateDer::from(content.to_vec())]);
    }
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(content).collect();
    found.ok().filter(|found| !found.is_empty())
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
