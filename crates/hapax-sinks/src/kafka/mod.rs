//! Events to Kafka, each acknowledged by every replica in sync.
//!
//! A batch is handed to the producer at once and then its acknowledgements
//! are awaited. The producer is idempotent and its settings that say so cannot
//! be changed; the aggregate's id is the key, so that an aggregate's events
//! are in one partition and in order. A record carries the event's id in a
//! header, by which consumers dedupe.
//!
//! The client connects by itself and again; a client that has failed for good
//! is replaced by a new one. An event for which there was no time is
//! unavailable, and may have arrived: it is offered again.
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

/// A Kafka cluster.
pub struct Kafka {
    servers: String,
    settings: Settings,
    layout: Layout,
    timeout: Duration,
    /// The producer of whole batches.
    many: Mutex<Option<Client>>,
    /// One that sends each record in a request of its own; made when it is needed.
    alone: Mutex<Option<Client>>,
}

impl Kafka {
    /// Begins a sink that produces to the cluster of these brokers: `host:port,host:port`.
    pub fn to(servers: impl Into<String>) -> KafkaBuilder {
        KafkaBuilder::new(servers.into())
    }

    /// Produces everything, and once more by itself what a neighbour may have spoilt.
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
                // It would be sent with nobody there for its acknowledgement.
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

    /// The client of a place: the one there is, or a new one where that has failed for good.
    fn client(&self, place: &Mutex<Option<Client>>, is_alone: bool) -> Result<Client, Failure> {
        let mut place = place.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = &*place
            && client.is_sound()
        {
            return Ok(client.clone());
        }
        let client = Client::new(&self.servers, &self.settings, is_alone)?;
        if let Some(old) = place.replace(client.clone()) {
            // It waits for its thread.
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
            let missing = || SinkError::unavailable("timeout", "there was no time for it");
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
