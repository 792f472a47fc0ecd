//! Builder of a NATS sink, which checks the settings.
//!
//! Settings that are not valid are refused. An unreachable server, a missing stream or a wrong
//! password is not: each delivery reports it.

use std::{fmt, time::Duration};

use async_nats::ServerAddr;
use hapax::limits::OFFER;
use secrecy::SecretString;

use super::{
    Nats,
    link::{Links, Login},
    subject,
};
use crate::{format::Format, pattern::Pattern, resolve::Resolver, tls};

/// The settings of a [`Nats`].
#[derive(Clone)]
pub struct NatsBuilder {
    servers: SecretString,
    login: Login,
    subject: String,
    format: Format,
    source: String,
    trusted: Vec<Vec<u8>>,
    timeout: Duration,
    resolver: Resolver,
}

impl NatsBuilder {
    pub(super) fn new(servers: String) -> Self {
        Self {
            servers: servers.into(),
            login: Login::Nobody,
            subject: "events.{type}".to_owned(),
            format: Format::default(),
            source: "hapax".to_owned(),
            trusted: Vec::new(),
            timeout: OFFER,
            resolver: Resolver::system(),
        }
    }

    /// Logs in with a user and a password.
    #[must_use]
    pub fn user(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.login = Login::User(user.into(), password.into().into());
        self
    }

    /// Logs in with a token.
    #[must_use]
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.login = Login::Token(token.into().into());
        self
    }

    /// Sets the subject, with the placeholders `{type}`, `{tenant}`, `{aggregate_type}` and
    /// `{aggregate_id}`. The default is `events.{type}`.
    #[must_use]
    pub fn subject(mut self, pattern: impl Into<String>) -> Self {
        self.subject = pattern.into();
        self
    }

    /// Sets the encoding of events. The default is CloudEvents in binary mode.
    #[must_use]
    pub fn format(mut self, format: Format) -> Self {
        self.format = format;
        self
    }

    /// Sets the CloudEvents attribute `source`, such as `/shop`.
    #[must_use]
    pub fn source(mut self, source: impl Into<String>) -> Self {
        self.source = source.into();
        self
    }

    /// Trusts the certificates in this PEM text in addition to the public ones.
    #[must_use]
    pub fn trust(mut self, certificates: impl Into<Vec<u8>>) -> Self {
        self.trusted.push(certificates.into());
        self
    }

    /// Sets the timeout of a whole batch, from connecting to the last acknowledgement.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Uses this resolver for names instead of the resolver of the process.
    #[must_use]
    pub fn resolver(mut self, resolver: Resolver) -> Self {
        self.resolver = resolver;
        self
    }

    /// Builds the sink. It connects when it has something to deliver.
    ///
    /// # Errors
    /// Fails if a setting is not valid. The error names it.
    pub fn build(self) -> Result<Nats, NatsError> {
        let servers = servers(&self.servers)?;
        let pattern = Pattern::parse(&self.subject).ok_or(NatsError::Subject)?;
        if !subject::is_valid(&pattern.sample()) {
            return Err(NatsError::Subject);
        }
        let tls = tls::client(&self.trusted).map_err(|_| NatsError::Certificate)?;
        Ok(Nats {
            links: Links::new(servers, self.login, tls, self.resolver),
            subject: pattern,
            format: self.format,
            source: self.source,
            timeout: self.timeout,
        })
    }
}

impl fmt::Debug for NatsBuilder {
    /// Omits the addresses, which may contain a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsBuilder")
            .field("subject", &self.subject)
            .field("format", &self.format)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// Why a NATS sink cannot be built. The error never contains an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NatsError {
    /// An address is not valid.
    #[error("nats address is not a url with a host that begins with nats:// or tls://")]
    Address,
    /// The subject has an unknown placeholder or is not a valid NATS subject.
    #[error("nats subject is not valid for publishing, or has an unknown {{placeholder}}")]
    Subject,
    /// A trusted certificate is not valid PEM.
    #[error("certificate to trust is not PEM")]
    Certificate,
}

fn servers(text: &SecretString) -> Result<Vec<ServerAddr>, NatsError> {
    use secrecy::ExposeSecret as _;
    let one = |text: &str| {
        let server: ServerAddr = text.trim().parse().map_err(|_| NatsError::Address)?;
        let known = matches!(server.scheme(), "nats" | "tls") && !server.host().is_empty();
        known.then_some(server).ok_or(NatsError::Address)
    };
    text.expose_secret().split(',').map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_never_work_is_refused_by_name() {
        for servers in ["", "http://h", "ws://h", "nats://", "nats://a,,nats://b"] {
            let error = Nats::to(servers).build().unwrap_err();
            assert_eq!(error, NatsError::Address, "{servers}");
        }
        for pattern in ["", "a b", "a.*", "a.>", "$JS.API", "{kind}", "a..{type}"] {
            let error = Nats::to("nats://h").subject(pattern).build().unwrap_err();
            assert_eq!(error, NatsError::Subject, "{pattern}");
        }
        let error = Nats::to("nats://h").trust("none").build().unwrap_err();
        assert_eq!(error, NatsError::Certificate);
        assert!(Nats::to("nats://a:1, tls://b").build().is_ok());
    }

    #[test]
    fn debug_shows_no_password() {
        let builder = Nats::to("nats://shop:secret@h")
            .user("u", "secret")
            .token("secret");
        let text = format!("{builder:?} {:?}", builder.clone().build().unwrap());
        assert!(!text.contains("secret"), "{text}");
    }
}
