//! Traffic that passes through the gateway besides protected requests: events, WebSocket, trailers,
//! `Expect`, hop-by-hop headers, and a configuration that is read again.

use std::fmt::Write as _;

use hapax_testkit::wait::{answered, eventually};
use serde_json::Value;

use crate::{
    gateway::{Gateway, Home, Store, configuration},
    upstream::Upstream,
    wire::{Connection, PATIENCE, exchange, order, request},
};

#[tokio::test]
async fn an_event_arrives_while_the_stream_is_open() {
    let upstream = Upstream::python();
    let gateway = Gateway::before(upstream.address()).await;
    let mut client = Connection::open(gateway.address()).await.unwrap();
    let get = request("GET", "/events?count=3", &[], "");
    client.send(&get).await.unwrap();
    let head = answered(PATIENCE, client.head()).await.unwrap();
    assert_eq!(head.header("content-type"), Some("text/event-stream"));
    for number in 1..=3 {
        // The service sends the next event only when it is asked to.
        upstream.ask("POST", "/_next").await;
        let event = answered(PATIENCE, client.chunk()).await.unwrap();
        let event = event.expect("the stream is open");
        assert_eq!(event, format!("data: {number}\n\n").into_bytes());
    }
    assert!(answered(PATIENCE, client.chunk()).await.unwrap().is_none());
}

