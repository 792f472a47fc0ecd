//! Webhook sink: posts events to an HTTP endpoint by Standard Webhooks.
//!
//! Each delivery is one POST. The body is encoded once and signed when it is sent, with the
//! timestamp of the attempt. A mapping makes another body; an event that it cannot be applied to is
//! rejected, and nothing is sent. A 2xx response says that the receiver has the event, even if the
//! response's body is incomplete. A redirect is a failure and is never followed. Connections
//! outside the public internet are blocked unless they are permitted, and the proxies of the
//! environment are not used. Beside the signature, requests may be authenticated by headers, HTTP
//! basic, a token of OAuth 2.0 and a client certificate.
//!
//! ```
//! use hapax::Clock;
//! use hapax_sinks::{
//!     settings::{DestinationSettings, SettingError},
//!     webhook::{Webhook, WebhookSettings},
//! };
//!
//! # fn wire(clock: Clock) -> Result<Webhook, SettingError> {
//! let settings = WebhookSettings {
//!     url: "https://example.com/hooks".into(),
//!     secret: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".into(),
//!     ..WebhookSettings::default()
//! };
//! Webhook::new(&settings, DestinationSettings::default(), clock)
//! # }
//! ```

use std::{fmt, path::Path, time::Duration};

use bytes::Bytes;
use futures_util::future::{BoxFuture, join_all};
use hapax::{
    Clock,
    mapping::Mapping,
    mask::Mask,
    sink::{Offer, Outcome, PayloadMode, Sink, SinkError},
};
use http::{HeaderValue, Request, Response, StatusCode, Uri, uri::Scheme};
use http_body_util::Full;
use hyper::body::Incoming;
use rustls::ClientConfig;
use tokio::time::{Instant, timeout_at};

use self::{
    authentication::{Authentication, Oauth, Token},
    client_certificate::ClientCertificate,
    connect::Dial,
    guard::Guard,
    key::{Key, keys},
    mapped::Places,
    request::{authorized, shown},
};
pub use crate::settings::{
    AuthStyle, BasicSettings, ClientCertificateSettings, OauthSettings, WebhookSettings,
};
use crate::{
    limits::{IDLE_CONNECTIONS_MAX, SHARED_IDLE_CONNECTIONS_MAX},
    settings::{DestinationSettings, JsonSetting, SettingError},
    tls,
};

pub(crate) mod guard;
mod url;
pub(crate) mod connect;
pub(crate) mod client;
mod client_certificate;
mod authentication;
mod key;
mod mapped;
mod request;
pub(crate) mod echo;
pub(crate) mod outcome;
mod document;
mod handshake;

pub use document::{Document, DocumentError, DocumentSettings};
pub use guard::Blocked;
pub use handshake::handshake;
pub use request::SentRequest;
pub(crate) use url::{address, confidential};

pub(crate) const SENDER: HeaderValue =
    HeaderValue::from_static(concat!("hapax/", env!("CARGO_PKG_VERSION")));
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// A webhook sink.
pub struct Webhook {
    url: Uri,
    keys: Vec<Key>,
    authentication: Authentication,
    certificate: Option<ClientCertificate>,
    timeout: Duration,
    refusal: Option<Blocked>,
    client: client::HttpClient,
    clock: Clock,
    /// The beginning of links to events, if requests contain no payloads.
    links: Option<String>,
    /// What makes the bodies, instead of the form of Standard Webhooks.
    mapping: Option<Mapping>,
    /// Where large payloads are mapped.
    places: Places,
}

impl Webhook {
    /// Creates a sink. An address that the guard blocks is accepted: the destination exists, and
    /// each delivery reports why nothing is sent.
    ///
    /// # Errors
    /// Fails if a setting is not valid.
    pub fn new(
        settings: &WebhookSettings,
        destination: DestinationSettings,
        clock: Clock,
    ) -> Result<Self, SettingError> {
        Self::build(settings, destination, clock, None)
    }

    /// Creates a sink like [`new`](Self::new) that shares its trusted certificates, its TLS sessions
    /// and the threads of its mappings with others, and keeps at most
    /// [`SHARED_IDLE_CONNECTIONS_MAX`] idle connections. The setting `ca` is not used.
    ///
    /// # Errors
    /// Fails if a setting is not valid.
    pub fn sharing(
        settings: &WebhookSettings,
        destination: DestinationSettings,
        clock: Clock,
        shared: &SharedTls,
    ) -> Result<Self, SettingError> {
        Self::build(settings, destination, clock, Some(shared.clone()))
    }

