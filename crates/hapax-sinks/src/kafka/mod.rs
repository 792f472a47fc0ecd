//! Kafka sink: produces events, each acknowledged by all in-sync replicas.
//!
//! A batch is passed to the producer at once, then its acknowledgements are awaited. The producer
//! is idempotent, and the properties for that cannot be changed. The key of a record is the
//! aggregate id, so that all events of an aggregate are in one partition and in order. A record has
//! the event id in a header, by which consumers deduplicate.
//!
//! The client connects and reconnects by itself. A client that has failed permanently is replaced.
//! An event for which the time did not suffice is unavailable and may have arrived. It is delivered
//! again.
//!
//! ```
//! use hapax_sinks::{
//!     kafka::{Kafka, KafkaSettings},
//!     settings::{DestinationSettings, SettingError},
//! };
//!
//! # fn wire() -> Result<Kafka, SettingError> {
//! let settings = KafkaSettings {
//!     brokers: vec!["kafka-1:9092".into(), "kafka-2:9092".into()],
//!     topic: "shop.{aggregate_type}".into(),
//!     ..KafkaSettings::default()
//! };
//! Kafka::new(&settings, DestinationSettings::new("/shop"))
//! # }
//! ```

use std::{
    fmt,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use futures_util::future::BoxFuture;
use hapax::sink::{Offer, Outcome, Sink, SinkError};
use tokio::time::Instant;

pub use crate::settings::KafkaSettings;
use crate::{
    format::Format,
    limits::KAFKA_BATCH,
    pattern::Pattern,
    settings::{DestinationSettings, SettingError},
};

mod record;
mod client;
mod pipeline;
mod failure;

use client::{Client, Properties};
use failure::Failure;
use record::{Layout, Record, is_topic};

/// A Kafka sink.
pub struct Kafka {
    properties: Properties,
    layout: Layout,
    timeout: Duration,
    /// The producer of batches.
    many: Mutex<Option<Client>>,
    /// The producer that sends each record in its own request; created when it is needed.
    alone: Mutex<Option<Client>>,
}

impl Kafka {
    /// Creates a sink. It connects when it has something to deliver.
    ///
    /// # Errors
    /// Fails if a setting is not valid. The client itself parses the properties, so one that it
    /// does not know, or that this build does not support (TLS, SCRAM, Kerberos), is refused here.
    pub fn new(
        settings: &KafkaSettings,
        destination: DestinationSettings,
    ) -> Result<Self, SettingError> {
        if settings.format != Format::Raw && destination.source.is_empty() {
            return Err(SettingError::new(
                "source",
                "is empty: CloudEvents require it",
            ));
        }
        let topic = Pattern::of_setting("topic", &settings.topic)?;
        if !is_topic(&topic.sample()) {
            let problem = "must consist of a-z, A-Z, 0-9, `.`, `_`, `-` and placeholders";
            return Err(SettingError::new("topic", problem));
        }
        Ok(Self {
            properties: Properties::new(settings, destination.timeout)?,
            layout: Layout {
                source: destination.source,
                topic,
                format: settings.format,
            },
            timeout: destination.timeout,
            many: Mutex::default(),
            alone: Mutex::default(),
        })
    }

    /// Produces all records. Those that may have been refused because of another record are
    /// produced again, each in its own request.
    async fn produce(&self, records: &[Option<Record>], outcomes: &mut [Option<Outcome>]) {
        let deadline = Instant::now() + self.timeout;
        let client = match self.client(&self.many, false) {
            Ok(client) => client,
            Err(failure) => return fail(outcomes, &failure),
        };
        let open = open(outcomes);
        let suspects = pipeline::send(&client, records, &open, outcomes, deadline).await;
        let mut is_heard = false;
        for index in suspects {
            if Instant::now() >= deadline {
                // The record would be sent without anything waiting for its acknowledgement.
                if is_heard {
                    fail(outcomes, &Failure::CutOff);
                }
                return;
            }
            let client = match self.client(&self.alone, true) {
                Ok(client) => client,
                Err(failure) => return fail(outcomes, &failure),
            };
            pipeline::send(&client, records, &[index], outcomes, deadline).await;
            is_heard |= !matches!(outcomes[index], Some(Err(SinkError::Unavailable { .. })));
        }
    }

    /// The current client, or a new one if it has failed permanently.
    fn client(&self, place: &Mutex<Option<Client>>, is_alone: bool) -> Result<Client, Failure> {
        let mut place = place.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = &*place
            && client.is_sound()
        {
            return Ok(client.clone());
        }
        let client = Client::new(&self.properties, is_alone)?;
        if let Some(old) = place.replace(client.clone()) {
            // Dropping it waits for its thread.
            drop(tokio::task::spawn_blocking(move || drop(old)));
        }
        Ok(client)
    }
}

impl Sink for Kafka {
    fn kind(&self) -> &'static str {
        "kafka"
    }

    fn deliver<'a>(&'a self, offers: &'a [Offer]) -> BoxFuture<'a, Vec<Outcome>> {
        Box::pin(async move {
            let mut records = Vec::with_capacity(offers.len());
            let mut outcomes = Vec::with_capacity(offers.len());
            for offer in offers {
                let (record, outcome) = match self.layout.write(offer) {
                    Ok(record) => (Some(record), None),
                    Err(rejection) => (None, Some(Err(rejection))),
                };
                records.push(record);
                outcomes.push(outcome);
            }
            self.produce(&records, &mut outcomes).await;
            let missing =
                || SinkError::unavailable("timeout", "the record was not sent before the timeout");
            let outcomes = outcomes.into_iter();
            outcomes
                .map(|outcome| outcome.unwrap_or_else(|| Err(missing())))
                .collect()
        })
    }

    fn batch_max(&self) -> usize {
        KAFKA_BATCH
    }
}

