//! What a broker takes in: from its own client in batches, and from the sink that stands on it.
//!
//! Both publish the same payloads under the same ids, a thousand at a time, and wait for every
//! acknowledgement before the next thousand. The place is made anew first, durable, and holds
//! every event at the end. It prints seconds, for a program to read.

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

/// Messages that are published before the first acknowledgement is awaited.
const BATCH: usize = 1_000;
/// The subject, and the queue.
const PLACE: &str = "bench";

/// Publishes to a broker.
#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    /// Which broker
    broker: Broker,
    /// By what
    through: Through,
    /// Where it listens
    #[arg(long, value_name = "URL")]
    to: String,
    /// Messages
    #[arg(long, default_value_t = 100_000)]
    events: u64,
}

/// A broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Broker {
    /// NATS, a stream of JetStream in files
    Nats,
    /// RabbitMQ, a durable queue
    Amqp,
}

/// By what a broker is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Through {
    /// Its client alone
    Bare,
    /// The sink
    Sink,
    /// Nothing: the place is made anew
    Anew,
    /// Nothing: the place is looked at, and must hold every event
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
    /// Runs it; what it says is for a program to read.
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

/// Offers the events to a sink, one batch after the other.
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

/// An id like that of an event.
fn id(number: u64) -> String {
    format!("019b0000-0000-7000-8000-{number:012x}")
}

/// The payloads of a batch that begins with this number.
fn batch(first: u64, events: u64) -> impl Iterator<Item = (String, Vec<u8>)> {
    let last = events.min(first + BATCH as u64);
    (first..last).map(|number| (id(number), event(number).payload.bytes().to_vec()))
}
