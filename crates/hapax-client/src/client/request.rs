//! A request, which is sent with the same bytes in every attempt.

use std::sync::Arc;

use bytes::Bytes;
use hapax::key::IdempotencyKey;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, header::CONTENT_TYPE};

use crate::{
    destination,
    journal::Intent,
    policy::{IDEMPOTENCY_ATTEMPT, IDEMPOTENCY_KEY, REQUEST_TIMEOUT, is_repeatable, wants_key},
};

/// A request without its key.
#[derive(Clone, Debug)]
pub struct Request {
    pub(super) method: Method,
    pub(super) url: reqwest::Url,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    pub(super) destination: Arc<str>,
    key: Option<IdempotencyKey>,
    is_keyless: bool,
    is_anew: bool,
    name: Option<String>,
}

impl Request {
    /// Creates a request without headers and body.
    ///
    /// # Errors
    /// Fails if `url` is not an `http` or `https` URL.
    pub fn new(method: Method, url: &str) -> Result<Self, RequestError> {
        let wrong = || RequestError::Url(url.chars().take(200).collect());
        let parsed: reqwest::Url = url.parse().map_err(|_| wrong())?;
        if !["http", "https"].contains(&parsed.scheme()) {
            return Err(wrong());
        }
        let uri: Uri = parsed.as_str().parse().map_err(|_| wrong())?;
        Ok(Self {
            method,
            destination: destination::of(&uri).ok_or_else(wrong)?,
            url: parsed,
            headers: HeaderMap::new(),
            body: Bytes::new(),
            key: None,
            is_keyless: false,
            is_anew: false,
            name: None,
        })
    }

    /// Creates a GET request.
    ///
    /// # Errors
    /// Fails if `url` is not an `http` or `https` URL.
    pub fn get(url: &str) -> Result<Self, RequestError> {
        Self::new(Method::GET, url)
    }

    /// Creates a POST request without a body.
    ///
    /// # Errors
    /// Fails if `url` is not an `http` or `https` URL.
    pub fn post(url: &str) -> Result<Self, RequestError> {
        Self::new(Method::POST, url)
    }

    /// Adds a header. A `traceparent` is the parent of the operation's span; without it the client
    /// starts a new trace.
    ///
    /// # Errors
    /// Fails if the header is not valid, or if the client sets it itself. To set a key, use
    /// [`Request::key`].
    pub fn header(mut self, name: &str, value: &str) -> Result<Self, RequestError> {
        let wrong = || RequestError::Header(name.chars().take(200).collect());
        let header: HeaderName = name.parse().map_err(|_| wrong())?;
        if [IDEMPOTENCY_KEY, IDEMPOTENCY_ATTEMPT, REQUEST_TIMEOUT].contains(&header) {
            return Err(wrong());
        }
        let value: HeaderValue = value.parse().map_err(|_| wrong())?;
        self.headers.append(header, value);
        Ok(self)
    }

    /// Sets the body.
    #[must_use]
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// Sets a JSON body.
    #[must_use]
    pub fn json(mut self, text: impl Into<Bytes>) -> Self {
        let json = HeaderValue::from_static("application/json");
        self.headers.insert(CONTENT_TYPE, json);
        self.body(text)
    }

    /// Sets the key. Without it the client generates one.
    #[must_use]
    pub fn key(mut self, key: IdempotencyKey) -> Self {
        (self.key, self.is_keyless) = (Some(key), false);
        self
    }

    /// Sends the request without a key. A POST or PATCH is then not sent again after any byte of it
    /// was sent.
    #[must_use]
    pub fn without_key(mut self) -> Self {
        (self.key, self.is_keyless) = (None, true);
        self
    }

    /// Discards an unfinished run of this operation from the journal and sends the request under a
    /// new key.
    ///
    /// The service then executes the operation once more, even if the earlier run succeeded. Find
    /// out first whether it did.
    #[must_use]
    pub fn anew(mut self) -> Self {
        self.is_anew = true;
        self
    }

    /// Sets the name of the operation in the journal, which distinguishes equal requests.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// The key that was set.
    pub(super) fn given_key(&self) -> Option<&IdempotencyKey> {
        self.key.as_ref()
    }

    /// Whether an unfinished run is discarded.
    pub(super) fn is_anew(&self) -> bool {
        self.is_anew
    }

    /// Whether the request has a key.
    pub(super) fn has_key(&self) -> bool {
        self.key.is_some() || (wants_key(&self.method) && !self.is_keyless)
    }

    /// Whether the request may be sent again after any byte of it was sent.
    pub(super) fn is_repeatable(&self) -> bool {
        is_repeatable(&self.method, self.has_key())
    }

    /// The identity of the operation in the journal.
    pub(super) fn intent(&self) -> Intent {
        let mut intent = Intent::new(self.method.as_str(), self.url.as_str(), &self.body);
        intent.name.clone_from(&self.name);
        intent
    }
}

/// Why a request cannot be sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The URL is not an `http` or `https` URL.
    #[error("{0:?} is not an http or https URL")]
    Url(String),
    /// The header is not valid, or the client sets it itself.
    #[error("{0:?} is not a header that can be set")]
    Header(String),
}