    fn build(
        settings: &WebhookSettings,
        destination: DestinationSettings,
        clock: Clock,
        shared: Option<SharedTls>,
    ) -> Result<Self, SettingError> {
        let (url, host, port) = address(&settings.url)?;
        let keys = keys(settings)?;
        let mapping = mapping(settings)?;
        let authentication = Authentication::new(settings, &destination, &clock)?;
        let certificate = certificate(settings, &url)?;
        let (shared, idle_max) = match shared {
            Some(shared) => (shared, SHARED_IDLE_CONNECTIONS_MAX),
            None => (
                SharedTls::new(settings.ca.as_deref())?,
                IDLE_CONNECTIONS_MAX,
            ),
        };
        let SharedTls { mut tls, places } = shared;
        if let Some(certificate) = &certificate {
            tls.client_auth_cert_resolver = certificate.resolver();
        }
        let guard = if authentication.has_secrets() {
            confidential(&url, settings.allow.clone())
        } else {
            Guard::allowing(settings.allow.clone())
        };
        let dial = Dial::new(host, port, guard, destination.resolver);
        Ok(Self {
            refusal: dial.refusal(),
            client: client::keeping(idle_max, dial, tls, destination.timeout),
            url,
            keys,
            authentication,
            certificate,
            timeout: destination.timeout,
            clock,
            links: links(settings)?,
            mapping,
            places,
        })
    }

    /// Why every delivery will be blocked, if the URL alone determines that.
    ///
    /// A name alone determines nothing: its addresses are checked at every connection.
    pub fn refusal(&self) -> Option<Blocked> {
        let refusal = self.refusal.clone();
        refusal.or_else(|| self.authentication.refusal())
    }

    /// Delivers one event, and returns what was sent: the headers, with configured values masked, and
    /// the body. Nothing is sent if the mapping cannot be applied, or takes longer than half of the timeout. The
    /// request has all of the timeout.
    pub async fn deliver_one(&self, offer: &Offer) -> (Outcome, SentRequest) {
        self.deliver_shown(offer, None).await
    }

    /// Delivers one event like [`deliver_one`](Self::deliver_one). The body that is returned is masked
    /// if a mapping has made it: the mapping may have given a value another name, by which it is not
    /// masked later. It is empty if it cannot be shown.
    pub async fn deliver_masked(&self, offer: &Offer, mask: &Mask) -> (Outcome, SentRequest) {
        self.deliver_shown(offer, Some(mask)).await
    }

    async fn deliver_shown(&self, offer: &Offer, mask: Option<&Mask>) -> (Outcome, SentRequest) {
        let began = Instant::now();
        let (request, body) = match self.request(offer, mask).await {
            Ok(made) => made,
            Err(error) => return (Err(error), SentRequest::default()),
        };
        let sent = SentRequest {
            headers: shown(request.headers()),
            body,
            prepared_in: began.elapsed(),
        };
        // The endpoint is not to blame for the time before.
        let deadline = Instant::now() + self.timeout;
        (self.offer_request(request, deadline).await, sent)
    }

    async fn offer(&self, offer: &Offer) -> Outcome {
        // The relay does not wait for longer.
        let deadline = Instant::now() + self.timeout;
        let (request, _) = self.request(offer, None).await?;
        self.offer_request(request, deadline).await
    }

    async fn offer_request(&self, request: Request<Full<Bytes>>, deadline: Instant) -> Outcome {
        let outcome = self.exchange(request, deadline).await;
        outcome.map_err(|error| match &self.certificate {
            Some(certificate) => certificate.explain(error, self.clock.now()),
            None => error,
        })
    }

    async fn exchange(&self, request: Request<Full<Bytes>>, deadline: Instant) -> Outcome {
        if let Some(blocked) = &self.refusal {
            return Err(SinkError::unavailable("blocked", blocked.clone()));
        }
        if let Some(oauth) = self.authentication.oauth() {
            return self.exchange_with_token(oauth, request, deadline).await;
        }
        let response = self.send(request, deadline).await?;
        self.outcome_of(response, None, deadline).await
    }

