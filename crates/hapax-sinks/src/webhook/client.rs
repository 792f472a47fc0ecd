//! The HTTP client of one webhook: HTTP/1.1 and 2, TLS by rustls, no proxies.
//!
//! Connections are kept and shared by the offers of one destination. A
//! response's head and what is buffered of its body are bounded, and an
//! HTTP/2 connection that went silent is given up, so that a dead far side
//! costs one timeout and not one for each offer.

use std::{error::Error, io, sync::Arc, time::Duration};

use bytes::Bytes;
use hapax::{limits::RESPONSE_HEAD_BYTES, sink::SinkError};
use http_body_util::Full;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{self, Client},
    rt::{TokioExecutor, TokioTimer},
};
use rustls::{ClientConfig, RootCertStore, crypto::ring, pki_types::CertificateDer};

use super::{
    WebhookError,
    connect::{Bounded, Dial, DialError},
};
use crate::limits::{IDLE_CONNECTION, IDLE_CONNECTIONS_MAX, KEEP_ALIVE};

pub(super) type HttpClient = Client<Bounded<HttpsConnector<Dial>>, Full<Bytes>>;

/// Makes a client that dials nothing but `dial`.
pub(super) fn new(
    dial: Dial,
    roots: Vec<CertificateDer<'static>>,
    timeout: Duration,
) -> Result<HttpClient, WebhookError> {
    let inner = HttpsConnectorBuilder::new()
        .with_tls_config(tls(roots)?)
        .https_or_http()
        .enable_all_versions()
        .wrap_connector(dial);
    let stream_window = u32::try_from(RESPONSE_HEAD_BYTES).unwrap_or(u32::MAX);
    Ok(Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_CONNECTION)
        .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
        .http1_max_buf_size(RESPONSE_HEAD_BYTES)
        .http2_max_header_list_size(stream_window)
        .http2_initial_stream_window_size(stream_window)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .http2_keep_alive_timeout(KEEP_ALIVE)
        .build(Bounded { inner, timeout }))
}

/// Says what kind of failure it was when no response came.
pub(super) fn failure(error: legacy::Error) -> SinkError {
    let error_type = match root_cause(&error) {
        Cause::Dial(DialError::Blocked(_)) => "blocked",
        Cause::Dial(DialError::Resolve(_) | DialError::Nowhere) => "resolve",
        Cause::Dial(DialError::Connect(_)) => "connect",
        Cause::Tls => "tls",
        Cause::Timeout => "timeout",
        // The dial went well, so it is the handshake that was broken off.
        Cause::Other if error.is_connect() => "tls",
        Cause::Other => "exchange",
    };
    SinkError::unavailable(error_type, error)
}

fn tls(roots: Vec<CertificateDer<'static>>) -> Result<ClientConfig, WebhookError> {
    let mut store = RootCertStore::empty();
    store.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    for root in roots {
        store.add(root).map_err(|_| WebhookError::Certificate)?;
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring speaks TLS 1.2 and 1.3")
        .with_root_certificates(store)
        .with_no_client_auth();
    Ok(config)
}

enum Cause<'a> {
    Dial(&'a DialError),
    Tls,
    Timeout,
    Other,
}

/// Finds the layer that failed; an I/O error hides what it wraps from `source`.
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
