//! The webhook sink over TLS, with HTTP/1.1 and with HTTP/2.

use std::{
    convert::Infallible,
    path::Path,
    sync::{Arc, Mutex},
};

use http_body_util::{BodyExt as _, Full};
use hyper::{Request, Response, Version, body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use ipnet::IpNet;
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};
use tokio_rustls::TlsAcceptor;

use hapax::event::NewEvent;
use hapax_sinks::webhook::handshake;

use crate::{
    events::{PATIENCE, any_offer, deliver, offer, postponed},
    sinks,
};

pub(crate) const CA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/tls/ca.pem");
const CERTIFICATE: &[u8] = include_bytes!("tls/server.pem");
const KEY: &[u8] = include_bytes!("tls/server-key.pem");

#[tokio::test]
async fn an_https_endpoint_is_reached_by_http_2_where_it_speaks_that() {
    check(&["h2", "http/1.1"], Version::HTTP_2).await;
}

#[tokio::test]
async fn an_https_endpoint_is_reached_by_http_1_1_otherwise() {
    check(&["http/1.1"], Version::HTTP_11).await;
    check(&[], Version::HTTP_11).await;
}

#[tokio::test]
async fn a_certificate_that_nobody_vouches_for_is_a_failure() {
    let (port, seen) = serve(&["http/1.1"]).await;
    for url in [
        format!("https://localhost:{port}/"),
        format!("https://127.0.0.1:{port}/"),
    ] {
        let webhook = sinks::webhook(&url, sinks::destination(), |_| {});
        let error = deliver(&webhook, offer(1, NewEvent::json("a", &1)))
            .await
            .unwrap_err();
        assert_eq!(error.error_type(), "tls", "{}", error.error_chain());
    }
    assert!(seen.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_port_without_tls_is_named_in_plain_words() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            // The header of a TLS record.
            stream.read_exact(&mut [0; 5]).await.unwrap();
            let plain = b"HTTP/1.1 400 Bad Request\r\n\r\n";
            stream.write_all(plain).await.unwrap();
            drop(stream.read_to_end(&mut Vec::new()).await);
        }
    });
    let expected = "the server does not speak TLS at this port: check the port in the URL";
    let webhook = sinks::webhook(&url, sinks::destination(), |_| {});
    let chain = postponed(&deliver(&webhook, any_offer()).await, "tls");
    assert!(chain.ends_with(expected), "{chain}");
    let topic = "arn:aws:sns:us-east-1:123456789012:events";
    let sns = sinks::sns(&url, topic, sinks::destination(), |_| {});
    let chain = postponed(&deliver(&sns, any_offer()).await, "tls");
    assert!(chain.ends_with(expected), "{chain}");
    let allow: [IpNet; 1] = ["127.0.0.0/8".parse().unwrap()];
    let error = handshake(&url, &allow, None, PATIENCE).await.unwrap_err();
    assert_eq!(error.to_string(), expected);
}

#[tokio::test]
async fn a_handshake_needs_a_certificate_that_is_trusted() {
    let (port, seen) = serve(&["http/1.1"]).await;
    let url = format!("https://localhost:{port}/");
    let local = ["127.0.0.0/8", "::1/128"];
    let allow: [IpNet; 2] = local.map(|net| net.parse().unwrap());
    let ca = Some(Path::new(CA));
    handshake(&url, &allow, ca, PATIENCE).await.unwrap();
    handshake(&url, &allow, None, PATIENCE).await.unwrap_err();
    handshake(&url, &[], ca, PATIENCE).await.unwrap_err();
    assert!(seen.lock().unwrap().is_empty());
}

async fn check(protocols: &[&str], expected: Version) {
    let (port, seen) = serve(protocols).await;
    let url = format!("https://localhost:{port}/");
    let webhook = sinks::webhook(&url, sinks::destination(), |it| it.ca = Some(CA.into()));
    for number in 0..3 {
        let offer = offer(number, NewEvent::json("a", &number));
        let receipt = deliver(&webhook, offer).await.unwrap();
        assert_eq!(
            (receipt.status, &receipt.head[..]),
            (Some(200), &b"taken"[..])
        );
    }
    assert_eq!(
        *seen.lock().unwrap(),
        [(0, expected); 3],
        "all requests must share one connection"
    );
}

/// The connection and the HTTP version of each request.
pub(crate) type Seen = Arc<Mutex<Vec<(usize, Version)>>>;

async fn serve(protocols: &[&str]) -> (u16, Seen) {
    serve_with(acceptor(protocols)).await
}

/// An endpoint at a port of this machine that takes every event over these connections.
pub(crate) async fn serve_with(acceptor: TlsAcceptor) -> (u16, Seen) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let seen = Seen::default();
    let log = seen.clone();
    tokio::spawn(async move {
        for connection in 0.. {
            let (stream, _) = listener.accept().await.unwrap();
            let (acceptor, log) = (acceptor.clone(), log.clone());
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else {
                    return;
                };
                let take = service_fn(|request| take(connection, request, log.clone()));
                let server = auto::Builder::new(TokioExecutor::new());
                drop(server.serve_connection(TokioIo::new(stream), take).await);
            });
        }
    });
    (port, seen)
}

async fn take(
    connection: usize,
    request: Request<Incoming>,
    log: Seen,
) -> Result<Response<Full<&'static [u8]>>, Infallible> {
    log.lock().unwrap().push((connection, request.version()));
    drop(request.into_body().collect().await);
    Ok(Response::new(Full::new(b"taken")))
}

pub(crate) fn acceptor(protocols: &[&str]) -> TlsAcceptor {
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(CERTIFICATE).unwrap()],
            PrivateKeyDer::from_pem_slice(KEY).unwrap(),
        )
        .unwrap();
    config.alpn_protocols = protocols
        .iter()
        .map(|name| name.as_bytes().to_vec())
        .collect();
    TlsAcceptor::from(Arc::new(config))
}