    /// Sends a request with a token. If the endpoint responds with 401, the request is repeated once
    /// with another token.
    async fn exchange_with_token(
        &self,
        oauth: &Oauth,
        request: Request<Full<Bytes>>,
        deadline: Instant,
    ) -> Outcome {
        let token = oauth.token(deadline).await?;
        let response = self
            .send(authorized(request.clone(), &token), deadline)
            .await?;
        if response.status() != StatusCode::UNAUTHORIZED {
            return self.outcome_of(response, Some(&token), deadline).await;
        }
        let Some(token) = oauth.replace(&token, deadline).await? else {
            return self.outcome_of(response, Some(&token), deadline).await;
        };
        drop(response);
        let response = self.send(authorized(request, &token), deadline).await?;
        self.outcome_of(response, Some(&token), deadline).await
    }

    async fn outcome_of(
        &self,
        response: Response<Incoming>,
        token: Option<&Token>,
        deadline: Instant,
    ) -> Outcome {
        let hidden = self.authentication.hidden(token);
        outcome::outcome_of(response, deadline, self.clock.now(), &hidden).await
    }

    async fn send(
        &self,
        request: Request<Full<Bytes>>,
        deadline: Instant,
    ) -> Result<Response<Incoming>, SinkError> {
        match timeout_at(deadline, self.client.request(request)).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => Err(client::failure(error)),
            Err(elapsed) => Err(SinkError::unavailable("timeout", elapsed)),
        }
    }
}

/// Trusted certificates and TLS sessions that several webhooks share. They also share the threads on
/// which large payloads are mapped.
#[derive(Clone, Debug)]
pub struct SharedTls {
    tls: ClientConfig,
    places: Places,
}

impl SharedTls {
    /// Trusts the public authorities, and those of a file of certificates (PEM or DER).
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub fn new(ca: Option<&Path>) -> Result<Self, SettingError> {
        let (tls, ..) = tls::read(ca)?;
        let places = Places::default();
        Ok(Self { tls, places })
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

impl fmt::Debug for Webhook {
    /// Prints only the host, because paths and queries of webhooks contain secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhook")
            .field("host", &self.url.host())
            .finish_non_exhaustive()
    }
}

/// The beginning of the links, if requests contain links.
fn links(settings: &WebhookSettings) -> Result<Option<String>, SettingError> {
    if settings.payload == PayloadMode::Full {
        return Ok(None);
    }
    let wrong = |problem: &str| SettingError::new("events_url", problem);
    let base = settings.events_url.as_deref();
    let base = base.ok_or_else(|| wrong("is missing: a thin payload contains a link"))?;
    let (url, ..) = address(base).map_err(|error| wrong(&error.problem))?;
    if url.query().is_some() || base.contains('#') {
        return Err(wrong("contains a query or a fragment"));
    }
    Ok(Some(base.trim_end_matches('/').to_owned()))
}

/// The mapping of the bodies.
fn mapping(settings: &WebhookSettings) -> Result<Option<Mapping>, SettingError> {
    let Some(setting) = &settings.mapping else {
        return Ok(None);
    };
    if settings.payload == PayloadMode::Thin {
        let problem = "has no payload to map: payload is \"thin\"";
        return Err(SettingError::new("mapping", problem));
    }
    let mapping = Mapping::parse(&setting.text());
    let mapping = mapping.map_err(|error| match setting {
        // A text is JSON, so a path in it has its own quotes.
        JsonSetting::Text(text) if text.starts_with('$') => {
            let problem = "is not valid JSON: write a path as a JSON string, such as '\"$.data\"'";
            SettingError::new("mapping", problem)
        }
        _ => SettingError::new(error.setting(), error.problem),
    })?;
    Ok(Some(mapping))
}

/// The certificate that is presented to the endpoint.
fn certificate(
    settings: &WebhookSettings,
    url: &Uri,
) -> Result<Option<ClientCertificate>, SettingError> {
    let certificate = settings.client_certificate.as_ref();
    if certificate.is_some() && url.scheme() != Some(&Scheme::HTTPS) {
        let problem = "requires a url that begins with https://";
        return Err(SettingError::new("client_certificate", problem));
    }
    certificate.map(ClientCertificate::new).transpose()
}

#[cfg(test)]
mod tests;
