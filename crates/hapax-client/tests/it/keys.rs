//! One key per operation, and the same bytes in every attempt.

use std::collections::HashSet;

use hapax::key::IdempotencyKey;
use hapax_client::Request;
use hapax_testkit::http::{HttpReceiver, HttpReply};
use http::Method;

use crate::stage::{client, post};

#[tokio::test]
async fn every_attempt_sends_the_same_key_and_the_same_bytes() {
    let receiver = HttpReceiver::start().await;
    receiver.reply_next(HttpReply::closed());
    receiver.reply_next(HttpReply::status(500));
    receiver.reply_next(HttpReply::status(429));
    let body: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
    let request = post(&receiver)
        .body(body.clone())
        .header("x-more", "value")
        .unwrap();
    let answer = client().send(request).await.unwrap();
    let arrived = receiver.received();
    assert_eq!((arrived.len(), answer.attempts.len()), (4, 4));
    let key = answer.key.unwrap();
    for request in &arrived {
        assert_eq!(request.header("idempotency-key"), Some(key.as_str()));
        assert_eq!(request.headers.get_all("idempotency-key").iter().count(), 1);
        assert_eq!(request.header("x-more"), Some("value"));
        assert_eq!(request.header("content-type"), Some("application/json"));
        assert!(request.body == body, "the bodies differ");
    }
}

#[tokio::test]
async fn a_key_is_a_uuid_of_version_4_and_each_operation_has_its_own() {
    let receiver = HttpReceiver::start().await;
    let client = client();
    let mut keys = HashSet::new();
    for _ in 0..20 {
        let key = client.send(post(&receiver)).await.unwrap().key.unwrap();
        let text = key.as_str();
        assert_eq!((text.len(), &text[14..15]), (36, "4"), "{text}");
        assert!("89ab".contains(&text[19..20]), "{text}");
        assert!(keys.insert(key));
    }
}

#[tokio::test]
async fn a_key_that_was_given_is_sent_as_it_is() {
    let receiver = HttpReceiver::start().await;
    let key = IdempotencyKey::new("order 7 \"rush\"").unwrap();
    client().send(post(&receiver).key(key)).await.unwrap();
    let arrived = receiver.received();
    let sent = arrived[0].header("idempotency-key");
    assert_eq!(sent, Some("\"order 7 \\\"rush\\\"\""));
}

#[tokio::test]
async fn a_read_has_no_key_and_is_asked_again() {
    let receiver = HttpReceiver::start().await;
    receiver.reply_next(HttpReply::status(503));
    for method in [Method::GET, Method::PUT, Method::DELETE] {
        let request = Request::new(method, &receiver.url("/orders/1")).unwrap();
        let answer = client().send(request).await.unwrap();
        assert_eq!((answer.status.as_u16(), answer.key), (200, None));
    }
    let arrived = receiver.received();
    assert_eq!(arrived.len(), 4);
    assert!(
        arrived
            .iter()
            .all(|it| it.header("idempotency-key").is_none())
    );
}

#[test]
fn a_header_that_the_client_writes_is_refused_and_so_is_what_is_no_address() {
    let request = || Request::post("http://a/").unwrap();
    assert!(request().header("Idempotency-Key", "k").is_err());
    assert!(request().header("x-request-timeout", "1").is_err());
    assert!(request().header("idempotency-attempt", "1").is_err());
    assert!(request().header("x y", "1").is_err());
    assert!(request().header("x-y", "a\nb").is_err());
    for url in ["", "orders", "/orders", "ftp://a/", "http://", "file:///x"] {
        assert!(Request::post(url).is_err(), "{url:?}");
    }
}
