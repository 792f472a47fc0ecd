//! Connections: one per exchange, plain or with TLS, cut where a check wants it.
//!
//! The address is resolved once and checked before the connection is opened, so a host name cannot
//! lead the probe to an address that the plan does not allow.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use futures_util::FutureExt as _;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpStream, lookup_host},
    task::yield_now,
    time::{Instant, timeout_at},
};
use tokio_rustls::TlsConnector;

use crate::http::{Request, Target, reader::Reader, response::Response};

/// The maximum size of a response in bytes. A race has 200 of them at once.
const ANSWER_MAX: usize = 1024 * 1024;
/// The maximum size of a list of effects in bytes.
const LIST_MAX: usize = 16 * 1024 * 1024;

/// Where the probe ends the connection on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// After this number of bytes of the request's body.
    RequestBody(usize),
    /// As soon as the request has been sent, before a byte of the response has arrived.
    AfterRequest,
    /// After this number of bytes of the response.
    Response(usize),
}

/// Why there is no response.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("could not connect: {0}")]
    Connect(io::Error),
    #[error(
        "{0} is neither a loopback nor a private address; --i-own-this allows the probe to send to it"
    )]
    Forbidden(IpAddr),
    #[error("the connection ended after {0} bytes of the response")]
    Ended(usize),
    #[error("no complete response within {0:?}")]
    Timeout(Duration),
    #[error("the response is not valid HTTP/1.1: {0}")]
    Malformed(String),
    #[error("the probe cut the connection")]
    Cut,
    #[error("the response arrived before the probe cut the connection")]
    CutTooLate,
}

/// Opens connections.
#[derive(Clone)]
pub(crate) struct Connector {
    tls: TlsConnector,
    /// Whether addresses that are neither loopback nor private are allowed.
    public: bool,
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

impl Connector {
    /// Creates a connector that trusts the usual authorities, and these certificates.
    pub(crate) fn new(
        public: bool,
        authorities: &[rustls::pki_types::CertificateDer<'static>],
    ) -> Result<Self, rustls::Error> {
        let mut roots = rustls::RootCertStore {
            roots: webpki_roots::TLS_SERVER_ROOTS.to_vec(),
        };
        for authority in authorities {
            roots.add(authority.clone())?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self {
            tls: TlsConnector::from(Arc::new(config)),
            public,
        })
    }

    /// Sends a request and reads its response.
    pub(crate) async fn exchange(
        &self,
        request: &Request,
        cut: Option<Cut>,
        wait: Duration,
    ) -> Result<Response, Failure> {
        let limit = match cut {
            Some(Cut::Response(bytes)) => bytes,
            _ => ANSWER_MAX,
        };
        self.exchange_up_to(limit, request, cut, wait).await
    }

    /// Sends a request and reads its response, which is a list of effects.
    pub(crate) async fn list(
        &self,
        request: &Request,
        wait: Duration,
    ) -> Result<Response, Failure> {
        self.exchange_up_to(LIST_MAX, request, None, wait).await
    }

    /// Reads a response of at most `limit` bytes.
    async fn exchange_up_to(
        &self,
        limit: usize,
        request: &Request,
        cut: Option<Cut>,
        wait: Duration,
    ) -> Result<Response, Failure> {
        let start = Instant::now();
        let exchange = self.exchange_unbounded(limit, request, cut, start);
        timeout_at(start + wait, exchange)
            .await
            .unwrap_or(Err(Failure::Timeout(wait)))
    }

    async fn exchange_unbounded(
        &self,
        limit: usize,
        request: &Request,
        cut: Option<Cut>,
        start: Instant,
    ) -> Result<Response, Failure> {
        let mut stream = self.open(&request.target).await?;
        // A server that refuses a request early stops reading: its response is still there.
        let sent = send(&mut stream, request, cut).await;
        match cut {
            Some(Cut::AfterRequest) => {
                let is_late = has_arrived(&mut stream).await;
                return Err(if is_late {
                    Failure::CutTooLate
                } else {
                    Failure::Cut
                });
            }
            Some(Cut::RequestBody(_)) => return Err(Failure::Cut),
            Some(Cut::Response(0)) => {
                // The response is waited for, and none of it is read.
                let mut byte = [0; 1];
                let _ = stream.read(&mut byte).await;
                return Err(Failure::Cut);
            }
            _ => {}
        }
        let read = receive(&mut stream, limit, start).await;
        match (read, cut, sent) {
            (_, Some(_), _) => Err(Failure::Cut),
            (Err(Failure::Ended(0)), None, Err(error)) => Err(Failure::Connect(error)),
            (read, None, _) => read,
        }
    }

    async fn open(&self, target: &Target) -> Result<Box<dyn Stream>, Failure> {
        let address = self.address(target).await?;
        let stream = TcpStream::connect(address)
            .await
            .map_err(Failure::Connect)?;
        stream.set_nodelay(true).map_err(Failure::Connect)?;
        if !target.is_tls() {
            return Ok(Box::new(stream));
        }
        let name = rustls::pki_types::ServerName::try_from(target.host())
            .map_err(|error| Failure::Connect(io::Error::other(error)))?;
        let stream = self
            .tls
            .connect(name, stream)
            .await
            .map_err(Failure::Connect)?;
        Ok(Box::new(stream))
    }

    /// Returns the address of a target, if the probe may send to it.
    async fn address(&self, target: &Target) -> Result<SocketAddr, Failure> {
        let mut addresses = lookup_host((target.host(), target.port()))
            .await
            .map_err(Failure::Connect)?;
        let address = addresses.next().ok_or_else(|| {
            Failure::Connect(io::Error::other(format!(
                "{} has no address",
                target.host()
            )))
        })?;
        if self.public || is_near(address.ip()) {
            Ok(address)
        } else {
            Err(Failure::Forbidden(address.ip()))
        }
    }
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connector")
            .field("public", &self.public)
            .finish_non_exhaustive()
    }
}

/// Whether an address is a loopback or private one.
pub(crate) fn is_near(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => address.is_loopback() || address.is_private(),
        IpAddr::V6(address) => address.is_loopback() || address.is_unique_local(),
    }
}

