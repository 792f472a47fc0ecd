//! The address of the database and the protection of the connection, as given by the URL.
//!
//! `sslmode` has its usual meaning, with one exception: if TLS is requested, the server's certificate is
//! always verified, including its name. `prefer`, the default, also accepts a server without TLS,
//! so a certificate would prove nothing and is not verified; on the loopback interface it does not
//! use TLS.

use std::{net::IpAddr, path::PathBuf, time::Duration};

use percent_encoding::percent_decode_str;
use tokio_postgres::{
    Config,
    config::{Host, SslMode},
};

use crate::{error::OpenError, settings::Settings};

/// The content of a URL.
#[derive(Debug)]
pub(crate) struct Address {
    /// How to connect.
    pub(crate) config: Config,
    /// Whose certificates are taken; the web's authorities when absent.
    pub(crate) root: Option<PathBuf>,
}

impl Address {
    /// Reads the URL of the settings.
    ///
    /// `sslrootcert` and the stricter modes of libpq, which the driver does not know, are taken
    /// out of it first.
    pub(crate) fn of(settings: &Settings) -> Result<Self, OpenError> {
        let mut root = settings.root_certificates.clone();
        let (head, query) = settings.url.split_once('?').unwrap_or((&settings.url, ""));
        let mut kept = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("sslrootcert", path)) => {
                    let path = percent_decode_str(path).decode_utf8_lossy();
                    root = Some(path.into_owned().into());
                }
                // A certificate is always checked whole, so they say what `require` says here.
                Some(("sslmode", "verify-ca" | "verify-full")) => kept.push("sslmode=require"),
                _ => kept.push(pair),
            }
        }
        let url = if kept.is_empty() {
            head.to_owned()
        } else {
            format!("{head}?{}", kept.join("&"))
        };
        let mut config: Config = url.parse().map_err(|error: tokio_postgres::Error| {
            let cause = error.into_source();
            unusable(cause.map_or_else(String::new, |cause| cause.to_string()))
        })?;
        if config.get_ssl_mode() == SslMode::Prefer {
            if root.is_some() {
                config.ssl_mode(SslMode::Require);
            } else if is_loopback(&config) {
                config.ssl_mode(SslMode::Disable);
            }
        }
        Ok(Self { config, root })
    }

    /// How to connect, within the time limits of the settings: a server that is gone is noticed.
    pub(crate) fn limited(self, settings: &Settings) -> Config {
        let mut config = self.config;
        config.connect_timeout(settings.connect_max);
        config.keepalives(true);
        config.keepalives_idle(Duration::from_secs(30));
        config.tcp_user_timeout(settings.statement_max);
        if config.get_application_name().is_none() {
            config.application_name("hapax");
        }
        config
    }
}

/// Settings that cannot be used.
pub(crate) fn unusable(problem: impl Into<String>) -> OpenError {
    OpenError::Settings {
        problem: problem.into(),
    }
}

/// Whether no packet leaves this machine.
fn is_loopback(config: &Config) -> bool {
    let is_local = |host: &Host| match host {
        Host::Tcp(name) => match name.trim_matches(['[', ']']).parse::<IpAddr>() {
            Ok(address) => address.is_loopback(),
            Err(_) => name == "localhost",
        },
        Host::Unix(_) => true,
    };
    let mut addresses = config.get_hostaddrs().iter();
    addresses.all(IpAddr::is_loopback) && config.get_hosts().iter().all(is_local)
}

#[cfg(test)]
mod tests {
    use hapax::{Clock, Random, Timestamp};

    use super::*;

    #[test]
    fn tls_is_preferred_but_not_on_the_loopback_interface() {
        check("postgres://db.example.com/shop", SslMode::Prefer, None);
        check("postgres://127.0.0.1/shop", SslMode::Disable, None);
        check("postgres://[::1]:5432/shop", SslMode::Disable, None);
        check("postgres://localhost/shop", SslMode::Disable, None);
        check(
            "postgres://%2Frun%2Fpostgresql/shop",
            SslMode::Disable,
            None,
        );
        let both = "postgres://localhost,db.example.com/shop";
        check(both, SslMode::Prefer, None);
        let elsewhere = "postgres://localhost/shop?hostaddr=10.0.0.1";
        check(elsewhere, SslMode::Prefer, None);
    }

    #[test]
    fn tls_that_is_asked_for_is_asked_of_every_host() {
        for mode in ["require", "verify-ca", "verify-full"] {
            let local = format!("postgres://localhost/shop?sslmode={mode}&connect_timeout=3");
            check(&local, SslMode::Require, None);
        }
        let disabled = "postgres://db.example.com/shop?sslmode=disable";
        check(disabled, SslMode::Disable, None);
    }

    #[test]
    fn a_root_certificate_asks_for_tls() {
        let url = "postgres://localhost/shop?sslrootcert=/etc/my%20ca.pem";
        check(url, SslMode::Require, Some("/etc/my ca.pem"));
    }

    #[test]
    fn a_url_that_cannot_be_read_is_refused_without_its_password() {
        for url in [
            "postgres://shop:secret@db/shop?sslmode=sometimes",
            "postgres://shop:secret@db:port/shop",
            "postgres://shop:secret@db/shop?sslcert=/etc/cert.pem",
        ] {
            let refused = Address::of(&settings(url)).unwrap_err().to_string();
            assert!(
                refused.starts_with("settings of the database are not usable: "),
                "{refused}"
            );
            assert!(!refused.contains("secret"), "{refused}");
        }
    }

    #[track_caller]
    fn check(url: &str, mode: SslMode, root: Option<&str>) {
        let address = Address::of(&settings(url)).unwrap();
        assert_eq!(address.config.get_ssl_mode(), mode, "{url}");
        assert_eq!(address.root, root.map(PathBuf::from), "{url}");
    }

    fn settings(url: &str) -> Settings {
        let clock = Clock::new(|| Timestamp::from_millis(0));
        Settings::new(url, clock, Random::new(|| 7))
    }
}
