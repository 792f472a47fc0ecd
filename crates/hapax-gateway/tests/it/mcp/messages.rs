//! Messages that are not calls with a key, and those that are refused.

use hapax_gateway::config::Route;
use http::Method;
use serde_json::{Value, json};

use super::fixture::{BOTH, MEMBER, check_error, message, order, post, post_with, stage};
use crate::upstream::{Received, Reply, ok};

#[tokio::test]
async fn other_messages_pass_as_they_are() {
    let (upstream, stage) = stage(echo, |_| {}).await;
    let headers = [
        ("accept", BOTH),
        ("mcp-session-id", "s-1"),
        ("idempotency-key", "k"),
    ];
    for sent in [
        r#"{"jsonrpc":"2.0", "id":0, "method":"initialize", "params":{}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#,
        r#"{"jsonrpc":"2.0","id":"s-1","result":{"action":"accept"}}"#,
        r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#,
    ] {
        for _ in 0..2 {
            let answer = post_with(&stage, sent, &headers).await;
            assert_eq!((answer.status, answer.text().as_str()), (200, sent));
            assert_eq!(answer.header("mcp-session-id"), Some("s-1"));
            assert_eq!(answer.header("idempotency-status"), None);
        }
    }
    let ledger = upstream.ledger();
    assert_eq!(ledger.len(), 10);
    assert!(ledger.iter().all(|line| line == "POST /mcp HTTP/1.1"));
}

#[tokio::test]
async fn the_stream_and_the_end_of_a_session_pass() {
    let (upstream, stage) = stage(echo, |_| {}).await;
    let url = format!("{}/mcp", stage.url);
    let headers = [("mcp-session-id", "s-1"), ("last-event-id", "7")];
    for method in [Method::GET, Method::DELETE] {
        let answer = stage.client.send(method, &url, &headers, "".into()).await;
        assert_eq!(answer.unwrap().header("mcp-session-id"), Some("s-1"));
    }
    let expected = ["GET /mcp HTTP/1.1", "DELETE /mcp HTTP/1.1"];
    assert_eq!(upstream.ledger(), expected);
}

#[tokio::test]
async fn a_message_that_could_be_read_in_two_ways_is_refused() {
    let keyed = message(&json!(1), Some("k"), "tea");
    let deep = format!("{{\"id\":1,\"a\":{}{}}}", "[".repeat(200), "]".repeat(200));
    let cases: [(&str, Value, i64); 12] = [
        ("", Value::Null, -32700),
        ("{", Value::Null, -32700),
        (&keyed[1..], Value::Null, -32700),
        ("null", Value::Null, -32600),
        (&deep, Value::Null, -32600),
        (r#"{"id":1,"id":2,"method":"ping"}"#, Value::Null, -32600),
        (
            r#"{"id":1,"method":"ping","Method":"tools/call"}"#,
            json!(1),
            -32600,
        ),
        (
            r#"{"method":"tools/call","params":{"name":"t"}}"#,
            Value::Null,
            -32600,
        ),
        (
            r#"{"id":null,"method":"tools/call","params":{"name":"t"}}"#,
            Value::Null,
            -32600,
        ),
        (
            r#"{"id":"a","method":"tools/call","params":{}}"#,
            json!("a"),
            -32602,
        ),
        (
            r#"{"id":3,"method":"tools/call","params":{"name":"t","_meta":{"a":1,"a":2}}}"#,
            json!(3),
            -32600,
        ),
        (
            r#"{"id":4,"method":"tools/call","params":{"name":"t","_meta":{"idempotencyKey":7}}}"#,
            json!(4),
            -32602,
        ),
    ];
    let (upstream, stage) = stage(order, |_| {}).await;
    for (sent, id, code) in cases {
        let status = if id.is_null() { 400 } else { 200 };
        check_error(&post(&stage, sent).await, status, &id, code);
    }
    assert!(upstream.ledger().is_empty());
}

#[tokio::test]
async fn a_duplicate_member_in_the_arguments_is_refused() {
    let sent = message(&json!(1), Some("k"), "tea").replace("\"item\":", "\"item\":1,\"item\":");
    let (upstream, stage) = stage(order, |_| {}).await;
    check_error(&post(&stage, &sent).await, 200, &json!(1), 400);
    assert!(upstream.ledger().is_empty());
}

#[tokio::test]
async fn a_key_that_is_not_one_is_refused() {
    let (upstream, stage) = stage(order, |_| {}).await;
    for (key, code) in [("", -32602), ("\u{e9}", -32602), ("derived:k", 400)] {
        let sent = message(&json!(1), Some(key), "tea");
        check_error(&post(&stage, &sent).await, 200, &json!(1), code);
    }
    assert!(upstream.ledger().is_empty());
}

#[tokio::test]
async fn a_batch_with_a_call_is_refused() {
    let keyed = message(&json!(1), Some("k"), "tea");
    let (upstream, stage) = stage(order, |_| {}).await;
    for sent in [
        format!("[{keyed}]"),
        format!("[{{\"id\":0,\"method\":\"ping\"}},{keyed}]"),
    ] {
        let refused = check_error(&post(&stage, &sent).await, 400, &Value::Null, -32600);
        assert!(refused.contains("a separate request"), "{refused}");
    }
    let headers = [("mcp-protocol-version", "2025-06-18")];
    let batch = post_with(&stage, "[{\"id\":0,\"method\":\"ping\"}]", &headers).await;
    check_error(&batch, 400, &Value::Null, -32600);
    assert!(upstream.ledger().is_empty());
}

#[tokio::test]
async fn a_message_over_the_bound_is_refused() {
    let sent = message(&json!(1), Some("k"), &"x".repeat(1000));
    let bounds: [fn(&mut Route); 2] = [|it| it.body_max = 1000, |it| it.json_max = 1000];
    for bound in bounds {
        let (upstream, stage) = stage(order, bound).await;
        let refused = check_error(&post(&stage, &sent).await, 413, &Value::Null, -32600);
        assert!(refused.contains("1000 bytes"), "{refused}");
        assert!(upstream.ledger().is_empty());
    }
}

#[tokio::test]
async fn the_members_with_the_key_are_a_setting() {
    let keys = vec!["example.com/key".to_owned()];
    let (upstream, stage) = stage(order, |route| route.mcp.keys = keys).await;
    let own = message(&json!(1), Some("k"), "tea").replace(MEMBER, "example.com/key");
    for _ in 0..2 {
        assert_eq!(post(&stage, &own).await.status, 200);
    }
    assert_eq!(upstream.ledger().len(), 1);
    for _ in 0..2 {
        let other = message(&json!(1), Some("k"), "tea");
        assert_eq!(
            post(&stage, &other).await.header("idempotency-status"),
            None
        );
    }
    assert_eq!(upstream.ledger().len(), 3);
}

/// Returns the body, in the session of the request.
fn echo(received: &Received) -> Reply {
    let session = received.header("mcp-session-id").unwrap_or_default();
    let body = String::from_utf8(received.body.clone()).unwrap();
    let response = String::from_utf8(ok("200 OK", &body)).unwrap();
    let session = format!("mcp-session-id: {session}\r\ncontent-length:");
    Reply::Bytes(response.replacen("content-length:", &session, 1).into())
}
