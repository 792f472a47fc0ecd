//! What is sent: the same bytes each time.

use std::sync::Arc;

use bytes::Bytes;
use hapax::key::IdempotencyKey;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, header::CONTENT_TYPE};

use crate::{
    destination,
    journal::Intent,
    policy::{IDEMPOTENCY_KEY, REQUEST_TIMEOUT, is_repeatable, wants_key},
};

/// A request, complete but for its key.
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
    /// A request without headers and body.
    ///
    /// # Errors
    /// Fails when `url` is no address of `http` or `https`.
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

    /// A GET.
    ///
    /// # Errors
    /// Fails when `url` is no address of `http` or `https`.
    pub fn get(url: &str) -> Result<Self, RequestError> {
        Self::new(Method::GET, url)
    }

    /// A POST without a body.
    ///
    /// # Errors
    /// Fails when `url` is no address of `http` or `https`.
    pub fn post(url: &str) -> Result<Self, RequestError> {
        Self::new(Method::POST, url)
    }

    /// Adds a header.
    ///
    /// # Errors
    /// Fails when it is none, or one that the client writes: give a key by [`Request::key`].
    pub fn header(mut self, name: &str, value: &str) -> Result<Self, RequestError> {
        let wrong = || RequestError::Header(name.chars().take(200).collect());
        let header: HeaderName = name.parse().map_err(|_| wrong())?;
        if header == IDEMPOTENCY_KEY || header == REQUEST_TIMEOUT {
            return Err(wrong());
        }
        let value: HeaderValue = value.parse().map_err(|_| wrong())?;
        self.headers.append(header, value);
        Ok(self)
    }

    /// Sends this body.
    #[must_use]
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// Sends this JSON text.
    #[must_use]
    pub fn json(mut self, text: impl Into<Bytes>) -> Self {
        let json = HeaderValue::from_static("application/json");
        self.headers.insert(CONTENT_TYPE, json);
        self.body(text)
    }

    /// Sends it under this key, instead of one that the client makes.
    #[must_use]
    pub fn key(mut self, key: IdempotencyKey) -> Self {
        (self.key, self.is_keyless) = (Some(key), false);
        self
    }

    /// Sends it without a key: a POST or PATCH is not sent again then once bytes of it were.
    #[must_use]
    pub fn without_key(mut self) -> Self {
        (self.key, self.is_keyless) = (None, true);
        self
    }

    /// Strikes out what the journal has unfinished of this operation, and sends it under a new key.
    ///
    /// The service does it once more then, whatever became of the earlier run: find that out first.
    #[must_use]
    pub fn anew(mut self) -> Self {
        self.is_anew = true;
        self
    }

    /// Gives the operation a name in the journal: what tells two equal requests apart.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// The key that it was given.
    pub(super) fn given_key(&self) -> Option<&IdempotencyKey> {
        self.key.as_ref()
    }

    /// Whether an unfinished run of it is struck out.
    pub(super) fn is_anew(&self) -> bool {
        self.is_anew
    }

    /// Whether it is sent under a key.
    pub(super) fn has_key(&self) -> bool {
        self.key.is_some() || (wants_key(&self.method) && !self.is_keyless)
    }

    /// Whether it may be sent again once bytes of it were.
    pub(super) fn is_repeatable(&self) -> bool {
        is_repeatable(&self.method, self.has_key())
    }

    /// What the journal knows it by.
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
    /// The address is none of `http` or `https`.
    #[error("{0:?} is no http or https address")]
    Url(String),
    /// The header is none, or one that the client writes.
    #[error("{0:?} is no header that can be sent")]
    Header(String),
}
