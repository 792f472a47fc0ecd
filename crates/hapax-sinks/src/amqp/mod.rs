//! RabbitMQ sink: publishes events and waits for the broker's confirms.
//!
//! A batch is published at once, then its confirms are awaited. All messages are persistent and
//! mandatory: an event is delivered when the broker has stored it in a queue. An event for which no
//! queue is bound is returned and counts as unavailable. `message_id` is the event id, by which
//! consumers deduplicate.
//!
//! The connection is opened when it is first needed, and opened again after it is lost. While the
//! broker blocks publishers (memory, disk), deliveries are unavailable and the connection is kept.
//!
//! ```
//! use hapax_sinks::amqp::{Amqp, AmqpError};
//!
//! # fn wire() -> Result<Amqp, AmqpError> {
//! Amqp::to("amqps://shop:secret@rabbit.example.com/shop")
//!     .source("/shop")
//!     .exchange("events")
//!     .routing_key("{aggregate_type}.{type}")
//!     .build()
//! # }
//! ```

use std::{fmt, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use hapax::sink::{Offer, Outcome, Receipt, Sink};
use tokio::{
    sync::Mutex,
    time::{Instant, timeout_at},
};

use crate::{
    limits::{AMQP_BATCH, AMQP_CHANNELS_LOST_MAX},
    resolve::Resolver,
};

mod builder;
mod server;
mod message;
mod link;
mod flight;
mod failure;

pub use builder::{AmqpBuilder, AmqpError};
use failure::Failure;
use flight::Flight;
use link::Link;
use message::{Layout, Message};
use server::Server;

/// An exchange of a RabbitMQ broker.
pub struct Amqp {
    server: Server,
    layout: Layout,
    timeout: Duration,
    resolver: Resolver,
    link: Mutex<Option<Arc<Link>>>,
}

/// The events of one call with their outcomes so far.
struct Batch {
    messages: Vec<Option<Message>>,
    outcomes: Vec<Option<Outcome>>,
}

impl Amqp {
    /// Starts the builder of a sink that publishes to the broker at `url`.
    ///
    /// `amqp://user:password@host:port/vhost`, or `amqps://` for TLS. User, password and virtual
    /// host are percent-encoded.
    pub fn to(url: impl Into<String>) -> AmqpBuilder {
        AmqpBuilder::new(url.into())
    }

    /// Publishes the events without an outcome. Events that were cut off by the refusal of another
    /// one are then published again one by one.
    async fn publish(&self, batch: &mut Batch, deadline: Instant) {
        let open = batch.open();
        let Some(failure) = self.fly(batch, &open, deadline).await else {
            return;
        };
        if open.len() == 1 || !failure.concerns_one() {
            return batch.fail(&open, &failure);
        }
        let mut channels_lost = 0;
        for index in batch.open() {
            if batch.outcomes[index].is_some() {
                continue;
            }
            let failed = self.fly(batch, &[index], deadline).await;
            let Some(failure) = failed else { continue };
            channels_lost += 1;
            if !failure.concerns_one() {
                return batch.fail(&open, &failure);
            }
            batch.fail_alike(index, &failure);
            if channels_lost == AMQP_CHANNELS_LOST_MAX {
                // The broker has not decided about the later events. They are delivered again.
                return batch.fail(&open, &Failure::CutOff);
            }
        }
    }

    /// Publishes these events in one pipeline. Returns the failure that the remaining ones share.
    async fn fly(&self, batch: &mut Batch, open: &[usize], deadline: Instant) -> Option<Failure> {
        let link = match timeout_at(deadline, self.link()).await {
            Ok(Ok(link)) => link,
            Ok(Err(failure)) => return Some(failure),
            Err(elapsed) => return Some(Failure::not_connected(elapsed)),
        };
        let channel = match timeout_at(deadline, link.channel()).await {
            Ok(Ok(channel)) => channel,
            Ok(Err(failure)) => return Some(failure),
            Err(_) => {
                link.cut();
                return Some(Failure::Timeout);
            }
        };
        let Batch { messages, outcomes } = batch;
        let mut flight = Flight::new(&link, &channel, deadline);
        for index in open {
            let Some(message) = &messages[*index] else {
                continue;
            };
            if let Err(rejection) = flight.publish(*index, message, &self.layout.exchange).await {
                outcomes[*index] = Some(Err(rejection));
            }
        }
        let failure = flight.land(outcomes).await;
        if failure.is_none() {
            link.put_back(channel);
        }
        failure
    }

    /// The current connection, or a new one.
    async fn link(&self) -> Result<Arc<Link>, Failure> {
        let mut current = self.link.lock().await;
        if let Some(link) = &*current
            && link.is_alive()
        {
            return Ok(Arc::clone(link));
        }
        *current = None;
        // The driver would look the name up on a shared thread and block it.
        let found = self.resolver.look_up(self.server.host()).await;
        found.map_err(Failure::Resolve)?;
        let link = Arc::new(Link::open(&self.server, self.timeout).await?);
        *current = Some(Arc::clone(&link));
        Ok(link)
    }
}

impl Batch {
    fn of(offers: &[Offer], layout: &Layout) -> Self {
        let mut messages = Vec::with_capacity(offers.len());
        let mut outcomes = Vec::with_capacity(offers.len());
        for offer in offers {
            let written = layout.write(offer);
            let (message, outcome) = match written {
                Ok(message) => (Some(message), None),
                Err(rejection) => (None, Some(Err(rejection))),
            };
            messages.push(message);
            outcomes.push(outcome);
        }
        Self { messages, outcomes }
    }

    /// The indexes of the events that have no outcome yet.
    fn open(&self) -> Vec<usize> {
        let places = self.outcomes.iter().enumerate();
        let open = places.filter(|(_, outcome)| outcome.is_none());
        open.map(|(index, _)| index).collect()
    }

    /// Fails the event that the broker refused alone, and all others to which the same applies.
    fn fail_alike(&mut self, judged: usize, failure: &Failure) {
        let mut alike = vec![judged];
        if let Some(one) = &self.messages[judged] {
            let is_alike = |other: &Message| {
                if failure.is_for_good() {
                    other.body.len() >= one.body.len()
                } else {
                    failure.is_of_topic() && other.routing_key == one.routing_key
                }
            };
            let messages = self.messages.iter().enumerate();
            let more = messages.filter(|(_, it)| it.as_ref().is_some_and(is_alike));
            alike.extend(more.map(|(index, _)| index));
        }
        self.fail(&alike, failure);
    }

    fn fail(&mut self, open: &[usize], failure: &Failure) {
        for index in open {
            let outcome = &mut self.outcomes[*index];
            if outcome.is_none() {
                *outcome = Some(Err(failure.clone().into()));
            }
        }
    }
}

impl Sink for Amqp {
    fn kind(&self) -> &'static str {
        "amqp"
    }

    fn deliver<'a>(&'a self, offers: &'a [Offer]) -> BoxFuture<'a, Vec<Outcome>> {
        Box::pin(async move {
            let deadline = Instant::now() + self.timeout;
            let mut batch = Batch::of(offers, &self.layout);
            if !batch.open().is_empty() {
                self.publish(&mut batch, deadline).await;
            }
            let outcomes = batch.outcomes.into_iter();
            let answered = outcomes.map(|outcome| match outcome {
                Some(outcome) => outcome.map_err(|error| self.layout.blamed(error)),
                None => Err(Failure::Timeout.into()),
            });
            answered.collect()
        })
    }

    fn batch_max(&self) -> usize {
        AMQP_BATCH
    }
}

impl fmt::Debug for Amqp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Amqp")
            .field("server", &self.server)
            .field("exchange", &self.layout.exchange.as_str())
            .finish_non_exhaustive()
    }
}

/// A receipt with the broker's response.
fn receipt(status: u16, text: String) -> Receipt {
    Receipt {
        status: Some(status),
        head: text.into(),
    }
}
