//! The programs in front of the service: the gateway, nginx and haproxy, each with its own configuration.
//!
//! nginx and haproxy have their defaults, with one thread for each core and connections to the service that stay
//! open. They write no access log, and neither does the gateway.

use std::{
    fmt, fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context as _;
use hapax_testkit::postgres::Database;

use crate::run::{
    Bench, Store,
    folder::Folder,
    service::{Service, free_address},
};

/// A plain proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plain {
    Nginx,
    Haproxy,
}

/// The programs of the plain proxies.
#[derive(Debug)]
pub(super) struct Installed {
    nginx: PathBuf,
    haproxy: PathBuf,
}

impl Installed {
    /// Finds both. They are not in the `PATH` of every user.
    pub(super) fn find() -> anyhow::Result<Self> {
        Ok(Self {
            nginx: found("nginx", "nginx-light")?,
            haproxy: found("haproxy", "haproxy")?,
        })
    }

    /// Starts a plain proxy in front of a service.
    pub(super) async fn start(
        &self,
        kind: Plain,
        folder: &Folder,
        service: SocketAddr,
    ) -> anyhow::Result<Proxy> {
        // nginx reads relative paths from its own folder.
        let folder = fs::canonicalize(folder.path())?;
        let address = free_address()?;
        let (name, settings) = match kind {
            Plain::Nginx => ("nginx", nginx_settings(&folder, address, service)),
            Plain::Haproxy => ("haproxy", haproxy_settings(address, service)),
        };
        let file = folder.join(format!("{name}.conf"));
        fs::write(&file, settings)?;
        let command = match kind {
            Plain::Nginx => {
                let mut command = Command::new(&self.nginx);
                command.arg("-p").arg(&folder).arg("-c").arg(&file);
                command
            }
            Plain::Haproxy => {
                let mut command = Command::new(&self.haproxy);
                command.args(["-db", "-f"]).arg(&file);
                command
            }
        };
        let log = folder.join(format!("{name}.log"));
        Ok(Proxy(Service::start(command, address, &log).await?))
    }
}

impl fmt::Display for Installed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [nginx, haproxy] = [&self.nginx, &self.haproxy].map(|program| version(program));
        write!(f, "nginx ({nginx}) and haproxy ({haproxy})")
    }
}

fn found(program: &str, package: &str) -> anyhow::Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = std::env::split_paths(&path).chain(["/usr/sbin".into()]);
    let found = folders.find_map(|folder| {
        let file = folder.join(program);
        file.is_file().then_some(file)
    });
    found.with_context(|| format!("{program} is not installed (Debian: apt-get install {package})"))
}

/// The first line that a program prints of its version.
fn version(program: &Path) -> String {
    let Ok(output) = Command::new(program).arg("-v").output() else {
        return "unknown version".to_owned();
    };
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    text.lines().next().unwrap_or_default().trim().to_owned()
}

/// A plain proxy that runs.
#[derive(Debug)]
pub(super) struct Proxy(Service);

impl Proxy {
    pub(super) fn address(&self) -> SocketAddr {
        self.0.address
    }
}

/// A gateway that runs.
#[derive(Debug)]
pub(super) struct Gateway {
    // The first field, so that the process has ended when its database is removed.
    service: Service,
    _database: Option<Database>,
}

impl Gateway {
    /// Starts a gateway with an empty store in front of a service.
    pub(super) async fn start(
        bench: &Bench,
        store: Store,
        folder: &Folder,
        service: SocketAddr,
    ) -> anyhow::Result<Self> {
        let address = free_address()?;
        // Free ports are unique, so the names are too.
        let name = format!("gateway-{}", address.port());
        let file = |ending: &str| folder.path().join(format!("{name}.{ending}"));
        let database = match store {
            Store::Sqlite => None,
            Store::Postgres => Some(bench.server().await?.database().await?),
        };
        let url = match &database {
            None => format!("sqlite:{}", file("db").display()),
            Some(database) => database.url(),
        };
        fs::write(file("toml"), gateway_settings(address, service))?;
        let mut command = Command::new(bench.hapax()?);
        command.args(["gateway", "--database", &url, "--config"]);
        command.arg(file("toml"));
        Ok(Self {
            service: Service::start(command, address, &file("log")).await?,
            _database: database,
        })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.service.address
    }

    /// The current memory of the process, in mebibytes.
    pub(super) fn resident(&self) -> anyhow::Result<f64> {
        self.service.resident()
    }
}

fn gateway_settings(address: SocketAddr, service: SocketAddr) -> String {
    format!(
        "[database]\nschema = \"apply\"\n\
         [log]\nlevel = \"warn\"\n\
         [gateway]\nconnections = 20000\n\
         [gateway.listeners.http]\nlisten = \"{address}\"\n\
         [gateway.upstreams.service]\ninstances = [\"http://{service}\"]\n\
         [gateway.routes.all]\npath = \"/{{*path}}\"\nupstream = \"service\"\n"
    )
}

fn nginx_settings(folder: &Path, address: SocketAddr, service: SocketAddr) -> String {
    let folder = folder.display();
    let kinds = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let places = kinds.map(|kind| format!("{kind}_temp_path {folder}/nginx-{kind};\n"));
    format!(
        "daemon off;\nworker_processes auto;\npid {folder}/nginx.pid;\nerror_log stderr;\n\
         events {{ worker_connections 1024; }}\n\
         http {{\naccess_log off;\n{}\
         upstream service {{ server {service}; keepalive 128; keepalive_requests 1000000000; }}\n\
         server {{\nlisten {address};\nkeepalive_requests 1000000000;\n\
         location / {{ proxy_pass http://service; proxy_http_version 1.1; \
         proxy_set_header Connection \"\"; }}\n}}\n}}\n",
        places.concat()
    )
}

/// More connections than needed would need more open files than the system may allow: haproxy does not start then.
fn haproxy_settings(address: SocketAddr, service: SocketAddr) -> String {
    format!(
        "global\n  maxconn 400\n\
         defaults\n  mode http\n  timeout connect 2s\n  timeout client 60s\n  timeout server 60s\n  \
         http-reuse always\n\
         frontend clients\n  bind {address}\n  default_backend service\n\
         backend service\n  server one {service}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_settings_name_both_addresses() {
        let [own, service] = [1, 2].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        for settings in [
            gateway_settings(own, service),
            nginx_settings(Path::new("/tmp/bench"), own, service),
            haproxy_settings(own, service),
        ] {
            assert!(settings.contains("127.0.0.1:1"), "{settings}");
            assert!(settings.contains("127.0.0.1:2"), "{settings}");
        }
        let gateway = gateway_settings(own, service);
        assert!(gateway.contains("path = \"/{*path}\""), "{gateway}");
    }

    #[test]
    fn a_proxy_that_is_missing_is_an_error_with_the_command_that_installs_it() {
        let error = found("no-such-proxy", "nginx-light").expect_err("it is not there");
        let expected = "no-such-proxy is not installed (Debian: apt-get install nginx-light)";
        assert_eq!(error.to_string(), expected);
    }
}
