//! TLS towards clients: rustls with ring.
//!
//! The files are read when the configuration is. A listener takes the current certificate for each
//! new connection, so that a renewed one needs no restart.

use std::{fs, path::Path, sync::Arc};

use rustls::{
    RootCertStore, ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    server::WebPkiClientVerifier,
};

use crate::config;

/// A file of a listener's TLS settings cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("tls.{field} {problem}")]
pub(crate) struct TlsError {
    field: &'static str,
    problem: String,
}

/// Reads the certificate of a listener.
pub(crate) fn server(settings: &config::Tls) -> Result<Arc<ServerConfig>, TlsError> {
    let chain = certificates("certificate", &settings.certificate)?;
    let key = content("key", &settings.key)?;
    let key = PrivateKeyDer::from_pem_slice(&key);
    let key = key.map_err(|_| not_valid("key", &settings.key, "private key"))?;
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .expect("ring supports TLS 1.2 and 1.3");
    let builder = match &settings.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates("client_ca", path)? {
                let added = roots.add(certificate);
                added.map_err(|_| not_valid("client_ca", path, "certificate"))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .allow_unauthenticated()
                .build();
            let wrong = |error: rustls::server::VerifierBuilderError| TlsError {
                field: "client_ca",
                problem: format!("cannot be used: {error}"),
            };
            builder.with_client_cert_verifier(verifier.map_err(wrong)?)
        }
    };
    let server = builder.with_single_cert(chain, key);
    let mut server = server.map_err(|error| TlsError {
        field: "key",
        problem: format!("does not fit to the certificate: {error}"),
    })?;
    server.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(server))
}

fn certificates(
    field: &'static str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let content = content(field, path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&content).collect();
    let found = found.ok().filter(|found: &Vec<_>| !found.is_empty());
    found.ok_or_else(|| not_valid(field, path, "certificate"))
}

fn content(field: &'static str, path: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|error| TlsError {
        field,
        problem: format!("file {} cannot be read: {error}", path.display()),
    })
}

fn not_valid(field: &'static str, path: &Path, what: &str) -> TlsError {
    TlsError {
        field,
        problem: format!("file {}: expected a {what} (PEM)", path.display()),
    }
}
