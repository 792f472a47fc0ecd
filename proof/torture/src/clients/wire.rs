//! One request to a shop, and its outcome or error.
//!
//! Every request is in the history first: nothing here retries without the caller.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use bytes::Bytes;
use hapax::{
    Timestamp,
    signature::{self, Signer},
};
use http::{Method, Request, header::AUTHORIZATION};
use http_body_util::{BodyExt as _, Full};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{
    SOURCES,
    operation::{Kind, Operation},
};
use crate::lines::now;

/// Longer than a shop may take; after that the response counts as lost.
const EXCHANGE: Duration = Duration::from_secs(12);
/// Shorter than the request timeout of a shop: the client stops waiting while its request still runs.
const SHORT_EXCHANGE: Duration = Duration::from_millis(700);
/// One request in this many has the short timeout. The number of shops does not divide it.
const SHORT_EVERY: usize = 5;

#[derive(Debug)]
pub(super) struct Wire {
    client: Client<HttpConnector, Full<Bytes>>,
    shops: Vec<String>,
    /// Number of the next request.
    next: AtomicUsize,
}

/// How an exchange ended.
#[derive(Clone, Debug)]
pub(super) enum Outcome {
    Responded(Response),
    /// No connection: the request was not sent.
    Unsent,
    /// The request was sent, and no response arrived.
    Lost,
}

#[derive(Clone, Debug)]
pub(super) struct Response {
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
}

impl Wire {
    pub(super) fn to(shops: Vec<String>) -> Self {
        let client = Client::builder(TokioExecutor::new())
            .retry_canceled_requests(false)
            .build_http();
        Self {
            client,
            shops,
            next: AtomicUsize::new(0),
        }
    }

    /// Sends the request of an operation once. For some requests the wait is short.
    pub(super) async fn send(&self, operation: &Operation) -> anyhow::Result<Outcome> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let limit = if number.is_multiple_of(SHORT_EVERY) {
            SHORT_EXCHANGE
        } else {
            EXCHANGE
        };
        self.send_within(operation, number, limit).await
    }

    /// The same, and waits for as long as a shop may take.
    pub(super) async fn send_patiently(&self, operation: &Operation) -> anyhow::Result<Outcome> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.send_within(operation, number, EXCHANGE).await
    }

    async fn send_within(
        &self,
        operation: &Operation,
        number: usize,
        limit: Duration,
    ) -> anyhow::Result<Outcome> {
        let shop = &self.shops[number % self.shops.len()];
        let method = match operation.kind {
            Kind::Update => Method::PUT,
            _ => Method::POST,
        };
        let (content_type, body) = encode(operation, number)?;
        let mut request = Request::builder()
            .method(method)
            .uri(format!("http://{shop}{}", operation.path))
            .header(AUTHORIZATION, format!("Bearer token-{}", operation.tenant))
            .header("content-type", content_type);
        if let Some(etag) = &operation.if_match {
            request = request.header("if-match", etag);
        }
        match operation.kind {
            // The key is derived from the address.
            Kind::Signup => {}
            Kind::Message | Kind::Market | Kind::Notice => {
                let key = operation.of.as_ref().unwrap_or(&operation.key);
                let id = format!("msg-{}-{key}", operation.tenant);
                for (name, value) in signature_headers(operation, &id, &body)? {
                    request = request.header(name, value);
                }
            }
            _ => request = request.header("idempotency-key", &operation.key),
        }
        let request = request.body(Full::new(body))?;
        let exchanged = timeout(limit, self.exchange(request)).await;
        Ok(exchanged.unwrap_or(Outcome::Lost))
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Outcome {
        let response = match self.client.request(request).await {
            Ok(response) => response,
            Err(error) if error.is_connect() => return Outcome::Unsent,
            Err(_) => return Outcome::Lost,
        };
        let (parts, body) = response.into_parts();
        let Ok(body) = body.collect().await else {
            return Outcome::Lost;
        };
        let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into();
        let headers = parts.headers.iter();
        let headers = headers.map(|(name, value)| (name.to_string(), text(value)));
        Outcome::Responded(Response {
            status: parts.status.as_u16(),
            headers: headers.collect(),
            body: String::from_utf8_lossy(&body.to_bytes()).into_owned(),
        })
    }
}

