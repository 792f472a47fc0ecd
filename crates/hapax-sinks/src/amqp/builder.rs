//! The settings of an AMQP sink, checked before it is one.
//!
//! Whether the broker can be reached, and whether the exchange is there, is
//! not asked: each offer says what is missing, and is taken when it is there.

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

    /// Says what the events come from, such as `/shop`: the CloudEvents attribute `source`.
    #[must_use]
    pub fn source(mut self, source: impl Into<String>) -> Self {
        self.source = source.into();
        self
    }

    /// Publishes to this exchange; without one, to the default one, whose routing key is a queue.
    #[must_use]
    pub fn exchange(mut self, exchange: impl Into<String>) -> Self {
        self.exchange = exchange.into();
        self
    }

    /// Makes the routing key of `{type}`, `{aggregate_type}`, `{aggregate_id}` and `{tenant}`; `_`
    /// stands for what an event lacks. It is `{type}` otherwise.
    #[must_use]
    pub fn routing_key(mut self, pattern: impl Into<String>) -> Self {
        self.routing_key = pattern.into();
        self
    }

    /// Writes events down like this; CloudEvents in binary mode otherwise.
    #[must_use]
    pub fn format(mut self, format: Format) -> Self {
        self.format = format;
        self
    }

    /// Trusts the certificates in this PEM text beside the public ones.
    #[must_use]
    pub fn trust(mut self, certificates: impl AsRef<str>) -> Self {
        self.roots.push_str(certificates.as_ref());
        self.roots.push('\n');
        self
    }

    /// Asks for a sign of life this often, in whole seconds; the URL's `heartbeat` otherwise.
    #[must_use]
    pub fn heartbeat(mut self, heartbeat: Duration) -> Self {
        self.heartbeat = Some(heartbeat);
        self
    }

    /// Bounds a whole call, from the name's look-up to the last confirm.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Looks names up by this resolver; by the one of the process when not said.
    #[must_use]
    pub fn resolver(mut self, resolver: Resolver) -> Self {
        self.resolver = resolver;
        self
    }

    /// Makes the sink.
    ///
    /// # Errors
    /// Fails when a setting can never work; which one is in the error.
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
    /// Leaves the URL out: it may carry a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AmqpBuilder")
            .field("source", &self.source)
            .field("exchange", &self.exchange)
            .field("routing_key", &self.routing_key)
            .field("format", &self.format)
            .finish_non_exhaustive()
    }
}

/// Why an AMQP sink cannot be set up; it never repeats the URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AmqpError {
    /// The URL names no broker.
    #[error("amqp url is not amqp://[user:password@]host[:port][/vhost] or amqps://...")]
    Url,
    /// CloudEvents need a source, and none was given.
    #[error("amqp sink has no source")]
    Source,
    /// The name of the exchange is longer than 255 bytes.
    #[error("amqp exchange is longer than 255 bytes")]
    Exchange,
    /// The routing key's pattern asks for what no event has.
    #[error(
        "amqp routing key may hold {{type}}, {{aggregate_type}}, {{aggregate_id}} and {{tenant}}"
    )]
    RoutingKey,
    /// A certificate to trust is none.
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
