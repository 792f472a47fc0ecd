//! Builder of a Redis sink, which checks the settings.
//!
//! Settings that are not valid are refused. An unreachable server, a wrong password or a key that
//! is not a stream is not: each delivery reports it.

use std::{fmt, time::Duration};

use hapax::limits::OFFER;
use redis::{Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _, TlsCertificates};
use secrecy::{ExposeSecret as _, SecretString};

use super::{Redis, link::Links};
use crate::{
    format::Format, limits::STREAM_NAME_BYTES_MAX, pattern::Pattern, resolve::Resolver, tls,
};

/// The settings of a [`Redis`].
#[derive(Clone)]
pub struct RedisBuilder {
    url: SecretString,
    login: Option<(String, SecretString)>,
    database: Option<i64>,
    stream: String,
    length_max: Option<u64>,
    format: Format,
    source: String,
    trusted: Vec<Vec<u8>>,
    timeout: Duration,
    resolver: Resolver,
}

impl RedisBuilder {
    pub(super) fn new(url: String) -> Self {
        Self {
            url: url.into(),
            login: None,
            database: None,
            stream: "events".to_owned(),
            length_max: None,
            format: Format::default(),
            source: "hapax".to_owned(),
            trusted: Vec::new(),
            timeout: OFFER,
            resolver: Resolver::system(),
        }
    }

    /// Logs in with a user and a password. `requirepass` sets the password of the user `default`.
    #[must_use]
    pub fn user(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.login = Some((user.into(), password.into().into()));
        self
    }

    /// Sets the number of the database. It overrides the URL.
    #[must_use]
    pub fn database(mut self, number: u32) -> Self {
        self.database = Some(number.into());
        self
    }

    /// Sets the stream, with the placeholders `{type}`, `{tenant}`, `{aggregate_type}` and
    /// `{aggregate_id}`. The default is `events`.
    #[must_use]
    pub fn stream(mut self, pattern: impl Into<String>) -> Self {
        self.stream = pattern.into();
        self
    }

    /// Trims the stream to approximately this number of entries, read or unread.
    #[must_use]
    pub fn length_max(mut self, entries: u64) -> Self {
        self.length_max = Some(entries);
        self
    }

    /// Sets the encoding of events. The default is a field for each attribute.
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

    /// Trusts the certificates in this PEM text instead of the public ones. It requires
    /// `rediss://`.
    #[must_use]
    pub fn trust(mut self, certificates: impl Into<Vec<u8>>) -> Self {
        self.trusted.push(certificates.into());
        self
    }

    /// Sets the timeout of a whole batch, from connecting to the last response.
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
    pub fn build(self) -> Result<Redis, RedisError> {
        let stream = Pattern::parse(&self.stream).ok_or(RedisError::Stream)?;
        if stream.sample().len() > STREAM_NAME_BYTES_MAX {
            return Err(RedisError::Stream);
        }
        if self.length_max == Some(0) {
            return Err(RedisError::Length);
        }
        Ok(Redis {
            links: Links::new(self.client()?, self.resolver),
            stream,
            length_max: self.length_max,
            format: self.format,
            source: self.source,
            timeout: self.timeout,
        })
    }

    fn client(&self) -> Result<Client, RedisError> {
        let server = self.server()?;
        if self.trusted.is_empty() {
            return Client::open(server).map_err(|_| RedisError::Address);
        }
        if !matches!(server.addr(), ConnectionAddr::TcpTls { .. }) {
            return Err(RedisError::Plain);
        }
        tls::client(&self.trusted).map_err(|_| RedisError::Certificate)?;
        let certificates = TlsCertificates {
            client_tls: None,
            root_cert: Some(self.trusted.join(&b'\n')),
        };
        Client::build_with_tls(server, certificates).map_err(|_| RedisError::Certificate)
    }

    fn server(&self) -> Result<ConnectionInfo, RedisError> {
        let url = self.url.expose_secret();
        if !["redis://", "rediss://", "unix://"]
            .iter()
            .any(|scheme| url.starts_with(scheme))
        {
            return Err(RedisError::Address);
        }
        let server = url
            .into_connection_info()
            .map_err(|_| RedisError::Address)?;
        // A fragment of the URL can disable the verification of certificates, which is refused
        // here.
        if matches!(server.addr(), ConnectionAddr::TcpTls { insecure: true, .. }) {
            return Err(RedisError::Insecure);
        }
        let mut settings = server.redis_settings().clone();
        if let Some((user, password)) = &self.login {
            settings = settings
                .set_username(user)
                .set_password(password.expose_secret());
        }
        if let Some(number) = self.database {
            settings = settings.set_db(number);
        }
        Ok(server.set_redis_settings(settings))
    }
}

impl fmt::Debug for RedisBuilder {
    /// Omits the URL, which may contain a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisBuilder")
            .field("stream", &self.stream)
            .field("length_max", &self.length_max)
            .field("format", &self.format)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// Why a Redis sink cannot be built. The error never contains the URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RedisError {
    /// The URL is not valid.
    #[error("redis address is not a url that begins with redis://, rediss:// or unix://")]
    Address,
    /// The URL asks for TLS without verification.
    #[error("redis address disables the verification of certificates")]
    Insecure,
    /// There is a trusted certificate, but the URL does not use TLS.
    #[error("redis has a certificate to trust, and its address does not begin with rediss://")]
    Plain,
    /// The name of the stream is not valid or has an unknown placeholder.
    #[error("redis stream is empty or too long, or has an unknown {{placeholder}}")]
    Stream,
    /// A stream of length 0 keeps nothing.
    #[error("redis stream's length_max is 0")]
    Length,
    /// A trusted certificate is not valid PEM.
    #[error("certificate to trust is not PEM")]
    Certificate,
}

#[cfg(test)]
mod tests {
    use super::*;

    const CA: &str = include_str!("../../tests/it/tls/ca.pem");

    #[test]
    fn what_can_never_work_is_refused_by_name() {
        for url in ["", "redis", "http://h", "redis://h:99999", "valkeys://h"] {
            let error = Redis::to(url).build().unwrap_err();
            assert_eq!(error, RedisError::Address, "{url}");
        }
        let insecure = Redis::to("rediss://h/#insecure").build().unwrap_err();
        assert_eq!(insecure, RedisError::Insecure);
        for stream in ["", "{kind}", &"x".repeat(2000)] {
            let error = Redis::to("redis://h").stream(stream).build().unwrap_err();
            assert_eq!(error, RedisError::Stream, "{stream}");
        }
        let empty = Redis::to("redis://h").length_max(0).build().unwrap_err();
        assert_eq!(empty, RedisError::Length);
        let error = Redis::to("rediss://h").trust("none").build().unwrap_err();
        assert_eq!(error, RedisError::Certificate);
        for url in ["redis://h", "unix:///run/redis.sock"] {
            let error = Redis::to(url).trust(CA).build().unwrap_err();
            assert_eq!(error, RedisError::Plain, "{url}");
        }
        assert!(Redis::to("rediss://h").trust(CA).build().is_ok());
        assert!(Redis::to("redis://h/3").build().is_ok());
    }

    #[test]
    fn debug_shows_no_password() {
        let builder = Redis::to("redis://shop:secret@h/1").user("u", "secret");
        let text = format!("{builder:?} {:?}", builder.clone().build().unwrap());
        assert!(!text.contains("secret"), "{text}");
    }
}
