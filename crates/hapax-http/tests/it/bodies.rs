//! Tests of request bodies: their limits, and that the handler receives the same bytes.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use axum::{
    body::{Body, Bytes},
    routing::post,
};
use hapax::limits::{JSON_INLINE_BYTES, JSON_MEMBERS_MAX};
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

/// A read buffer that holds one byte. It counts the buffers that are alive.
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
    sent.check_problem(500, "TRANSIENT.response_too_large");
    assert_eq!((stage.effects().await, stage.events().await), (0, 0));
    assert_eq!(stage.post("k", "{}").await.idempotency(), Some("stored"));
}

#[tokio::test]
async fn json_has_a_bound_of_its_own_where_the_operation_takes_longer_bodies() {
    let long = format!("[{}]", vec!["\"xxxxxxxx\""; 100_000].join(","));
    assert!(long.len() > MIB);
    let stage = Stage::with(|_| {}, |layer| layer.body_max(32 * MIB as u64)).await;
    let refused = stage.post("k", &long).await;
    refused.check_problem(413, "VALIDATION.body.too_large");
    let detail = refused.json()["detail"].as_str().unwrap().to_owned();
    assert_eq!(detail, "this operation takes at most 1048576 bytes of JSON");
    let wide = |layer: hapax_http::OperationLayer<_>| {
        layer.body_max(32 * MIB as u64).json_max(2 * MIB as u64)
    };
    let stage = Stage::with(|_| {}, wide).await;
    // The body is read, but it does not fit `Order`.
    stage
        .post("k", &long)
        .await
        .check_problem(400, "VALIDATION.member");
}

#[tokio::test]
async fn a_type_that_the_operation_does_not_take_is_refused_before_the_body_is_read() {
    let policy = |layer: hapax_http::OperationLayer<_>| {
        layer.media_types(["application/json", "multipart/form-data"])
    };
    let stage = Stage::with(|_| {}, policy).await;
    let read = Arc::new(AtomicUsize::new(0));
    let body = || {
        let read = Arc::clone(&read);
        Body::from_stream(futures_util::stream::once(async move {
            read.fetch_add(1, Ordering::SeqCst);
            Ok::<_, std::io::Error>("{}")
        }))
    };
    for content_type in [Some("text/plain"), Some("application/json5"), None] {
        let mut request = Request::post("/effects").header("idempotency-key", "k");
        if let Some(content_type) = content_type {
            request = request.header("content-type", content_type);
        }
        let refused = stage.send(request.body(body()).unwrap()).await;
        refused.check_problem(415, "VALIDATION.content_type");
        assert_eq!(refused.header("idempotency-key"), Some("k"));
    }
    assert_eq!(read.load(Ordering::SeqCst), 0);
    let request = Request::post("/effects").header("idempotency-key", "k");
    let request = request.header("content-type", "Application/JSON; charset=utf-8");
    let taken = stage.send(request.body(body()).unwrap()).await;
    assert_eq!(taken.idempotency(), Some("stored"));
    assert_eq!(read.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn json_is_the_same_request_on_whichever_thread_its_members_are_sorted() {
    let stage = Stage::new().await;
    for length in [10, JSON_INLINE_BYTES - 100, JSON_INLINE_BYTES + 100] {
        let pad = "x".repeat(length);
        let key = length.to_string();
        let first = stage
            .post(&key, &format!("{{\"act\":\"a\",\"pad\":\"{pad}\"}}"))
            .await;
        assert_eq!(first.idempotency(), Some("stored"));
        let again = stage
            .post(&key, &format!("{{\"pad\":\"{pad}\",\"act\":\"a\"}}"))
            .await;
        assert_eq!(again.idempotency(), Some("replayed"), "{length}");
        let other = stage
            .post(&key, &format!("{{\"pad\":\"{pad}\",\"act\":\"b\"}}"))
            .await;
        other.check_problem(409, "CONFLICT.idempotency.payload_mismatch");
    }
    let members: Vec<_> = (0..=JSON_MEMBERS_MAX)
        .map(|n| format!("\"{n}\":0"))
        .collect();
    let refused = stage.post("k", &format!("{{{}}}", members.join(","))).await;
    refused.check_problem(400, "VALIDATION.json");
    let detail = refused.json()["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains("more than 10000 members"), "{detail}");
}

#[tokio::test]
async fn bodies_on_the_disk_share_a_bounded_room_and_give_it_back() {
    const LONG: usize = 3 * MIB;
    let settings = |it: &mut hapax_http::Settings| it.body_file_bytes = 4 * MIB as u64;
    let mut stage = Stage::with(settings, |layer| layer).await;
    let handler = async |request: axum::extract::Request| {
        drop(request.into_body());
        "taken"
    };
    let layer = stage
        .idempotency
        .operation("/takes")
        .body_max(32 * MIB as u64);
    stage.route("/takes", post(handler).layer(layer));
    let request = |key: &str, bytes: usize| {
        let request = Request::post("/takes").header("idempotency-key", key);
        request.body(Body::from(vec![b'x'; bytes])).unwrap()
    };
    // Longer than the total disk space for bodies.
    let refused = stage.send(request("a", 5 * MIB)).await;
    refused.check_problem(503, "DEPENDENCY.unavailable");
    assert_eq!(refused.header("retry-after"), Some("1"));
    // The disk space is released, also by a body that was refused while it was read.
    for key in ["b", "c", "d"] {
        let taken = stage.send(request(key, LONG)).await;
        assert_eq!(taken.idempotency(), Some("stored"));
    }
    let taken = stage.send(request("e", 4 * MIB)).await;
    assert_eq!(taken.idempotency(), Some("stored"));
}
