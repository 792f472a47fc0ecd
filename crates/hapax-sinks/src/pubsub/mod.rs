//! Pub/Sub sink: publishes events to a topic of Google Cloud Pub/Sub.
//!
//! A batch is one request of the REST API, which publishes all of its messages or none. If the
//! service refuses a request because of one message, the request is divided until that message is
//! alone. The event id is an attribute, by which subscribers deduplicate. Connections outside the
//! public internet are blocked unless they are permitted.
//!
//! ```
//! use hapax::Clock;
//! use hapax_sinks::{
//!     pubsub::{Pubsub, PubsubSettings},
//!     secret::Secret,
//!     settings::{DestinationSettings, SettingError},
//! };
//!
//! # fn wire(clock: Clock) -> Result<Pubsub, SettingError> {
//! let settings = PubsubSettings {
//!     topic: "projects/shop/topics/events".into(),
//!     service_account: Some(Secret::File("/run/secrets/pubsub.json".into())),
//!     ..PubsubSettings::default()
//! };
//! Pubsub::new(&settings, DestinationSettings::new("/shop"), clock)
//! # }
//! ```

use std::{fmt, time::Duration};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use hapax::{
    Clock,
    sink::{Offer, Outcome, Receipt, Sink},
};
use http::{
    HeaderValue, Method, Request,
    header::{AUTHORIZATION, CONTENT_TYPE},
};
use http_body_util::Full;
use serde::Serialize;
use tokio::time::Instant;

use self::{
    message::Message,
    service_account::{ServiceAccount, Token},
};
pub use crate::settings::PubsubSettings;
use crate::{
    api::{Api, Endpoint, Failure, Parts},
    format::Format,
    limits::{PUBSUB_BATCH, PUBSUB_BATCH_BYTES},
    settings::{DestinationSettings, SettingError},
    webhook::Blocked,
};

mod service_account;
mod message;
mod response;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// Maximum length of the id of a project or of a topic in bytes.
const ID_BYTES_MAX: usize = 255;

/// A Pub/Sub sink.
pub struct Pubsub {
    api: Api,
    topic: String,
    account: Option<ServiceAccount>,
    format: Format,
    is_ordered: bool,
    source: String,
    timeout: Duration,
}

/// The body of a request.
#[derive(Serialize)]
struct Batch<'a> {
    messages: &'a [Message],
}

impl Pubsub {
    /// Creates a sink. An address that the guard blocks is accepted: the destination exists, and
    /// each delivery reports why nothing is sent.
    ///
    /// # Errors
    /// Fails if a setting is not valid.
    pub fn new(
        settings: &PubsubSettings,
        destination: DestinationSettings,
        clock: Clock,
    ) -> Result<Self, SettingError> {
        check_topic(&settings.topic)?;
        let endpoint = Endpoint::of_service("endpoint", settings.url())?;
        let account = settings.service_account.as_ref();
        if account.is_none() && settings.endpoint.is_none() {
            let problem = "is missing: requests without it are accepted by emulators only";
            return Err(SettingError::new("service_account", problem));
        }
        let account = account.map(ServiceAccount::read).transpose()?;
        let ca = settings.ca.as_deref();
        Ok(Self {
            api: Api::new(endpoint, &settings.allow, ca, &destination, clock)?,
            topic: settings.topic.clone(),
            account,
            format: settings.format,
            is_ordered: settings.ordering,
            source: destination.source,
            timeout: destination.timeout,
        })
    }

    /// Why every delivery will be blocked, if the URL alone determines that.
    ///
    /// A name alone determines nothing: its addresses are checked at every connection.
    pub fn refusal(&self) -> Option<Blocked> {
        self.api.refusal()
    }

    async fn offer(&self, offers: &[Offer]) -> Vec<Outcome> {
        let deadline = Instant::now() + self.timeout;
        let messages = offers.iter();
        let messages =
            messages.map(|offer| Message::of(offer, self.format, &self.source, self.is_ordered));
        let messages: Vec<Message> = messages.collect();
        let mut parts = Parts::new(&messages, Message::bytes, PUBSUB_BATCH, PUBSUB_BATCH_BYTES);
        while let Some(part) = parts.pop() {
            let published = self.publish(part, deadline).await;
            parts.record(part, published, response::of_one);
        }
        parts.into_outcomes()
    }

    /// Publishes messages by one request, all of them or none.
    async fn publish(&self, messages: &[Message], deadline: Instant) -> Result<Receipt, Failure> {
        let body = serde_json::to_vec(&Batch { messages });
        let body = body.expect("texts can be serialized as JSON in memory");
        let mut request = Request::new(Full::new(Bytes::from(body)));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.api.url(&format!("/v1/{}:publish", self.topic));
        request.headers_mut().insert(CONTENT_TYPE, JSON);
        let token = self.account.as_ref();
        let token = token.map(|account| account.token(self.api.clock().now()));
        if let Some(token) = &token {
            let headers = request.headers_mut();
            headers.insert(AUTHORIZATION, token.authorization());
        }
        let hidden: Vec<&str> = token.iter().map(Token::text).collect();
        let response = self.api.send(request, &hidden, deadline).await?;
        if response.status.is_success() {
            response::published(&response, messages.len())
        } else {
            Err(response::failure(&response))
        }
    }
}

