//! Driver configuration from the URL of the receiver's database.
//!
//! A connection that leaves the machine uses TLS with verification, unless the URL disables it.

use std::{net::IpAddr, time::Duration};

use tokio_postgres::{
    Config,
    config::{Host, SslMode},
};

use crate::{limits::CONNECT, settings::SettingError};

/// Keep-alive interval of an idle connection.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// Parses a URL.
pub(super) fn parse(url: &str, timeout: Duration) -> Result<Config, SettingError> {
    // Certificates are always verified completely, so the stricter modes mean the same as
    // `require`.
    let url = ["verify-full", "verify-ca"]
        .iter()
        .fold(url.to_owned(), |url, mode| {
            url.replace(&format!("sslmode={mode}"), "sslmode=require")
        });
    let mut config: Config = url.parse().map_err(|_| not_a_url())?;
    if config.get_hosts().is_empty() {
        return Err(not_a_url());
    }
    // A certificate that is not verified proves nothing: TLS is always used with verification, or,
    // on request, not at all.
    if config.get_ssl_mode() == SslMode::Prefer {
        let mode = if is_local(&config) {
            SslMode::Disable
        } else {
            SslMode::Require
        };
        config.ssl_mode(mode);
    }
    config.connect_timeout(CONNECT);
    config.keepalives_idle(KEEP_ALIVE);
    config.tcp_user_timeout(timeout);
    if config.get_application_name().is_none() {
        config.application_name("hapax");
    }
    Ok(config)
}

fn not_a_url() -> SettingError {
    SettingError::new("url", "is not a url such as postgres://user@host/database")
}

/// Whether all hosts are on this machine.
fn is_local(config: &Config) -> bool {
    config.get_hosts().iter().all(|host| match host {
        Host::Unix(_) => true,
        Host::Tcp(name) => {
            name == "localhost"
                || name
                    .parse()
                    .is_ok_and(|address: IpAddr| address.is_loopback())
        }
    })
}

#[cfg(test)]
mod tests {
    use hapax::limits::OFFER;

    use super::*;

    #[test]
    fn what_leaves_the_machine_is_encrypted_unless_it_is_said_otherwise() {
        for (url, mode) in [
            ("postgres://localhost/d", SslMode::Disable),
            ("postgres://127.0.0.1/d", SslMode::Disable),
            ("postgres://localhost/d?sslmode=require", SslMode::Require),
            ("postgres://db.example.com/d", SslMode::Require),
            (
                "postgres://db.example.com/d?sslmode=verify-full",
                SslMode::Require,
            ),
            (
                "postgres://db.example.com/d?sslmode=disable",
                SslMode::Disable,
            ),
        ] {
            assert_eq!(parse(url, OFFER).unwrap().get_ssl_mode(), mode, "{url}");
        }
    }
}
