//! Bodies that are longer than the memory of the gateway should be.
//!
//! What is measured: the most resident memory that the process of the gateway has had at once
//! (`VmHWM`), without the pages of the program file that were resident when it had started
//! (`RssFile`). A debug build has about 35 MB of these, which the kernel can drop at any time.

use hapax_testkit::wait::answered;

use crate::{
    gateway::{Gateway, Home, Store, configuration},
    upstream::Upstream,
    wire::{Connection, digest},
};

/// How much memory a gateway may use while bodies stream through it, in bytes.
const MEMORY_MAX: u64 = 64 << 20;
const PIECE: usize = 64 << 10;
/// How long all of it may take.
const PATIENCE: std::time::Duration = std::time::Duration::from_mins(5);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_body_streams_in_both_directions_in_little_memory() {
    check(96 << 20).await;
}

#[tokio::test]
async fn a_protected_response_that_is_too_long_is_an_unknown_outcome() {
    let upstream = Upstream::python();
    let gateway = Gateway::before(upstream.address()).await;
    let program = gateway.memory("RssFile");
    for round in 0..3 {
        let key = format!("flood-{round}");
        let first = gateway.order(&key, "flood").await;
        assert!(first.is_unknown(), "{}", first.text());
        assert_eq!(upstream.lines_of(&key).len(), 1);
    }
    check_memory(&gateway, program);
}

/// Checks the most memory that a gateway has had, without `program` bytes of its file.
fn check_memory(gateway: &Gateway, program: u64) {
    let memory = gateway.memory("VmHWM") - program;
    assert!(memory < MEMORY_MAX, "{memory} bytes of memory");
}

/// Streams this number of bytes up and down.
pub(crate) async fn check(bytes: usize) {
    let upstream = Upstream::python();
    let home = Home::fresh(Store::Sqlite).await;
    // The head of the response to an upload comes after the upload.
    let settings = configuration(upstream.address(), "");
    let settings = settings.replace("timeout = \"1s\"", "timeout = \"300s\"");
    let gateway = Gateway::start(&home, &settings).await;
    let program = gateway.memory("RssFile");
    answered(PATIENCE, upload(&gateway, bytes)).await;
    answered(PATIENCE, download(&gateway, bytes)).await;
    check_memory(&gateway, program);
}

async fn upload(gateway: &Gateway, bytes: usize) {
    let mut client = Connection::open(gateway.address()).await.unwrap();
    let head = format!("PUT /upload HTTP/1.1\r\nHost: a\r\nContent-Length: {bytes}\r\n\r\n");
    client.send(head.as_bytes()).await.unwrap();
    let piece = vec![0x5a; PIECE];
    for _ in 0..bytes / PIECE {
        client.send(&piece).await.unwrap();
    }
    let answer = client.answer().await.unwrap();
    assert_eq!(answer.json()["bytes"], bytes, "{}", answer.text());
    if bytes == PIECE {
        assert_eq!(answer.json()["hash"], digest(&piece));
    }
}

async fn download(gateway: &Gateway, bytes: usize) {
    let mut client = Connection::open(gateway.address()).await.unwrap();
    let get = format!("GET /download?bytes={bytes} HTTP/1.1\r\nHost: a\r\n\r\n");
    client.send(get.as_bytes()).await.unwrap();
    let head = client.head().await.unwrap();
    assert_eq!(
        head.header("content-length"),
        Some(bytes.to_string().as_str())
    );
    let mut left = bytes;
    while left > 0 {
        let some = client.some(PIECE.min(left)).await.unwrap();
        let some = some.expect("the body is not complete");
        assert!(some.iter().all(|byte| *byte == 0x5a));
        left -= some.len();
    }
}

#[tokio::test]
async fn the_hash_of_an_uploaded_body_is_that_of_what_was_sent() {
    let upstream = Upstream::python();
    let gateway = Gateway::before(upstream.address()).await;
    upload(&gateway, PIECE).await;
}
