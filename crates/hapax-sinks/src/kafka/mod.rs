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
//! use hapax_sinks::kafka::{Kafka, KafkaError};
//!
//! # fn wire() -> Result<Kafka, KafkaError> {
//! Kafka::to("kafka-1:9092,kafka-2:9092")
//!     .source("/shop")
//!     .topic("shop.{aggregate_type}")
//!     .build()
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

use crate::limits::KAFKA_BATCH;

mod builder;
mod record;
mod client;
mod flight;
mod failure;

pub use builder::{KafkaBuilder, KafkaError};
use client::{Client, Settings};
use failure::Failure;
use record::{Layout, Record};

/// A Kafka sink.
pub struct Kafka {
    servers: String,
    settings: Settings,
    layout: Layout,
    timeout: Duration,
    /// The producer of batches.
    many: Mutex<Option<Client>>,
    /// The producer that sends each record in its own request; created when it is needed.
    alone: Mutex<Option<Client>>,
}

impl Kafka {
    /// Starts the builder of a sink for the cluster of these brokers: `host:port,host:port`.
    pub fn to(servers: impl Into<String>) -> KafkaBuilder {
        KafkaBuilder::new(servers.into())
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
        let suspects = flight::fly(&client, records, &open, outcomes, deadline).await;
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
            flight::fly(&client, records, &[index], outcomes, deadline).await;
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
        let client = Client::new(&self.servers, &self.settings, is_alone)?;
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
            .field("servers", &self.servers)
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
