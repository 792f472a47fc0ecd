//! HTTP/2 towards clients and towards the service.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use hapax_gateway::config::Protocol;
use hapax_runtime::config::Span;
use hapax_testkit::wait::answered;
use http::{Request, Response, Version};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, client::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::{Barrier, oneshot},
};

use crate::{
    stage::{PATIENCE, Stage, check_problem, settings},
    upstream::{Reply, Upstream, ok},
};

#[tokio::test]
async fn a_protected_request_passes_and_is_replayed_over_http2() {
    let (url, requests) = service().await;
    let mut settings = settings(&[&url]);
    settings.upstreams.get_mut("service").unwrap().protocol = Protocol::Http2;
    let stage = Stage::with(&settings).await;
    let stream = TcpStream::connect(stage.address()).await.unwrap();
    let executor = TokioExecutor::new();
    let (mut sender, connection) = http2::handshake(executor, TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    for (key, status) in [
        ("k", Some("stored; upstream=opaque")),
        ("k", Some("replayed; upstream=opaque")),
        ("", None),
    ] {
        let mut request = Request::post("http://api.example.com/orders");
        request = request.header("cookie", "a=1").header("cookie", "b=2");
        if !key.is_empty() {
            request = request.header("idempotency-key", key);
        }
        let request = request.body(Full::new(Bytes::from_static(b"{}"))).unwrap();
        let answer = sender.send_request(request).await.unwrap();
        assert_eq!(answer.status(), 201);
        let said = answer.headers().get("idempotency-status");
        assert_eq!(said.map(|value| value.to_str().unwrap()), status);
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body, "HTTP/2.0 api.example.com a=1; b=2");
    }
    assert_eq!(requests.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_body_that_follows_a_length_of_zero_is_refused() {
    let upstream = Upstream::start(|_| Reply::Bytes(ok("201 Created", "{}"))).await;
    let stage = Stage::new(&upstream, |_| {}).await;
    let stream = TcpStream::connect(stage.address()).await.unwrap();
    let executor = TokioExecutor::new();
    let (mut sender, connection) = http2::handshake(executor, TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    for key in [None, Some("k")] {
        let mut request = Request::post("http://api.example.com/orders");
        request = request.header("content-length", "0");
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        let request = request.body(Full::new(Bytes::from_static(b"{}"))).unwrap();
        if let Ok(answer) = sender.send_request(request).await {
            assert_eq!(answer.status(), 400, "{key:?}");
        }
    }
    assert!(upstream.ledger().is_empty());
}

#[tokio::test]
async fn requests_that_exceed_the_streams_of_a_connection_use_another_one() {
    const COUNT: usize = 3;
    let (url, connections) = service_with_one_stream(COUNT).await;
    let mut settings = settings(&[&url]);
    let service = settings.upstreams.get_mut("service").unwrap();
    service.protocol = Protocol::Http2;
    service.idle = Span(Duration::from_mins(5));
    let stage = Stage::with(&settings).await;
    for round in ["first", "second"] {
        let stage = &stage;
        // The service responds to no request before all have arrived.
        let requests = (0..COUNT).map(|number| async move {
            let key = format!("{round}-{number}");
            stage.post("/orders", &key, "{}").await
        });
        for answer in futures_util::future::join_all(requests).await {
            assert_eq!(answer.status, 201, "{answer:?}");
        }
        assert_eq!(connections.load(Ordering::SeqCst), COUNT, "{round}");
    }
}

#[tokio::test]
async fn a_streamed_response_whose_stream_is_reset_is_not_passed_on_as_complete() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (arrived, part_arrived) = oneshot::channel();
    let service = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        respond_without_end(stream, part_arrived).await;
    });
    let mut settings = settings(&[&url]);
    settings.upstreams.get_mut("service").unwrap().protocol = Protocol::Http2;
    let stage = Stage::with(&settings).await;
    let mut client = TcpStream::connect(stage.address()).await.unwrap();
    let request = b"GET /x HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    client.write_all(request).await.unwrap();
    let mut read = Vec::new();
    let reading = async {
        while !read.ends_with(b"2\r\n{}\r\n") {
            assert!(client.read_buf(&mut read).await.unwrap() > 0, "{read:?}");
        }
        arrived.send(()).unwrap();
        // The connection may be reset.
        let _ended = client.read_to_end(&mut read).await;
    };
    answered(PATIENCE, reading).await;
    let text = String::from_utf8(read).unwrap();
    assert!(!text.ends_with("0\r\n\r\n"), "{text}");
    service.abort();
}

#[tokio::test]
async fn a_request_whose_stream_is_refused_leaves_its_key_free() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let service = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        begin(&mut stream).await;
        // RST_STREAM with REFUSED_STREAM for the first request, and HEADERS with the status 200.
        let refused = next_request(&mut stream).await;
        let reset = [&b"\0\0\x04\x03\0"[..], &refused, b"\0\0\0\x07"].concat();
        stream.write_all(&reset).await.unwrap();
        let accepted = next_request(&mut stream).await;
        let headers = [&b"\0\0\x01\x01\x05"[..], &accepted, b"\x88"].concat();
        stream.write_all(&headers).await.unwrap();
        // The connection stays open.
        let _ended = stream.read_to_end(&mut Vec::new()).await;
    });
    let mut settings = settings(&[&url]);
    settings.upstreams.get_mut("service").unwrap().protocol = Protocol::Http2;
    let stage = Stage::with(&settings).await;
    let refused = answered(PATIENCE, stage.post("/orders", "k", "{}")).await;
    let detail = check_problem(&refused, 503, "DEPENDENCY.unavailable");
    assert!(detail.contains("has not acted on it"), "{detail}");
    assert_eq!(refused.header("retry-after"), Some("1"));
    // The key is free, so another payload is no mismatch.
    let sent = answered(PATIENCE, stage.post("/orders", "k", "{\"other\":1}")).await;
    assert_eq!(sent.status, 200, "{sent:?}");
    service.abort();
}

