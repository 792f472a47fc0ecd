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

use std::{fmt, time::Duration};

use bytes::Bytes;
use futures_util::future::{BoxFuture, join_all};
use hapax::{
    Clock, Timestamp,
    signature::{self, Signer},
    sink::{Offer, Outcome, Sink, SinkError},
    telemetry::error_chain,
    trace::{TRACEPARENT, TRACESTATE},
};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Uri,
    header::{CONTENT_TYPE, USER_AGENT},
};
use http_body_util::Full;
use secrecy::ExposeSecret as _;

use self::{
    connect::Dial,
    guard::{Guard, Host},
};
pub use crate::settings::WebhookSettings;
use crate::{
    format,
    secret::Secret,
    settings::{DestinationSettings, SettingError, reveal},
    tls,
};

mod guard;
mod connect;
mod client;
mod answer;

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
        let (url, host, port) = address(&settings.url)?;
        let keys = keys(settings)?;
        let (tls, _) = tls::read(settings.ca.as_deref())?;
        let guard = Guard::allowing(settings.allow.clone());
        let dial = Dial::new(host, port, guard, destination.resolver);
        Ok(Self {
            refusal: dial.refusal(),
            client: client::new(dial, tls, destination.timeout),
            url,
            keys,
            timeout: destination.timeout,
            clock,
        })
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
    fn new(setting: &str, secret: &Secret, until: Option<Timestamp>) -> Result<Self, SettingError> {
        let signer = reveal(setting, secret)?.expose_secret().parse::<Signer>();
        let signer = signer.map_err(|error| {
            SettingError::new(
                setting,
                format_args!("is not valid: {}", error_chain(&error)),
            )
        })?;
        Ok(Self { signer, until })
    }

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

/// The URL with its host and its port.
fn address(text: &str) -> Result<(Uri, Result<Host, Blocked>, u16), SettingError> {
    let wrong = |problem| SettingError::new("url", problem);
    let not_absolute = || wrong("is not an absolute url");
    let url: Uri = text.parse().map_err(|_| not_absolute())?;
    let default_port = match url.scheme_str() {
        Some("http") => 80,
        Some("https") => 443,
        _ => return Err(wrong("begins with neither https:// nor http://")),
    };
    let authority = url.authority().ok_or_else(not_absolute)?;
    if authority.as_str().contains('@') {
        return Err(wrong("contains a user or a password"));
    }
    let port = match authority.port_u16() {
        Some(port) => port,
        None if authority.as_str() == authority.host() => default_port,
        None => return Err(not_absolute()),
    };
    let host = Host::parse(authority.host());
    Ok((url, host, port))
}

fn keys(settings: &WebhookSettings) -> Result<Vec<Key>, SettingError> {
    let mut keys = vec![Key::new("secret", &settings.secret, None)?];
    for secret in &settings.further_secrets {
        keys.push(Key::new("further_secrets", secret, None)?);
    }
    match (&settings.previous_secret, settings.previous_until) {
        (Some(secret), Some(until)) => {
            let until = Timestamp::from_millis(until.as_millisecond());
            keys.push(Key::new("previous_secret", secret, Some(until))?);
        }
        (None, None) => {}
        _ => {
            return Err(SettingError::new(
                "previous_secret",
                "requires previous_until",
            ));
        }
    }
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_that_can_never_work_is_refused_by_name() {
        for url in [
            "",
            "example.com/x",
            "/x",
            "ftp://example.com/",
            "file:///etc/passwd",
            "http://user:pass@example.com/",
            "https://@example.com/",
        ] {
            assert_eq!(build(&at(url)).unwrap_err().setting, "url", "{url}");
        }
        check_url("http://user@example.com/", "contains a user or a password");
        for url in [
            "http://h:99999/",
            "http://h:/",
            "http://h:x/",
            "http://[::1/",
        ] {
            check_url(url, "is not an absolute url");
        }
        assert!(build(&at("https://example.com:8443/a?b=c")).is_ok());
    }

    #[test]
    fn a_webhook_without_a_lasting_key_or_with_a_false_certificate_is_refused() {
        let refused = |change: fn(&mut WebhookSettings)| {
            let mut settings = at("https://example.com/");
            change(&mut settings);
            build(&settings).unwrap_err().setting
        };
        assert_eq!(refused(|it| it.secret = Secret::default()), "secret");
        let previous = refused(|it| it.previous_secret = Some(it.secret.clone()));
        assert_eq!(previous, "previous_secret");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.pem");
        for content in ["", "-----BEGIN CERTIFICATE-----\nAA\n", "\u{80}\u{81}"] {
            std::fs::write(&path, content).unwrap();
            let mut settings = at("https://example.com/");
            settings.ca = Some(path.clone());
            assert_eq!(build(&settings).unwrap_err().setting, "ca", "{content}");
        }
    }

    #[test]
    fn a_file_of_certificates_has_a_bounded_size() {
        let mut settings = at("https://example.com/");
        settings.ca = Some("/dev/zero".into());
        let error = build(&settings).unwrap_err();
        assert_eq!(error.setting, "ca");
        assert!(
            error.problem.contains("larger than 1048576 bytes"),
            "{error}"
        );
    }

    #[test]
    fn debug_shows_neither_path_nor_query_nor_key() {
        let settings = at("https://example.com/secret?token=secret");
        let webhook = build(&settings).unwrap();
        let text = format!("{webhook:?} {settings:?}");
        assert!(!text.contains("secret") && !text.contains("MfKQ"), "{text}");
    }

    fn at(url: &str) -> WebhookSettings {
        WebhookSettings {
            url: url.to_owned(),
            secret: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".into(),
            ..WebhookSettings::default()
        }
    }

    fn build(settings: &WebhookSettings) -> Result<Webhook, SettingError> {
        let clock = Clock::new(|| Timestamp::from_millis(0));
        Webhook::new(settings, DestinationSettings::default(), clock)
    }

    #[track_caller]
    fn check_url(url: &str, problem: &str) {
        let error = build(&at(url)).unwrap_err();
        assert_eq!(
            (&*error.setting, &*error.problem),
            ("url", problem),
            "{url}"
        );
    }
}
