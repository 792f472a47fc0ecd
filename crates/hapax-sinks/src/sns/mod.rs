//! SNS sink: sends events as messages to a topic of Amazon SNS.
//!
//! A batch is one `PublishBatch` of up to ten messages, each with its own outcome; a single event is
//! a `Publish`. The event id is an attribute, by which consumers deduplicate. In a FIFO topic it is
//! also the deduplication id, and the aggregate is the message group. Connections outside the public
//! internet are blocked unless they are permitted.
//!
//! ```
//! use hapax::Clock;
//! use hapax_sinks::{
//!     settings::{DestinationSettings, SettingError},
//!     sns::{Sns, SnsSettings},
//! };
//!
//! # fn wire(clock: Clock) -> Result<Sns, SettingError> {
//! let settings = SnsSettings {
//!     topic_arn: "arn:aws:sns:eu-central-1:123456789012:events.fifo".into(),
//!     access_key_id: "AKIAIOSFODNN7EXAMPLE".into(),
//!     secret_access_key: "from-your-secrets".into(),
//!     ..SnsSettings::default()
//! };
//! Sns::new(&settings, DestinationSettings::new("/shop"), clock)
//! # }
//! ```

use futures_util::future::BoxFuture;
use hapax::{
    Clock,
    sink::{Offer, Outcome, Sink},
};

use self::topic::Topic;
pub use crate::settings::SnsSettings;
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

mod topic;
mod response;

/// An SNS sink.
#[derive(Debug)]
pub struct Sns {
    sink: MessageSink<Topic>,
}

impl Sns {
    /// Creates a sink. An address that the guard blocks is accepted: the destination exists, and
    /// each delivery reports why nothing is sent.
    ///
    /// # Errors
    /// Fails if a setting is not valid.
    pub fn new(
        settings: &SnsSettings,
        destination: DestinationSettings,
        clock: Clock,
    ) -> Result<Self, SettingError> {
        let topic = Topic::parse(&settings.topic_arn)?;
        let encoding = Encoding {
            format: settings.format,
            is_fifo: topic.is_fifo(),
        };
        let endpoint = endpoint(settings)?;
        let region = topic.region().to_owned();
        let access = Access {
            region: &region,
            key_id: &settings.access_key_id,
            secret_access_key: &settings.secret_access_key,
            session_token: settings.session_token.as_ref(),
            allow: &settings.allow,
            ca: settings.ca.as_deref(),
        };
        Ok(Self {
            sink: MessageSink::new(topic, endpoint, &access, encoding, destination, clock)?,
        })
    }

    /// Why every delivery will be blocked, if the URL alone determines that.
    ///
    /// A name alone determines nothing: its addresses are checked at every connection.
    pub fn refusal(&self) -> Option<Blocked> {
        self.sink.refusal()
    }
}

impl Sink for Sns {
    fn kind(&self) -> &'static str {
        "sns"
    }

    fn deliver<'a>(&'a self, offers: &'a [Offer]) -> BoxFuture<'a, Vec<Outcome>> {
        Box::pin(self.sink.deliver(offers))
    }

    fn batch_max(&self) -> usize {
        MESSAGES_MAX
    }
}

fn endpoint(settings: &SnsSettings) -> Result<Endpoint, SettingError> {
    let url = settings.url();
    if url.is_empty() && settings.endpoint.is_none() {
        let problem =
            "is missing: the URL of the service cannot be derived from the ARN of the topic";
        return Err(SettingError::new("endpoint", problem));
    }
    Endpoint::of_service("endpoint", &url)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::clock;

    #[test]
    fn what_can_never_work_is_refused_by_name() {
        for arn in ["", "events", "arn:aws:sqs:eu-central-1:123456789012:events"] {
            check("topic_arn", |it| it.topic_arn = arn.to_owned());
        }
        for url in [
            "",
            "sns.example.com",
            "https://u:p@h",
            "https://h/a",
            "https://h/?a",
        ] {
            check("endpoint", |it| it.endpoint = Some(url.to_owned()));
        }
        check("endpoint", |it| {
            it.topic_arn = "arn:aws-iso:sns:us-iso-east-1:123456789012:events".to_owned();
        });
        check("access_key_id", |it| it.access_key_id = String::new());
        check("secret_access_key", |it| it.secret_access_key = "".into());
        check("session_token", |it| it.session_token = Some("".into()));
        check("ca", |it| it.ca = Some("src/lib.rs".into()));
    }

    #[test]
    fn an_address_outside_the_public_internet_is_blocked_unless_it_is_permitted() {
        let blocked = |endpoint: Option<&str>, allow: &[&str]| {
            let settings = SnsSettings {
                endpoint: endpoint.map(str::to_owned),
                allow: allow.iter().map(|net| net.parse().unwrap()).collect(),
                ..settings()
            };
            sink(&settings).unwrap().refusal().is_some()
        };
        assert!(!blocked(None, &[]));
        assert!(blocked(Some("https://10.0.0.1"), &[]));
        assert!(!blocked(Some("https://10.0.0.1"), &["10.0.0.0/8"]));
        // Without TLS, events would be readable on the way.
        assert!(blocked(Some("http://8.8.8.8"), &[]));
    }

    #[test]
    fn debug_shows_no_secret() {
        let settings = SnsSettings {
            secret_access_key: "hunter2".into(),
            session_token: Some("hunter2".into()),
            ..settings()
        };
        let text = format!("{settings:?} {:?}", sink(&settings).unwrap());
        assert!(!text.contains("hunter2"), "{text}");
    }

    fn settings() -> SnsSettings {
        SnsSettings {
            topic_arn: "arn:aws:sns:eu-central-1:123456789012:events".to_owned(),
            access_key_id: "key".to_owned(),
            secret_access_key: "secret".into(),
            ..SnsSettings::default()
        }
    }

    fn sink(settings: &SnsSettings) -> Result<Sns, SettingError> {
        Sns::new(settings, DestinationSettings::default(), clock())
    }

    #[track_caller]
    fn check(setting: &str, change: impl FnOnce(&mut SnsSettings)) {
        let mut settings = settings();
        change(&mut settings);
        assert_eq!(sink(&settings).unwrap_err().setting, setting);
    }
}
