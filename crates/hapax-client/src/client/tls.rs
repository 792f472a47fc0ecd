//! TLS configuration: rustls with ring, the public web authorities, and additional trusted ones.

use std::sync::Arc;

use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject as _},
};

use super::ClientError;

pub(super) fn client(trusted: &[Vec<u8>]) -> Result<ClientConfig, ClientError> {
    let mut roots = RootCertStore::empty();
    roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    for text in trusted {
        let before = roots.len();
        for certificate in CertificateDer::pem_slice_iter(text) {
            let certificate = certificate.map_err(|_| ClientError::NotPem)?;
            roots.add(certificate).map_err(|_| ClientError::NotPem)?;
        }
        if roots.len() == before {
            return Err(ClientError::NotPem);
        }
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder
        .with_safe_default_protocol_versions()
        .expect("ring supports TLS 1.2 and 1.3");
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}
