//! TLS for connections to the database: rustls with ring.
//!
//! With `sslmode=require` the certificate must be signed by one of the given authorities, or by a
//! public one if none are given, and must contain the name of the host. With `prefer` every
//! certificate is accepted: this protects against passive eavesdropping and nothing else.

use std::{fs, path::Path, sync::Arc};

use hapax::sink::BoxError;
use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
};
use tokio_postgres::config::SslMode;
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::{
    address::{Address, unusable},
    error::OpenError,
};

/// Creates the TLS connector for the address.
pub(crate) fn connector(address: &Address) -> Result<MakeRustlsConnect, OpenError> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(error.to_string()))?;
    let config = match address.config.get_ssl_mode() {
        SslMode::Require => builder
            .with_root_certificates(roots(address.root.as_deref())?)
            .with_no_client_auth(),
        _ => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Anybody(provider)))
            .with_no_client_auth(),
    };
    Ok(MakeRustlsConnect::new(config))
}

/// The certificate authorities that are trusted.
fn roots(path: Option<&Path>) -> Result<RootCertStore, OpenError> {
    let mut roots = RootCertStore::empty();
    let Some(path) = path else {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        return Ok(roots);
    };
    let broken = |error: BoxError| unusable(format!("certificates {}: {error}", path.display()));
    let pem = fs::read(path).map_err(|error| broken(error.into()))?;
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|error| broken(error.into()))?;
        let added = roots.add(certificate);
        added.map_err(|error| broken(error.into()))?;
    }
    if roots.is_empty() {
        return Err(broken("the file contains none".into()));
    }
    Ok(roots)
}

/// Accepts any certificate, for modes in which a server without TLS is accepted as well.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
