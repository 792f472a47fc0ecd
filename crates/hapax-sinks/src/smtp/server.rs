//! Mail server URL.
//!
//! `smtp://user:password@host:port` or `smtps://...`; user and password are percent-encoded. A
//! password is never printed, and never sent unencrypted unless that is configured.

use std::fmt;

use lettre::transport::smtp::authentication::Credentials;

use super::StartTls;

/// The address and the login of a mail server.
pub(super) struct Server {
    pub(super) host: String,
    pub(super) port: u16,
    /// TLS from the first byte.
    pub(super) wrapped: bool,
    pub(super) credentials: Option<Credentials>,
}

impl Server {
    /// Parses a URL. Returns `None` if it is not valid.
    pub(super) fn parse(url: &str) -> Option<Self> {
        let (scheme, rest) = url.split_once("://")?;
        let (wrapped, default_port) = match scheme {
            "smtp" => (false, 587),
            "smtps" => (true, 465),
            _ => return None,
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.contains(['/', '?', '#']) {
            return None;
        }
        let (user_info, place) = match rest.rsplit_once('@') {
            Some((user_info, place)) => (Some(user_info), place),
            None => (None, rest),
        };
        let (host, port) = match place.rsplit_once(':') {
            // A colon inside brackets is part of an IPv6 address.
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()?),
            _ => (place, default_port),
        };
        let host = match host.strip_prefix('[') {
            Some(inner) => inner.strip_suffix(']')?,
            None if host.contains(':') => return None,
            None => host,
        };
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte);
        if host.is_empty() || !host.bytes().all(plain) {
            return None;
        }
        Some(Self {
            host: host.to_owned(),
            port,
            wrapped,
            credentials: match user_info {
                None => None,
                Some(text) => Some(credentials(text)?),
            },
        })
    }

    /// The default if nothing is configured.
    pub(super) fn start_tls(&self) -> StartTls {
        if self.credentials.is_some() {
            StartTls::Required
        } else {
            StartTls::Opportunistic
        }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

fn credentials(text: &str) -> Option<Credentials> {
    let (user, password) = text.split_once(':')?;
    Some(Credentials::new(decode(user)?, decode(password)?))
}

fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => hex(rest.next()?)? * 16 + hex(rest.next()?)?,
            plain => plain,
        });
    }
    let text = String::from_utf8(bytes).ok()?;
    // A line break in a login would start another command.
    (!text.chars().any(char::is_control)).then_some(text)
}

fn hex(digit: u8) -> Option<u8> {
    let value = char::from(digit).to_digit(16)?;
    u8::try_from(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_host_port_security_and_login() {
        let server = Server::parse("smtps://a%40b:p%3Aw%25%C3%A9@mail.example.com:25").unwrap();
        assert_eq!(
            (server.host.as_str(), server.port),
            ("mail.example.com", 25)
        );
        assert!(server.wrapped);
        let expected = Credentials::new("a@b".to_owned(), "p:w%é".to_owned());
        assert!(server.credentials == Some(expected));
    }

    #[test]
    fn what_a_url_leaves_out_has_a_default() {
        let check = |url: &str, host: &str, port: u16| {
            let server = Server::parse(url).unwrap();
            assert_eq!((server.host.as_str(), server.port), (host, port), "{url}");
            server.start_tls()
        };
        assert_eq!(check("smtp://h", "h", 587), StartTls::Opportunistic);
        assert_eq!(check("smtps://h/", "h", 465), StartTls::Opportunistic);
        assert_eq!(check("smtp://[::1]", "::1", 587), StartTls::Opportunistic);
        assert_eq!(
            check("smtp://[::1]:2525", "::1", 2525),
            StartTls::Opportunistic
        );
        assert_eq!(check("smtp://u:p@h:1", "h", 1), StartTls::Required);
    }

    #[test]
    fn a_url_that_names_no_mail_server_is_refused() {
        for url in [
            "",
            "h",
            "http://h",
            "smtp://",
            "smtp://h:99999",
            "smtp://h:",
            "smtp://u@h",
            "smtp://::1",
            "smtp://[::1",
            "smtp://h/x",
            "smtp://h?x",
            "smtp://u:%zz@h",
            "smtp://u:%0d%0a@h",
            "smtp://u:%@h",
            "smtp://h h",
            "smtp://h\r\n",
        ] {
            assert!(Server::parse(url).is_none(), "{url}");
        }
    }

    #[test]
    fn debug_shows_no_password() {
        let server = Server::parse("smtp://user:secret@h").unwrap();
        assert_eq!(format!("{server:?}"), "h:587");
    }
}