impl fmt::Debug for Kafka {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kafka")
            .field("properties", &self.properties)
            .finish_non_exhaustive()
    }
}

fn open(outcomes: &[Option<Outcome>]) -> Vec<usize> {
    let places = outcomes.iter().enumerate();
    let open = places.filter(|(_, outcome)| outcome.is_none());
    open.map(|(index, _)| index).collect()
}

fn fail(outcomes: &mut [Option<Outcome>], failure: &Failure) {
    for outcome in outcomes.iter_mut().filter(|outcome| outcome.is_none()) {
        *outcome = Some(Err(failure.clone().into()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_that_can_never_work_is_refused_by_name() {
        assert!(sink(&good()).is_ok());
        let error = Kafka::new(&good(), DestinationSettings::new("")).unwrap_err();
        assert_eq!(error.setting, "source");
        check("brokers", |it| it.brokers = vec![" ".to_owned()]);
        for topic in ["", "{id}", "a b", "..", &"x".repeat(250)] {
            check("topic", |it| it.topic = topic.to_owned());
        }
        for (name, value) in [
            ("partitioner", "random"),
            ("acks", "1"),
            ("delivery.report.only.error", "1"),
            ("enable.idempotence", "1"),
            ("transactional.id", "1"),
            ("no.such.setting", "1"),
            ("linger.ms", "soon"),
        ] {
            let path = format!("properties.{name}");
            check(&path, |it| {
                it.properties = [(name.to_owned(), value.into())].into();
            });
        }
        assert!(sink(&with(&[("partitioner", "consistent_random")])).is_ok());
    }

    #[test]
    fn what_this_build_has_no_part_for_is_refused_at_start() {
        let login = |mechanism| {
            with(&[
                ("security.protocol", "sasl_plaintext"),
                ("sasl.username", "u"),
                ("sasl.password", "s3cret"),
                ("sasl.mechanism", mechanism),
            ])
        };
        assert!(sink(&login("PLAIN")).is_ok());
        for settings in [
            with(&[("security.protocol", "ssl")]),
            login("SCRAM-SHA-512"),
            login("GSSAPI"),
        ] {
            let error = sink(&settings).unwrap_err();
            assert!(!error.to_string().contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn debug_shows_no_password() {
        let settings = with(&[("sasl.password", "s3cret")]);
        let text = format!("{settings:?} {:?}", sink(&settings).unwrap());
        assert!(!text.contains("s3cret"), "{text}");
        assert!(text.contains("sasl.password"), "{text}");
    }

    fn good() -> KafkaSettings {
        KafkaSettings {
            brokers: vec!["h:9092".to_owned()],
            topic: "{type}".to_owned(),
            ..KafkaSettings::default()
        }
    }

    fn with(properties: &[(&str, &str)]) -> KafkaSettings {
        let properties = properties.iter();
        KafkaSettings {
            properties: properties
                .map(|(name, value)| ((*name).to_owned(), (*value).into()))
                .collect(),
            ..good()
        }
    }

    fn sink(settings: &KafkaSettings) -> Result<Kafka, SettingError> {
        Kafka::new(settings, DestinationSettings::new("/s"))
    }

    #[track_caller]
    fn check(setting: &str, change: impl FnOnce(&mut KafkaSettings)) {
        let mut settings = good();
        change(&mut settings);
        assert_eq!(sink(&settings).unwrap_err().setting, setting);
    }
}