impl Response {
    /// A response with this status and no information.
    #[cfg(test)]
    pub(super) fn sample(status: u16) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: String::new(),
        }
    }

    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Whether the same request would get another response later.
    pub(super) fn is_transient(&self) -> bool {
        matches!(self.status, 408 | 425 | 429 | 500..)
            || self.status == 409 && self.header("retry-after").is_some()
    }

    /// Whether the response leaves the outcome open.
    pub(super) fn is_indefinite(&self) -> bool {
        self.status >= 500
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(found, _)| found == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The body as JSON; null if it is not JSON.
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_default()
    }

    /// The response as a line's value: what a replay has to repeat, without headers that belong to
    /// one exchange.
    pub(super) fn json_line(&self) -> Value {
        const OF_ONE_EXCHANGE: [&str; 4] =
            ["connection", "date", "idempotency-status", "x-request-id"];
        let mut stored: Vec<_> = self.headers.clone();
        stored.retain(|(name, _)| !OF_ONE_EXCHANGE.contains(&name.as_str()));
        stored.sort();
        json!({
            "status": self.status,
            "idempotency_status": self.header("idempotency-status"),
            "final": !self.is_transient(),
            "headers": stored,
            "body": self.body,
        })
    }
}

/// The body of a request and its content type; a form has a unique boundary.
fn encode(operation: &Operation, number: usize) -> anyhow::Result<(String, Bytes)> {
    if operation.kind != Kind::Upload {
        return Ok((
            "application/json".to_owned(),
            operation.body.to_string().into(),
        ));
    }
    let name = operation.body["name"].as_str().unwrap_or_default();
    let boundary = format!("boundary-{number}");
    let head = format!(
        "--{boundary}\r\ncontent-disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\
         content-type: image/png\r\n\r\n"
    );
    let end = format!("\r\n--{boundary}--\r\n");
    let body = [head.as_bytes(), &operation.file()?, end.as_bytes()].concat();
    Ok((
        format!("multipart/form-data; boundary={boundary}"),
        body.into(),
    ))
}

/// The headers of a signed message.
fn signature_headers(
    operation: &Operation,
    id: &str,
    body: &[u8],
) -> anyhow::Result<[(&'static str, String); 3]> {
    let (_, secret) = SOURCES[usize::from(operation.kind == Kind::Market)];
    let signer: Signer = secret.parse()?;
    let seconds = Timestamp::from_millis(i64::try_from(now() / 1_000_000)?).as_secs();
    let signature = signature::sign(id, seconds, body, [&signer]);
    Ok([
        (signature::ID_HEADER, id.to_owned()),
        (signature::TIMESTAMP_HEADER, seconds.to_string()),
        (signature::SIGNATURE_HEADER, signature),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_response_that_a_repeat_may_change_is_transient() {
        let is_transient = |status| Response::sample(status).is_transient();
        for transient in [408, 425, 429, 500, 503] {
            assert!(is_transient(transient), "{transient}");
        }
        for permanent in [200, 201, 402, 404, 409, 422] {
            assert!(!is_transient(permanent), "{permanent}");
        }
        assert!(with(409, "retry-after", "1").is_transient());
    }

    #[test]
    fn what_belongs_to_one_exchange_is_not_part_of_a_replay() {
        let headers = |name, value| with(201, name, value).json_line()["headers"].clone();
        for (name, value) in [("connection", "close"), ("idempotency-status", "stored")] {
            assert_eq!(headers(name, value), json!([]), "{name}");
        }
        assert_eq!(headers("etag", "\"1\""), json!([["etag", "\"1\""]]));
    }

    fn with(status: u16, name: &str, value: &str) -> Response {
        Response {
            headers: vec![(name.to_owned(), value.to_owned())],
            ..Response::sample(status)
        }
    }
}
