//! The HTTP client of webhooks, of S3, SQS, SNS and Pub/Sub: HTTP/1.1 and 2, TLS by rustls, no
//! proxies.
//!
//! Connections are pooled and shared by the deliveries of a destination. The head of a response and
//! the buffered part of its body are limited. A silent HTTP/2 connection is closed, so that a dead
//! receiver costs one timeout and not one per delivery.

use std::{error::Error, io, time::Duration};

use bytes::Bytes;
use hapax::{limits::RESPONSE_HEAD_BYTES, sink::SinkError};
use http_body_util::Full;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{self, Client},
    rt::{TokioExecutor, TokioTimer},
};
use rustls::{ClientConfig, InvalidMessage};

use super::connect::{Bounded, Dial, DialError};
use crate::limits::{IDLE_CONNECTION, IDLE_CONNECTIONS_MAX, KEEP_ALIVE};

pub(crate) type HttpClient = Client<Bounded<HttpsConnector<Dial>>, Full<Bytes>>;

/// Why there was no response.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExchangeError {
    /// The server responds to the beginning of TLS with something else, such as a plain text.
    #[error("the server does not speak TLS at this port: check the port in the URL")]
    NotTls,
    /// Anything else.
    #[error(transparent)]
    Other(legacy::Error),
}

impl From<legacy::Error> for ExchangeError {
    fn from(error: legacy::Error) -> Self {
        if error.is_connect() && is_without_tls(&error) {
            Self::NotTls
        } else {
            Self::Other(error)
        }
    }
}

/// Creates a client that connects only through `dial`.
pub(crate) fn new(dial: Dial, tls: ClientConfig, timeout: Duration) -> HttpClient {
    keeping(IDLE_CONNECTIONS_MAX, dial, tls, timeout)
}

/// The same with a maximum number of idle connections.
pub(crate) fn keeping(
    idle_max: usize,
    dial: Dial,
    tls: ClientConfig,
    timeout: Duration,
) -> HttpClient {
    let stream_window = u32::try_from(RESPONSE_HEAD_BYTES).unwrap_or(u32::MAX);
    Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_CONNECTION)
        .pool_max_idle_per_host(idle_max)
        .http1_max_buf_size(RESPONSE_HEAD_BYTES)
        .http2_max_header_list_size(stream_window)
        .http2_initial_stream_window_size(stream_window)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .http2_keep_alive_timeout(KEEP_ALIVE)
        .build(connector(dial, tls, timeout))
}

/// What opens the connections of a client.
pub(crate) fn connector(
    dial: Dial,
    tls: ClientConfig,
    timeout: Duration,
) -> Bounded<HttpsConnector<Dial>> {
    let inner = HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http()
        .enable_all_versions()
        .wrap_connector(dial);
    Bounded { inner, timeout }
}

/// Classifies the failure if there was no response.
pub(crate) fn failure(error: legacy::Error) -> SinkError {
    SinkError::unavailable(error_type(&error), ExchangeError::from(error))
}

/// The type of the failure if there was no response.
pub(crate) fn error_type(error: &legacy::Error) -> &'static str {
    match root_cause(error) {
        Cause::Dial(DialError::Blocked(_)) => "blocked",
        Cause::Dial(DialError::Resolve(_) | DialError::Nowhere) => "resolve",
        Cause::Dial(DialError::Connect(_)) => "connect",
        Cause::Tls(_) => "tls",
        Cause::Timeout => "timeout",
        // The connection was opened, so the handshake failed.
        Cause::Other if error.is_connect() => "tls",
        Cause::Other => "exchange",
    }
}

/// Whether an attempt to connect failed because the server does not speak TLS.
pub(crate) fn is_without_tls(error: &(dyn Error + 'static)) -> bool {
    let Cause::Tls(error) = root_cause(error) else {
        return false;
    };
    let not_tls = rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType);
    *error == not_tls
}

enum Cause<'a> {
    Dial(&'a DialError),
    Tls(&'a rustls::Error),
    Timeout,
    Other,
}

/// Finds the layer that failed. An I/O error hides what it wraps from `source`.
fn root_cause<'a>(error: &'a (dyn Error + 'static)) -> Cause<'a> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(dial) = error.downcast_ref() {
            return Cause::Dial(dial);
        }
        if let Some(tls) = error.downcast_ref() {
            return Cause::Tls(tls);
        }
        if error.is::<tokio::time::error::Elapsed>() {
            return Cause::Timeout;
        }
        next = match error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref)
        {
            Some(wrapped) => Some(wrapped),
            None => error.source(),
        };
    }
    Cause::Other
}
