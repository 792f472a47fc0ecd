//! Webhook sink: posts events to an HTTP endpoint by Standard Webhooks.
//!
//! Each delivery is one POST. The body is encoded once and signed when it is sent, with the
//! timestamp of the attempt. A 2xx response says that the receiver has the event, even if the
//! response's body is incomplete. A redirect is a failure and is never followed. Connections
//! outside the public internet are blocked unless they are permitted, and the proxies of the
//! environment are not used.
//!
//! ```
//! use hapax::Clock;
//! use hapax_sinks::webhook::Webhook;
//!
//! # fn wire(clock: Clock) -> Result<Webhook, Box<dyn std::error::Error>> {
//! let webhook = Webhook::to("https://example.com/hooks")
//!     .sign_with("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".parse()?)
//!     .build(clock)?;
//! # Ok(webhook)
//! # }
//! ```

use std::{fmt, time::Duration};

use bytes::Bytes;
use futures_util::future::{BoxFuture, join_all};
use hapax::{
    Clock, Timestamp,
    signature::{self, Signer},
    sink::{Offer, Outcome, Sink, SinkError},
    trace::{TRACEPARENT, TRACESTATE},
};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Uri,
    header::{CONTENT_TYPE, USER_AGENT},
};
use http_body_util::Full;

use crate::format;

mod builder;
mod guard;
mod connect;
mod client;
mod answer;

pub use builder::{WebhookBuilder, WebhookError};
pub use guard::Blocked;

const SENDER: HeaderValue = HeaderValue::from_static(concat!("hapax/", env!("CARGO_PKG_VERSION")));
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// A webhook sink.
pub struct Webhook {
    url: Uri,
    keys: Vec<Key>,
    timeout: Duration,
    refusal: Option<Blocked>,
    client: client::HttpClient,
    clock: Clock,
}

/// A signing key and its expiry.
#[derive(Clone, Debug)]
struct Key {
    signer: Signer,
    until: Option<Timestamp>,
}

impl Webhook {
    /// Starts the builder of a webhook that posts to `url`.
    pub fn to(url: impl Into<String>) -> WebhookBuilder {
        WebhookBuilder::new(url.into())
    }

    /// Why every delivery will be blocked, if the URL alone determines that.
    ///
    /// A name alone determines nothing: its addresses are checked at every connection.
    pub fn refusal(&self) -> Option<Blocked> {
        self.refusal.clone()
    }

    async fn offer(&self, offer: &Offer) -> Outcome {
        if let Some(blocked) = self.refusal() {
            return Err(SinkError::unavailable("blocked", blocked));
        }
        let deadline = tokio::time::Instant::now() + self.timeout;
        let request = self.request(offer);
        let answered = tokio::time::timeout_at(deadline, self.client.request(request)).await;
        match answered {
            Ok(Ok(response)) => answer::judge(response, deadline, self.clock.now()).await,
            Ok(Err(error)) => Err(client::failure(error)),
            Err(elapsed) => Err(SinkError::unavailable("timeout", elapsed)),
        }
    }

    fn request(&self, offer: &Offer) -> Request<Full<Bytes>> {
        let event = offer.event();
        let body = format::standard_webhook(event);
        let now = self.clock.now();
        let id = event.id.to_string();
        let keys = self.keys.iter().filter(|key| key.signs_at(now));
        let signature = signature::sign(&id, now.as_secs(), &body, keys.map(|key| &key.signer));

        let mut headers = HeaderMap::with_capacity(8);
        let mut insert = |name: &'static str, value: &str| {
            // Only a fabricated traceparent is not a valid header value.
            if value
                .bytes()
                .all(|byte| byte.is_ascii_graphic() || byte == b' ')
                && let Ok(value) = HeaderValue::from_str(value)
            {
                headers.insert(HeaderName::from_static(name), value);
            }
        };
        insert(signature::ID_HEADER, &id);
        insert(signature::TIMESTAMP_HEADER, &now.as_secs().to_string());
        insert(signature::SIGNATURE_HEADER, &signature);
        if let Some(traceparent) = offer.traceparent() {
            insert(TRACEPARENT, &traceparent);
            if let Some(tracestate) = event.headers.get(TRACESTATE) {
                insert(TRACESTATE, tracestate);
            }
        }
        headers.insert(CONTENT_TYPE, JSON);
        headers.insert(USER_AGENT, SENDER);

        let mut request = Request::new(Full::new(Bytes::from(body)));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.url.clone();
        *request.headers_mut() = headers;
        request
    }
}

impl Sink for Webhook {
    fn kind(&self) -> &'static str {
        "webhook"
    }

    fn deliver<'a>(&'a self, offers: &'a [Offer]) -> BoxFuture<'a, Vec<Outcome>> {
        match offers {
            [one] => Box::pin(async move { vec![self.offer(one).await] }),
            many => Box::pin(join_all(many.iter().map(|offer| self.offer(offer)))),
        }
    }
}

impl Key {
    fn signs_at(&self, now: Timestamp) -> bool {
        self.until.is_none_or(|until| now < until)
    }
}

impl fmt::Debug for Webhook {
    /// Prints only the host, because paths and queries of webhooks contain secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhook")
            .field("host", &self.url.host())
            .finish_non_exhaustive()
    }
}
