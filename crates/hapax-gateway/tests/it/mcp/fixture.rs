//! A server with one tool, which numbers its orders, and a client that calls it.

use hapax_gateway::config::{Route, RouteProtocol};
use hapax_testkit::http::HttpResponse;
use serde_json::{Value, json};

use crate::{
    stage::Stage,
    upstream::{Received, Reply, Upstream, ok},
};

/// The member of `_meta` with the key.
pub(super) const MEMBER: &str = "io.hapax/idempotency-key";
/// What clients of MCP accept.
pub(super) const BOTH: &str = "application/json, text/event-stream";

/// A gateway whose route reads messages, in front of a server that responds as `reply` says.
pub(super) async fn stage(
    reply: impl Fn(&Received) -> Reply + Send + Sync + 'static,
    change: impl FnOnce(&mut Route),
) -> (Upstream, Stage) {
    let upstream = Upstream::start(reply).await;
    let stage = Stage::new(&upstream, |route| {
        route.protocol = RouteProtocol::Mcp;
        change(route);
    })
    .await;
    (upstream, stage)
}

/// A server whose tool has a result.
pub(super) fn order(received: &Received) -> Reply {
    Reply::Bytes(ok("200 OK", &result(received)))
}

/// The response with the number of the order.
pub(super) fn result(received: &Received) -> String {
    let text = format!("order {}", received.before + 1);
    let result = json!({ "content": [{ "type": "text", "text": text }], "isError": false });
    json!({ "jsonrpc": "2.0", "id": id(received), "result": result }).to_string()
}

/// A response with an error.
pub(super) fn error(received: &Received, code: i64) -> String {
    let error = json!({ "code": code, "message": "no" });
    json!({ "jsonrpc": "2.0", "id": id(received), "error": error }).to_string()
}

/// The id of the message that the server has received.
fn id(received: &Received) -> Value {
    let message: Value = serde_json::from_slice(&received.body).unwrap();
    message["id"].clone()
}

/// A call of the tool.
pub(super) fn message(id: &Value, key: Option<&str>, item: &str) -> String {
    let mut params = json!({ "name": "place_order", "arguments": { "item": item } });
    if let Some(key) = key {
        params["_meta"] = json!({ MEMBER: key, "progressToken": id });
    }
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params }).to_string()
}

/// Posts a message, as a client of MCP does.
pub(super) async fn post(stage: &Stage, message: &str) -> HttpResponse {
    post_with(stage, message, &[("accept", BOTH)]).await
}

/// Posts a message with these headers.
pub(super) async fn post_with(
    stage: &Stage,
    message: &str,
    headers: &[(&str, &str)],
) -> HttpResponse {
    let url = format!("{}/mcp", stage.url);
    let mut all = vec![("content-type", "application/json")];
    all.extend_from_slice(headers);
    let answer = stage.client.post(&url, &all, message.to_owned()).await;
    answer.unwrap()
}

/// Calls the tool under the key `k`.
pub(super) async fn call(stage: &Stage, id: Value, item: &str) -> HttpResponse {
    post(stage, &message(&id, Some("k"), item)).await
}

/// Checks the result in a response, and returns the header `Idempotency-Status`.
#[track_caller]
pub(super) fn check_result(answer: &HttpResponse, id: &Value, text: &str) -> Option<String> {
    let found = answer.json().unwrap_or_else(|_| panic!("{answer:?}"));
    assert_eq!(answer.status, 200, "{found}");
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!((&found["jsonrpc"], &found["id"]), (&json!("2.0"), id));
    assert_eq!(found["result"]["content"][0]["text"], text, "{found}");
    answer.header("idempotency-status").map(str::to_owned)
}

/// Checks that a response is an error with the problem in its data, and returns the message.
#[track_caller]
pub(super) fn check_problem(answer: &HttpResponse, id: &Value, status: u16, code: &str) -> String {
    let found = answer.json().unwrap_or_else(|_| panic!("{answer:?}"));
    check_error(answer, 200, id, i64::from(status));
    let data = &found["error"]["data"];
    assert_eq!(
        (&data["code"], &data["status"]),
        (&json!(code), &json!(status))
    );
    found["error"]["message"].as_str().unwrap().to_owned()
}

/// Checks that a response is an error, and returns its text.
#[track_caller]
pub(super) fn check_error(answer: &HttpResponse, status: u16, id: &Value, code: i64) -> String {
    let found = answer.json().unwrap_or_else(|_| panic!("{answer:?}"));
    assert_eq!(answer.status, status, "{found}");
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(
        (&found["id"], &found["error"]["code"]),
        (id, &json!(code)),
        "{found}"
    );
    found["error"].to_string()
}

/// A stream of events, in chunks.
pub(super) fn events(messages: &[&str]) -> Vec<u8> {
    let mut bytes = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
        cache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n"
        .to_vec();
    for message in messages {
        let event = format!("event: message\r\ndata: {message}\r\n\r\n");
        let chunk = format!("{:x}\r\n{event}\r\n", event.len());
        bytes.extend_from_slice(chunk.as_bytes());
    }
    bytes
}
