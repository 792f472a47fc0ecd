//! The client: a request in, an answer and its attempts out.
//!
//! Each attempt sends the same bytes under the same key, says how many milliseconds are left, and
//! reads its answer to the end: an answer that breaks off half-way is an attempt that failed. The
//! client follows no redirect and reads no environment, and nothing below it retries.

mod request;
mod answer;
mod send;
mod tls;

use std::{fmt, sync::Arc, time::Duration};

use hapax::{
    Clock, Random,
    limits::{RECEIVED_BYTES_MAX, RESUME},
};

use crate::{attempt::Attempt, journal::Journal, policy::Policy, shared::Shared};

pub use answer::{Answer, SendError};
pub use request::{Request, RequestError};

/// What a client is made of.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// Where the time comes from.
    pub clock: Clock,
    /// Where keys and jitter come from.
    pub random: Random,
    /// How it retries.
    pub policy: Policy,
    /// Where it writes keys down, if anywhere.
    pub journal: Option<Arc<dyn Journal>>,
    /// How long after it was written down a key of the journal may be sent: no longer than the
    /// service keeps keys, for behind that it would do the same a second time.
    pub resume_within: Duration,
    /// PEM certificates of authorities that it trusts beside those of the web.
    pub trusted: Vec<Vec<u8>>,
    /// Bytes of an answer that it takes in.
    pub received_bytes_max: usize,
    /// What it calls itself.
    pub user_agent: String,
    /// Whom to tell of each attempt.
    pub watch: Option<Watch>,
}

impl Settings {
    /// The contract's defaults, without a journal.
    pub fn new(clock: Clock, random: Random) -> Self {
        Self {
            clock,
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

/// Whom to tell of each attempt, and of the wait before the next one.
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

/// An HTTP client whose retries are safe; clones share connections and budgets.
#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    shared: Arc<Shared>,
    journal: Option<Arc<dyn Journal>>,
    resume_within: Duration,
    received_bytes_max: usize,
    watch: Option<Watch>,
}

impl Client {
    /// A client without connections.
    ///
    /// # Errors
    /// Fails when a certificate to trust is none.
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
        })
    }

    /// Sends a request until it is answered for good, or may not be sent again.
    ///
    /// An answer is `Ok` whatever its status: [`Answer::stopped`] says why it is the last.
    ///
    /// # Errors
    /// Fails when no answer came, when it could not be taken in, or when the journal could not be
    /// written or has a key that is too old, in which cases nothing was sent.
    pub async fn send(&self, request: Request) -> Result<Answer, SendError> {
        send::send(self, request).await
    }

    fn tell(&self, attempt: Option<&Attempt>, wait: Option<Duration>) {
        if let (Some(Watch(tell)), Some(attempt)) = (&self.watch, attempt) {
            tell(attempt, wait);
        }
    }
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// What is said to be a certificate is none.
    #[error("certificate to trust is no PEM")]
    NotPem,
    /// The settings cannot be used.
    #[error("client cannot be made")]
    Unusable(#[source] reqwest::Error),
}
