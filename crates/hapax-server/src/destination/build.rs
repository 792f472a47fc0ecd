//! Construction of sinks.
//!
//! No connection is opened here: the relay also starts if a receiver is down. If this build does
//! not include a kind of sink, the error names the missing feature.

use std::sync::Arc;

use hapax::{Clock, limits::OFFER, sink};
#[cfg(feature = "amqp")]
use hapax_sinks::amqp::Amqp;
#[cfg(feature = "kafka")]
use hapax_sinks::kafka::Kafka;
#[cfg(feature = "nats")]
use hapax_sinks::nats::Nats;
#[cfg(feature = "postgres")]
use hapax_sinks::postgres::Postgres;
#[cfg(feature = "redis")]
use hapax_sinks::redis::Redis;
use hapax_sinks::{
    file::JsonLines,
    settings::{DestinationSettings, SettingError},
    smtp::Smtp,
    webhook::{Blocked, Webhook, WebhookSettings},
};

use super::{SpecError, sinks::Sink, spec::Spec};

type Built = Result<Arc<dyn sink::Sink>, SettingError>;

/// Builds the sink of a destination.
pub(crate) fn sink(spec: &Spec, clock: &Clock) -> Result<Arc<dyn sink::Sink>, SpecError> {
    // The timeout of the relay, which applies whatever the sink does, is a little longer.
    let destination = DestinationSettings {
        timeout: spec.timeout.map_or(OFFER, |span| span.0),
        ..DestinationSettings::new(&spec.source)
    };
    let built = match &spec.sink {
        Sink::Webhook(settings) => webhook(settings, destination, clock),
        Sink::Smtp(settings) => shared(Smtp::new(settings, destination)),
        Sink::File(settings) => shared(JsonLines::new(settings, &destination)),
        #[cfg(feature = "nats")]
        Sink::Nats(settings) => shared(Nats::new(settings, destination)),
        #[cfg(feature = "amqp")]
        Sink::Amqp(settings) => shared(Amqp::new(settings, destination)),
        #[cfg(feature = "kafka")]
        Sink::Kafka(settings) => shared(Kafka::new(settings, destination)),
        #[cfg(feature = "redis")]
        Sink::Redis(settings) => shared(Redis::new(settings, destination)),
        #[cfg(feature = "postgres")]
        Sink::Postgres(settings) => shared(Postgres::new(settings, destination)),
        #[cfg(not(all(
            feature = "nats",
            feature = "amqp",
            feature = "kafka",
            feature = "redis",
            feature = "postgres"
        )))]
        absent => {
            let kind = absent.kind();
            let problem =
                format!("is not in this build: build hapax-server with the feature {kind:?}");
            return Err(SpecError::new(format!("sink.{kind}"), problem));
        }
    };
    built.map_err(|error| SpecError::new(path(spec, &error), error.problem))
}

/// Why the network guard blocks the webhook, if the URL alone determines that.
pub(crate) fn blocked(spec: &Spec, clock: &Clock) -> Option<Blocked> {
    let Sink::Webhook(settings) = &spec.sink else {
        return None;
    };
    let webhook = Webhook::new(settings, DestinationSettings::default(), clock.clone());
    webhook.ok()?.refusal()
}

fn webhook(settings: &WebhookSettings, destination: DestinationSettings, clock: &Clock) -> Built {
    let webhook = Webhook::new(settings, destination, clock.clone())?;
    if let Some(blocked) = webhook.refusal() {
        tracing::warn!(%blocked, "a webhook will send nothing: see its setting allow");
    }
    Ok(Arc::new(webhook))
}

fn shared(built: Result<impl sink::Sink + 'static, SettingError>) -> Built {
    Ok(Arc::new(built?))
}

/// The path of a setting in the declaration. The source is a setting of the destination.
fn path(spec: &Spec, error: &SettingError) -> String {
    match error.setting.as_str() {
        "source" => "source".to_owned(),
        setting => format!("sink.{}.{setting}", spec.sink.kind()),
    }
}
