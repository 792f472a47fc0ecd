//! Stored responses, ready to be replayed.
//!
//! The first response and every replay are built from the same [`Stored`], so they cannot differ in
//! status, stored headers or body. A [`Stored`] is created once: a replay copies a table of
//! reference-counted headers and a handle to the body.

use axum::{
    body::{Body, Bytes},
    response::Response,
};
use hapax::{
    admin::KeyState,
    idempotency::StoredResponse,
    key::{Fingerprint, IdempotencyKey},
    keyring::ENCRYPTED_UNDER,
};
use http::{
    Extensions, HeaderMap, HeaderName, HeaderValue, StatusCode,
    header::{CONNECTION, CONTENT_LENGTH, DATE, SERVER, SET_COOKIE, TRAILER, TRANSFER_ENCODING},
};

use crate::{
    header::{HOP_BY_HOP, IDEMPOTENCY_KEY, IDEMPOTENCY_STATUS, IDEMPOTENT_REPLAYED, echo},
    passed_on::Verbatim,
    profile::Profile,
    request_id::REQUEST_ID,
    settings::Moment,
};

/// Headers that belong to one exchange and are never stored, in addition to the hop-by-hop headers.
const PER_EXCHANGE: [HeaderName; 9] = [
    SET_COOKIE,
    DATE,
    SERVER,
    TRAILER,
    REQUEST_ID,
    IDEMPOTENCY_KEY,
    IDEMPOTENCY_STATUS,
    IDEMPOTENT_REPLAYED,
    // Written by the store: the encryption of a stored response.
    HeaderName::from_static(ENCRYPTED_UNDER),
];
/// Headers that are not stored, because they are computed from the stored body.
const REBUILT: [HeaderName; 2] = [CONTENT_LENGTH, TRANSFER_ENCODING];

const REPLAYED: HeaderValue = HeaderValue::from_static("replayed");
const STORED: HeaderValue = HeaderValue::from_static("stored");
const TRUE: HeaderValue = HeaderValue::from_static("true");

/// A completed response, ready to be sent.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) fingerprint: Fingerprint,
    pub(crate) expires_at: Moment,
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl Stored {
    /// Prepares `response` for sending. Returns `None` if its status or a header is not valid in
    /// HTTP.
    pub(crate) fn new(
        response: StoredResponse,
        key: &IdempotencyKey,
        fingerprint: Fingerprint,
        expires_at: Moment,
        profile: Profile,
    ) -> Option<Self> {
        let mut headers = HeaderMap::with_capacity(response.headers.len() + 3);
        for (name, value) in response.headers {
            let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
            headers.append(name, HeaderValue::from_maybe_shared(value).ok()?);
        }
        headers.insert(IDEMPOTENCY_KEY, echo(key));
        headers.insert(IDEMPOTENCY_STATUS, REPLAYED);
        if profile.marks_replays() {
            headers.insert(IDEMPOTENT_REPLAYED, TRUE);
        }
        Some(Self {
            fingerprint,
            expires_at,
            status: StatusCode::from_u16(response.status).ok()?,
            headers,
            body: response.body,
        })
    }

    /// Returns the response as a replay.
    pub(crate) fn replay(&self) -> Response {
        let mut response = Response::new(Body::from(self.body.clone()));
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers.clone();
        self.mark(&mut response);
        response
    }

    /// Returns the response for the first request, with the headers and extensions that belong to
    /// this exchange only.
    pub(crate) fn first(&self, exchange: HeaderMap, extensions: Extensions) -> Response {
        let mut response = self.replay();
        let headers = response.headers_mut();
        headers.remove(IDEMPOTENT_REPLAYED);
        headers.insert(IDEMPOTENCY_STATUS, STORED);
        headers.extend(exchange);
        *response.extensions_mut() = extensions;
        self.mark(&mut response);
        response
    }

    /// Marks an error response, so that nothing replaces its stored bytes.
    fn mark(&self, response: &mut Response) {
        if self.status.is_client_error() || self.status.is_server_error() {
            response.extensions_mut().insert(Verbatim);
        }
    }

    /// Returns the state of the key, which follows from the status.
    pub(crate) fn state(&self) -> &'static str {
        if self.status.is_server_error() {
            KeyState::Failed.as_str()
        } else {
            KeyState::Completed.as_str()
        }
    }

    /// Estimates the memory in bytes.
    pub(crate) fn weight(&self) -> u64 {
        let line = |(name, value): (&HeaderName, &HeaderValue)| name.as_str().len() + value.len();
        let headers: usize = self.headers.iter().map(|pair| line(pair) + 96).sum();
        (self.body.len() + headers + 512) as u64
    }
}

/// Splits the headers of a response into those that are stored and those that belong to this
/// exchange only.
pub(crate) fn split(
    headers: HeaderMap,
    per_request: &[HeaderName],
) -> (Vec<(String, Bytes)>, HeaderMap) {
    let named = named_by_connection(&headers);
    let (mut stored, mut exchange) = (Vec::with_capacity(headers.len()), HeaderMap::new());
    let mut last = None;
    for (name, value) in headers {
        // `HeaderMap` yields the name of a repeated header only with its first value.
        let name = name
            .or_else(|| last.clone())
            .expect("the first value of a header has a name");
        last = Some(name.clone());
        if REBUILT.contains(&name) {
            continue;
        }
        let is_hop_by_hop = HOP_BY_HOP.contains(&name) || named.contains(&name);
        if is_hop_by_hop || PER_EXCHANGE.contains(&name) || per_request.contains(&name) {
            exchange.append(name, value);
        } else {
            stored.push((
                name.as_str().to_owned(),
                Bytes::copy_from_slice(value.as_bytes()),
            ));
        }
    }
    (stored, exchange)
}

/// Headers that the `Connection` header makes hop-by-hop.
fn named_by_connection(headers: &HeaderMap) -> Vec<HeaderName> {
    headers
        .get_all(CONNECTION)
        .iter()
        .flat_map(|value| value.as_bytes().split(|b| *b == b','))
        .filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_one_exchange_are_never_stored() {
        let mut headers = HeaderMap::new();
        for name in [
            "set-cookie",
            "date",
            "server",
            "x-mine",
            "x-hop",
            "keep-alive",
            "upgrade",
            "hapax-encrypted-under",
        ] {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static("v"));
        }
        headers.append("connection", HeaderValue::from_static("close, X-Hop"));
        headers.append("content-length", HeaderValue::from_static("3"));
        headers.append("etag", HeaderValue::from_static("\"1\""));
        headers.append("link", HeaderValue::from_static("a"));
        headers.append("link", HeaderValue::from_bytes(b"\xff").unwrap());
        let (stored, exchange) = split(headers, &[HeaderName::from_static("x-mine")]);
        let stored: Vec<_> = stored
            .iter()
            .map(|(name, value)| (&**name, &**value))
            .collect();
        let kept: [(&str, &[u8]); 3] = [("etag", b"\"1\""), ("link", b"a"), ("link", b"\xff")];
        assert_eq!(stored, kept);
        assert_eq!(exchange.len(), 9);
        assert!(!exchange.contains_key("content-length"));
    }
}
