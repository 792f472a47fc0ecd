//! Certificates that a private server presents to its clients.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
};

use tempfile::TempDir;

use super::{Cluster, found};
use crate::certify::certify;

/// A certificate authority and the server certificate that it has signed. Dropping the value removes
/// their files.
#[derive(Debug)]
pub struct Certificates {
    directory: TempDir,
}

impl Certificates {
    /// Creates an authority, and a certificate for a server of that name.
    ///
    /// # Panics
    /// Panics if openssl is not installed.
    pub fn of(host: &str) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory can be created");
        let open = fs::set_permissions(directory.path(), Permissions::from_mode(0o755));
        open.expect("the mode of a new directory can be changed");
        certify(directory.path(), host).unwrap_or_else(|error| panic!("{error}"));
        Self { directory }
    }

    /// The file with the authority's certificate.
    pub fn root(&self) -> PathBuf {
        self.directory.path().join("ca.pem")
    }

    /// Configures a server to present its certificate from now on.
    ///
    /// # Panics
    /// Panics if the server cannot be reached.
    pub async fn install(&self, cluster: &Cluster) {
        let key = self.directory.path().join("server.key");
        found().own(&key);
        let certificate = self.directory.path().join("server.pem");
        let (certificate, key) = (certificate.to_string_lossy(), key.to_string_lossy());
        let settings = [
            ("ssl_cert_file", &*certificate),
            ("ssl_key_file", &*key),
            ("ssl", "on"),
        ];
        cluster.settings(&settings).await;
    }
}
