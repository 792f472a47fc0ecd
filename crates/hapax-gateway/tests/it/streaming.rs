//! Unprotected requests: streams, upgrades and trailers pass.

use std::time::Duration;

use hapax_runtime::config::Span;
use hapax_testkit::wait::{answered, pace};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use crate::{
    stage::{PATIENCE, Stage, check_problem, settings},
    upstream::{Reply, Upstream, ok},
};

#[tokio::test]
async fn a_request_without_a_key_is_passed_on_every_time() {
    let upstream =
        Upstream::start(|received| Reply::Bytes(ok("201 Created", &received.before.to_string())))
            .await;
    let stage = Stage::new(&upstream, |_| {}).await;
    let url = format!("{}/orders", stage.url);
    for number in ["0", "1"] {
        let answer = stage.client.post(&url, &[], "{}").await.unwrap();
        assert_eq!((answer.status, answer.text().as_str()), (201, number));
        assert_eq!(answer.header("idempotency-status"), None);
    }
}

#[tokio::test]
async fn an_error_of_the_service_passes_as_it_is() {
    let upstream = Upstream::start(|_| {
        Reply::Bytes(
            b"HTTP/1.1 500 Oops\r\ncontent-type: text/plain\r\ncontent-length: 4\r\n\r\noops"
                .to_vec(),
        )
    })
    .await;
    let stage = Stage::new(&upstream, |_| {}).await;
    let answer = stage.client.get(&format!("{}/x", stage.url)).await.unwrap();
    assert_eq!((answer.status, answer.text()), (500, "oops".to_owned()));
}

#[tokio::test]
async fn long_bodies_pass_in_both_directions() {
    const LENGTH: usize = 32 * 1024 * 1024;
    let upstream = Upstream::start(|received| {
        let length = received.body.len();
        let mut reply = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n").into_bytes();
        reply.extend_from_slice(&received.body);
        Reply::Bytes(reply)
    })
    .await;
    let stage = Stage::new(&upstream, |_| {}).await;
    let sent: Vec<u8> = (0..LENGTH)
        .map(|at| u8::try_from(at % 251).unwrap())
        .collect();
    let url = format!("{}/files", stage.url);
    let answer = stage.client.post(&url, &[], sent.clone()).await.unwrap();
    assert_eq!(answer.body.len(), LENGTH);
    assert!(answer.body == sent, "the body was changed");
}

#[tokio::test]
async fn an_upload_that_makes_progress_may_take_longer_than_the_time_limit() {
    const PARTS: u32 = 8;
    let limit = Duration::from_secs(2);
    let upstream = Upstream::start(|_| Reply::Bytes(ok("201 Created", "{}"))).await;
    let stage = Stage::new(&upstream, |route| route.timeout = Span(limit)).await;
    let mut client = TcpStream::connect(stage.address()).await.unwrap();
    let head = "PUT /files HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";
    client.write_all(head.as_bytes()).await.unwrap();
    for _ in 0..PARTS {
        // All pauses together are longer than the limit, and each one is much shorter.
        pace(limit * 5 / 4 / PARTS).await;
        client.write_all(b"2\r\n{}\r\n").await.unwrap();
    }
    client.write_all(b"0\r\n\r\n").await.unwrap();
    let head = read_until(&mut client, "\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 201"), "{head}");
}

#[tokio::test]
async fn a_body_that_cannot_be_read_is_the_fault_of_its_client() {
    for body in ["2\r\n{}\r\nzz\r\n", "2\r\n{}zz\r\n"] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let stage = Stage::with(&settings(&[&url])).await;
        let service = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut received = Vec::new();
            // It ends only if the gateway closes the connection.
            let _ended = stream.read_to_end(&mut received).await;
            String::from_utf8_lossy(&received).into_owned()
        };
        let talk = async {
            let mut client = TcpStream::connect(stage.address()).await.unwrap();
            let head = "POST /x HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";
            let request = format!("{head}{body}");
            client.write_all(request.as_bytes()).await.unwrap();
            read_until(&mut client, "VALIDATION.request").await
        };
        let both = Box::pin(async { tokio::join!(service, talk) });
        let (received, response) = answered(PATIENCE, both).await;
        assert!(response.starts_with("HTTP/1.1 400"), "{response}");
        assert!(!received.ends_with("0\r\n\r\n"), "{received}");
    }
}

