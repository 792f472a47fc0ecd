//! Request ids, by which an operator finds a request in the log.
//!
//! [`RequestIds`] uses the caller's `X-Request-Id` if it is valid, and generates an id otherwise.
//! It adds the id to the request's extensions and to the response, and writes the problems that no
//! inner layer has written. It should be the outermost layer, so that every error of the service is
//! a problem with an id.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use axum::{extract::Request, response::Response};
use bytes::Bytes;
use hapax::Random;
use http::{HeaderMap, HeaderName, HeaderValue};
use tower_layer::Layer;
use tower_service::Service;

use crate::problem;

/// The header that carries a request's id.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Maximum length in bytes of an id that a caller sends: longer than usual ids, and short enough
/// for a log line.
const BYTES_MAX: usize = 128;

/// A request's id: visible ASCII without quotes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestId(HeaderValue);

impl RequestId {
    /// Returns the id as text.
    pub fn as_str(&self) -> &str {
        self.0.to_str().unwrap_or_default()
    }

    /// Generates a unique id: 128 random bits in hexadecimal.
    pub fn mint(random: &Random) -> Self {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let bits = (u128::from(random.bits()) << 64) | u128::from(random.bits());
        let mut text = [0; 32];
        for (place, digit) in text.iter_mut().enumerate() {
            *digit = DIGITS[(bits >> (124 - 4 * place)) as usize & 15];
        }
        // Copies of the id share this allocation. Bytes that are made from a slice allocate once more
        // when they are copied for the first time, which each request does.
        let text = Bytes::from_owner(text);
        Self(HeaderValue::from_maybe_shared(text).unwrap_or(HeaderValue::from_static("-")))
    }

    /// Returns the id that the caller sent, if it is valid: 1 to 128 letters, digits and
    /// `- _ . : / + =`.
    pub fn sent(headers: &HeaderMap) -> Option<Self> {
        let value = headers.get(REQUEST_ID)?;
        is_sane(value.as_bytes()).then(|| Self(value.clone()))
    }
}

/// Whether an id that a client sent can be used in logs, headers and events.
pub(crate) fn is_sane(id: &[u8]) -> bool {
    let allowed = |b: &u8| b.is_ascii_alphanumeric() || b"-_.:/+=".contains(b);
    (1..=BYTES_MAX).contains(&id.len()) && id.iter().all(allowed)
}

/// The layer that assigns request ids.
#[derive(Clone, Debug)]
pub struct RequestIds(Random);

impl RequestIds {
    /// Creates a layer that generates ids from `random`.
    pub const fn new(random: Random) -> Self {
        Self(random)
    }
}

impl<S> Layer<S> for RequestIds {
    type Service = Named<S>;

    fn layer(&self, inner: S) -> Named<S> {
        let random = self.0.clone();
        Named { inner, random }
    }
}

/// A service whose requests have ids.
#[derive(Clone, Debug)]
pub struct Named<S> {
    inner: S,
    random: Random,
}

impl<S> Service<Request> for Named<S>
where
    S: Service<Request, Response = Response, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request) -> Self::Future {
        let id =
            RequestId::sent(request.headers()).unwrap_or_else(|| RequestId::mint(&self.random));
        request.extensions_mut().insert(id.clone());
        let answer = self.inner.call(request);
        Box::pin(async move {
            let mut response = problem::settle(answer.await?, &id, problem::Finality::Final);
            response.headers_mut().insert(REQUEST_ID, id.0);
            Ok(response)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_taken_from_the_caller_only_when_it_is_sane() {
        check("0190-abc_DEF.1:2/3+4=", true);
        check(&"x".repeat(128), true);
        check("", false);
        check(&"x".repeat(129), false);
        check("a b", false);
        check("a\"b", false);
        check("{\"a\":1}", false);
    }

    #[test]
    fn a_minted_id_is_32_hex_digits() {
        let id = RequestId::mint(&Random::new(|| 0x0123_4567_89ab_cdef));
        assert_eq!(id.as_str(), "0123456789abcdef0123456789abcdef");
    }

    #[track_caller]
    fn check(text: &str, taken: bool) {
        let mut headers = HeaderMap::new();
        headers.insert(REQUEST_ID, HeaderValue::from_str(text).unwrap());
        assert_eq!(RequestId::sent(&headers).is_some(), taken, "{text:?}");
    }
}