#[tokio::test]
async fn a_websocket_echoes_and_closes() {
    let upstream = Upstream::python();
    let gateway = Gateway::before(upstream.address()).await;
    let mut client = Connection::open(gateway.address()).await.unwrap();
    let headers = [
        ("Connection", "keep-alive, Upgrade"),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    let get = request("GET", "/websocket", &headers, "");
    client.send(&get).await.unwrap();
    let head = answered(PATIENCE, client.head()).await.unwrap();
    assert_eq!(head.status, 101);
    let accept = head.header("sec-websocket-accept");
    assert_eq!(accept, Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    for text in ["a", "hello", &"x".repeat(100)] {
        let length = u8::try_from(text.len()).unwrap();
        let mask: [u8; 4] = [1, 2, 3, 4];
        let mut frame = vec![0x81, 0x80 | length];
        frame.extend(mask);
        frame.extend(
            text.bytes()
                .zip(mask.iter().cycle())
                .map(|(byte, mask)| byte ^ mask),
        );
        client.send(&frame).await.unwrap();
        let echo = answered(PATIENCE, client.bytes(2 + text.len())).await;
        let echo = echo.unwrap();
        assert_eq!(echo[..2], [0x81, length]);
        assert_eq!(&echo[2..], text.as_bytes());
    }
    client.send(&[0x88, 0x80, 0, 0, 0, 0]).await.unwrap();
    let close = answered(PATIENCE, client.bytes(2)).await.unwrap();
    assert_eq!(close, [0x88, 0]);
    let end = answered(PATIENCE, client.some(1)).await;
    assert!(matches!(end, Ok(None) | Err(_)), "{end:?}");
}

#[tokio::test]
async fn trailers_pass_in_both_directions() {
    let upstream = Upstream::python();
    let gateway = Gateway::before(upstream.address()).await;
    let get = request(
        "GET",
        "/trailers",
        &[("TE", "trailers"), ("Connection", "TE")],
        "",
    );
    let answer = exchange(gateway.address(), &get).await.unwrap();
    assert_eq!(answer.text(), "hello");
    assert_eq!(answer.trailers, [("x-sum".to_owned(), "42".to_owned())]);
    let put =
        b"PUT /upload HTTP/1.1\r\nHost: a\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n\
                5\r\nhello\r\n0\r\nX-Sum: 7\r\n\r\n";
    let answer = exchange(gateway.address(), put).await.unwrap();
    let answer = answer.json();
    assert_eq!(answer["bytes"], 5, "{answer}");
    assert_eq!(answer["trailers"][0][0], "x-sum", "{answer}");
    assert_eq!(answer["trailers"][0][1], "7", "{answer}");
}

#[tokio::test]
async fn a_client_that_expects_100_is_asked_for_its_body() {
    let upstream = Upstream::python();
    let gateway = Gateway::before(upstream.address()).await;
    for key in ["", "Idempotency-Key: expects\r\n"] {
        let mut client = Connection::open(gateway.address()).await.unwrap();
        let head = format!(
            "POST /orders HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n{key}\
             Expect: 100-continue\r\nContent-Length: 2\r\n\r\n"
        );
        client.send(head.as_bytes()).await.unwrap();
        let interim = answered(PATIENCE, client.line()).await.unwrap();
        assert_eq!(interim, "HTTP/1.1 100 Continue");
        assert_eq!(answered(PATIENCE, client.line()).await.unwrap(), "");
        client.send(b"{}").await.unwrap();
        let answer = answered(PATIENCE, client.answer()).await.unwrap();
        assert_eq!(answer.status, 201, "{}", answer.text());
    }
    assert_eq!(upstream.lines_of("expects").len(), 1);
}

#[tokio::test]
async fn headers_of_one_connection_stay_there() {
    let upstream = Upstream::python();
    let gateway = Gateway::before(upstream.address()).await;
    let headers = [
        (
            "Connection",
            "X-Mine, keep-alive, Authorization, X-Forwarded-For",
        ),
        ("X-Mine", "1"),
        ("X-Stays", "1"),
        ("Keep-Alive", "timeout=5"),
        ("Proxy-Authorization", "Basic x"),
        ("Proxy-Connection", "close"),
        ("Authorization", "Bearer y"),
        ("X-Forwarded-For", "203.0.113.9"),
        ("Forwarded", "for=203.0.113.9"),
        ("Expect", "100-continue"),
    ];
    let sent = request("POST", "/echo", &headers, "hello");
    let answer = exchange(gateway.address(), &sent).await.unwrap();
    let echo = answer.json();
    let values = |name: &str| -> Vec<String> {
        let fields = echo["headers"].as_array().unwrap().iter();
        let named = fields.filter(|field| field[0] == name);
        named
            .map(|field| field[1].as_str().unwrap().to_owned())
            .collect()
    };
    for gone in [
        "x-mine",
        "keep-alive",
        "proxy-authorization",
        "proxy-connection",
        "expect",
    ] {
        assert_eq!(values(gone), Vec::<String>::new(), "{gone}");
    }
    assert_eq!(values("x-stays"), ["1"]);
    assert_eq!(values("authorization"), ["Bearer y"]);
    assert_eq!(values("x-forwarded-for"), ["127.0.0.1"]);
    assert_eq!(values("host"), ["gateway.test"]);
    assert_eq!(
        values("content-length").len() + values("transfer-encoding").len(),
        1
    );
}

#[tokio::test]
async fn a_request_with_many_headers_is_refused_and_one_with_some_passes() {
    let upstream = Upstream::python();
    let gateway = Gateway::before(upstream.address()).await;
    for (count, status) in [(50, 200..=200), (2_000, 400..=499)] {
        let mut text = String::from("GET /a HTTP/1.1\r\nHost: a\r\n");
        for number in 0..count {
            write!(text, "X-{number}: {number}\r\n").unwrap();
        }
        text.push_str("\r\n");
        let answer = exchange(gateway.address(), text.as_bytes()).await;
        let got = answer.map_or(431, |it| it.status);
        assert!(status.contains(&got), "{count}: {got}");
    }
    assert_eq!(upstream.seen().await.len(), 1);
}

#[tokio::test]
async fn a_client_that_goes_away_learns_the_outcome_from_its_retry() {
    let upstream = Upstream::python();
    let gateway = Gateway::before(upstream.address()).await;
    for round in 0..10 {
        let key = format!("gone-{round}");
        let mut client = Connection::open(gateway.address()).await.unwrap();
        client.send(&order(&key, "slow-head=200")).await.unwrap();
        eventually(PATIENCE, async || upstream.lines_of(&key).len() == 1).await;
        drop(client);
        // The gateway has waited for the outcome without its client.
        assert_eq!(gateway.decided(&key).await.status, 201);
        assert_eq!(upstream.lines_of(&key).len(), 1);
    }
}

#[tokio::test]
async fn a_body_that_never_ends_sends_nothing() {
    let upstream = Upstream::python();
    let gateway = Gateway::before(upstream.address()).await;
    let mut client = Connection::open(gateway.address()).await.unwrap();
    let head = b"POST /orders HTTP/1.1\r\nHost: a\r\nIdempotency-Key: endless\r\n\
                 Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n";
    client.send(head).await.unwrap();
    let answer = answered(PATIENCE, client.answer()).await;
    let status = answer.map_or(408, |it| it.status);
    assert!((400..600).contains(&status), "{status}");
    assert!(upstream.seen().await.is_empty());
    assert_eq!(gateway.order("endless", "").await.status, 201);
}

#[tokio::test]
async fn a_configuration_that_is_read_again_loses_no_request_and_no_answer() {
    let (one, other) = (Upstream::python(), Upstream::python());
    let home = Home::fresh(Store::Sqlite).await;
    let gateway = Gateway::start(&home, &configuration(one.address(), "")).await;
    let before = gateway.order("before", "").await;
    assert_eq!(before.status, 201);
    let mut client = Connection::open(gateway.address()).await.unwrap();
    client
        .send(&order("during", "slow-head=500"))
        .await
        .unwrap();
    eventually(PATIENCE, async || one.lines_of("during").len() == 1).await;
    gateway.reload(&configuration(other.address(), "")).await;
    // The request in flight ends with the service that has it, and a retry does not go to the other.
    let retry = gateway.decided("during").await;
    assert_eq!(retry.status, 201, "{}", retry.text());
    let during = answered(PATIENCE, client.answer()).await.unwrap();
    assert_eq!((during.status, &during.body), (201, &retry.body));
    assert_eq!(gateway.order("before", "").await.body, before.body);
    assert_eq!(gateway.order("after", "").await.status, 201);
    let keys = |upstream: &Upstream| -> Vec<String> {
        upstream.ledger().into_iter().map(|it| it.key).collect()
    };
    assert_eq!(keys(&one), ["before", "during"]);
    assert_eq!(keys(&other), ["after"]);
    // A configuration with an error changes nothing.
    let wrong = configuration(one.address(), "unknown = \"perhaps\"");
    let refusals = || gateway.log().matches("configuration is not valid").count();
    gateway.reload_wrong(&wrong);
    eventually(PATIENCE, async || refusals() > 0).await;
    assert_eq!(gateway.order("still", "").await.status, 201);
    assert_eq!(keys(&other), ["after", "still"]);
}

#[tokio::test]
async fn the_response_to_head_keeps_its_length() {
    let upstream = Upstream::python();
    let gateway = Gateway::before(upstream.address()).await;
    let mut client = Connection::open(gateway.address()).await.unwrap();
    let head = request("HEAD", "/a", &[], "");
    client.send(&head).await.unwrap();
    let answer = answered(PATIENCE, client.head()).await.unwrap();
    assert_eq!(
        (answer.status, answer.header("content-length")),
        (200, Some("17"))
    );
    // The connection is in step: the length was not followed by a body.
    client.send(&request("GET", "/b", &[], "")).await.unwrap();
    let answer = answered(PATIENCE, client.answer()).await.unwrap();
    assert_eq!(answer.json()["target"], Value::from("/b"));
}
