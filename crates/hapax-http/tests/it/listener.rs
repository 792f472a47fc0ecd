//! Tests over a socket: the headers that hyper adds, and clients that disconnect.

use std::time::Duration;

use http::StatusCode;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use crate::stage::Stage;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replay_over_a_socket_has_the_same_head_and_body_but_for_the_date() {
    let stage = Stage::new().await;
    let address = serve(&stage).await;
    let first = exchange(&address, &post("k", "{}")).await;
    let again = exchange(&address, &post("k", "{}")).await;
    let kept = |text: &str| -> Vec<String> {
        let own = [
            "date:",
            "idempotency-status:",
            "x-request-id:",
            "set-cookie:",
            "server:",
        ];
        let lines = text
            .lines()
            .filter(|line| !own.iter().any(|name| line.starts_with(name)));
        lines.map(str::to_owned).collect()
    };
    assert!(first.starts_with("HTTP/1.1 201"), "{first}");
    assert!(first.contains("idempotency-status: stored"));
    assert!(again.contains("idempotency-status: replayed"));
    assert_eq!(kept(&first), kept(&again));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_hangs_up_mid_handler_leaves_its_answer_for_the_retry() {
    let stage = Stage::with(|it| it.wait = Duration::from_mins(1), |it| it).await;
    let address = serve(&stage).await;
    let gated = post("k", "{\"act\":\"gate\"}");
    let mut client = TcpStream::connect(&address).await.unwrap();
    client.write_all(gated.as_bytes()).await.unwrap();
    stage.entered(1).await;
    drop(client);
    let retry = tokio::spawn(async move { exchange(&address, &gated).await });
    stage.props.gate.add_permits(1);
    let retry = retry.await.unwrap();
    assert!(retry.contains("idempotency-status: replayed"), "{retry}");
    assert_eq!((stage.runs(), stage.effects().await), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_longer_than_its_bound_is_refused_by_its_announced_length() {
    let stage = Stage::with(|_| {}, |layer| layer.body_max(10)).await;
    let address = serve(&stage).await;
    let request = "POST /effects HTTP/1.1\r\nhost: a\r\nconnection: close\r\nidempotency-key: k\r\n\
                   content-length: 1000000\r\n\r\n";
    let sent = exchange(&address, request).await;
    assert!(
        sent.starts_with(&format!("HTTP/1.1 {}", StatusCode::PAYLOAD_TOO_LARGE)),
        "{sent}"
    );
    assert_eq!(stage.runs(), 0);
}

async fn serve(stage: &Stage) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let router = stage.router.clone();
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

fn post(key: &str, body: &str) -> String {
    format!(
        "POST /effects HTTP/1.1\r\nhost: a\r\nconnection: close\r\nidempotency-key: {key}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

async fn exchange(address: &str, request: &str) -> String {
    let mut client = TcpStream::connect(address).await.unwrap();
    client.write_all(request.as_bytes()).await.unwrap();
    let mut response = Vec::new();
    client.read_to_end(&mut response).await.unwrap();
    String::from_utf8_lossy(&response).into_owned()
}
