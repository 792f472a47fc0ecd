//! An authority made for a test, and a server that shows a certificate of it.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    path::{Path, PathBuf},
    process::Command,
};

use hapax_testkit::postgres::Cluster;
use tempfile::TempDir;

const INSTALL: &str = "no openssl: install the package openssl";

/// An authority and the certificate that it gave to a server.
pub(crate) struct Certificates {
    directory: TempDir,
}

impl Certificates {
    /// Makes an authority, and a certificate for a server of that name.
    pub(crate) fn of(name: &str) -> Self {
        let directory = tempfile::tempdir().expect("a directory can be made");
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(directory.path(), open).expect("a directory can be opened to all");
        let made = Self { directory };
        made.make("ca", "basicConstraints = critical, CA:TRUE", &[]);
        let extensions = format!("basicConstraints = CA:FALSE\nsubjectAltName = DNS:{name}");
        let signed = ["-CA", "ca.pem", "-CAkey", "ca.key"];
        made.make("server", &extensions, &signed);
        made
    }

    /// The authority's certificate, in a file.
    pub(crate) fn root(&self) -> PathBuf {
        self.path("ca.pem")
    }

    /// Has a server show its certificate from now on.
    pub(crate) async fn install(&self, cluster: &Cluster) {
        let key = self.path("server.key");
        own_as(&key, &data(cluster).await);
        let (certificate, key) = (self.path("server.pem"), key);
        let settings = [
            ("ssl_cert_file", certificate.to_str().expect("a plain path")),
            ("ssl_key_file", key.to_str().expect("a plain path")),
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
        fs::write(self.path("configuration"), configuration).expect("a file can be written");
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

/// Where the server keeps its files.
async fn data(cluster: &Cluster) -> PathBuf {
    let client = cluster.client().await;
    let row = client.query_one("SHOW data_directory", &[]).await;
    let path: String = row.expect("a setting is shown").get(0);
    path.into()
}

/// A server takes a key only from whoever runs it, and only where nobody else can read it.
fn own_as(key: &Path, like: &Path) {
    let owner = fs::metadata(like).expect("the server has a directory");
    let given = chown(key, Some(owner.uid()), Some(owner.gid()));
    given.expect("a key can be given to the server");
    fs::set_permissions(key, fs::Permissions::from_mode(0o600)).expect("a key can be closed");
}
