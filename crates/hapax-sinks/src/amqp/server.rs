//! Broker URL of an AMQP sink.
//!
//! `amqp://user:password@host:port/vhost?heartbeat=10`, or `amqps://` for TLS. Without a virtual
//! host the default one, `/`, is used. The password is stored separately and never printed.

use std::fmt;

use lapin::uri::AMQPUri;
use secrecy::{ExposeSecret as _, SecretString};

use crate::limits::AMQP_HEARTBEAT_SECONDS;

/// The address and the login of a broker.
pub(super) struct Server {
    uri: AMQPUri,
    password: SecretString,
    /// Additional trusted certificates as PEM.
    pub(super) roots: Option<String>,
}

impl Server {
    /// Parses a URL. Returns `None` if it is not valid.
    pub(super) fn parse(url: &str) -> Option<Self> {
        let mut uri: AMQPUri = url.parse().ok()?;
        let (_, rest) = url.split_once("://")?;
        let authority = rest.split(['/', '?', '#']).next()?;
        let place = authority.rsplit_once('@').map_or(authority, |(_, it)| it);
        if place.is_empty() || place.starts_with(':') {
            return None;
        }
        // The parser does not accept an IPv6 address as host, and treats a missing host as
        // localhost.
        if let Some(inner) = place.strip_prefix('[') {
            inner.split_once(']')?.0.clone_into(&mut uri.authority.host);
        }
        if uri.vhost.is_empty() {
            "/".clone_into(&mut uri.vhost);
        }
        if uri.query.heartbeat.is_none() {
            uri.query.heartbeat = Some(AMQP_HEARTBEAT_SECONDS);
        }
        let password = std::mem::take(&mut uri.authority.userinfo.password).into();
        let roots = None;
        Some(Self {
            uri,
            password,
            roots,
        })
    }

    pub(super) fn host(&self) -> &str {
        &self.uri.authority.host
    }

    /// The URI for a connection. It contains the password.
    pub(super) fn uri(&self) -> AMQPUri {
        let mut uri = self.uri.clone();
        let password = self.password.expose_secret();
        password.clone_into(&mut uri.authority.userinfo.password);
        uri
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AMQPUri {
            scheme,
            authority,
            vhost,
            ..
        } = &self.uri;
        let (host, port) = (&authority.host, authority.port);
        write!(f, "{scheme}://{host}:{port} {vhost}")
    }
}

#[cfg(test)]
mod tests {
    use lapin::uri::AMQPScheme;

    use super::*;

    #[test]
    fn a_url_names_host_port_login_and_virtual_host() {
        let server = Server::parse("amqps://a%40b:p%3Aw@rabbit:1/my%2Fvhost?heartbeat=7").unwrap();
        let uri = server.uri();
        assert_eq!(
            (uri.authority.host.as_str(), uri.authority.port),
            ("rabbit", 1)
        );
        let login = uri.authority.userinfo;
        assert_eq!(
            (login.username.as_str(), login.password.as_str()),
            ("a@b", "p:w")
        );
        assert_eq!(
            (uri.vhost.as_str(), uri.query.heartbeat),
            ("my/vhost", Some(7))
        );
        assert_eq!(uri.scheme, AMQPScheme::AMQPS);
    }

    #[test]
    fn what_a_url_leaves_out_has_a_default() {
        check("amqp://h", "amqp://h:5672 /");
        check("amqp://h/", "amqp://h:5672 /");
        check("amqps://h/%2f", "amqps://h:5671 /");
        check("amqp://u:p@[::1]:7/v", "amqp://::1:7 v");
        check("amqp://127.0.0.1/v", "amqp://127.0.0.1:5672 v");
    }

    #[test]
    fn a_url_that_names_no_broker_is_refused() {
        for url in [
            "",
            "h",
            "http://h",
            "amqp:h",
            "amqp://",
            "amqp:///v",
            "amqp://u:p@/v",
            "amqp://:5672/v",
            "amqp://h:99999",
            "amqp://[::1",
            "amqp://h/?heartbeat=x",
        ] {
            assert!(Server::parse(url).is_none(), "{url}");
        }
    }

    #[track_caller]
    fn check(url: &str, expected: &str) {
        let server = Server::parse(url).unwrap();
        assert_eq!(format!("{server:?}"), expected);
        assert_eq!(server.uri().query.heartbeat, Some(10));
    }
}
