//! Look-up: a request to the service that says what has happened to an earlier one.
//!
//! It is sent with the key that the service has received, and with the configured headers only. It
//! must not have an effect in the service, so it may be sent any number of times.

use std::{fmt, sync::Arc, time::Duration};

use axum::body::Body;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use secrecy::ExposeSecret as _;
use tokio::time::Instant;

use super::{
    response::{Complete, complete},
    sightings::{Attempt, Sightings},
};
use crate::{
    config::{self, LookUpMethod},
    upstream::Upstream,
};

/// A look-up, with its secrets revealed.
pub(crate) struct LookUp {
    settings: config::LookUp,
    headers: HeaderMap,
    sightings: Arc<Sightings>,
}

/// A header of a look-up cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("look_up.headers.{name} {problem}")]
pub(crate) struct LookUpError {
    name: String,
    problem: String,
}

/// The result of a look-up.
pub(super) enum LookUpResult {
    /// The request was executed, and this is its response.
    Happened(Complete),
    /// The request was not executed.
    NotHappened,
    /// The service does not know, or did not respond.
    Unknown,
}

impl LookUp {
    /// Reveals the secrets of the settings, which were checked.
    pub(crate) fn new(
        settings: &config::LookUp,
        sightings: &Arc<Sightings>,
    ) -> Result<Self, LookUpError> {
        let mut headers = HeaderMap::new();
        for (name, secret) in &settings.headers {
            let wrong = |problem: String| LookUpError {
                name: name.clone(),
                problem,
            };
            let header: HeaderName = name
                .parse()
                .map_err(|_| wrong("is not the name of a header".to_owned()))?;
            let value = secret.reveal().map_err(wrong)?;
            let value = HeaderValue::from_str(value.expose_secret());
            let mut value =
                value.map_err(|_| wrong("is not a valid value of a header".to_owned()))?;
            value.set_sensitive(true);
            headers.insert(header, value);
        }
        Ok(Self {
            settings: settings.clone(),
            headers,
            sightings: Arc::clone(sightings),
        })
    }

    /// Asks the service about the request that it may know under each of these keys. It has not
    /// happened if the service knows none of them.
    pub(super) async fn ask(
        &self,
        upstream: &Upstream,
        keys: &[String],
        route: &config::Route,
    ) -> LookUpResult {
        let deadline = Instant::now() + self.settings.timeout.0;
        let mut found = LookUpResult::NotHappened;
        for key in keys {
            match self.ask_one(upstream, key, route, deadline).await {
                LookUpResult::NotHappened => {}
                LookUpResult::Unknown => found = LookUpResult::Unknown,
                happened @ LookUpResult::Happened(_) => return happened,
            }
        }
        found
    }

    async fn ask_one(
        &self,
        upstream: &Upstream,
        key: &str,
        route: &config::Route,
        deadline: Instant,
    ) -> LookUpResult {
        let Some(request) = self.request(upstream, key) else {
            return LookUpResult::Unknown;
        };
        let Ok(slot) = upstream.slot(None) else {
            return LookUpResult::Unknown;
        };
        let (response, _in_flight) = match upstream.send(request, slot, deadline, &|| true).await {
            Ok(sent) => sent,
            Err(error) => {
                tracing::debug!(%error, "a look-up has failed");
                return LookUpResult::Unknown;
            }
        };
        let status = response.status().as_u16();
        if self.settings.not_happened.contains(&status) {
            return LookUpResult::NotHappened;
        }
        if !self.settings.happened.contains(&status) {
            return LookUpResult::Unknown;
        }
        match complete(response, route, deadline).await {
            Ok(mut complete) => {
                let status = self.settings.status.map(StatusCode::from_u16);
                if let Some(Ok(status)) = status {
                    complete.parts.status = status;
                }
                LookUpResult::Happened(complete)
            }
            Err(_) => LookUpResult::Unknown,
        }
    }

    /// Records that an attempt has no response. Returns for how long this process has known it.
    pub(super) fn see(&self, attempt: Attempt) -> Duration {
        let now = Instant::now();
        let first = self.sightings.see(attempt, self.settings.settle.0, now);
        now.duration_since(first)
    }

    /// Whether the service can no longer execute a request that has been known for this long.
    pub(super) fn is_settled(&self, known: Duration) -> bool {
        known >= self.settings.settle.0
    }

    /// Forgets an attempt whose outcome is known.
    pub(super) fn forget(&self, attempt: &Attempt) {
        self.sightings.forget(attempt);
    }

    fn request(&self, upstream: &Upstream, key: &str) -> Option<Request<Body>> {
        let method = match self.settings.method {
            LookUpMethod::Get => Method::GET,
            LookUpMethod::Post => Method::POST,
        };
        let key = utf8_percent_encode(key, NON_ALPHANUMERIC).to_string();
        let path = self.settings.path.replace("{key}", &key);
        let request = Request::builder().method(method).uri(path);
        let mut request = request.body(Body::empty()).ok()?;
        *request.headers_mut() = self.headers.clone();
        if let Ok(host) = HeaderValue::from_str(upstream.authority()) {
            request
                .headers_mut()
                .entry(http::header::HOST)
                .or_insert(host);
        }
        Some(request)
    }
}

impl fmt::Debug for LookUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LookUp")
            .field("path", &self.settings.path)
            .finish_non_exhaustive()
    }
}
