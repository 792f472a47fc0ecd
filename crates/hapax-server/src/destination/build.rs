//! Construction of sinks.
//!
//! No connection is opened here: the relay also starts if a receiver is down. If this build does
//! not include a kind of sink, the error names the missing feature.

use std::{path::Path, sync::Arc, time::Duration};

use hapax::{Clock, Timestamp, signature::Signer, sink};
use hapax_sinks::{file::JsonLines, smtp, webhook};
use secrecy::ExposeSecret as _;

use super::{
    SpecError,
    sinks::{self, Sink},
    spec::Spec,
};
use crate::{config::Secret, environment::error_chain};

/// The input of all sinks.
struct Common<'a> {
    spec: &'a Spec,
    clock: &'a Clock,
}

/// Builds the sink of a destination.
pub(crate) fn sink(spec: &Spec, clock: &Clock) -> Result<Arc<dyn sink::Sink>, SpecError> {
    let common = Common { spec, clock };
    match &spec.sink {
        Sink::Webhook(settings) => common.webhook(settings),
        Sink::Smtp(settings) => common.smtp(settings),
        Sink::File(settings) => common.file(settings),
        #[cfg(feature = "nats")]
        Sink::Nats(settings) => common.nats(settings),
        #[cfg(feature = "amqp")]
        Sink::Amqp(settings) => common.amqp(settings),
        #[cfg(feature = "kafka")]
        Sink::Kafka(settings) => common.kafka(settings),
        #[cfg(feature = "redis")]
        Sink::Redis(settings) => common.redis(settings),
        #[cfg(feature = "postgres")]
        Sink::Postgres(settings) => common.postgres(settings),
        #[cfg(not(all(
            feature = "nats",
            feature = "amqp",
            feature = "kafka",
            feature = "redis",
            feature = "postgres"
        )))]
        sink => Err(absent(sink.kind())),
    }
}

#[cfg(not(all(
    feature = "nats",
    feature = "amqp",
    feature = "kafka",
    feature = "redis",
    feature = "postgres"
)))]
fn absent(kind: &str) -> SpecError {
    let problem = format!("is not in this build: build hapax-server with the feature {kind:?}");
    SpecError {
        field: format!("sink.{kind}"),
        problem,
    }
}

/// Why the network guard blocks the webhook, if the URL alone determines that.
pub(crate) fn blocked(spec: &Spec, clock: &Clock) -> Option<webhook::Blocked> {
    let Sink::Webhook(settings) = &spec.sink else {
        return None;
    };
    let secret = settings.secret.reveal().ok()?;
    let signer = secret.expose_secret().parse().ok()?;
    let built = webhook::Webhook::to(&settings.url)
        .sign_with(signer)
        .allow(settings.allow.iter().copied())
        .build(clock.clone());
    built.ok()?.refusal()
}