async fn send(stream: &mut dyn Stream, request: &Request, cut: Option<Cut>) -> io::Result<()> {
    let mut bytes = request.head();
    let body = request.framed_body();
    let body = match cut {
        Some(Cut::RequestBody(length)) => body.get(..length).unwrap_or(&body),
        _ => &body,
    };
    bytes.extend_from_slice(body);
    stream.write_all(&bytes).await?;
    stream.flush().await
}

/// Whether a byte of the response is there already.
async fn has_arrived(stream: &mut dyn Stream) -> bool {
    // A stream that has just been opened is readable only after the runtime has polled its driver.
    yield_now().await;
    let mut byte = [0; 1];
    let read = stream.read(&mut byte).now_or_never();
    matches!(read, Some(Ok(1..)))
}

/// Reads a response, or as many bytes of it as the limit allows.
async fn receive(
    stream: &mut dyn Stream,
    limit: usize,
    start: Instant,
) -> Result<Response, Failure> {
    let mut reader = Reader::new();
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let space = buffer.len().min(limit - reader.received());
        if space == 0 {
            return Err(Failure::Malformed(format!(
                "it is longer than {limit} bytes"
            )));
        }
        // A connection that is reset has ended, as one that is closed has.
        let read = stream.read(&mut buffer[..space]).await.unwrap_or(0);
        let complete = reader.read(&buffer[..read]).map_err(Failure::Malformed)?;
        if complete || read == 0 {
            let received = reader.received();
            return reader
                .finish(start.elapsed())
                .ok_or(Failure::Ended(received));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_and_private_addresses_are_near() {
        for near in [
            "127.0.0.1",
            "10.1.2.3",
            "192.168.0.1",
            "172.16.0.1",
            "::1",
            "fd00::1",
            "::ffff:10.0.0.1",
        ] {
            assert!(is_near(near.parse().expect("an address")), "{near}");
        }
        for far in [
            "8.8.8.8",
            "172.32.0.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "2001:db8::1",
            "fe80::1",
            "::ffff:8.8.8.8",
        ] {
            assert!(!is_near(far.parse().expect("an address")), "{far}");
        }
    }

    #[tokio::test]
    async fn a_response_has_arrived_with_its_first_byte() {
        let (mut client, mut server) = tokio::io::duplex(64);
        assert!(!has_arrived(&mut client).await);
        server.write_all(b"H").await.expect("there is space");
        assert!(has_arrived(&mut client).await);
        drop(server);
        assert!(!has_arrived(&mut client).await);
    }

    #[tokio::test]
    async fn a_public_address_is_refused_before_a_byte_is_sent() {
        let connector = Connector::new(false, &[]).expect("a TLS configuration");
        let target = "http://203.0.113.1/orders".parse().expect("a URL");
        let request = Request::new("POST", &target);
        let failure = connector
            .exchange(&request, None, Duration::from_secs(1))
            .await
            .expect_err("the address is public");
        assert!(matches!(failure, Failure::Forbidden(_)), "{failure}");
    }
}
