//! Calls with a key: the first one, replays, conflicts, and what the server receives.

use hapax_gateway::{config::KeyRule, mcp::OnError, tenant::TenantSettings};
use hapax_runtime::config::Span;
use serde_json::json;

use super::fixture::{
    BOTH, call, check_error, check_problem, check_result, error, message, order, post, post_with,
    stage,
};
use crate::{
    stage::PATIENCE,
    upstream::{Received, Reply, ok},
};

#[tokio::test]
async fn a_repeated_call_acts_once_and_is_answered_with_its_own_id() {
    let (upstream, stage) = stage(order, |_| {}).await;
    let first = call(&stage, json!(1), "tea").await;
    let status = check_result(&first, &json!(1), "order 1");
    assert_eq!(status.as_deref(), Some("stored; upstream=opaque"));
    for id in [json!("a\"b"), json!(-7), json!(1)] {
        let again = call(&stage, id.clone(), "tea").await;
        let status = check_result(&again, &id, "order 1");
        assert_eq!(status.as_deref(), Some("replayed; upstream=opaque"));
    }
    assert_eq!(upstream.ledger(), ["POST /mcp HTTP/1.1"]);
}

#[tokio::test]
async fn a_key_belongs_to_one_call() {
    let (upstream, stage) = stage(order, |_| {}).await;
    call(&stage, json!(1), "tea").await;
    let other = call(&stage, json!(2), "coffee").await;
    let code = "CONFLICT.idempotency.payload_mismatch";
    check_problem(&other, &json!(2), 409, code);
    let tool = message(&json!(3), Some("k"), "tea").replace("place_order", "refund");
    check_problem(&post(&stage, &tool).await, &json!(3), 409, code);
    assert_eq!(upstream.ledger().len(), 1);
}

#[tokio::test]
async fn two_calls_at_once_act_once() {
    let (upstream, stage) = stage(order, |route| route.wait = Some(Span(PATIENCE))).await;
    let (one, two) = (call(&stage, json!(1), "tea"), call(&stage, json!(2), "tea"));
    let (one, two) = tokio::join!(one, two);
    check_result(&one, &json!(1), "order 1");
    check_result(&two, &json!(2), "order 1");
    assert_eq!(upstream.ledger().len(), 1);
}

#[tokio::test]
async fn two_tenants_do_not_share_a_key() {
    let tenant = TenantSettings::Header("x-tenant".to_owned());
    let (upstream, stage) = stage(order, |route| route.tenant = Some(tenant)).await;
    let sent = message(&json!(1), Some("k"), "tea");
    for (tenant, text) in [("ann", "order 1"), ("bob", "order 2"), ("ann", "order 1")] {
        let headers = [("accept", BOTH), ("x-tenant", tenant)];
        check_result(&post_with(&stage, &sent, &headers).await, &json!(1), text);
    }
    // Clients of MCP expect the status 401, which starts their authorization.
    assert_eq!(post(&stage, &sent).await.status, 401);
    assert_eq!(upstream.ledger().len(), 2);
}

#[tokio::test]
async fn the_server_receives_the_message_as_it_was_sent() {
    let (_upstream, stage) = stage(
        |received| {
            let head = received.head.to_ascii_lowercase();
            let result = json!({ "head": head, "body": String::from_utf8_lossy(&received.body) });
            let response = json!({ "id": 1, "result": result });
            Reply::Bytes(ok("200 OK", &response.to_string()))
        },
        |_| {},
    )
    .await;
    let sent = message(&json!(1), Some("k"), "tea").replace(":{", " :\t{");
    let headers = [
        ("accept", "application/json"),
        ("accept-encoding", "gzip"),
        ("mcp-session-id", "s-1"),
        ("mcp-protocol-version", "2025-06-18"),
    ];
    let answer = post_with(&stage, &sent, &headers).await.json().unwrap();
    assert_eq!(answer["result"]["body"], sent);
    let head = answer["result"]["head"].as_str().unwrap();
    for line in [
        "accept: application/json, text/event-stream\r\n",
        "accept-encoding: identity\r\n",
        "mcp-session-id: s-1\r\n",
        "mcp-protocol-version: 2025-06-18\r\n",
        &format!("content-length: {}\r\n", sent.len()),
    ] {
        assert!(head.contains(line), "{line} not in {head}");
    }
    assert!(!head.contains("idempotency-key"), "{head}");
}

