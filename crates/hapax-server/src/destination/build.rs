//! Construction of sinks.
//!
//! No connection is opened here: the relay also starts if a receiver is down. If this build does
//! not include a kind of sink, the error names the missing feature.

use std::sync::Arc;

use hapax::{Clock, endpoint::FanOut, limits::OFFER, sink};
#[cfg(feature = "amqp")]
use hapax_sinks::amqp::Amqp;
#[cfg(feature = "kafka")]
use hapax_sinks::kafka::Kafka;
#[cfg(feature = "nats")]
use hapax_sinks::nats::Nats;
#[cfg(feature = "postgres")]
use hapax_sinks::postgres::Postgres;
#[cfg(feature = "pubsub")]
use hapax_sinks::pubsub::Pubsub;
#[cfg(feature = "redis")]
use hapax_sinks::redis::Redis;
#[cfg(feature = "s3")]
use hapax_sinks::s3::S3;
#[cfg(feature = "sns")]
use hapax_sinks::sns::Sns;
#[cfg(feature = "sqs")]
use hapax_sinks::sqs::Sqs;
use hapax_sinks::{
    file::JsonLines,
    settings::{DestinationSettings, SettingError},
    smtp::Smtp,
    webhook::{Blocked, Webhook},
};

use super::{SpecError, sinks::Sink, spec::Spec};

type Built = Result<Arc<dyn sink::Sink>, SettingError>;

/// Builds the sink of a destination.
pub(crate) fn sink(spec: &Spec, clock: &Clock) -> Result<Arc<dyn sink::Sink>, SpecError> {
    // The timeout of the relay, which applies to every sink, is a little longer.
    let destination = DestinationSettings {
        timeout: spec.timeout.map_or(OFFER, |span| span.0),
        ..DestinationSettings::new(&spec.source)
    };
    let built = match &spec.sink {
        Sink::Webhook(settings) => {
            let webhook = Webhook::new(settings, destination, clock.clone());
            guarded(webhook, Webhook::refusal)
        }
        Sink::Smtp(settings) => shared(Smtp::new(settings, destination)),
        // A relay replaces it by the sink that is bound to its store.
        Sink::Endpoints(_) => Ok(FanOut::unbound().sink()),
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
        #[cfg(feature = "s3")]
        Sink::S3(settings) => guarded(S3::new(settings, destination, clock.clone()), S3::refusal),
        #[cfg(feature = "sqs")]
        Sink::Sqs(settings) => {
            guarded(Sqs::new(settings, destination, clock.clone()), Sqs::refusal)
        }
        #[cfg(feature = "sns")]
        Sink::Sns(settings) => {
            guarded(Sns::new(settings, destination, clock.clone()), Sns::refusal)
        }
        #[cfg(feature = "pubsub")]
        Sink::Pubsub(settings) => {
            let pubsub = Pubsub::new(settings, destination, clock.clone());
            guarded(pubsub, Pubsub::refusal)
        }
        #[cfg(not(all(
            feature = "nats",
            feature = "amqp",
            feature = "kafka",
            feature = "redis",
            feature = "postgres",
            feature = "s3",
            feature = "sqs",
            feature = "sns",
            feature = "pubsub"
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

/// Why the network guard blocks the sink, if the URL alone determines that.
pub(crate) fn blocked(spec: &Spec, clock: &Clock) -> Option<Blocked> {
    let (destination, clock) = (DestinationSettings::default(), clock.clone());
    match &spec.sink {
        Sink::Webhook(settings) => Webhook::new(settings, destination, clock).ok()?.refusal(),
        #[cfg(feature = "s3")]
        Sink::S3(settings) => S3::new(settings, destination, clock).ok()?.refusal(),
        #[cfg(feature = "sqs")]
        Sink::Sqs(settings) => Sqs::new(settings, destination, clock).ok()?.refusal(),
        #[cfg(feature = "sns")]
        Sink::Sns(settings) => Sns::new(settings, destination, clock).ok()?.refusal(),
        #[cfg(feature = "pubsub")]
        Sink::Pubsub(settings) => Pubsub::new(settings, destination, clock).ok()?.refusal(),
        _ => None,
    }
}

fn guarded<S: sink::Sink>(
    built: Result<S, SettingError>,
    refusal: impl Fn(&S) -> Option<Blocked>,
) -> Built {
    let sink = built?;
    if let Some(blocked) = refusal(&sink) {
        let kind = sink.kind();
        tracing::warn!(%blocked, kind, "a sink will send nothing: see its setting allow");
    }
    Ok(Arc::new(sink))
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
