//! Requests that the service receives, and those that the gateway refuses.

use std::sync::{Arc, Mutex};

use hapax_gateway::{
    config::{Route, Underscores},
    tenant::TenantSettings,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{
    stage::{Stage, check_problem},
    upstream::{Received, Reply, Upstream, ok},
};

#[tokio::test]
async fn hop_by_hop_headers_stay_on_their_connection() {
    let upstream = Upstream::start(|received| {
        let body = received.head.to_ascii_lowercase();
        let length = body.len();
        Reply::Bytes(
            format!(
                "HTTP/1.1 200 OK\r\nconnection: x-hop\r\nx-hop: 1\r\nkeep-alive: timeout=5\r\n\
                 x-stays: 1\r\ncontent-length: {length}\r\n\r\n{body}"
            )
            .into_bytes(),
        )
    })
    .await;
    let stage = Stage::new(&upstream, |_| {}).await;
    for key in [None, Some(("idempotency-key", "k"))] {
        let mut headers = vec![
            ("connection", "x-mine, authorization"),
            ("x-mine", "1"),
            ("authorization", "Bearer t"),
            ("proxy-authorization", "Basic t"),
            ("x-forwarded-for", "203.0.113.9"),
            ("x-stays", "1"),
        ];
        headers.extend(key);
        let url = format!("{}/orders?a=%2F", stage.url);
        let answer = stage.client.post(&url, &headers, "{}").await.unwrap();
        let received = answer.text();
        assert!(
            received.starts_with("post /orders?a=%2f http/1.1"),
            "{received}"
        );
        for name in [
            "x-mine:",
            "proxy-authorization:",
            "203.0.113.9",
            "keep-alive",
        ] {
            assert!(!received.contains(name), "{name} in {received}");
        }
        let host = stage.address();
        for line in [
            "authorization: bearer t",
            "x-stays: 1",
            "x-forwarded-for: 127.0.0.1\r\n",
            "x-forwarded-proto: http\r\n",
            &format!("host: {host}\r\n"),
            &format!("forwarded: for=127.0.0.1;proto=http;host=\"{host}\"\r\n"),
        ] {
            assert!(received.contains(line), "{line} not in {received}");
        }
        assert_eq!(answer.header("x-stays"), Some("1"));
        assert_eq!(answer.header("x-hop"), None);
    }
}

#[tokio::test]
async fn te_is_listed_as_a_header_of_the_connection() {
    for (sent, received) in [("gzip, trailers", true), ("gzip", false)] {
        let (te, connection) = headers_received(&[("te", sent)], |_| {}).await;
        assert_eq!(te.as_deref(), received.then_some("trailers"));
        assert_eq!(connection.as_deref(), received.then_some("TE"));
    }
}

/// Sends a request, and returns `TE` and `Connection` as the service has received them.
async fn headers_received(
    headers: &[(&str, &str)],
    change: impl FnOnce(&mut Route),
) -> (Option<String>, Option<String>) {
    let head = received(headers, change).await;
    let value = |name: &str| head.header(name).map(str::to_owned);
    (value("te"), value("connection"))
}

#[tokio::test]
async fn headers_with_underscores_are_dropped_unless_the_route_passes_them() {
    let sent = [("x_tenant", "mallory"), ("x_other", "1"), ("x-stays", "1")];
    let dropped = received(&sent, |_| {}).await;
    assert_eq!(
        (dropped.header("x_tenant"), dropped.header("x_other")),
        (None, None)
    );
    assert_eq!(dropped.header("x-stays"), Some("1"));
    let passed = received(&sent, |route| route.underscores = Underscores::Pass).await;
    assert_eq!(passed.header("x_tenant"), Some("mallory"));
    // The configuration itself names this header.
    let tenant = |route: &mut Route| {
        route.tenant = Some(TenantSettings::Header("x_tenant".to_owned()));
    };
    let named = received(&sent, tenant).await;
    assert_eq!(
        (named.header("x_tenant"), named.header("x_other")),
        (Some("mallory"), None)
    );
}

/// Sends a request, and returns what the service has received.
async fn received(headers: &[(&str, &str)], change: impl FnOnce(&mut Route)) -> Received {
    let last = Arc::new(Mutex::new(None));
    let kept = Arc::clone(&last);
    let upstream = Upstream::start(move |received| {
        *kept.lock().unwrap() = Some(received.clone());
        Reply::Bytes(ok("200 OK", "{}"))
    })
    .await;
    let stage = Stage::new(&upstream, change).await;
    let url = format!("{}/orders", stage.url);
    let answer = stage.client.post(&url, headers, "{}").await.unwrap();
    assert_eq!(answer.status, 200, "{answer:?}");
    last.lock().unwrap().take().unwrap()
}

#[tokio::test]
async fn an_ambiguous_request_is_refused() {
    let upstream = Upstream::start(|_| Reply::Bytes(ok("200 OK", "{}"))).await;
    let stage = Stage::new(&upstream, |_| {}).await;
    let two_lengths = "content-length: 2\r\ncontent-length: 3\r\n\r\n{}";
    let folded = "x-folded: a\r\n b\r\n\r\n";
    for (target, rest) in [
        ("/a", two_lengths),
        ("/a", folded),
        ("/a", "transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
        ("/a", "transfer-encoding: identity\r\n\r\n"),
        ("/a", "host: b\r\n\r\n"),
        ("/a/../b", "\r\n"),
        ("/a/%2e%2e/b", "\r\n"),
        ("http://b/a", "\r\n"),
    ] {
        let request = format!("POST {target} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{rest}");
        let mut client = TcpStream::connect(stage.address()).await.unwrap();
        client.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        // The connection may be reset after the response.
        let _ended = client.read_to_string(&mut answer).await;
        assert!(
            answer.starts_with("HTTP/1.1 400"),
            "{target} {rest:?}: {answer:?}"
        );
    }
    assert!(upstream.ledger().is_empty());
}

#[tokio::test]
async fn a_request_that_could_be_read_as_two_closes_its_connection() {
    let upstream = Upstream::start(|_| Reply::Bytes(ok("200 OK", "{}"))).await;
    let stage = Stage::new(&upstream, |_| {}).await;
    let head = "POST /a HTTP/1.1\r\nhost: a\r\n";
    let long = "x".repeat(2_000);
    for rest in [
        "content-length: 60\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        "transfer-encoding: chunked\r\ncontent-length: 6\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        "x: 1\ncontent-length: 2\r\n\r\n{}",
        "transfer-encoding: chunked\r\n\r\n2\n{}\r\n0\r\n\r\n",
        &format!("transfer-encoding: chunked\r\n\r\n2;{long}\r\n{{}}\r\n0\r\n\r\n"),
    ] {
        let mut client = TcpStream::connect(stage.address()).await.unwrap();
        let request = format!("{head}{rest}");
        client.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        // The connection may be reset.
        let _ended = client.read_to_string(&mut answer).await;
        assert!(!answer.contains("200 OK"), "{rest:?}: {answer:?}");
    }
    assert!(upstream.ledger().is_empty());
}

#[tokio::test]
async fn a_path_without_a_route_is_not_found() {
    let upstream = Upstream::start(|_| Reply::Bytes(ok("200 OK", "{}"))).await;
    let stage = Stage::new(&upstream, |route| route.path = "/orders".to_owned()).await;
    let url = format!("{}/other", stage.url);
    let answer = stage.client.get(&url).await.unwrap();
    check_problem(&answer, 404, "NOT_FOUND");
    assert!(upstream.ledger().is_empty());
}