#[tokio::test]
async fn the_session_of_the_first_attempt_is_not_replayed() {
    let (_upstream, stage) = stage(
        |_| {
            let response = r#"{"id":1,"result":{}}"#;
            let length = response.len();
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nmcp-session-id: s-1";
            Reply::Bytes(format!("{head}\r\ncontent-length: {length}\r\n\r\n{response}").into())
        },
        |_| {},
    )
    .await;
    for id in [1, 2] {
        let answer = call(&stage, json!(id), "tea").await;
        assert_eq!(answer.json().unwrap()["id"], id);
        assert_eq!(answer.header("mcp-session-id"), None);
    }
}

#[tokio::test]
async fn an_error_of_the_server_is_replayed_unless_the_route_says_otherwise() {
    let failed = |received: &Received| Reply::Bytes(ok("200 OK", &error(received, -32602)));
    for (errors, expected) in [(OnError::Store, -32602), (OnError::Unknown, 409)] {
        let (upstream, stage) = stage(failed, |route| route.mcp.errors = errors).await;
        let first = call(&stage, json!(1), "tea").await;
        check_error(&first, 200, &json!(1), -32602);
        let again = call(&stage, json!(2), "tea").await;
        check_error(&again, 200, &json!(2), expected);
        assert_eq!(upstream.ledger().len(), 1);
    }
}

#[tokio::test]
async fn an_error_before_the_tool_runs_frees_the_key() {
    let (upstream, stage) = stage(
        |received| match received.before {
            0 => Reply::Bytes(ok("200 OK", &error(received, -32042))),
            _ => order(received),
        },
        |_| {},
    )
    .await;
    let first = call(&stage, json!(1), "tea").await;
    check_error(&first, 200, &json!(1), -32042);
    let again = call(&stage, json!(2), "tea").await;
    check_result(&again, &json!(2), "order 2");
    assert_eq!(upstream.ledger().len(), 2);
}

#[tokio::test]
async fn a_message_that_the_transport_refuses_frees_the_key() {
    let (upstream, stage) = stage(
        |received| match received.before {
            0 => Reply::Bytes(ok("404 Not Found", "{\"id\":null,\"error\":{}}")),
            _ => order(received),
        },
        |_| {},
    )
    .await;
    // The session has ended. The client begins another one, and calls again.
    let first = call(&stage, json!(1), "tea").await;
    assert_eq!(
        (first.status, first.header("x-from")),
        (404, Some("service"))
    );
    let again = call(&stage, json!(2), "tea").await;
    check_result(&again, &json!(2), "order 2");
    assert_eq!(upstream.ledger().len(), 2);
}

#[tokio::test]
async fn a_call_without_a_key_passes_every_time_unless_the_route_requires_one() {
    let sent = message(&json!(1), None, "tea");
    let (upstream, stage_without) = stage(order, |_| {}).await;
    for text in ["order 1", "order 2"] {
        let status = check_result(&post(&stage_without, &sent).await, &json!(1), text);
        assert_eq!(status, None);
    }
    assert_eq!(upstream.ledger().len(), 2);
    let (upstream, stage) = stage(order, |route| route.key = KeyRule::Required).await;
    let refused = check_error(&post(&stage, &sent).await, 200, &json!(1), -32602);
    assert!(refused.contains("io.hapax/idempotency-key"), "{refused}");
    assert!(
        refused.contains("VALIDATION.idempotency_key.missing"),
        "{refused}"
    );
    assert!(upstream.ledger().is_empty());
}

#[tokio::test]
async fn a_key_in_the_header_is_refused_because_it_would_protect_nothing() {
    let (upstream, stage) = stage(order, |_| {}).await;
    let sent = message(&json!(1), None, "tea");
    let headers = [("accept", BOTH), ("idempotency-key", "k")];
    let refused = post_with(&stage, &sent, &headers).await;
    check_error(&refused, 200, &json!(1), -32602);
    assert!(upstream.ledger().is_empty());
}
