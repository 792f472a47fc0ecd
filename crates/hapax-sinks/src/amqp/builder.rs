//! Builder of an AMQP sink, which checks the settings.
//!
//! It does not check whether the broker can be reached or whether the exchange exists. If not,
//! deliveries fail with an error that says what is missing, until it exists.

use std::{fmt, time::Duration};

use hapax::limits::OFFER;
use lapin::types::ShortString;
use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use tokio::sync::Mutex;

use super::{Amqp, Layout, Server};
use crate::{format::Format, pattern::Pattern, resolve::Resolver};

/// The settings of an [`Amqp`] sink.
#[derive(Clone)]
pub struct AmqpBuilder {
    url: String,
    source: String,
    exchange: String,
    routing_key: String,
    format: Format,
    roots: String,
    heartbeat: Option<Duration>,
    timeout: Duration,
    resolver: Resolver,
}

impl AmqpBuilder {
    pub(super) fn new(url: String) -> Self {
        Self {
            url,
            source: String::new(),
            exchange: String::new(),
            routing_key: "{type}".to_owned(),
            format: Format::default(),
            roots: String::new(),
            heartbeat: None,
            timeout: OFFER,
            resolver: Resolver::system(),
        }
    }

    /// Sets the CloudEvents attribute `source`, such as `/shop`.
    #[must_use]
    pub fn source(mut self, source: impl Into<String>) -> Self {
        self.source = source.into();
        self
    }

    /// Sets the exchange. The default exchange is used otherwise; its routing keys are names of
    /// queues.
    #[must_use]
    pub fn exchange(mut self, exchange: impl Into<String>) -> Self {
        self.exchange = exchange.into();
        self
    }

    /// Sets the routing key, a pattern of `{type}`, `{aggregate_type}`, `{aggregate_id}` and
    /// `{tenant}`. If an event lacks one, `_` is used. The default is `{type}`.
    #[must_use]
    pub fn routing_key(mut self, pattern: impl Into<String>) -> Self {
        self.routing_key = pattern.into();
        self
    }

    /// Sets the encoding of events. The default is CloudEvents in binary mode.
    #[must_use]
    pub fn format(mut self, format: Format) -> Self {
        self.format = format;
        self
    }

    /// Trusts the certificates in this PEM text in addition to the public ones.
    #[must_use]
    pub fn trust(mut self, certificates: impl AsRef<str>) -> Self {
        self.roots.push_str(certificates.as_ref());
        self.roots.push('\n');
        self
    }

    /// Sets the heartbeat interval, in whole seconds. It overrides the `heartbeat` of the URL.
    #[must_use]
    pub fn heartbeat(mut self, heartbeat: Duration) -> Self {
        self.heartbeat = Some(heartbeat);
        self
    }

    /// Sets the timeout of a whole call, from the DNS lookup to the last confirm.
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

    /// Builds the sink.
    ///
    /// # Errors
    /// Fails if a setting is not valid. The error names it.
    pub fn build(self) -> Result<Amqp, AmqpError> {
        let mut server = Server::parse(&self.url).ok_or(AmqpError::Url)?;
        if let Some(heartbeat) = self.heartbeat {
            server.heartbeat(heartbeat);
        }
        if !self.roots.is_empty() {
            check_certificates(&self.roots)?;
            server.roots = Some(self.roots);
        }
        if self.format != Format::Raw && self.source.is_empty() {
            return Err(AmqpError::Source);
        }
        Ok(Amqp {
            server,
            layout: Layout {
                source: self.source,
                exchange: ShortString::try_new(self.exchange).map_err(|_| AmqpError::Exchange)?,
                routing_key: Pattern::parse(&self.routing_key).ok_or(AmqpError::RoutingKey)?,
                format: self.format,
            },
            timeout: self.timeout,
            resolver: self.resolver,
            link: Mutex::default(),
        })
    }
}

impl fmt::Debug for AmqpBuilder {
    /// Omits the URL, which may contain a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AmqpBuilder")
            .field("source", &self.source)
            .field("exchange", &self.exchange)
            .field("routing_key", &self.routing_key)
            .field("format", &self.format)
            .finish_non_exhaustive()
    }
}

/// Why an AMQP sink cannot be built. The error never contains the URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AmqpError {
    /// The URL is not a valid broker URL.
    #[error("amqp url is not amqp://[user:password@]host[:port][/vhost] or amqps://...")]
    Url,
    /// The source, which CloudEvents require, is missing.
    #[error("amqp sink has no source")]
    Source,
    /// The name of the exchange is longer than 255 bytes.
    #[error("amqp exchange is longer than 255 bytes")]
    Exchange,
    /// The pattern of the routing key contains an unknown placeholder.
    #[error(
        "amqp routing key may contain {{type}}, {{aggregate_type}}, {{aggregate_id}} and {{tenant}}"
    )]
    RoutingKey,
    /// A trusted certificate is not valid PEM.
    #[error("certificate to trust is not PEM")]
    Certificate,
}

fn check_certificates(text: &str) -> Result<(), AmqpError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(()),
        _ => Err(AmqpError::Certificate),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_that_can_never_work_is_refused_by_name() {
        let good = Amqp::to("amqp://h").source("/s");
        assert!(good.clone().build().is_ok());
        check(Amqp::to("h").source("/s"), &AmqpError::Url);
        check(Amqp::to("amqp://h"), &AmqpError::Source);
        check(good.clone().exchange("x".repeat(256)), &AmqpError::Exchange);
        check(good.clone().routing_key("{id}"), &AmqpError::RoutingKey);
        check(good.trust("no certificate"), &AmqpError::Certificate);
    }

    #[test]
    fn debug_shows_no_password() {
        let builder = Amqp::to("amqp://user:secret@h/v").source("/s");
        let text = format!("{builder:?} {:?}", builder.clone().build().unwrap());
        assert!(!text.contains("secret") && !text.contains("user"), "{text}");
        let error = Amqp::to("amqp://user:secret@h:x/v").build().unwrap_err();
        assert!(!error.to_string().contains("secret"), "{error}");
    }

    #[track_caller]
    fn check(builder: AmqpBuilder, expected: &AmqpError) {
        assert_eq!(&builder.build().unwrap_err(), expected);
    }
}
