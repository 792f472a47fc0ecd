//! Tests that many connections to the relay's listeners do not disturb its deliveries.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    time::Duration,
};

use axum::{
    Router,
    body::Bytes,
    routing::{get, post},
};
use hapax::limits::{LISTENER_HEAD, LISTENER_RATE};
use hapax_console::serve::{Bounds, serve};
use hapax_testkit::{
    http::{HttpClient, HttpReceiver},
    wait::pace,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    sync::watch,
    task::spawn_blocking,
};

use crate::hapax::{PATIENCE, emit, migrated, start_relay_within, webhook};

/// The limit of the relay's file descriptors. The flood has more connections.
const DESCRIPTORS: u32 = 256;
const FLOOD: usize = 300;
const ADMIN: &str = "[admin]\nlisten = \"127.0.0.1:0\"\nconsole = true\n";

/// Opens connections, each of which sends half a request.
fn flood(address: &str) -> Vec<TcpStream> {
    let half = |_| {
        let mut stream = TcpStream::connect(address).unwrap();
        let half = "GET /admin/v1/overview HTTP/1.1\r\nhost: a\r\n";
        stream.write_all(half.as_bytes()).unwrap();
        stream
    };
    (0..FLOOD).map(half).collect()
}

/// Waits until all connections are closed.
async fn closed(flood: Vec<TcpStream>) {
    let waiting = spawn_blocking(move || {
        for mut stream in flood {
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let read = stream.read(&mut [0; 256]);
            let still_open =
                |error: &std::io::Error| error.kind() == std::io::ErrorKind::WouldBlock;
            assert!(!read.as_ref().is_err_and(still_open), "still open");
        }
    });
    waiting.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_sent_requests_take_no_descriptor_that_deliveries_need() {
    let database = migrated().await;
    let receiver = HttpReceiver::start().await;
    let configuration = format!("{ADMIN}{}", webhook("orders", &receiver.url("/")));
    let relay = start_relay_within(DESCRIPTORS, &database.url(), &configuration).await;
    let client = database.client().await;
    for (address, expected) in [(relay.admin_address(), 50), (relay.address(), 100)] {
        let flood = flood(address);
        emit(&client, "order.created", 50).await;
        let taken = receiver.received_at_least(expected).await;
        assert_eq!(taken.len(), expected, "a delivery was attempted twice");
        let open = relay.descriptors();
        assert!(open < 200, "{open} descriptors are open");
        // Complete requests are served during the flood, even on the flooded listener.
        for (address, path) in [
            (relay.admin_address(), "/admin/v1/openapi.json"),
            (relay.address(), "/metrics"),
        ] {
            let url = format!("http://{address}{path}");
            let answer = tokio::time::timeout(PATIENCE, HttpClient::new().get(&url)).await;
            assert_eq!(answer.unwrap().unwrap().status, 200, "{url}");
        }
        closed(flood).await;
    }
    let log = relay.log();
    assert!(!log.contains("Too many open files"), "{log}");
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn live_figures_go_on_through_a_flood() {
    let database = migrated().await;
    let relay = start_relay_within(DESCRIPTORS, &database.url(), ADMIN).await;
    let address = relay.admin_address().to_owned();
    let mut live = TcpStream::connect(&address).unwrap();
    live.set_read_timeout(Some(PATIENCE)).unwrap();
    let ask = format!("GET /console/live HTTP/1.1\r\nhost: {address}\r\n\r\n");
    live.write_all(ask.as_bytes()).unwrap();
    let mut outcome = read_until(live, "data:").await;
    let flood = flood(&address);
    let client = database.client().await;
    for round in 0..3 {
        emit(&client, &format!("order.{round}"), 5).await;
        outcome = read_until(outcome, "data:").await;
    }
    closed(flood).await;
    drop(outcome);
    relay.stop().await;
}

/// More bytes than the buffers of a socket can hold.
const LARGE: usize = 64 * 1024 * 1024;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_stalls_loses_its_place_whatever_it_stalls_over() {
    let short = Duration::from_millis(200);
    let mut bounds = Bounds::sharing(2, 2);
    assert_eq!(bounds.connections, 1);
    (bounds.head, bounds.body, bounds.write) = (short, short, short);
    let router = Router::new()
        .route("/large", get(|| async { Bytes::from(vec![b'.'; LARGE]) }))
        .route("/body", post(|body: Bytes| async move { body }))
        .route("/small", get(|| async { "small" }));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopping) = watch::channel(false);
    let serving = tokio::spawn(serve(listener, router, bounds, stopping));
    for stalls in [
        "",
        "GET /small HTTP/1.1\r\nhost",
        "GET /small HTTP/1.1\r\nhost: a\r\n\r\n",
        "GET /large HTTP/1.1\r\nhost: a\r\n\r\n",
        "POST /body HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\nhalf",
    ] {
        let mut stalled = TcpStream::connect(address).unwrap();
        stalled.write_all(stalls.as_bytes()).unwrap();
        let url = format!("http://{address}/small");
        let answer = tokio::time::timeout(PATIENCE, HttpClient::new().get(&url)).await;
        let answer =
            answer.unwrap_or_else(|_| panic!("the connection that sent {stalls:?} is not closed"));
        assert_eq!(answer.unwrap().text(), "small");
        drop(stalled);
    }
    stop.send_replace(true);
    serving.await.unwrap();
}

/// Serves `/body`, which returns the request's body, and `/small`. The limits are those of a
/// relay's listener, except for the number of connections.
async fn listener_of(connections: usize) -> std::net::SocketAddr {
    let mut bounds = Bounds::sharing(2, 2);
    bounds.connections = connections;
    let router = Router::new()
        .route("/body", post(|body: Bytes| async move { body }))
        .route("/small", get(|| async { "small" }));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopping) = watch::channel(false);
    tokio::spawn(async move {
        let _until_the_test_ends = stop;
        serve(listener, router, bounds, stopping).await;
    });
    address
}

