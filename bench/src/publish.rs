//! Publishes to a broker, with its client alone or with the sink that uses the client.
//!
//! Both publish the same payloads under the same ids, a thousand at a time, and wait for every
//! acknowledgement before the next thousand. The durable queue or stream is created again before,
//! and must contain every event at the end. The command prints the seconds that it took.

mod nats;
mod amqp;

use std::{sync::Arc, time::Instant};

use anyhow::{Context as _, anyhow, ensure};
use hapax::{
    Timestamp,
    event::{Event, Headers},
    outbox::OutboxEvent,
    sink::{Offer, Sink},
};

use crate::{relay::event, sources::now};

/// Messages that are published before waiting for the first acknowledgement.
const BATCH: usize = 1_000;
/// The name of the subject and of the queue.
const PLACE: &str = "bench";

/// Publishes to a broker.
#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    /// The broker
    broker: Broker,
    /// How to publish
    through: Through,
    /// URL of the broker
    #[arg(long, value_name = "URL")]
    to: String,
    /// Number of messages
    #[arg(long, default_value_t = 100_000)]
    events: u64,
}

/// A broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Broker {
    /// NATS JetStream, a stream in files
    Nats,
    /// RabbitMQ, a durable queue
    Amqp,
}

/// How to publish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Through {
    /// With the client of the broker alone
    Bare,
    /// With the sink
    Sink,
    /// Publishes nothing, only creates the queue or stream again
    Anew,
    /// Publishes nothing, only checks that the queue or stream contains every event
    Look,
}

impl Broker {
    /// The sink of this broker.
    pub(crate) fn sink(self, to: &str) -> anyhow::Result<Arc<dyn Sink>> {
        match self {
            Self::Nats => nats::sink(to),
            Self::Amqp => amqp::sink(to),
        }
    }

    async fn anew(self, to: &str) -> anyhow::Result<()> {
        match self {
            Self::Nats => nats::anew(to).await,
            Self::Amqp => amqp::anew(to).await,
        }
    }

    async fn count(self, to: &str) -> anyhow::Result<u64> {
        match self {
            Self::Nats => nats::count(to).await,
            Self::Amqp => amqp::count(to).await,
        }
    }
}

impl Flags {
    /// Runs the part and returns the text to print.
    pub(crate) async fn run(self) -> anyhow::Result<String> {
        let Self {
            broker, to, events, ..
        } = self;
        if self.through != Through::Look {
            broker.anew(&to).await?;
        }
        let start = Instant::now();
        match (self.through, broker) {
            (Through::Bare, Broker::Nats) => nats::publish(&to, events).await?,
            (Through::Bare, Broker::Amqp) => amqp::publish(&to, events).await?,
            (Through::Sink, _) => deliver(&*broker.sink(&to)?, events).await?,
            (Through::Anew, _) => return Ok(String::new()),
            (Through::Look, _) => {}
        }
        let took = start.elapsed();
        let held = broker.count(&to).await?;
        ensure!(
            held == events,
            "the broker holds {held} messages of {events}"
        );
        Ok(format!("{}", took.as_secs_f64()))
    }
}

/// Delivers the events with a sink, one batch after the other.
async fn deliver(sink: &dyn Sink, events: u64) -> anyhow::Result<()> {
    let at = Timestamp::from(now());
    let mut next = 0;
    while next < events {
        let last = events.min(next + BATCH as u64);
        let offers: Vec<Offer> = (next..last)
            .map(|it| offer(it, at))
            .collect::<Result<_, _>>()?;
        for outcome in sink.deliver(&offers).await {
            outcome.map_err(|error| anyhow!("{}", error.error_chain()))?;
        }
        next = last;
    }
    Ok(())
}

fn offer(number: u64, at: Timestamp) -> anyhow::Result<Offer> {
    let new = event(number);
    let event = Event {
        id: id(number).parse().context("an event id")?,
        kind: new.kind,
        tenant: None,
        aggregate: new.aggregate,
        sequence: None,
        payload: new.payload,
        headers: Headers::new(),
        created_at: at,
        available_at: None,
    };
    let position = number.cast_signed() + 1;
    let event = Arc::new(OutboxEvent { position, event });
    Ok(Offer {
        event,
        attempt: 1,
        trace: None,
    })
}

/// An id in the format of an event id.
fn id(number: u64) -> String {
    format!("019b0000-0000-7000-8000-{number:012x}")
}

/// The ids and payloads of a batch that starts with event `first`.
fn batch(first: u64, events: u64) -> impl Iterator<Item = (String, Vec<u8>)> {
    let last = events.min(first + BATCH as u64);
    (first..last).map(|number| (id(number), event(number).payload.bytes().to_vec()))
}
