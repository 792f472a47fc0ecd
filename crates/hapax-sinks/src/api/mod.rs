//! HTTP APIs of services: where to connect, how a request is sent, and why one did not succeed.
//!
//! Connections go through the guard and the client of webhooks: no redirects, no proxies, and only to
//! the public internet and to permitted networks. Without TLS, only permitted networks outside the
//! public internet are open, because a request contains events and perhaps a token. Secrets that the
//! service sends back are masked.

use std::{fmt, path::Path};

use bytes::Bytes;
use hapax::{Clock, retry};
use http::{HeaderValue, Request, Uri, header::USER_AGENT};
use http_body_util::Full;
use ipnet::IpNet;
use tokio::time::{Instant, timeout_at};

use crate::{
    settings::{DestinationSettings, SettingError},
    tls,
    webhook::{Blocked, SENDER, client, confidential, connect::Dial, echo, outcome},
};

mod endpoint;
mod parts;
mod failure;

pub(crate) use endpoint::Endpoint;
pub(crate) use failure::{Failure, Response, type_of_status};
#[cfg(any(feature = "s3", feature = "pubsub"))]
pub(crate) use parts::Parts;
#[cfg(any(feature = "sqs", feature = "sns"))]
pub(crate) use parts::parts;

/// An API that requests are sent to.
pub(crate) struct Api {
    client: client::HttpClient,
    refusal: Option<Blocked>,
    origin: String,
    authority: String,
    clock: Clock,
}

impl Api {
    /// Creates the API at this endpoint. No connection is opened.
    pub(crate) fn new(
        endpoint: Endpoint,
        allow: &[IpNet],
        ca: Option<&Path>,
        destination: &DestinationSettings,
        clock: Clock,
    ) -> Result<Self, SettingError> {
        let (tls, _) = tls::read(ca)?;
        let guard = confidential(&endpoint.url, allow.to_vec());
        let origin = endpoint.origin();
        let Endpoint {
            host,
            port,
            authority,
            ..
        } = endpoint;
        let dial = Dial::new(host, port, guard, destination.resolver.clone());
        Ok(Self {
            refusal: dial.refusal(),
            client: client::new(dial, tls, destination.timeout),
            origin,
            authority,
            clock,
        })
    }

    /// Why the guard blocks the endpoint, if the URL alone determines that.
    pub(crate) fn refusal(&self) -> Option<Blocked> {
        self.refusal.clone()
    }

    /// The URL of this path, which is percent-encoded.
    pub(crate) fn url(&self, path: &str) -> Uri {
        let url: Result<Uri, _> = format!("{}{path}", self.origin).parse();
        url.expect("an encoded path after a URL is a URL")
    }

    /// The host, with the port unless it is that of the scheme.
    #[cfg(any(feature = "s3", feature = "sqs", feature = "sns"))]
    pub(crate) fn authority(&self) -> &str {
        &self.authority
    }

    /// The clock of the sink.
    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Sends a request, and reads the beginning of the response. The secrets in `hidden` are masked.
    pub(crate) async fn send(
        &self,
        mut request: Request<Full<Bytes>>,
        hidden: &[&str],
        deadline: Instant,
    ) -> Result<Response, Failure> {
        if let Some(blocked) = self.refusal() {
            return Err(Failure::new("blocked", blocked));
        }
        let headers = request.headers_mut();
        headers.insert(USER_AGENT, SENDER);
        let request = self.client.request(request);
        let response = match timeout_at(deadline, request).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => {
                let error_type = client::error_type(&error);
                return Err(Failure::new(error_type, client::ExchangeError::from(error)));
            }
            Err(elapsed) => return Err(Failure::new("timeout", elapsed)),
        };
        let (parts, body) = response.into_parts();
        let head = outcome::read_head(body, deadline).await;
        let header = |name: &'static str| parts.headers.get(name)?.to_str().ok();
        let now = self.clock.now();
        Ok(Response {
            status: parts.status,
            retry_after: retry::retry_after(header, now),
            skew: failure::skew(header("date"), now),
            head: echo::mask(head, hidden),
        })
    }
}

impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Api")
            .field("origin", &self.origin)
            .field("authority", &self.authority)
            .finish_non_exhaustive()
    }
}

/// A header of visible ASCII and spaces.
pub(crate) fn visible(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).expect("the text consists of visible ASCII and spaces")
}
