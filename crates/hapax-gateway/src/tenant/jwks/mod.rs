//! Key set (JWKS, RFC 7517) of an issuer, from a URL or from a file.
//!
//! One task reads the set: regularly, and when a token names an unknown key, but then at most once
//! per `interval`, however many such tokens arrive. Requests wait only for a read that was started
//! for them. If a read fails or its content is not a valid set, the keys that were read before stay
//! in use until they are older than `max_age`; then every token is refused until a read succeeds.

mod read;
mod refresh;
mod set;

use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

use hapax::{Clock, Timestamp};
use hapax_runtime::config::Span;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use tokio::{
    sync::{Notify, watch},
    task::JoinHandle,
    time::timeout,
};

use self::{read::Source, refresh::Refresher, set::KeySet};
use super::jwt::Algorithm;

pub(super) use set::{KeyLookupError, VerificationKey};

/// How much longer than a read a request waits for it.
const GRACE: Duration = Duration::from_secs(1);

/// Where the keys are. Exactly one of `url` and `file` is set.
#[derive(Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct JwksSettings {
    /// The URL of the key set: `https://`, or `http://` if every address of its host is in `allow`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The file of the key set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// Networks outside the public internet that the URL may lead to, such as `10.0.0.0/8`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<IpNet>,
    /// A file of certificates (PEM or DER) that are trusted in addition to the public ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// How often the keys are read.
    pub refresh: Span,
    /// The minimum time between two reads because of an unknown key or after a failure.
    pub interval: Span,
    /// The age at which keys are no longer used, if every read since then has failed.
    pub max_age: Span,
    /// How long a read may take.
    pub timeout: Span,
}

impl Default for JwksSettings {
    fn default() -> Self {
        Self {
            url: None,
            file: None,
            allow: Vec::new(),
            ca: None,
            refresh: Span(Duration::from_mins(5)),
            interval: Span(Duration::from_secs(30)),
            max_age: Span(Duration::from_hours(24)),
            timeout: Span(Duration::from_secs(5)),
        }
    }
}

impl JwksSettings {
    /// Checks the settings without reading the keys. A runtime is not needed.
    ///
    /// # Errors
    /// Fails if the settings are not valid. The text begins with the name of the setting.
    pub fn check(&self) -> Result<(), String> {
        source(self).map(drop)
    }
}

impl fmt::Debug for JwksSettings {
    /// Omits the URL, because a query may contain a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JwksSettings")
            .field("file", &self.file)
            .field("allow", &self.allow)
            .field("ca", &self.ca)
            .field("refresh", &self.refresh)
            .field("interval", &self.interval)
            .field("max_age", &self.max_age)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// What is known of the key set.
#[derive(Default)]
struct State {
    /// The number of reads that have ended.
    reads: u64,
    /// Whether a read is in progress.
    is_reading: bool,
    /// When the last read has begun, or ended if it has.
    read_at: Option<Timestamp>,
    /// The keys of the last read that succeeded, and when it did.
    keys: Option<(KeySet, Timestamp)>,
}

impl State {
    /// Whether an unknown key may start a read.
    fn is_due(&self, now: Timestamp, interval: Duration) -> bool {
        // A clock that was set back must not stop reads until it has caught up.
        self.read_at
            .is_none_or(|at| at > now || now.since(at) >= interval)
    }
}

/// The keys of an issuer. Reading them ends when the value is dropped.
pub struct Jwks {
    state: watch::Receiver<State>,
    wake: Arc<Notify>,
    task: JoinHandle<()>,
    interval: Duration,
    max_age: Duration,
    timeout: Duration,
    clock: Clock,
}

impl Jwks {
    /// Starts to read the keys. It has to be called in a runtime.
    ///
    /// # Errors
    /// Fails if the settings are not valid. Keys that cannot be read are not an error: they are
    /// read again.
    pub fn start(settings: &JwksSettings, clock: Clock) -> Result<Self, String> {
        let source = source(settings)?;
        let (publish, state) = watch::channel(State::default());
        let wake = Arc::new(Notify::new());
        let refresher = Refresher {
            source,
            publish,
            wake: Arc::clone(&wake),
            refresh: settings.refresh.0,
            interval: settings.interval.0,
            timeout: settings.timeout.0,
            clock: clock.clone(),
        };
        Ok(Self {
            state,
            wake,
            task: tokio::spawn(refresher.run()),
            interval: settings.interval.0,
            max_age: settings.max_age.0,
            timeout: settings.timeout.0,
            clock,
        })
    }

    /// The number of reads that have ended, successful or not.
    pub fn reads(&self) -> u64 {
        self.state.borrow().reads
    }

    /// The key with this id that fits the algorithm. Without an id: the only one that fits.
    pub(super) async fn find(
        &self,
        id: Option<&str>,
        algorithm: Algorithm,
    ) -> Result<Arc<VerificationKey>, KeyLookupError> {
        let found = self.find_now(id, algorithm);
        let is_missing = matches!(
            found,
            Err(KeyLookupError::Unknown | KeyLookupError::Unavailable)
        );
        if is_missing && self.is_read_again().await {
            return self.find_now(id, algorithm);
        }
        found
    }

    fn find_now(
        &self,
        id: Option<&str>,
        algorithm: Algorithm,
    ) -> Result<Arc<VerificationKey>, KeyLookupError> {
        let state = self.state.borrow();
        match &state.keys {
            Some((keys, read_at)) if self.clock.now().since(*read_at) < self.max_age => {
                keys.find(id, algorithm)
            }
            _ => Err(KeyLookupError::Unavailable),
        }
    }

    /// Has the keys read again and waits for the end of the read. False if the last read was too
    /// recent.
    async fn is_read_again(&self) -> bool {
        let mut state = self.state.clone();
        let before = {
            let known = state.borrow_and_update();
            if !known.is_reading && !known.is_due(self.clock.now(), self.interval) {
                return false;
            }
            known.reads
        };
        self.wake.notify_one();
        let ended = state.wait_for(|known| known.reads > before);
        let waited = timeout(self.timeout + GRACE, ended).await;
        matches!(waited, Ok(Ok(_)))
    }
}

impl Drop for Jwks {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl fmt::Debug for Jwks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jwks")
            .field("reads", &self.reads())
            .finish_non_exhaustive()
    }
}

fn source(settings: &JwksSettings) -> Result<Source, String> {
    let problem = |problem: String| format!("jwks.{problem}");
    check_times(settings).map_err(problem)?;
    Source::new(settings).map_err(problem)
}

fn check_times(settings: &JwksSettings) -> Result<(), String> {
    let (refresh, max_age) = (settings.refresh, settings.max_age);
    for (name, span) in [
        ("refresh", refresh),
        ("interval", settings.interval),
        ("timeout", settings.timeout),
    ] {
        if span.0.is_zero() {
            return Err(format!("{name}: expected more than 0"));
        }
    }
    if max_age <= refresh {
        return Err(format!(
            "max_age: expected more than refresh, which is {refresh}"
        ));
    }
    Ok(())
}