/// Half of the time limit for a head or a body.
const SOON: Duration = LISTENER_HEAD.checked_div(2).unwrap();

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_is_waited_for_makes_room_for_another_long_before_its_time_is_up() {
    let address = listener_of(4).await;
    let small = "GET /small HTTP/1.1\r\nhost: a\r\n\r\n";
    let half_head = format!("{small}GET /small HTTP/1.1\r\nhost");
    let half_body = "POST /body HTTP/1.1\r\nhost: a\r\ncontent-length: 99\r\n\r\nhalf";
    let half_chunk = "POST /body HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n9\r\nh";
    for stalls in [small, &half_head, half_body, half_chunk] {
        let flood = (0..8).map(|_| {
            let mut stalled = TcpStream::connect(address).unwrap();
            stalled.write_all(stalls.as_bytes()).unwrap();
            // The server also closes a connection that sends only a byte now and then.
            let mut drips = stalled.try_clone().unwrap();
            if stalls == half_body {
                tokio::spawn(async move {
                    while drips.write_all(b".").is_ok() {
                        pace(Duration::from_millis(300)).await;
                    }
                });
            }
            stalled
        });
        let flood: Vec<_> = flood.collect();
        let url = format!("http://{address}/small");
        let answer = tokio::time::timeout(SOON, HttpClient::new().get(&url)).await;
        let answer =
            answer.unwrap_or_else(|_| panic!("the connection that sent {stalls:?} is not closed"));
        assert_eq!(answer.unwrap().text(), "small");
        drop(flood);
    }
}

/// Connections that are open or waiting at any time, for each place of the listener.
const CROWD: usize = 12;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_that_comes_back_at_once_delays_no_client_for_long() {
    let places = 8;
    let address = listener_of(places).await;
    let mut crowd = tokio::task::JoinSet::new();
    for _ in 0..CROWD * places {
        crowd.spawn(async move {
            loop {
                let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
                let half = b"GET /small HTTP/1.1\r\nhost";
                stream.write_all(half).await.unwrap();
                // The listener closes the connection.
                let _closed = stream.read(&mut [0; 16]).await;
            }
        });
    }
    pace(Duration::from_secs(1)).await;
    let url = format!("http://{address}/small");
    for _ in 0..5 {
        let answer = tokio::time::timeout(CROWD_PASSES, HttpClient::new().get(&url)).await;
        assert_eq!(
            answer.expect("the crowd went first").unwrap().text(),
            "small"
        );
    }
    crowd.shutdown().await;
}

/// A crowd of [`CROWD`] for each place passes in 1.5 s, and a client waits behind all of it. With
/// half a second for each it would take six.
const CROWD_PASSES: Duration = Duration::from_secs(4);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_comes_steadily_keeps_its_place() {
    // One part is sent every 250 ms, which is twice the minimum rate.
    let part = vec![b'.'; usize::try_from(LISTENER_RATE / 2).unwrap()];
    let address = listener_of(1).await;
    let mut upload = tokio::net::TcpStream::connect(address).await.unwrap();
    let length = 12 * part.len();
    let head = format!(
        "POST /body HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
    );
    upload.write_all(head.as_bytes()).await.unwrap();
    let uploading = tokio::spawn(async move {
        for _ in 0..12 {
            pace(Duration::from_millis(250)).await;
            upload.write_all(&part).await.unwrap();
        }
        let mut answer = String::new();
        upload.read_to_string(&mut answer).await.unwrap();
        answer
    });
    let url = format!("http://{address}/small");
    let other = tokio::time::timeout(PATIENCE, HttpClient::new().get(&url)).await;
    assert_eq!(other.unwrap().unwrap().text(), "small");
    let answer = uploading.await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer:.20}");
    assert!(answer.len() > length);
}

/// Reads until this text has arrived.
async fn read_until(mut stream: TcpStream, text: &'static str) -> TcpStream {
    let reading = spawn_blocking(move || {
        let (mut heard, mut bytes) = (String::new(), [0; 16 * 1024]);
        while !heard.contains(text) {
            let read = stream.read(&mut bytes).unwrap();
            assert!(read > 0, "it was closed: {heard}");
            heard.push_str(&String::from_utf8_lossy(&bytes[..read]));
        }
        stream
    });
    reading.await.unwrap()
}