#[tokio::test]
async fn a_request_whose_stream_ends_with_goaway_has_an_unknown_outcome() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let service = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        begin(&mut stream).await;
        let _number = next_request(&mut stream).await;
        stream.write_all(&goaway([0; 4])).await.unwrap();
        // The connection stays open.
        let _ended = stream.read_to_end(&mut Vec::new()).await;
    });
    let mut settings = settings(&[&url]);
    settings.upstreams.get_mut("service").unwrap().protocol = Protocol::Http2;
    let stage = Stage::with(&settings).await;
    for status in [502, 409] {
        let answer = answered(PATIENCE, stage.post("/orders", "k", "{}")).await;
        check_problem(&answer, status, "CONFLICT.idempotency.outcome_unknown");
    }
    service.abort();
}

#[tokio::test]
async fn a_request_after_goaway_is_sent_on_another_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let service = tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            begin(&mut stream).await;
            let number = next_request(&mut stream).await;
            // This stream is the last one, and gets HEADERS with the status 200.
            let headers = [&b"\0\0\x01\x01\x05"[..], &number, b"\x88"].concat();
            let frames = [goaway(number), headers].concat();
            stream.write_all(&frames).await.unwrap();
            // The connection stays open.
            open.push(stream);
        }
    });
    let mut settings = settings(&[&url]);
    settings.upstreams.get_mut("service").unwrap().protocol = Protocol::Http2;
    let stage = Stage::with(&settings).await;
    for key in ["a", "b", "c"] {
        let answer = answered(PATIENCE, stage.post("/orders", key, "{}")).await;
        assert_eq!(answer.status, 200, "{key}: {answer:?}");
    }
    service.abort();
}

/// GOAWAY without an error, after which only streams up to `last` are processed.
fn goaway(last: [u8; 4]) -> Vec<u8> {
    [&b"\0\0\x08\x07\0\0\0\0\0"[..], &last, b"\0\0\0\0"].concat()
}

/// Reads the preface of a client, and sends settings.
async fn begin(stream: &mut TcpStream) {
    const SETTINGS: &[u8] = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00";
    let mut preface = [0; 24];
    stream.read_exact(&mut preface).await.unwrap();
    stream.write_all(SETTINGS).await.unwrap();
}

/// Reads until the headers of a request. Returns the number of its stream.
async fn next_request(stream: &mut TcpStream) -> [u8; 4] {
    const HEADERS: u8 = 1;
    let mut frame = [0; 9];
    while frame[3] != HEADERS {
        stream.read_exact(&mut frame).await.unwrap();
        let length = u32::from_be_bytes([0, frame[0], frame[1], frame[2]]);
        let mut content = vec![0; usize::try_from(length).unwrap()];
        stream.read_exact(&mut content).await.unwrap();
    }
    [frame[5], frame[6], frame[7], frame[8]]
}

/// Responds to one request with a part of a body, and then resets the stream without an error.
async fn respond_without_end(mut stream: TcpStream, part_arrived: oneshot::Receiver<()>) {
    // HEADERS with the status 200, and DATA.
    const PART: &[u8] = b"\x00\x00\x01\x01\x04\x00\x00\x00\x01\x88\
                          \x00\x00\x02\x00\x00\x00\x00\x00\x01{}";
    // RST_STREAM with NO_ERROR.
    const RESET: &[u8] = b"\x00\x00\x04\x03\x00\x00\x00\x00\x01\x00\x00\x00\x00";
    begin(&mut stream).await;
    let _number = next_request(&mut stream).await;
    stream.write_all(PART).await.unwrap();
    part_arrived.await.unwrap();
    stream.write_all(RESET).await.unwrap();
    // The connection stays open.
    let _ended = stream.read_to_end(&mut Vec::new()).await;
}

/// Starts a service that allows one stream for each connection, and that responds when `count` requests have
/// arrived. Returns its URL and the number of connections.
async fn service_with_one_stream(count: usize) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let connections = Arc::new(AtomicUsize::new(0));
    let accepted = Arc::clone(&connections);
    let arrived = Arc::new(Barrier::new(count));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            accepted.fetch_add(1, Ordering::SeqCst);
            let arrived = Arc::clone(&arrived);
            let service = service_fn(move |request: Request<Incoming>| {
                let arrived = Arc::clone(&arrived);
                async move {
                    arrived.wait().await;
                    Ok::<_, Infallible>(respond(&request))
                }
            });
            let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            builder.max_concurrent_streams(1);
            tokio::spawn(builder.serve_connection(TokioIo::new(stream), service));
        }
    });
    (url, connections)
}

/// Starts a service that speaks HTTP/2 only. Returns its URL and the number of requests.
async fn service() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let requests = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&requests);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let count = Arc::clone(&count);
            let service = service_fn(move |request: Request<Incoming>| {
                count.fetch_add(1, Ordering::SeqCst);
                async move { Ok::<_, Infallible>(respond(&request)) }
            });
            let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            tokio::spawn(builder.serve_connection(TokioIo::new(stream), service));
        }
    });
    (url, requests)
}

/// Responds with what the service has received.
fn respond(request: &Request<Incoming>) -> Response<Full<Bytes>> {
    assert_eq!(request.version(), Version::HTTP_2);
    let host = request.uri().host().unwrap_or_default();
    let cookie = request.headers().get("cookie");
    let cookie = cookie.map_or("", |value| value.to_str().unwrap());
    let text = format!("{:?} {host} {cookie}", request.version());
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = http::StatusCode::CREATED;
    response
}