impl Sink for Pubsub {
    fn kind(&self) -> &'static str {
        "pubsub"
    }

    fn deliver<'a>(&'a self, offers: &'a [Offer]) -> BoxFuture<'a, Vec<Outcome>> {
        Box::pin(self.offer(offers))
    }

    fn batch_max(&self) -> usize {
        PUBSUB_BATCH
    }
}

impl fmt::Debug for Pubsub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pubsub")
            .field("api", &self.api)
            .field("topic", &self.topic)
            .field("account", &self.account)
            .field("format", &self.format)
            .field("is_ordered", &self.is_ordered)
            .finish_non_exhaustive()
    }
}

/// Refuses what is not the name of a topic, and so no path of another resource.
fn check_topic(topic: &str) -> Result<(), SettingError> {
    let is_id = |id: &str, others: &[u8]| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || others.contains(&byte);
        let first = id.bytes().next();
        first.is_some_and(|byte| byte.is_ascii_alphabetic())
            && id.len() <= ID_BYTES_MAX
            && id.bytes().all(plain)
    };
    let parts: Vec<&str> = topic.split('/').collect();
    // A project may belong to a domain, as in `example.com:shop`.
    if let ["projects", project, "topics", name] = parts[..]
        && is_id(project, b"-.:")
        && is_id(name, b"-._~")
    {
        return Ok(());
    }
    let problem = "is not the name of a topic: expected a text such as \
                   \"projects/shop/topics/events\"";
    Err(SettingError::new("topic", problem))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::clock;

    #[test]
    fn what_can_never_work_is_refused_by_name() {
        for topic in [
            "",
            "events",
            "projects/shop/topics/",
            "projects/shop/topics/a b",
            "projects/shop/topics/a:publish",
            "projects/shop/topics/../subscriptions/a",
            "projects/shop/subscriptions/events",
            "projects/shop/topics/events/a",
            "projects/shop/topics/%2e",
            "/projects/shop/topics/events",
        ] {
            check("topic", |it| it.topic = topic.to_owned());
        }
        for url in [
            "",
            "pubsub.example.com",
            "https://u:p@h",
            "https://h/a",
            "https://h/?a",
        ] {
            check("endpoint", |it| it.endpoint = Some(url.to_owned()));
        }
        for key in ["", "hunter2", "{}", "{\"type\": \"authorized_user\"}"] {
            check("service_account", |it| {
                it.service_account = Some(key.into());
            });
        }
        // Google's service accepts no request without a token.
        check("service_account", |it| it.endpoint = None);
        check("ca", |it| it.ca = Some("src/lib.rs".into()));
    }

    #[test]
    fn a_topic_may_belong_to_a_project_of_a_domain() {
        for topic in [
            "projects/example.com:shop-1/topics/a-b._~1",
            "projects/p/topics/t",
        ] {
            let mut settings = settings();
            topic.clone_into(&mut settings.topic);
            assert!(sink(&settings).is_ok(), "{topic}");
        }
    }

    #[test]
    fn an_address_outside_the_public_internet_is_blocked_unless_it_is_permitted() {
        let blocked = |endpoint: &str, allow: &[&str]| {
            let settings = PubsubSettings {
                endpoint: Some(endpoint.to_owned()),
                allow: allow.iter().map(|net| net.parse().unwrap()).collect(),
                ..settings()
            };
            sink(&settings).unwrap().refusal().is_some()
        };
        assert!(!blocked("https://pubsub.googleapis.com", &[]));
        assert!(blocked("https://10.0.0.1", &[]));
        assert!(!blocked("https://10.0.0.1", &["10.0.0.0/8"]));
        // Without TLS, events would be readable on the way.
        assert!(blocked("http://8.8.8.8", &[]));
    }

    fn settings() -> PubsubSettings {
        PubsubSettings {
            topic: "projects/shop/topics/events".to_owned(),
            endpoint: Some("https://pubsub.example.com".to_owned()),
            ..PubsubSettings::default()
        }
    }

    fn sink(settings: &PubsubSettings) -> Result<Pubsub, SettingError> {
        Pubsub::new(settings, DestinationSettings::default(), clock())
    }

    #[track_caller]
    fn check(setting: &str, change: impl FnOnce(&mut PubsubSettings)) {
        let mut settings = settings();
        change(&mut settings);
        let error = sink(&settings).unwrap_err();
        assert_eq!(error.setting, setting);
        assert!(!error.problem.contains("hunter2"), "{error}");
    }
}
