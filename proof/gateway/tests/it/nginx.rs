//! Fixture: a private nginx as a plain proxy, with which the gateway is compared.
//!
//! It is one process, runs as the user of the test, and writes only to a temporary folder.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use hapax_testkit::{
    port::free_port,
    program::{Program, guarded},
    wait::eventually,
};
use tempfile::TempDir;
use tokio::net::TcpStream;

use crate::wire::PATIENCE;

const INSTALL: &str = "no nginx: apt-get install nginx-light";

/// A running nginx.
#[derive(Debug)]
pub(crate) struct Nginx {
    port: u16,
    program: Program,
    // Declared after the program, so that it is removed when the program has ended.
    _folder: TempDir,
}

impl Nginx {
    /// Starts an nginx that forwards everything to a service.
    pub(crate) async fn before(upstream: SocketAddr) -> Self {
        let (folder, port) = (tempfile::tempdir().unwrap(), free_port());
        let file = folder.path().join("nginx.conf");
        fs::write(&file, configuration(folder.path(), port, upstream)).unwrap();
        let mut command = guarded(program(), "KILL");
        command.arg("-p").arg(folder.path()).arg("-c").arg(&file);
        let mut nginx = Self {
            port,
            program: Program::start(command, &folder.path().join("log")),
            _folder: folder,
        };
        let address = nginx.address();
        eventually(PATIENCE, async || {
            let has_ended = nginx.program.has_ended();
            assert!(!has_ended, "nginx did not start: {}", nginx.program.log());
            TcpStream::connect(address).await.is_ok()
        })
        .await;
        nginx
    }

    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }
}

fn configuration(folder: &Path, port: u16, upstream: SocketAddr) -> String {
    let folder = folder.display();
    let kinds = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let folders = kinds.map(|kind| format!("    {kind}_temp_path {folder}/{kind};\n"));
    let folders = folders.concat();
    format!(
        r#"
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log stderr;
events {{}}
http {{
    access_log off;
{folders}
    upstream service {{
        server {upstream};
        keepalive 4;
    }}
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://service;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host $http_host;
        }}
    }}
}}
"#
    )
}

/// The program, which is not in the `PATH` of every user.
fn program() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = std::env::split_paths(&path).chain(["/usr/sbin".into()]);
    let found = folders.find_map(|folder| {
        let program = folder.join("nginx");
        program.is_file().then_some(program)
    });
    found.unwrap_or_else(|| panic!("{INSTALL}"))
}