#[tokio::test]
async fn a_service_that_does_not_respond_to_a_stream_in_time_is_given_up() {
    let upstream = Upstream::start(|_| Reply::Nothing).await;
    let limit = Span(Duration::from_millis(200));
    let stage = Stage::new(&upstream, |route| route.timeout = limit).await;
    let answer = stage.client.get(&format!("{}/x", stage.url)).await.unwrap();
    check_problem(&answer, 504, "DEPENDENCY.timeout");
}

#[tokio::test]
async fn an_event_arrives_before_the_stream_has_ended() {
    let upstream = Upstream::start(|_| {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
                    transfer-encoding: chunked\r\n\r\n";
        Reply::Bytes(format!("{head}9\r\ndata: 1\n\n\r\n").into_bytes())
    })
    .await;
    let stage = Stage::new(&upstream, |_| {}).await;
    let mut client = TcpStream::connect(stage.address()).await.unwrap();
    let request = "GET /events HTTP/1.1\r\nhost: a\r\n\r\n";
    client.write_all(request.as_bytes()).await.unwrap();
    read_until(&mut client, "data: 1\n\n").await;
}

#[tokio::test]
async fn trailers_pass() {
    let upstream = Upstream::start(|_| {
        let head = "HTTP/1.1 200 OK\r\ntrailer: x-sum\r\ntransfer-encoding: chunked\r\n\r\n";
        Reply::Bytes(format!("{head}2\r\n{{}}\r\n0\r\nx-sum: 7\r\n\r\n").into_bytes())
    })
    .await;
    let stage = Stage::new(&upstream, |_| {}).await;
    let mut client = TcpStream::connect(stage.address()).await.unwrap();
    let request = "GET /sum HTTP/1.1\r\nhost: a\r\nte: trailers\r\n\r\n";
    client.write_all(request.as_bytes()).await.unwrap();
    read_until(&mut client, "x-sum: 7\r\n\r\n").await;
}

#[tokio::test]
async fn an_upgraded_connection_carries_bytes_both_ways() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let stage = Stage::with(&settings(&[&url])).await;
    let echo = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let head = read_until(&mut stream, "\r\n\r\n")
            .await
            .to_ascii_lowercase();
        assert!(head.contains("connection: upgrade"), "{head}");
        assert!(head.contains("upgrade: websocket"), "{head}");
        assert!(head.contains("sec-websocket-key: abc"), "{head}");
        let switch = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\n\
                      upgrade: websocket\r\nsec-websocket-accept: def\r\n\r\n";
        stream.write_all(switch.as_bytes()).await.unwrap();
        let (mut read, mut write) = stream.split();
        tokio::io::copy(&mut read, &mut write).await.unwrap();
    };
    let talk = async {
        let mut client = TcpStream::connect(stage.address()).await.unwrap();
        let request = "GET /chat HTTP/1.1\r\nhost: a\r\nconnection: keep-alive, Upgrade\r\n\
                       upgrade: websocket\r\nsec-websocket-key: abc\r\n\r\n";
        client.write_all(request.as_bytes()).await.unwrap();
        let head = read_until(&mut client, "\r\n\r\n").await;
        assert!(head.starts_with("HTTP/1.1 101"), "{head}");
        assert!(head.contains("sec-websocket-accept: def"), "{head}");
        client.write_all(b"\x00ping\xff").await.unwrap();
        let mut echoed = [0; 6];
        client.read_exact(&mut echoed).await.unwrap();
        assert_eq!(&echoed, b"\x00ping\xff");
    };
    answered(PATIENCE, Box::pin(async { tokio::join!(echo, talk) })).await;
}

/// Reads until the text has arrived, and returns everything that was read.
async fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let mut read = Vec::new();
    let reading = async {
        let mut buffer = [0; 4096];
        loop {
            let text = String::from_utf8_lossy(&read).into_owned();
            if text.contains(end) {
                return text;
            }
            let bytes = stream.read(&mut buffer).await.unwrap();
            assert!(bytes > 0, "the stream has ended after {text:?}");
            read.extend_from_slice(&buffer[..bytes]);
        }
    };
    answered(PATIENCE, reading).await
}
