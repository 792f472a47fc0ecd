//! NATS JetStream sink: publishes events, each acknowledged by the stream that stores it.
//!
//! A batch is published as a whole, then the acknowledgement of each event is awaited.
//! `Nats-Msg-Id` is the event id: within the duplicate window of the stream, JetStream drops
//! messages that it already has. After a connection is lost, the next batch opens a new one, and
//! the relay delivers events without a response again.
//!
//! ```
//! use hapax_sinks::{
//!     nats::{Nats, NatsSettings},
//!     settings::{DestinationSettings, SettingError},
//! };
//!
//! # fn wire() -> Result<Nats, SettingError> {
//! let settings = NatsSettings {
//!     url: "nats://nats.example.com:4222".into(),
//!     subject: Some("events.{type}".into()),
//!     ..NatsSettings::default()
//! };
//! Nats::new(&settings, DestinationSettings::new("/shop"))
//! # }
//! ```

use std::{fmt, time::Duration};

use futures_util::future::BoxFuture;
use hapax::sink::{Offer, Outcome, Sink, SinkError};
use tokio::time::{Instant, timeout_at};

pub use crate::settings::NatsSettings;
use crate::{
    connection::Current,
    format::Format,
    limits::NATS_BATCH,
    nats::link::{Link, Server},
    pattern::Pattern,
    settings::{DestinationSettings, SettingError},
};

mod subject;
mod message;
mod link;
mod batch;
mod outcome;

/// A NATS JetStream sink.
pub struct Nats {
    server: Server,
    link: Current<Link>,
    subject: Pattern,
    format: Format,
    source: String,
    timeout: Duration,
}

impl Nats {
    /// Creates a sink. It connects when it has something to deliver.
    ///
    /// # Errors
    /// Fails if a setting is not valid.
    pub fn new(
        settings: &NatsSettings,
        destination: DestinationSettings,
    ) -> Result<Self, SettingError> {
        let server = Server::new(settings, destination.resolver)?;
        let subject = settings.subject.as_deref().unwrap_or("events.{type}");
        let subject = Pattern::of_setting("subject", subject)?;
        if !subject::is_valid(&subject.sample()) {
            let problem = "is not a subject to which events can be published";
            return Err(SettingError::new("subject", problem));
        }
        Ok(Self {
            server,
            link: Current::default(),
            subject,
            format: settings.format,
            source: destination.source,
            timeout: destination.timeout,
        })
    }

    async fn offer(&self, offers: &[Offer], deadline: Instant) -> Vec<Outcome> {
        let link = match timeout_at(deadline, self.link.get(self.server.connect())).await {
            Ok(Ok(link)) => link,
            Ok(Err(failure)) => return all(offers, || failure.clone().into()),
            Err(_) => return all(offers, || outcome::Failure::Connecting.into()),
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
            .field("servers", &self.server)
            .field("subject", &self.subject)
            .field("format", &self.format)
            .finish_non_exhaustive()
    }
}

fn all(offers: &[Offer], failure: impl Fn() -> SinkError) -> Vec<Outcome> {
    offers.iter().map(|_| Err(failure())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_never_work_is_refused_by_name() {
        let sink = |settings| Nats::new(&settings, DestinationSettings::default());
        let at = |url: &str| NatsSettings {
            url: url.into(),
            ..NatsSettings::default()
        };
        for url in ["", "http://h", "ws://h", "nats://", "nats://a,,nats://b"] {
            assert_eq!(sink(at(url)).unwrap_err().setting, "url", "{url}");
        }
        for pattern in ["", "a b", "a.*", "a.>", "$JS.API", "{kind}", "a..{type}"] {
            let mut settings = at("nats://h");
            settings.subject = Some(pattern.to_owned());
            assert_eq!(sink(settings).unwrap_err().setting, "subject", "{pattern}");
        }
        let mut settings = at("nats://h");
        settings.ca = Some("src/lib.rs".into());
        assert_eq!(sink(settings).unwrap_err().setting, "ca");
        let mut settings = at("nats://h");
        settings.user = Some("shop".to_owned());
        assert_eq!(sink(settings).unwrap_err().setting, "user");
        assert!(sink(at("nats://a:1, tls://b")).is_ok());
    }

    #[test]
    fn debug_shows_no_password() {
        let settings = NatsSettings {
            url: "nats://shop:secret@h".into(),
            user: Some("u".to_owned()),
            password: Some("secret".into()),
            token: Some("secret".into()),
            ..NatsSettings::default()
        };
        let sink = Nats::new(&settings, DestinationSettings::default());
        let text = format!("{settings:?} {:?}", sink.unwrap());
        assert!(!text.contains("secret"), "{text}");
    }
}
