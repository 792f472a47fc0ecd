//! PROXY protocol: the address of the client comes from a proxy that is trusted.

use hapax_gateway::config::{ProxyProtocol, Settings};
use hapax_testkit::wait::answered;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::{
    stage::{PATIENCE, Stage, settings},
    upstream::{Reply, Upstream, ok},
};

const REQUEST: &[u8] = b"GET /who HTTP/1.1\r\nhost: a\r\nx-forwarded-for: 203.0.113.99\r\n\r\n";

#[tokio::test]
async fn the_service_receives_the_address_that_a_trusted_proxy_sends() {
    let upstream = upstream().await;
    let stage = stage(&upstream, "127.0.0.0/8").await;
    let line = b"PROXY TCP4 203.0.113.9 10.0.0.1 1000 443\r\n";
    let v6 = b"\r\n\r\n\0\r\nQUIT\n\x21\x21\0\x24\
        \x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x09\
        \x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01\x03\xe8\x01\xbb";
    let local = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";
    for (header, client) in [
        (&line[..], "203.0.113.9"),
        (&v6[..], "2001:db8::9"),
        (&local[..], "127.0.0.1"),
    ] {
        let mut connection = TcpStream::connect(stage.address()).await.unwrap();
        // Two requests: the address belongs to the connection.
        for first in [header, &[][..]] {
            connection.write_all(first).await.unwrap();
            connection.write_all(REQUEST).await.unwrap();
            read_until(&mut connection, &format!("\r\n\r\n{client}")).await;
        }
    }
}

#[tokio::test]
async fn a_client_that_a_trusted_proxy_does_not_name_is_no_trusted_proxy() {
    let upstream = upstream().await;
    let mut settings = listening(&upstream, "127.0.0.0/8");
    settings.trusted_proxies = vec!["127.0.0.0/8".parse().unwrap()];
    let stage = Stage::with(&settings).await;
    let line = b"PROXY UNKNOWN\r\n";
    let unspecified = b"\r\n\r\n\0\r\nQUIT\n\x21\0\0\0";
    let local = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";
    for (header, said) in [
        (&line[..], "127.0.0.1"),
        (&unspecified[..], "127.0.0.1"),
        // The proxy itself.
        (&local[..], "203.0.113.99, 127.0.0.1"),
    ] {
        let mut connection = TcpStream::connect(stage.address()).await.unwrap();
        connection.write_all(header).await.unwrap();
        connection.write_all(REQUEST).await.unwrap();
        read_until(&mut connection, &format!("\r\n\r\n{said}")).await;
    }
}

#[tokio::test]
async fn a_connection_without_a_header_or_from_another_address_is_closed() {
    let upstream = upstream().await;
    let line = b"PROXY TCP4 203.0.113.9 10.0.0.1 1000 443\r\n";
    let wrong = b"PROXY TCP4 203.0.113.999 10.0.0.1 1000 443\r\n";
    for (from, header) in [
        ("10.0.0.0/8", &line[..]),
        ("127.0.0.0/8", &[][..]),
        ("127.0.0.0/8", &wrong[..]),
    ] {
        let stage = stage(&upstream, from).await;
        let mut connection = TcpStream::connect(stage.address()).await.unwrap();
        let sent = [header, REQUEST].concat();
        connection.write_all(&sent).await.unwrap();
        let mut response = Vec::new();
        // The connection may be reset.
        let _ended = answered(PATIENCE, connection.read_to_end(&mut response)).await;
        assert!(response.is_empty(), "{from}: {response:?}");
    }
    assert!(upstream.ledger().is_empty());
}

/// A service that responds with the address of the client.
async fn upstream() -> Upstream {
    Upstream::start(|received| {
        let client = received.header("x-forwarded-for").unwrap_or_default();
        Reply::Bytes(ok("200 OK", client))
    })
    .await
}

/// Reads a response until its end is this one.
async fn read_until(connection: &mut TcpStream, end: &str) {
    let mut response = Vec::new();
    let reading = async {
        while !response.ends_with(end.as_bytes()) {
            let read = connection.read_buf(&mut response).await.unwrap();
            assert!(read > 0, "{end:?}: {}", String::from_utf8_lossy(&response));
        }
    };
    answered(PATIENCE, reading).await;
}

async fn stage(upstream: &Upstream, from: &str) -> Stage {
    Stage::with(&listening(upstream, from)).await
}

/// The settings of a gateway that trusts the headers of proxies with these addresses.
fn listening(upstream: &Upstream, from: &str) -> Settings {
    let mut settings = settings(&[&upstream.url()]);
    let listener = settings.listeners.get_mut("http").unwrap();
    let from = vec![from.parse().unwrap()];
    listener.proxy_protocol = Some(ProxyProtocol { from });
    settings
}
