//! Responses that are streams of events.

use hapax_gateway::config::RouteProtocol;
use hapax_runtime::config::Span;
use hapax_testkit::wait::answered;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use super::fixture::{BOTH, call, check_result, events, message, post_with, result, stage};
use crate::{
    stage::{PATIENCE, Stage, settings},
    upstream::{Received, Reply},
};

const PROGRESS: &str = r#"{"method":"notifications/progress","params":{"progress":1}}"#;

#[tokio::test]
async fn the_response_at_the_end_of_a_stream_is_replayed_as_json() {
    let (upstream, stage) = stage(with_progress, |_| {}).await;
    let first = call(&stage, json!(1), "tea").await;
    let expected = format!("event: message\r\ndata: {PROGRESS}\r\n\r\n");
    let text = first.text();
    let last = text.strip_prefix(&expected).unwrap();
    check_event(last, &json!(1), "order 1");
    let again = call(&stage, json!(2), "tea").await;
    let status = check_result(&again, &json!(2), "order 1");
    assert_eq!(status.as_deref(), Some("replayed; upstream=opaque"));
    assert_eq!(upstream.ledger().len(), 1);
}

#[tokio::test]
async fn a_stream_without_other_messages_is_answered_with_json() {
    let (_upstream, stage) = stage(
        |received| Reply::Bytes(events(&[&result(received)])),
        |_| {},
    )
    .await;
    let first = call(&stage, json!(1), "tea").await;
    let status = check_result(&first, &json!(1), "order 1");
    assert_eq!(status.as_deref(), Some("stored; upstream=opaque"));
}

#[tokio::test]
async fn a_client_gets_the_media_type_that_it_accepts() {
    let (upstream, stage) = stage(with_progress, |_| {}).await;
    let sent = |id: i32| message(&json!(id), Some("k"), "tea");
    let first = post_with(&stage, &sent(1), &[("accept", "application/json")]).await;
    check_result(&first, &json!(1), "order 1");
    let headers = [("accept", "text/event-stream")];
    let stream = post_with(&stage, &sent(2), &headers).await;
    assert_eq!(stream.header("content-type"), Some("text/event-stream"));
    check_event(&stream.text(), &json!(2), "order 1");
    let conflict = message(&json!(3), Some("k"), "coffee");
    let conflict = post_with(&stage, &conflict, &headers).await;
    assert_eq!(conflict.header("content-type"), Some("text/event-stream"));
    assert!(conflict.text().contains("payload_mismatch"), "{conflict:?}");
    assert_eq!(upstream.ledger().len(), 1);
}

#[tokio::test]
async fn a_message_of_the_server_arrives_before_the_tool_has_ended() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut settings = settings(&[&format!("http://{}", listener.local_addr().unwrap())]);
    let route = settings.routes.get_mut("all").unwrap();
    route.protocol = RouteProtocol::Mcp;
    route.timeout = Span(PATIENCE);
    let stage = Stage::with(&settings).await;
    let request = r#"{"id":"s-1","method":"elicitation/create","params":{}}"#;
    let (tell, told) = tokio::sync::oneshot::channel();
    let server = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_until(&mut stream, "\"tea\"").await;
        stream.write_all(&events(&[request])).await.unwrap();
        // The server waits for the user before it acts.
        told.await.unwrap();
        let event = "data: {\"id\":1,\"result\":{\"done\":true}}\n\n";
        let chunk = format!("{:x}\r\n{event}\r\n0\r\n\r\n", event.len());
        stream.write_all(chunk.as_bytes()).await.unwrap();
        // The connection stays open until the client has read the response.
        stream
    };
    let client = async {
        let mut client = TcpStream::connect(stage.address()).await.unwrap();
        let sent = message(&json!(1), Some("k"), "tea");
        let head = format!("POST /mcp HTTP/1.1\r\nhost: a\r\naccept: {BOTH}\r\n");
        let head = format!("{head}content-type: application/json\r\n");
        let sent = format!("{head}content-length: {}\r\n\r\n{sent}", sent.len());
        client.write_all(sent.as_bytes()).await.unwrap();
        read_until(&mut client, "elicitation/create").await;
        tell.send(()).unwrap();
        read_until(&mut client, "\"done\":true").await;
    };
    answered(PATIENCE, Box::pin(async { tokio::join!(server, client) })).await;
}

/// A server whose tool reports progress, and whose stream stays open after the response.
fn with_progress(received: &Received) -> Reply {
    Reply::Bytes(events(&[PROGRESS, &result(received)]))
}

/// Checks that a text is one event with a result.
#[track_caller]
fn check_event(text: &str, id: &Value, expected: &str) {
    let data = text.strip_prefix("event: message\ndata: ").unwrap();
    let data = data.strip_suffix("\n\n").unwrap();
    let found: Value = serde_json::from_str(data).unwrap();
    assert_eq!(&found["id"], id);
    assert_eq!(found["result"]["content"][0]["text"], expected);
}

/// Reads until the text has arrived.
async fn read_until(stream: &mut TcpStream, end: &str) {
    let (mut read, mut buffer) = (Vec::new(), [0; 4096]);
    while !String::from_utf8_lossy(&read).contains(end) {
        let bytes = stream.read(&mut buffer).await.unwrap();
        assert!(
            bytes > 0,
            "the stream ended: {:?}",
            String::from_utf8_lossy(&read)
        );
        read.extend_from_slice(&buffer[..bytes]);
    }
}
