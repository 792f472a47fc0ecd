//! A certificate authority and the certificate of a server that it has signed, made with openssl.

use std::{
    fs::{self, Permissions},
    io,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::Command,
};

/// Creates an authority and a certificate for a server of this name, in the files `ca.pem`,
/// `server.pem` and `server.key` of a folder. No authority of another folder has the same name.
///
/// # Errors
/// Fails if openssl is not installed, or cannot write to the folder.
pub fn certify(folder: &Path, host: &str) -> io::Result<()> {
    make(folder, "ca", "basicConstraints = critical, CA:TRUE", &[])?;
    let extensions = format!("basicConstraints = CA:FALSE\nsubjectAltName = DNS:{host}");
    let signed = ["-CA", "ca.pem", "-CAkey", "ca.key"];
    make(folder, "server", &extensions, &signed)?;
    // PostgreSQL rejects a key that others may read.
    fs::set_permissions(folder.join("server.key"), Permissions::from_mode(0o600))
}

fn make(folder: &Path, name: &str, extensions: &str, signed: &[&str]) -> io::Result<()> {
    let configuration = format!(
        "[req]\ndistinguished_name = name\nx509_extensions = extensions\nprompt = no\n\
         [name]\nCN = {name} in {}\n[extensions]\n{extensions}\n",
        folder.display(),
    );
    fs::write(folder.join("configuration"), configuration)?;
    let mut openssl = Command::new("openssl");
    openssl.current_dir(folder);
    openssl.args(["req", "-x509", "-nodes", "-days", "30"]);
    openssl.args(["-config", "configuration"]);
    openssl.args(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]);
    openssl.args(["-keyout", &format!("{name}.key")]);
    openssl.args(["-out", &format!("{name}.pem")]);
    let made = openssl.args(signed).output().map_err(|error| {
        io::Error::new(
            error.kind(),
            format!("no openssl: install the package openssl: {error}"),
        )
    })?;
    if made.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&made.stderr);
    Err(io::Error::other(format!("openssl: {said}")))
}
