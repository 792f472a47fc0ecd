//! HTTP client of the run: one exchange with the shop, and its error if it failed.
//!
//! The client never retries by itself, because the journal must contain every request. The caller
//! retries.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Request, header::AUTHORIZATION};
use http_body_util::{BodyExt as _, Full};
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::TokioExecutor,
};
use tokio::time::timeout;

use super::{answer::Answer, journal::Outcome};

/// If the shop takes longer than this, the response counts as lost.
const EXCHANGE: Duration = Duration::from_secs(20);

/// A client of the shop, with one address or several addresses that it uses in turn.
#[derive(Clone, Debug)]
pub(super) struct Client {
    http: legacy::Client<HttpConnector, Full<Bytes>>,
    addresses: Arc<[SocketAddr]>,
    turn: Arc<AtomicUsize>,
}

impl Client {
    pub(super) fn of(addresses: impl IntoIterator<Item = SocketAddr>) -> Self {
        let http = legacy::Client::builder(TokioExecutor::new())
            .retry_canceled_requests(false)
            .build_http();
        Self {
            http,
            addresses: addresses.into_iter().collect(),
            turn: Arc::default(),
        }
    }

    /// Returns the same client for a single instance.
    pub(super) fn at(&self, address: SocketAddr) -> Self {
        Self {
            addresses: Arc::new([address]),
            ..self.clone()
        }
    }

    /// Reads `path` as `tenant`.
    pub(super) async fn get(&self, tenant: &str, path: &str) -> Outcome {
        self.send(tenant, Method::GET, path, &[], Bytes::new())
            .await
    }

    /// Sends JSON to `path` with POST as `tenant`.
    pub(super) async fn post(
        &self,
        tenant: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Outcome {
        self.send(tenant, Method::POST, path, headers, body).await
    }

    async fn send(
        &self,
        tenant: &str,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Outcome {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let address = self.addresses[turn % self.addresses.len()];
        let mut request = Request::builder()
            .method(method)
            .uri(format!("http://{address}{path}"))
            .header(AUTHORIZATION, format!("Bearer demo-{tenant}"))
            .header("content-type", "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body)).expect("the request is valid");
        timeout(EXCHANGE, self.exchange(request))
            .await
            .unwrap_or(Outcome::Lost)
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Outcome {
        let response = match self.http.request(request).await {
            Ok(response) => response,
            Err(error) if error.is_connect() => return Outcome::Unsent,
            Err(_) => return Outcome::Lost,
        };
        let (parts, body) = response.into_parts();
        let Ok(body) = body.collect().await else {
            return Outcome::Lost;
        };
        let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into();
        let headers = parts
            .headers
            .iter()
            .map(|(name, value)| (name.to_string(), text(value)));
        Outcome::Answered(Answer {
            status: parts.status.as_u16(),
            headers: headers.collect(),
            body: body.to_bytes(),
        })
    }
}
