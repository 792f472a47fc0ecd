//! SQS sink: sends events as messages to a queue of Amazon SQS.
//!
//! A batch is one `SendMessageBatch` of up to ten messages, each with its own outcome. The event id
//! is an attribute, by which consumers deduplicate. In a FIFO queue it is also the deduplication id,
//! and the aggregate is the message group. Connections outside the public internet are blocked unless
//! they are permitted.
//!
//! ```
//! use hapax::Clock;
//! use hapax_sinks::{
//!     settings::{DestinationSettings, SettingError},
//!     sqs::{Sqs, SqsSettings},
//! };
//!
//! # fn wire(clock: Clock) -> Result<Sqs, SettingError> {
//! let settings = SqsSettings {
//!     queue_url: "https://sqs.eu-central-1.amazonaws.com/123456789012/events.fifo".into(),
//!     region: "eu-central-1".into(),
//!     access_key_id: "AKIAIOSFODNN7EXAMPLE".into(),
//!     secret_access_key: "from-your-secrets".into(),
//!     ..SqsSettings::default()
//! };
//! Sqs::new(&settings, DestinationSettings::new("/shop"), clock)
//! # }
//! ```

use futures_util::future::BoxFuture;
use hapax::{
    Clock,
    sink::{Offer, Outcome, Sink},
};

use self::queue::Queue;
pub use crate::settings::SqsSettings;
use crate::{
    api::Endpoint,
    aws::{
        Access,
        messages::{Encoding, MessageSink},
    },
    limits::MESSAGES_MAX,
    settings::{DestinationSettings, SettingError},
    webhook::Blocked,
};

mod queue;

/// An SQS sink.
#[derive(Debug)]
pub struct Sqs {
    sink: MessageSink<Queue>,
}

impl Sqs {
    /// Creates a sink. An address that the guard blocks is accepted: the destination exists, and
    /// each delivery reports why nothing is sent.
    ///
    /// # Errors
    /// Fails if a setting is not valid.
    pub fn new(
        settings: &SqsSettings,
        destination: DestinationSettings,
        clock: Clock,
    ) -> Result<Self, SettingError> {
        let endpoint = Endpoint::parse("queue_url", &settings.queue_url)?;
        if endpoint.path() == "/" {
            let problem = "has no path: expected the URL of a queue, and not that of the service";
            return Err(SettingError::new("queue_url", problem));
        }
        let encoding = Encoding {
            format: settings.format,
            is_fifo: is_fifo(&endpoint),
        };
        let access = Access {
            region: &settings.region,
            key_id: &settings.access_key_id,
            secret_access_key: &settings.secret_access_key,
            session_token: settings.session_token.as_ref(),
            allow: &settings.allow,
            ca: settings.ca.as_deref(),
        };
        let queue = Queue {
            url: settings.queue_url.clone(),
        };
        Ok(Self {
            sink: MessageSink::new(queue, endpoint, &access, encoding, destination, clock)?,
        })
    }

    /// Why every delivery will be blocked, if the URL alone determines that.
    ///
    /// A name alone determines nothing: its addresses are checked at every connection.
    pub fn refusal(&self) -> Option<Blocked> {
        self.sink.refusal()
    }
}

impl Sink for Sqs {
    fn kind(&self) -> &'static str {
        "sqs"
    }

    fn deliver<'a>(&'a self, offers: &'a [Offer]) -> BoxFuture<'a, Vec<Outcome>> {
        Box::pin(self.sink.deliver(offers))
    }

    fn batch_max(&self) -> usize {
        MESSAGES_MAX
    }
}

/// Whether this is the URL of a FIFO queue, whose name ends in `.fifo`.
fn is_fifo(queue: &Endpoint) -> bool {
    queue.path().rsplit('.').next() == Some("fifo")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::clock;

    #[test]
    fn what_can_never_work_is_refused_by_name() {
        for url in [
            "",
            "events",
            "https://sqs.example.com",
            "https://sqs.example.com/",
            "https://u:p@sqs.example.com/1/events",
            "https://sqs.example.com/1/events?a=b",
        ] {
            check("queue_url", |it| it.queue_url = url.to_owned());
        }
        check("region", |it| it.region = "a/b".to_owned());
        check("access_key_id", |it| it.access_key_id = String::new());
        check("secret_access_key", |it| it.secret_access_key = "".into());
        check("session_token", |it| it.session_token = Some("".into()));
        check("ca", |it| it.ca = Some("src/lib.rs".into()));
    }

    #[test]
    fn a_fifo_queue_is_known_by_its_name() {
        let named = |name: &str| {
            let url = format!("https://sqs.example.com/1/{name}");
            is_fifo(&Endpoint::parse("queue_url", &url).unwrap())
        };
        assert!(named("events.fifo"));
        assert!(!named("events"));
    }

    #[test]
    fn debug_shows_no_secret() {
        let settings = SqsSettings {
            secret_access_key: "hunter2".into(),
            session_token: Some("hunter2".into()),
            ..settings()
        };
        let text = format!("{settings:?} {:?}", sink(&settings).unwrap());
        assert!(!text.contains("hunter2"), "{text}");
    }

    fn settings() -> SqsSettings {
        SqsSettings {
            queue_url: "https://sqs.example.com/1/events".to_owned(),
            region: "eu-central-1".to_owned(),
            access_key_id: "key".to_owned(),
            secret_access_key: "secret".into(),
            ..SqsSettings::default()
        }
    }

    fn sink(settings: &SqsSettings) -> Result<Sqs, SettingError> {
        Sqs::new(settings, DestinationSettings::default(), clock())
    }

    #[track_caller]
    fn check(setting: &str, change: impl FnOnce(&mut SqsSettings)) {
        let mut settings = settings();
        change(&mut settings);
        assert_eq!(sink(&settings).unwrap_err().setting, setting);
    }
}
