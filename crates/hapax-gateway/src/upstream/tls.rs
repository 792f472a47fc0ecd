//! TLS towards upstreams: rustls with ring. Verification cannot be disabled.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject as _},
};

use crate::config;

/// Why the connections to an upstream cannot be set up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsError {
    /// The file of `ca` cannot be used.
    #[error("ca: {} {problem}", path.display())]
    Authority {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// An instance is not a valid URL.
    #[error("instances: {0}")]
    Instance(String),
}

/// The content of the file of `ca`, if an instance needs it.
pub(super) fn authority(settings: &config::Upstream) -> Result<Option<Vec<u8>>, TlsError> {
    let path = settings.ca.as_ref().filter(|_| needs_tls(settings));
    let read = |path: &PathBuf| {
        std::fs::read(path).map_err(|error| wrong(path, format!("cannot be read: {error}")))
    };
    path.map(read).transpose()
}

/// The configuration of TLS, if an instance needs it. `authority` is the content of the file of `ca`.
pub(super) fn client(
    settings: &config::Upstream,
    authority: Option<&[u8]>,
) -> Result<Option<Arc<ClientConfig>>, TlsError> {
    if !needs_tls(settings) {
        return Ok(None);
    }
    let mut roots = RootCertStore::empty();
    match (authority, &settings.ca) {
        (Some(content), Some(path)) => {
            let problem = "is not a file of valid certificates (PEM)";
            let not_valid = || wrong(path, problem.to_owned());
            let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(content).collect();
            let found = found.map_err(|_| not_valid())?;
            if found.is_empty() {
                return Err(not_valid());
            }
            for certificate in found {
                roots.add(certificate).map_err(|_| not_valid())?;
            }
        }
        _ => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder
        .with_safe_default_protocol_versions()
        .expect("ring supports TLS 1.2 and 1.3");
    let mut client = builder.with_root_certificates(roots).with_no_client_auth();
    client.alpn_protocols = match settings.protocol {
        config::Protocol::Http1 => vec![b"http/1.1".to_vec()],
        config::Protocol::Http2 => vec![b"h2".to_vec()],
    };
    Ok(Some(Arc::new(client)))
}

fn needs_tls(settings: &config::Upstream) -> bool {
    let is_tls = |url: &String| url.to_ascii_lowercase().starts_with("https:");
    settings.instances.iter().any(is_tls)
}

fn wrong(path: &Path, problem: String) -> TlsError {
    TlsError::Authority {
        path: path.to_owned(),
        problem,
    }
}
