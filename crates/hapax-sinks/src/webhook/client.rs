//! The HTTP client of a webhook: HTTP/1.1 and 2, TLS by rustls, no proxies.
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
use rustls::ClientConfig;

use super::connect::{Bounded, Dial, DialError};
use crate::limits::{IDLE_CONNECTION, IDLE_CONNECTIONS_MAX, KEEP_ALIVE};

pub(super) type HttpClient = Client<Bounded<HttpsConnector<Dial>>, Full<Bytes>>;

/// Creates a client that connects only through `dial`.
pub(super) fn new(dial: Dial, tls: ClientConfig, timeout: Duration) -> HttpClient {
    let inner = HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http()
        .enable_all_versions()
        .wrap_connector(dial);
    let stream_window = u32::try_from(RESPONSE_HEAD_BYTES).unwrap_or(u32::MAX);
    Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_CONNECTION)
        .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
        .http1_max_buf_size(RESPONSE_HEAD_BYTES)
        .http2_max_header_list_size(stream_window)
        .http2_initial_stream_window_size(stream_window)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .http2_keep_alive_timeout(KEEP_ALIVE)
        .build(Bounded { inner, timeout })
}

/// Classifies the failure if there was no response.
pub(super) fn failure(error: legacy::Error) -> SinkError {
    let error_type = match root_cause(&error) {
        Cause::Dial(DialError::Blocked(_)) => "blocked",
        Cause::Dial(DialError::Resolve(_) | DialError::Nowhere) => "resolve",
        Cause::Dial(DialError::Connect(_)) => "connect",
        Cause::Tls => "tls",
        Cause::Timeout => "timeout",
        // The connection was opened, so the handshake failed.
        Cause::Other if error.is_connect() => "tls",
        Cause::Other => "exchange",
    };
    SinkError::unavailable(error_type, error)
}

enum Cause<'a> {
    Dial(&'a DialError),
    Tls,
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
        if error.is::<rustls::Error>() {
            return Cause::Tls;
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
