//! Bodies: their bounds, and that the handler gets what was sent.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use axum::{
    body::{Body, Bytes},
    routing::post,
};
use http::{Request, StatusCode};

use crate::stage::{Stage, post_json};

const MIB: usize = 1024 * 1024;

#[tokio::test]
async fn a_body_beyond_its_bound_is_refused_before_any_effect_announced_or_not() {
    let stage = Stage::with(|_| {}, |layer| layer.body_max(100)).await;
    let long = format!("{{\"pad\":\"{}\"}}", "x".repeat(100));
    let announced = stage.post("k", &long).await;
    announced.check_problem(413, "VALIDATION.body.too_large");
    let chunks = long
        .into_bytes()
        .chunks(10)
        .map(<[u8]>::to_vec)
        .collect::<Vec<_>>();
    let chunks = chunks.into_iter().map(Ok::<_, std::io::Error>);
    let body = Body::from_stream(futures_util::stream::iter(chunks));
    let mut request = post_json("/effects", "k", "");
    *request.body_mut() = body;
    let chunked = stage.send(request).await;
    chunked.check_problem(413, "VALIDATION.body.too_large");
    assert_eq!(stage.runs(), 0);
    assert_eq!(stage.post("k", "{}").await.idempotency(), Some("stored"));
}

#[tokio::test]
async fn of_a_body_in_tiny_chunks_nothing_is_kept_that_it_was_read_with() {
    let stage = Stage::new().await;
    let alive = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    let long = format!("{{\"pad\":\"{}\"}}", "x".repeat(10_000));
    let counts = (Arc::clone(&alive), Arc::clone(&most));
    let chunks = long.into_bytes().into_iter().map(move |byte| {
        let now = counts.0.fetch_add(1, Ordering::SeqCst) + 1;
        counts.1.fetch_max(now, Ordering::SeqCst);
        Ok::<_, std::io::Error>(Bytes::from_owner(Read(byte, Arc::clone(&counts.0))))
    });
    let mut request = post_json("/effects", "k", "");
    *request.body_mut() = Body::from_stream(futures_util::stream::iter(chunks));
    assert_eq!(stage.send(request).await.idempotency(), Some("stored"));
    let most = most.load(Ordering::SeqCst);
    assert!(most <= 4, "{most} buffers were held at once");
}

/// A buffer that a byte was read with.
struct Read(u8, Arc<AtomicUsize>);

impl AsRef<[u8]> for Read {
    fn as_ref(&self) -> &[u8] {
        std::slice::from_ref(&self.0)
    }
}

impl Drop for Read {
    fn drop(&mut self) {
        self.1.fetch_sub(1, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn an_endless_body_is_cut_off_at_its_bound() {
    let stage = Stage::new().await;
    let endless = futures_util::stream::repeat_with(|| Ok::<_, std::io::Error>(vec![b'x'; 4096]));
    let request = Request::post("/effects").header("idempotency-key", "k");
    let request = request.body(Body::from_stream(endless)).unwrap();
    stage
        .send(request)
        .await
        .check_problem(413, "VALIDATION.body.too_large");
}

#[tokio::test]
async fn the_handler_gets_the_bytes_that_were_sent_from_memory_and_from_a_file() {
    for (length, chunk) in [
        (0, 1),
        (10, 10),
        (MIB, 8192),
        (MIB + 1, 8192),
        (5 * MIB, 70_000),
    ] {
        let mut stage = Stage::new().await;
        let echo = |body: Bytes| async move {
            body[..]
                .iter()
                .map(|b| u64::from(*b))
                .sum::<u64>()
                .to_string()
                + " "
                + &body.len().to_string()
        };
        let layer = stage
            .idempotency
            .operation("/echo")
            .body_max(32 * MIB as u64);
        stage.route("/echo", post(echo).layer(layer));
        let sent: Vec<u8> = (0..length)
            .map(|n| u8::try_from(n % 251).unwrap())
            .collect();
        let request = || {
            let chunks: Vec<_> = sent
                .chunks(chunk)
                .map(|c| Ok::<_, std::io::Error>(c.to_vec()))
                .collect();
            let body = Body::from_stream(futures_util::stream::iter(chunks));
            Request::post("/echo")
                .header("idempotency-key", "k")
                .body(body)
                .unwrap()
        };
        let sum = sent.iter().map(|b| u64::from(*b)).sum::<u64>();
        let first = stage.send(request()).await;
        assert_eq!(
            String::from_utf8_lossy(&first.body),
            format!("{sum} {length}")
        );
        stage.send(request()).await.check_replays(&first);
    }
}

#[tokio::test]
async fn json_that_is_none_or_has_a_member_twice_is_refused() {
    let stage = Stage::new().await;
    for bad in [
        "{",
        "{\"answer\":200,\"answer\":200}",
        "{\"a\":{\"b\":1,\"\\u0062\":2}}",
        "{}{}",
    ] {
        let sent = stage.post("k", bad).await;
        sent.check_problem(400, "VALIDATION.json");
        assert_eq!(sent.header("idempotency-key"), Some("k"));
    }
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    stage
        .post("k", &deep)
        .await
        .check_problem(400, "VALIDATION.json");
    assert_eq!(stage.runs(), 0);
    assert_eq!(stage.post("k", "{}").await.status, StatusCode::CREATED);
}

#[tokio::test]
async fn a_body_that_breaks_off_is_refused() {
    let stage = Stage::new().await;
    let broken = [Ok(b"{".to_vec()), Err(std::io::Error::other("reset"))];
    let mut request = post_json("/effects", "k", "");
    *request.body_mut() = Body::from_stream(futures_util::stream::iter(broken));
    stage
        .send(request)
        .await
        .check_problem(400, "VALIDATION.body.incomplete");
    assert_eq!(stage.runs(), 0);
}

#[tokio::test]
async fn an_answer_too_large_to_be_stored_is_rolled_back_and_says_so() {
    let stage = Stage::new().await;
    let sent = stage.post("k", "{\"act\":\"large\"}").await;
    sent.check_problem(500, "TRANSIENT.answer_too_large");
    assert_eq!((stage.effects().await, stage.events().await), (0, 0));
    assert_eq!(stage.post("k", "{}").await.idempotency(), Some("stored"));
}
