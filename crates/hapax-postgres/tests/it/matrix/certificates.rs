//! Fixture: a certificate authority, and a server certificate that it has signed.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    path::{Path, PathBuf},
    process::Command,
};

use hapax_testkit::postgres::Cluster;
use tempfile::TempDir;

const INSTALL: &str = "no openssl: install the package openssl";

/// A certificate authority and the server certificate that it has signed.
pub(crate) struct Certificates {
    directory: TempDir,
}

impl Certificates {
    /// Creates an authority, and a certificate for a server of that name.
    pub(crate) fn of(name: &str) -> Self {
        let directory = tempfile::tempdir().expect("no temporary directory");
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(directory.path(), open).expect("the directory's mode was not set");
        let made = Self { directory };
        made.make("ca", "basicConstraints = critical, CA:TRUE", &[]);
        let extensions = format!("basicConstraints = CA:FALSE\nsubjectAltName = DNS:{name}");
        let signed = ["-CA", "ca.pem", "-CAkey", "ca.key"];
        made.make("server", &extensions, &signed);
        made
    }

    /// The file with the authority's certificate.
    pub(crate) fn root(&self) -> PathBuf {
        self.path("ca.pem")
    }

    /// Configures a server to present its certificate from now on.
    pub(crate) async fn install(&self, cluster: &Cluster) {
        let key = self.path("server.key");
        own_as(&key, &data(cluster).await);
        let (certificate, key) = (self.path("server.pem"), key);
        let settings = [
            (
                "ssl_cert_file",
                certificate.to_str().expect("the path is not UTF-8"),
            ),
            ("ssl_key_file", key.to_str().expect("the path is not UTF-8")),
            ("ssl", "on"),
        ];
        cluster.settings(&settings).await;
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn make(&self, name: &str, extensions: &str, signed: &[&str]) {
        let configuration = format!(
            "[req]\ndistinguished_name = name\nx509_extensions = extensions\nprompt = no\n\
             [name]\nCN = {name} in {}\n[extensions]\n{extensions}\n",
            self.directory.path().display(),
        );
        fs::write(self.path("configuration"), configuration).expect("the file was not written");
        let mut openssl = Command::new("openssl");
        openssl.current_dir(self.directory.path());
        openssl.args([
            "req",
            "-x509",
            "-config",
            "configuration",
            "-days",
            "30",
            "-nodes",
        ]);
        openssl.args(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]);
        openssl.args([
            "-keyout",
            &format!("{name}.key"),
            "-out",
            &format!("{name}.pem"),
        ]);
        openssl.args(signed);
        let made = openssl.output().unwrap_or_else(|_| panic!("{INSTALL}"));
        let said = String::from_utf8_lossy(&made.stderr);
        assert!(made.status.success(), "openssl: {said}");
    }
}

/// The data directory of the server.
async fn data(cluster: &Cluster) -> PathBuf {
    let client = cluster.client().await;
    let row = client.query_one("SHOW data_directory", &[]).await;
    let path: String = row.expect("the setting was not read").get(0);
    path.into()
}

/// Gives a key file to the server's user and makes it private: the server rejects other key files.
fn own_as(key: &Path, like: &Path) {
    let owner = fs::metadata(like).expect("the server has no data directory");
    let given = chown(key, Some(owner.uid()), Some(owner.gid()));
    given.expect("the owner of the key was not set");
    fs::set_permissions(key, fs::Permissions::from_mode(0o600))
        .expect("the mode of the key was not set");
}
