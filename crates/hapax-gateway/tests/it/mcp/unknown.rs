//! Calls that have reached the server, and have no complete response.

use std::time::Duration;

use hapax::{admin::KeyOutcome, idempotency::StoredResponse};
use hapax_gateway::config::{OnUnknown, RouteProtocol};
use hapax_runtime::config::Span;
use hapax_testkit::port::free_port;
use serde_json::json;

use super::fixture::{call, check_error, check_problem, check_result, events, order, stage};
use crate::{
    outcomes::decide,
    stage::{Stage, settings},
    upstream::{Received, Reply, Upstream, ok},
};

const UNKNOWN: &str = "CONFLICT.idempotency.outcome_unknown";
const PROGRESS: &str = r#"{"method":"notifications/progress","params":{"progress":1}}"#;

#[tokio::test]
async fn a_response_that_is_cut_is_unknown_and_the_call_is_not_sent_again() {
    let whole = ok("200 OK", r#"{"id":1,"result":{}}"#);
    for length in [0, 10, whole.len() - 1] {
        let part = whole[..length].to_vec();
        let (upstream, stage) = stage(move |_| Reply::Cut(part.clone()), |_| {}).await;
        check_unknown(&upstream, &stage, 502).await;
    }
}

#[tokio::test]
async fn a_stream_that_ends_without_its_response_is_unknown() {
    let mut ended = events(&[]);
    ended.extend_from_slice(b"0\r\n\r\n");
    let half = [events(&[]), b"5\r\ndata:\r\n".to_vec()].concat();
    for part in [events(&[]), half, ended] {
        let (upstream, stage) = stage(move |_| Reply::Cut(part.clone()), |_| {}).await;
        check_unknown(&upstream, &stage, 502).await;
    }
}

#[tokio::test]
async fn a_server_that_does_not_respond_in_time_is_unknown() {
    let timeout = Span(Duration::from_millis(200));
    let (upstream, stage) = stage(|_| Reply::Nothing, |route| route.timeout = timeout).await;
    check_unknown(&upstream, &stage, 504).await;
}

#[tokio::test]
async fn a_response_to_another_request_is_not_stored() {
    for response in [
        r#"{"id":2,"result":{}}"#,
        r#"{"id":1}"#,
        "<html>",
        "",
        r#"[{"id":1,"result":{}}]"#,
    ] {
        let (upstream, stage) = stage(move |_| Reply::Bytes(ok("200 OK", response)), |_| {}).await;
        check_unknown(&upstream, &stage, 502).await;
    }
    let streamed = |_: &Received| Reply::Bytes(events(&[r#"{"id":2,"result":{}}"#]));
    let (upstream, stage) = stage(streamed, |_| {}).await;
    check_unknown(&upstream, &stage, 502).await;
}

#[tokio::test]
async fn a_stream_longer_than_the_bound_is_unknown() {
    let long = || Reply::Bytes(events(&[&"x".repeat(4096)]));
    let (upstream, stage) = stage(move |_| long(), |route| route.response_max = 4096).await;
    check_unknown(&upstream, &stage, 502).await;
}

#[tokio::test]
async fn the_client_of_a_stream_that_has_begun_gets_the_problem_as_its_last_event() {
    let (upstream, stage) = stage(|_| Reply::Cut(events(&[PROGRESS])), |_| {}).await;
    let first = call(&stage, json!(1), "tea").await;
    assert_eq!(first.header("content-type"), Some("text/event-stream"));
    let text = first.text();
    let (progress, last) = text.split_once("\r\n\r\n").unwrap();
    assert_eq!(progress, format!("event: message\r\ndata: {PROGRESS}"));
    let last = last.strip_prefix("event: message\ndata: ").unwrap();
    let last: serde_json::Value = serde_json::from_str(last.trim_end()).unwrap();
    assert_eq!(
        (&last["id"], &last["error"]["code"]),
        (&json!(1), &json!(502))
    );
    let again = call(&stage, json!(2), "tea").await;
    check_problem(&again, &json!(2), 409, UNKNOWN);
    assert_eq!(upstream.ledger().len(), 1);
}

#[tokio::test]
async fn a_failure_of_the_server_passes_and_is_unknown() {
    let (upstream, stage) = stage(|_| Reply::Bytes(ok("500 Oops", "{\"oops\":1}")), |_| {}).await;
    let first = call(&stage, json!(1), "tea").await;
    assert_eq!(
        (first.status, first.text()),
        (500, "{\"oops\":1}".to_owned())
    );
    let again = call(&stage, json!(2), "tea").await;
    check_problem(&again, &json!(2), 409, UNKNOWN);
    assert_eq!(upstream.ledger().len(), 1);
}

#[tokio::test]
async fn a_server_that_knows_keys_receives_the_call_again() {
    let (upstream, stage) = stage(
        |received| match received.before {
            0 => Reply::Cut(Vec::new()),
            _ => order(received),
        },
        |route| route.unknown = OnUnknown::Forward,
    )
    .await;
    let first = call(&stage, json!(1), "tea").await;
    check_problem(&first, &json!(1), 502, "DEPENDENCY.unavailable");
    let again = call(&stage, json!(2), "tea").await;
    check_result(&again, &json!(2), "order 2");
    assert_eq!(upstream.ledger().len(), 2);
}

#[tokio::test]
async fn an_operator_decides_with_a_response_of_json_rpc() {
    let result = r#"{"id":0,"result":{"content":[{"text":"order 1"}]}}"#;
    for (body, is_response) in [(result, true), ("{\"order\":1}", false)] {
        let (upstream, stage) = stage(|_| Reply::Cut(Vec::new()), |_| {}).await;
        call(&stage, json!(1), "tea").await;
        let response = StoredResponse {
            status: 200,
            headers: Vec::new(),
            body: body.into(),
        };
        decide(&stage, KeyOutcome::Happened(response)).await;
        let again = call(&stage, json!(2), "tea").await;
        if is_response {
            assert_eq!(again.json().unwrap()["id"], 2);
            assert_eq!(again.text(), result.replace("\"id\":0", "\"id\":2"));
        } else {
            check_error(&again, 200, &json!(2), -32603);
        }
        assert_eq!(upstream.ledger().len(), 1);
    }
}

#[tokio::test]
async fn a_call_that_was_not_sent_frees_the_key() {
    let url = format!("http://127.0.0.1:{}", free_port());
    let mut settings = settings(&[&url]);
    settings.routes.get_mut("all").unwrap().protocol = RouteProtocol::Mcp;
    let stage = Stage::with(&settings).await;
    for item in ["tea", "coffee"] {
        let refused = call(&stage, json!(1), item).await;
        let text = check_problem(&refused, &json!(1), 503, "DEPENDENCY.unavailable");
        assert!(text.contains("nothing was sent"), "{text}");
        assert_eq!(refused.header("retry-after"), Some("1"));
    }
}

/// Calls the tool, and again: the outcome is unknown, and the server is not called again.
async fn check_unknown(upstream: &Upstream, stage: &Stage, status: u16) {
    let first = call(stage, json!(1), "tea").await;
    check_problem(&first, &json!(1), status, UNKNOWN);
    let again = call(stage, json!("again"), "tea").await;
    check_problem(&again, &json!("again"), 409, UNKNOWN);
    assert_eq!(upstream.ledger().len(), 1);
}
