//! Requests of a webhook: the encoded event, its signature and its headers.
//!
//! The body is that of Standard Webhooks, a link to the event, or what a mapping makes of it.

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use hapax::{
    mask::Mask,
    signature,
    sink::{Offer, SinkError},
    trace::{TRACEPARENT, TRACESTATE},
};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request,
    header::{AUTHORIZATION, CONTENT_TYPE, USER_AGENT},
};
use http_body_util::Full;
use tokio::time::Instant;

use super::{JSON, SENDER, Webhook, authentication::Token, mapped::Body};
use crate::format;

/// A request as it was sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SentRequest {
    /// The headers by name. Values of configured headers are `***`.
    pub headers: BTreeMap<String, String>,
    /// The body, as it may be shown.
    pub body: Bytes,
    /// How long its body was made, and waited for that, before the request.
    pub prepared_in: Duration,
}

impl Webhook {
    /// The request, and its body as it may be shown.
    pub(super) async fn request(
        &self,
        offer: &Offer,
        mask: Option<&Mask>,
    ) -> Result<(Request<Full<Bytes>>, Bytes), SinkError> {
        let Body { sent, shown } = self.body(offer, mask).await?;
        Ok((self.request_of(offer, sent), shown))
    }

    /// The request with this body. It is signed now.
    fn request_of(&self, offer: &Offer, body: Bytes) -> Request<Full<Bytes>> {
        let event = offer.event();
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
        for (name, value) in self.authentication.headers() {
            headers.insert(name, value.clone());
        }

        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.url.clone();
        *request.headers_mut() = headers;
        request
    }

    /// The body, which the signature covers. Only one that a mapping has made is masked.
    async fn body(&self, offer: &Offer, mask: Option<&Mask>) -> Result<Body, SinkError> {
        let event = offer.event();
        let body = match (&self.mapping, &self.links) {
            (Some(mapping), _) => {
                let end_by = Instant::now() + self.timeout / 2;
                return self.places.body(mapping, offer, mask, end_by).await;
            }
            (None, Some(base)) => format::thin_webhook(event, offer.event.position, base),
            (None, None) => format::standard_webhook(event),
        };
        let sent = Bytes::from(body);
        let shown = sent.clone();
        Ok(Body { sent, shown })
    }
}

/// The headers of a request, with the values of configured ones masked.
pub(super) fn shown(headers: &HeaderMap) -> BTreeMap<String, String> {
    let shown = |(name, value): (&HeaderName, &HeaderValue)| {
        let value = match value.to_str() {
            Ok(text) if !value.is_sensitive() => text,
            _ => "***",
        };
        (name.to_string(), value.to_owned())
    };
    headers.iter().map(shown).collect()
}

/// The same request with a token.
pub(super) fn authorized(mut request: Request<Full<Bytes>>, token: &Token) -> Request<Full<Bytes>> {
    let headers = request.headers_mut();
    headers.insert(AUTHORIZATION, token.authorization());
    request
}
