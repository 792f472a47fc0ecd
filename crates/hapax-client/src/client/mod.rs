//! The client: sends a request and returns the response with its attempts.
//!
//! Each attempt sends the same bytes under the same key, its number, its trace context and the
//! remaining time in milliseconds, and reads the response to its end: a response that breaks off is
//! a failed attempt. The client does not follow redirects, does not read the environment, and uses
//! no library that retries.

mod request;
mod response;
mod send;
mod tls;

use std::{fmt, sync::Arc, time::Duration};

use hapax::{
    Clock, Random,
    limits::{RECEIVED_BYTES_MAX, RESUME},
    trace::Traces,
};

use crate::{attempt::Attempt, journal::Journal, policy::Policy, shared::Shared};

pub use request::{Request, RequestError};
pub use response::{Response, SendError};

/// The settings of a client.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// The source of time.
    pub clock: Clock,
    /// The source of randomness for keys and jitter.
    pub random: Random,
    /// The retry policy.
    pub policy: Policy,
    /// The journal in which keys are recorded, if any.
    pub journal: Option<Arc<dyn Journal>>,
    /// Maximum age of a key in the journal at which it is sent. It must not be longer than the
    /// service keeps keys; otherwise the service would execute the operation again.
    pub resume_within: Duration,
    /// PEM certificates of additional trusted authorities.
    pub trusted: Vec<Vec<u8>>,
    /// Maximum size of a response in bytes.
    pub received_bytes_max: usize,
    /// The value of `User-Agent`.
    pub user_agent: String,
    /// A function that is called for each attempt.
    pub watch: Option<Watch>,
    /// Which share of the traces that the client starts is recorded. By default all of them are. If
    /// it is off, a `traceparent` of the caller is sent unchanged, and no other.
    pub traces: Traces,
}

impl Settings {
    /// The default settings, without a journal.
    pub fn new(clock: Clock, random: Random) -> Self {
        Self {
            clock,
            traces: Traces::sampled(random.clone(), 1.0),
            random,
            policy: Policy::default(),
            journal: None,
            resume_within: RESUME,
            trusted: Vec::new(),
            received_bytes_max: RECEIVED_BYTES_MAX,
            user_agent: concat!("hapax/", env!("CARGO_PKG_VERSION")).to_owned(),
            watch: None,
        }
    }
}

type Tell = dyn Fn(&Attempt, Option<Duration>) + Send + Sync;

/// A function that is called with each attempt and the wait before the next one.
#[derive(Clone)]
pub struct Watch(Arc<Tell>);

impl Watch {
    /// Calls `tell`.
    pub fn new(tell: impl Fn(&Attempt, Option<Duration>) + Send + Sync + 'static) -> Self {
        Self(Arc::new(tell))
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watch")
    }
}

/// An HTTP client whose retries are safe. Clones share connections and budgets.
#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    shared: Arc<Shared>,
    journal: Option<Arc<dyn Journal>>,
    resume_within: Duration,
    received_bytes_max: usize,
    watch: Option<Watch>,
    traces: Traces,
}

impl Client {
    /// Creates a client. It opens no connection yet.
    ///
    /// # Errors
    /// Fails if a certificate is not valid.
    pub fn new(settings: Settings) -> Result<Self, ClientError> {
        let http = reqwest::Client::builder()
            .tls_backend_preconfigured(tls::client(&settings.trusted)?)
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .no_proxy()
            .user_agent(settings.user_agent)
            .build()
            .map_err(ClientError::Unusable)?;
        Ok(Self {
            http,
            shared: Arc::new(Shared::new(
                settings.policy,
                settings.clock,
                settings.random,
            )),
            journal: settings.journal,
            resume_within: settings.resume_within,
            received_bytes_max: settings.received_bytes_max,
            watch: settings.watch,
            traces: settings.traces,
        })
    }

    /// Sends a request until the response is final or the request may not be sent again.
    ///
    /// The result is `Ok` for a response with any status. [`Response::stopped`] says why there was
    /// no further attempt.
    ///
    /// # Errors
    /// Fails if no response was received, or if it is too long. Also fails, before anything is
    /// sent, if the journal cannot be written or contains a key that is too old.
    pub async fn send(&self, request: Request) -> Result<Response, SendError> {
        send::send(self, request).await
    }

    fn tell(&self, attempt: Option<&Attempt>, wait: Option<Duration>) {
        if let (Some(Watch(tell)), Some(attempt)) = (&self.watch, attempt) {
            tell(attempt, wait);
        }
    }
}

/// Why a client cannot be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The certificate is not valid PEM.
    #[error("certificate to trust is not PEM")]
    NotPem,
    /// The settings cannot be used.
    #[error("HTTP client cannot be created")]
    Unusable(#[source] reqwest::Error),
}
