//! Establishing a connection to an instance: TCP, TLS, and the handshake of HTTP.

use std::{sync::Arc, time::Duration};

use axum::body::Body;
use hapax::sink::BoxError;
use http::{Uri, uri::Scheme};
use hyper::{
    client::conn::http1,
    rt::{Read, Write},
};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::{
    TlsError,
    http2::{self, Shared},
};
use crate::config::{self, Protocol};

/// Maximum size of the head of a response of HTTP/1.1, in bytes.
const HEAD_BYTES_MAX: usize = 256 * 1024;
/// Maximum number of headers of a response.
const HEADERS_MAX: usize = 200;

/// How to reach an instance.
pub(super) struct Dial {
    host: String,
    port: u16,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    protocol: Protocol,
    timeout: Duration,
}

impl Dial {
    pub(super) fn new(
        uri: &Uri,
        settings: &config::Upstream,
        tls: Option<Arc<ClientConfig>>,
    ) -> Result<Self, TlsError> {
        let host = uri.host().unwrap_or_default();
        let host = host
            .trim_start_matches('[')
            .trim_end_matches(']')
            .to_owned();
        let is_tls = uri.scheme() == Some(&Scheme::HTTPS);
        let tls = match tls.filter(|_| is_tls) {
            None => None,
            Some(client) => {
                let name = ServerName::try_from(host.clone());
                let name = name.map_err(|_| {
                    TlsError::Instance(format!("{host:?} has no valid name for TLS"))
                })?;
                Some((TlsConnector::from(client), name))
            }
        };
        Ok(Self {
            port: uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 }),
            host,
            tls,
            protocol: settings.protocol,
            timeout: settings.connect_timeout.0,
        })
    }

    pub(super) fn is_http2(&self) -> bool {
        self.protocol == Protocol::Http2
    }

    pub(super) fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Opens a connection of HTTP/1.1. Nothing of a request is sent.
    pub(super) async fn connect_http1(&self) -> Result<http1::SendRequest<Body>, BoxError> {
        let opening = async {
            match self.stream().await? {
                Stream::Plain(stream) => handshake(TokioIo::new(stream)).await,
                Stream::Tls(stream) => handshake(TokioIo::new(stream)).await,
            }
        };
        timeout(self.timeout, Box::pin(opening)).await?
    }

    /// Opens a connection of HTTP/2. Nothing of a request is sent.
    pub(super) async fn connect_http2(&self) -> Result<Shared, BoxError> {
        let opening = async {
            match self.stream().await? {
                Stream::Plain(stream) => http2::handshake(TokioIo::new(stream)).await,
                Stream::Tls(stream) => http2::handshake(TokioIo::new(stream)).await,
            }
        };
        timeout(self.timeout, Box::pin(opening)).await?
    }

    async fn stream(&self) -> Result<Stream, BoxError> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        // A request is written at once. Nagle's algorithm would only delay it.
        let _ = stream.set_nodelay(true);
        match &self.tls {
            None => Ok(Stream::Plain(stream)),
            Some((connector, name)) => {
                let stream = connector.connect(name.clone(), stream).await?;
                Ok(Stream::Tls(Box::new(stream)))
            }
        }
    }
}

/// An established connection.
enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

async fn handshake<T>(io: T) -> Result<http1::SendRequest<Body>, BoxError>
where
    T: Read + Write + Unpin + Send + 'static,
{
    let mut builder = http1::Builder::new();
    builder
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX);
    let (sender, connection) = builder.handshake(io).await?;
    tokio::spawn(async move {
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(%error, "connection to an upstream ended early");
        }
    });
    Ok(sender)
}
