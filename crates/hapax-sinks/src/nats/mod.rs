//! NATS JetStream sink: publishes events, each acknowledged by the stream that stores it.
//!
//! A batch is published as a whole, then the acknowledgement of each event is awaited.
//! `Nats-Msg-Id` is the event id: within the duplicate window of the stream, JetStream drops
//! messages that it already has. After a connection is lost, the next batch opens a new one, and
//! the relay delivers events without a response again.
//!
//! ```
//! use hapax_sinks::nats::{Nats, NatsError};
//!
//! # fn wire() -> Result<Nats, NatsError> {
//! let nats = Nats::to("nats://nats.example.com:4222")
//!     .subject("events.{type}")
//!     .source("/shop")
//!     .build()?;
//! # Ok(nats)
//! # }
//! ```

use std::{fmt, time::Duration};

use futures_util::future::BoxFuture;
use hapax::sink::{Offer, Outcome, Sink, SinkError};
use tokio::time::{Instant, timeout_at};

use crate::{format::Format, limits::NATS_BATCH, nats::link::Links, pattern::Pattern};

mod builder;
mod subject;
mod message;
mod link;
mod batch;
mod answer;

pub use builder::{NatsBuilder, NatsError};

/// A NATS JetStream sink.
pub struct Nats {
    links: Links,
    subject: Pattern,
    format: Format,
    source: String,
    timeout: Duration,
}

impl Nats {
    /// Starts the builder of a sink for the servers at these addresses, separated by commas.
    pub fn to(servers: impl Into<String>) -> NatsBuilder {
        NatsBuilder::new(servers.into())
    }

    async fn offer(&self, offers: &[Offer], deadline: Instant) -> Vec<Outcome> {
        let link = match timeout_at(deadline, self.links.get()).await {
            Ok(Ok(link)) => link,
            Ok(Err(failure)) => return all(offers, || failure.clone().into()),
            Err(_) => return all(offers, || answer::Failure::Connecting.into()),
        };
        let is_fixed = self.subject.is_fixed();
        let mut batch = batch::Batch::open(&link, offers.len(), is_fixed, deadline);
        if let Err(failure) = batch.listen().await {
            return all(offers, || failure.clone().into());
        }
        for (index, offer) in offers.iter().enumerate() {
            match message::write(offer, &self.subject, self.format, &self.source) {
                Ok(message) => batch.publish(index, message).await,
                Err(refusal) => batch.answer(index, Err(refusal.into())),
            }
        }
        batch.outcomes().await
    }
}

impl Sink for Nats {
    fn kind(&self) -> &'static str {
        "nats"
    }

    fn deliver<'a>(&'a self, offers: &'a [Offer]) -> BoxFuture<'a, Vec<Outcome>> {
        Box::pin(async move {
            let deadline = Instant::now() + self.timeout;
            let mut outcomes = Vec::with_capacity(offers.len());
            // Unread responses are buffered up to a limit; responses beyond it are lost.
            for batch in offers.chunks(NATS_BATCH) {
                outcomes.append(&mut self.offer(batch, deadline).await);
            }
            outcomes
        })
    }

    fn batch_max(&self) -> usize {
        NATS_BATCH
    }
}

impl fmt::Debug for Nats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nats")
            .field("servers", &self.links)
            .field("subject", &self.subject)
            .field("format", &self.format)
            .finish_non_exhaustive()
    }
}

fn all(offers: &[Offer], failure: impl Fn() -> SinkError) -> Vec<Outcome> {
    offers.iter().map(|_| Err(failure())).collect()
}