impl Common<'_> {
    fn webhook(&self, settings: &sinks::Webhook) -> Result<Arc<dyn sink::Sink>, SpecError> {
        let mut builder = webhook::Webhook::to(&settings.url)
            .sign_with(self.signer("secret", &settings.secret)?)
            .allow(settings.allow.iter().copied());
        match (&settings.previous_secret, settings.previous_until) {
            (Some(secret), Some(until)) => {
                let signer = self.signer("previous_secret", secret)?;
                let until = Timestamp::from_millis(until.as_millisecond());
                builder = builder.sign_until(until, signer);
            }
            (None, None) => {}
            _ => return Err(self.wrong("previous_secret", "requires previous_until")),
        }
        if let Some(certificates) = self.certificates(settings.ca.as_deref())? {
            builder = builder.trust(certificates);
        }
        if let Some(timeout) = self.timeout() {
            builder = builder.timeout(timeout);
        }
        let webhook = builder
            .build(self.clock.clone())
            .map_err(|error| self.unusable(&error))?;
        if let Some(blocked) = webhook.refusal() {
            tracing::warn!(%blocked, "a webhook will send nothing: see its setting allow");
        }
        Ok(Arc::new(webhook))
    }

    fn smtp(&self, settings: &sinks::Smtp) -> Result<Arc<dyn sink::Sink>, SpecError> {
        let mut builder = smtp::Smtp::to(self.secret("url", &settings.url)?)
            .from(&settings.from)
            .recipient(&settings.recipient)
            .templates(&settings.templates);
        for (kind, name) in &settings.mails {
            builder = builder.mail(kind, name);
        }
        if let Some(certificates) = self.certificates(settings.ca.as_deref())? {
            builder = builder.trust(certificates);
        }
        if let Some(timeout) = self.timeout() {
            builder = builder.timeout(timeout);
        }
        let smtp = builder.build().map_err(|error| self.unusable(&error))?;
        Ok(Arc::new(smtp))
    }

    fn file(&self, settings: &sinks::File) -> Result<Arc<dyn sink::Sink>, SpecError> {
        let source = &self.spec.source;
        if settings.path == Path::new("-") {
            return Ok(Arc::new(JsonLines::stdout(source)));
        }
        let opened = JsonLines::open(&settings.path, source);
        let shown = settings.path.display();
        let lines = opened
            .map_err(|error| self.wrong("path", &format!("{shown} cannot be used: {error}")))?;
        Ok(Arc::new(lines))
    }

    #[cfg(feature = "nats")]
    fn nats(&self, settings: &sinks::Nats) -> Result<Arc<dyn sink::Sink>, SpecError> {
        let mut builder = hapax_sinks::nats::Nats::to(self.secret("url", &settings.url)?)
            .format(settings.format.into())
            .source(&self.spec.source);
        if let Some(subject) = &settings.subject {
            builder = builder.subject(subject);
        }
        match (&settings.user, &settings.password) {
            (Some(user), Some(password)) => {
                builder = builder.user(user, self.secret("password", password)?);
            }
            (None, None) => {}
            _ => return Err(self.wrong("user", "requires password")),
        }
        if let Some(token) = &settings.token {
            builder = builder.token(self.secret("token", token)?);
        }
        if let Some(certificates) = self.certificates(settings.ca.as_deref())? {
            builder = builder.trust(certificates);
        }
        if let Some(timeout) = self.timeout() {
            builder = builder.timeout(timeout);
        }
        Ok(Arc::new(
            builder.build().map_err(|error| self.unusable(&error))?,
        ))
    }

    #[cfg(feature = "postgres")]
    fn postgres(&self, settings: &sinks::Postgres) -> Result<Arc<dyn sink::Sink>, SpecError> {
        let mut builder = hapax_sinks::postgres::Postgres::to(self.secret("url", &settings.url)?)
            .consumer(&settings.consumer)
            .table(&settings.table)
            .source(&self.spec.source);
        for (field, column) in &settings.columns {
            builder = builder.column((*field).into(), column);
        }
        for field in &settings.without {
            builder = builder.without((*field).into());
        }
        if let Some(certificates) = self.certificates(settings.ca.as_deref())? {
            builder = builder.trust(certificates);
        }
        if let Some(timeout) = self.timeout() {
            builder = builder.timeout(timeout);
        }
        Ok(Arc::new(
            builder.build().map_err(|error| self.unusable(&error))?,
        ))
    }

    #[cfg(feature = "amqp")]
    fn amqp(&self, settings: &sinks::Amqp) -> Result<Arc<dyn sink::Sink>, SpecError> {
        let mut builder = hapax_sinks::amqp::Amqp::to(self.secret("url", &settings.url)?)
            .exchange(&settings.exchange)
            .format(settings.format.into())
            .source(&self.spec.source);
        if let Some(key) = &settings.routing_key {
            builder = builder.routing_key(key);
        }
        if let Some(certificates) = self.certificates(settings.ca.as_deref())? {
            let text = String::from_utf8(certificates);
            builder = builder.trust(text.map_err(|_| self.wrong("ca", "is not PEM"))?);
        }
        if let Some(timeout) = self.timeout() {
            builder = builder.timeout(timeout);
        }
        Ok(Arc::new(
            builder.build().map_err(|error| self.unusable(&error))?,
        ))
    }

    #[cfg(feature = "kafka")]
    fn kafka(&self, settings: &sinks::Kafka) -> Result<Arc<dyn sink::Sink>, SpecError> {
        let mut builder = hapax_sinks::kafka::Kafka::to(settings.brokers.join(","))
            .topic(&settings.topic)
            .format(settings.format.into())
            .source(&self.spec.source);
        for (name, value) in &settings.properties {
            let value = self.secret(&format!("properties.{name}"), value)?;
            builder = builder.set(name, value);
        }
        if let Some(timeout) = self.timeout() {
            builder = builder.timeout(timeout);
        }
        Ok(Arc::new(
            builder.build().map_err(|error| self.unusable(&error))?,
        ))
    }

    #[cfg(feature = "redis")]
    fn redis(&self, settings: &sinks::Redis) -> Result<Arc<dyn sink::Sink>, SpecError> {
        let mut builder = hapax_sinks::redis::Redis::to(self.secret("url", &settings.url)?)
            .format(settings.format.into())
            .source(&self.spec.source);
        if let Some(stream) = &settings.stream {
            builder = builder.stream(stream);
        }
        if let Some(entries) = settings.length_max {
            builder = builder.length_max(entries);
        }
        if let Some(certificates) = self.certificates(settings.ca.as_deref())? {
            builder = builder.trust(certificates);
        }
        if let Some(timeout) = self.timeout() {
            builder = builder.timeout(timeout);
        }
        Ok(Arc::new(
            builder.build().map_err(|error| self.unusable(&error))?,
        ))
    }

    fn signer(&self, setting: &str, secret: &Secret) -> Result<Signer, SpecError> {
        let text = self.secret(setting, secret)?;
        let signer = text.parse::<Signer>();
        signer
            .map_err(|error| self.wrong(setting, &format!("is not valid: {}", error_chain(&error))))
    }

    fn secret(&self, setting: &str, secret: &Secret) -> Result<String, SpecError> {
        let text = secret
            .reveal()
            .map_err(|problem| self.wrong(setting, &problem))?;
        Ok(text.expose_secret().to_owned())
    }

    fn certificates(&self, path: Option<&Path>) -> Result<Option<Vec<u8>>, SpecError> {
        let read = path.map(std::fs::read).transpose();
        read.map_err(|error| self.wrong("ca", &format!("cannot be read: {error}")))
    }

    /// The timeout of the sink. The timeout of the relay, which applies whatever the sink does, is
    /// a little longer.
    fn timeout(&self) -> Option<Duration> {
        self.spec.timeout.map(|span| span.0)
    }

    fn wrong(&self, setting: &str, problem: &str) -> SpecError {
        SpecError {
            field: format!("sink.{}.{setting}", self.spec.sink.kind()),
            problem: problem.to_owned(),
        }
    }

    fn unusable(&self, error: &dyn std::error::Error) -> SpecError {
        SpecError {
            field: format!("sink.{}", self.spec.sink.kind()),
            problem: format!("cannot be used: {}", error_chain(error)),
        }
    }
}

impl From<sinks::Format> for hapax_sinks::format::Format {
    fn from(format: sinks::Format) -> Self {
        match format {
            sinks::Format::Binary => Self::Binary,
            sinks::Format::Structured => Self::Structured,
            sinks::Format::Raw => Self::Raw,
        }
    }
}

#[cfg(feature = "postgres")]
impl From<sinks::Field> for hapax_sinks::postgres::Field {
    fn from(field: sinks::Field) -> Self {
        match field {
            sinks::Field::EventId => Self::EventId,
            sinks::Field::Type => Self::Type,
            sinks::Field::Tenant => Self::Tenant,
            sinks::Field::AggregateType => Self::AggregateType,
            sinks::Field::AggregateId => Self::AggregateId,
            sinks::Field::Sequence => Self::Sequence,
            sinks::Field::Payload => Self::Payload,
            sinks::Field::Headers => Self::Headers,
            sinks::Field::CreatedAt => Self::CreatedAt,
        }
    }
}
