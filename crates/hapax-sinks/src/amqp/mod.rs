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
//! use hapax_sinks::{
//!     amqp::{Amqp, AmqpSettings},
//!     settings::{DestinationSettings, SettingError},
//! };
//!
//! # fn wire() -> Result<Amqp, SettingError> {
//! let settings = AmqpSettings {
//!     url: "amqps://shop:secret@rabbit.example.com/shop".into(),
//!     exchange: "events".into(),
//!     routing_key: Some("{aggregate_type}.{type}".into()),
//!     ..AmqpSettings::default()
//! };
//! Amqp::new(&settings, DestinationSettings::new("/shop"))
//! # }
//! ```

use std::{fmt, time::Duration};

use futures_util::future::BoxFuture;
use hapax::sink::{Offer, Outcome, Receipt, Sink};
use lapin::types::ShortString;
use secrecy::ExposeSecret as _;
use tokio::time::{Instant, timeout_at};

pub use crate::settings::AmqpSettings;
use crate::{
    connection::{Connection as _, Current},
    format::Format,
    limits::{AMQP_BATCH, AMQP_CHANNELS_LOST_MAX},
    pattern::Pattern,
    resolve::Resolver,
    settings::{DestinationSettings, SettingError, reveal},
    tls,
};

mod server;
mod message;
mod link;
mod pipeline;
mod failure;

use failure::Failure;
use link::Link;
use message::{Layout, Message};
use pipeline::Pipeline;
use server::Server;

/// An exchange of a RabbitMQ broker.
pub struct Amqp {
    server: Server,
    layout: Layout,
    timeout: Duration,
    resolver: Resolver,
    link: Current<Link>,
}

/// The events of one call with their outcomes so far.
struct Batch {
    messages: Vec<Option<Message>>,
    outcomes: Vec<Option<Outcome>>,
}

impl Amqp {
    /// Creates a sink. It connects when it has something to deliver.
    ///
    /// # Errors
    /// Fails if a setting is not valid.
    pub fn new(
        settings: &AmqpSettings,
        destination: DestinationSettings,
    ) -> Result<Self, SettingError> {
        let url = reveal("url", &settings.url)?;
        let mut server = Server::parse(url.expose_secret()).ok_or_else(|| {
            let expected = "is not amqp://[user:password@]host[:port][/vhost] or amqps://...";
            SettingError::new("url", expected)
        })?;
        let (_, ca) = tls::read(settings.ca.as_deref())?;
        let ca = String::from_utf8(ca).map_err(|_| tls::not_valid())?;
        server.roots = Some(ca).filter(|ca| !ca.is_empty());
        if settings.format != Format::Raw && destination.source.is_empty() {
            return Err(SettingError::new(
                "source",
                "is empty: CloudEvents require it",
            ));
        }
        let exchange = ShortString::try_new(settings.exchange.clone());
        let routing_key = settings.routing_key.as_deref().unwrap_or("{type}");
        Ok(Self {
            server,
            layout: Layout {
                source: destination.source,
                exchange: exchange
                    .map_err(|_| SettingError::new("exchange", "is longer than 255 bytes"))?,
                routing_key: Pattern::of_setting("routing_key", routing_key)?,
                format: settings.format,
            },
            timeout: destination.timeout,
            resolver: destination.resolver,
            link: Current::default(),
        })
    }

    /// Publishes the events without an outcome. Events that were cut off by the refusal of another
    /// one are then published again one by one.
    async fn publish(&self, batch: &mut Batch, deadline: Instant) {
        let open = batch.open();
        let Some(failure) = self.send_pipelined(batch, &open, deadline).await else {
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
            let failed = self.send_pipelined(batch, &[index], deadline).await;
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
    async fn send_pipelined(
        &self,
        batch: &mut Batch,
        open: &[usize],
        deadline: Instant,
    ) -> Option<Failure> {
        let link = match timeout_at(deadline, self.link.get(self.connect())).await {
            Ok(Ok(link)) => link,
            Ok(Err(failure)) => return Some(failure),
            Err(elapsed) => return Some(Failure::not_connected(elapsed)),
        };
        let channel = match timeout_at(deadline, link.channel()).await {
            Ok(Ok(channel)) => channel,
            Ok(Err(failure)) => return Some(failure),
            Err(_) => {
                link.discard();
                return Some(Failure::Timeout);
            }
        };
        let Batch { messages, outcomes } = batch;
        let mut pipeline = Pipeline::new(&link, &channel, deadline);
        for index in open {
            let Some(message) = &messages[*index] else {
                continue;
            };
            if let Err(rejection) = pipeline
                .publish(*index, message, &self.layout.exchange)
                .await
            {
                outcomes[*index] = Some(Err(rejection));
            }
        }
        let failure = pipeline.finish(outcomes).await;
        if failure.is_none() {
            link.put_back(channel);
        }
        failure
    }

    async fn connect(&self) -> Result<Link, Failure> {
        // The driver would look the name up on a shared thread and block it.
        let found = self.resolver.look_up(self.server.host()).await;
        found.map_err(Failure::Resolve)?;
        Link::open(&self.server, self.timeout).await
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_that_can_never_work_is_refused_by_name() {
        let good = AmqpSettings {
            url: "amqp://h".into(),
            ..AmqpSettings::default()
        };
        let sink = |settings| Amqp::new(&settings, DestinationSettings::new("/s"));
        assert!(sink(good.clone()).is_ok());
        let refused = |change: fn(&mut AmqpSettings)| {
            let mut settings = good.clone();
            change(&mut settings);
            sink(settings).unwrap_err().setting
        };
        assert_eq!(refused(|it| it.url = "h".into()), "url");
        assert_eq!(refused(|it| it.exchange = "x".repeat(256)), "exchange");
        assert_eq!(
            refused(|it| it.routing_key = Some("{id}".into())),
            "routing_key"
        );
        assert_eq!(refused(|it| it.ca = Some("src/lib.rs".into())), "ca");
        let error = Amqp::new(&good, DestinationSettings::new("")).unwrap_err();
        assert_eq!(error.setting, "source");
    }

    #[test]
    fn debug_shows_no_password() {
        let settings = |url: &str| AmqpSettings {
            url: url.into(),
            ..AmqpSettings::default()
        };
        let good = settings("amqp://user:secret@h/v");
        let sink = Amqp::new(&good, DestinationSettings::default());
        let text = format!("{good:?} {:?}", sink.unwrap());
        assert!(!text.contains("secret") && !text.contains("user"), "{text}");
        let bad = settings("amqp://user:secret@h:x/v");
        let error = Amqp::new(&bad, DestinationSettings::default()).unwrap_err();
        assert!(!error.to_string().contains("secret"), "{error}");
    }
}
