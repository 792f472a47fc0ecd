//! HTTP client that sends exactly the given request and keeps the complete response.

use bytes::Bytes;
use hapax::sink::BoxError;
use http::{HeaderMap, Method, Request};
use http_body_util::{BodyExt, Full};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};

/// A client that keeps its connections open between requests.
#[derive(Clone, Debug)]
pub struct HttpClient(Client<HttpConnector, Full<Bytes>>);

/// A response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpResponse {
    /// The status code.
    pub status: u16,
    /// The headers as received.
    pub headers: HeaderMap,
    /// The complete body.
    pub body: Bytes,
}

impl HttpClient {
    /// Creates a client without connections.
    pub fn new() -> Self {
        Self(Client::builder(TokioExecutor::new()).build_http())
    }

    /// Sends a GET request to `url`.
    ///
    /// # Errors
    /// Fails if the response is missing or incomplete.
    pub async fn get(&self, url: &str) -> Result<HttpResponse, BoxError> {
        self.send(Method::GET, url, &[], Bytes::new()).await
    }

    /// Sends a POST request with `body` to `url`.
    ///
    /// # Errors
    /// Fails if the response is missing or incomplete.
    pub async fn post(
        &self,
        url: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Result<HttpResponse, BoxError> {
        self.send(Method::POST, url, headers, body.into()).await
    }

    /// Sends a request and reads the complete response.
    ///
    /// # Errors
    /// Fails if the response is missing or incomplete.
    pub async fn send(
        &self,
        method: Method,
        url: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Result<HttpResponse, BoxError> {
        let mut request = Request::builder().method(method).uri(url);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = self.0.request(request.body(Full::new(body))?).await?;
        let (head, body) = answer.into_parts();
        Ok(HttpResponse {
            status: head.status.as_u16(),
            headers: head.headers,
            body: body.collect().await?.to_bytes(),
        })
    }
}

impl Default for HttpClient {
    fn default() -> Self {
        Self::new()
    }
}

impl HttpResponse {
    /// The first value of a header, if it is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The body as text, lossily.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    ///
    /// # Errors
    /// Fails if the body is not JSON.
    pub fn json(&self) -> Result<serde_json::Value, serde_json::Error> {
        serde_json::from_slice(&self.body)
    }
}
