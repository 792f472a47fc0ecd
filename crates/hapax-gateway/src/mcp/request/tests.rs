//! Requests as clients send them, and as they should not.

use super::*;

fn read(body: &str) -> Result<McpMessage, McpError> {
    parse(body.as_bytes(), Some("2025-06-18"), &McpSettings::default())
}

#[track_caller]
fn call(body: &str) -> ToolCall {
    match read(body) {
        Ok(McpMessage::ToolCall(call)) => call,
        other => panic!("expected a call, got {other:?}"),
    }
}

#[track_caller]
fn check_error(body: &str, expected: McpError) {
    match read(body) {
        Err(error) => assert_eq!(error, expected, "{body}"),
        Ok(message) => panic!("expected {expected:?}, got {message:?}: {body}"),
    }
}

fn with_params(params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#)
}

#[test]
fn a_call_has_its_id_its_tool_and_its_key() {
    let call = call(
        r#"{"jsonrpc":"2.0","id":"a-1","method":"tools\/call","params":{"name":"refund",
        "arguments":{"amount":1},"_meta":{"progressToken":7,"io.hapax/idempotency-key":"k-1"}}}"#,
    );
    assert_eq!(call.id.as_json(), "\"a-1\"");
    assert_eq!(call.tool, "refund");
    assert_eq!(call.key.as_ref().unwrap().as_str(), "k-1");
    assert!(!format!("{call:?}").contains("amount"));
}

#[test]
fn both_names_of_the_key_are_read_and_they_must_agree() {
    let key = |meta: &str| {
        let body = with_params(&format!(r#"{{"name":"t","_meta":{meta}}}"#));
        call(&body).key.map(|key| key.as_str().to_owned())
    };
    assert_eq!(key(r#"{"idempotencyKey":"k"}"#), Some("k".to_owned()));
    assert_eq!(key("{}"), None);
    let both = r#"{"idempotencyKey":"k","io.hapax/idempotency-key":"k"}"#;
    assert_eq!(key(both), Some("k".to_owned()));
    let differ = r#"{"name":"t","_meta":{"idempotencyKey":"a","io.hapax/idempotency-key":"b"}}"#;
    check_error(&with_params(differ), McpError::Key);
    for value in ["1", "null", "[\"k\"]", "{}", "true", "\"\\ud800\""] {
        let params = format!(r#"{{"name":"t","_meta":{{"idempotencyKey":{value}}}}}"#);
        check_error(&with_params(&params), McpError::Key);
    }
    let empty = with_params(r#"{"name":"t","_meta":{"idempotencyKey":""}}"#);
    check_error(&empty, McpError::KeyForm(KeyError::Empty));
    let accent = with_params(r#"{"name":"t","_meta":{"idempotencyKey":"\u00e9"}}"#);
    check_error(&accent, McpError::KeyForm(KeyError::Character));
}

#[test]
fn attempts_of_one_call_have_one_fingerprint_and_other_calls_another() {
    let of = |id: &str, meta: &str, arguments: &str| {
        call(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"t","arguments":{arguments}{meta}}}}}"#
        ))
        .fingerprinted
    };
    let key = r#","_meta":{"idempotencyKey":"k"}"#;
    let token = r#","_meta":{"progressToken":"p","idempotencyKey":"k","traceparent":"00-1-2-01"}"#;
    let first = of("1", key, r#"{"a":1.0}"#);
    assert_eq!(first, of("\"2\"", token, r#"{"a":1.0}"#));
    assert_ne!(first, of("1", key, r#"{"a":1}"#));
    // A progress token in the arguments belongs to the call.
    let inner = of("1", key, r#"{"progressToken":1}"#);
    assert_ne!(inner, of("1", key, r#"{"progressToken":2}"#));
    let other_meta = of("1", r#","_meta":{"client":{"version":2}}"#, "{}");
    assert_eq!(other_meta, of("1", "", "{}"));
    assert!(serde_json::from_slice::<serde_json::Value>(&first).is_ok());
    // Large numbers keep their digits.
    let large = of("1", "", "{\"n\":123456789012345678901234567890}");
    assert!(
        String::from_utf8(large)
            .unwrap()
            .contains(":123456789012345678901234567890}")
    );
}

#[test]
fn other_messages_pass() {
    for body in [
        r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"Tools/Call","params":{"name":"t"}}"#,
        "{}",
    ] {
        assert!(matches!(read(body), Ok(McpMessage::Other)), "{body}");
    }
}

#[test]
fn a_call_without_a_usable_id_is_refused() {
    for id in [
        "null",
        "1.5",
        "1e0",
        "true",
        "{}",
        "[]",
        "18446744073709551616",
        "\"\\udc00\"",
    ] {
        let body = format!(r#"{{"id":{id},"method":"tools/call","params":{{"name":"t"}}}}"#);
        check_error(&body, McpError::Id);
    }
    check_error(
        r#"{"method":"tools/call","params":{"name":"t"}}"#,
        McpError::Id,
    );
}

#[test]
fn a_refused_message_keeps_its_id_if_it_has_one() {
    let id = |body: &str| id_of(body.as_bytes()).map(|id| id.as_json().to_owned());
    assert_eq!(id(r#"{"id":"a","Method":1}"#), Some("\"a\"".to_owned()));
    let deep = format!("{{\"id\":1,\"a\":{}{}}}", "[".repeat(200), "]".repeat(200));
    for body in [
        "",
        "[]",
        "{}",
        r#"{"id":null}"#,
        r#"{"id":1,"id":2}"#,
        &deep,
    ] {
        assert_eq!(id(body), None, "{body}");
    }
}

#[test]
fn a_call_without_a_usable_tool_is_refused() {
    let long = format!(r#"{{"name":"{}"}}"#, "t".repeat(201));
    for params in [
        "{}",
        r#"{"name":""}"#,
        r#"{"name":1}"#,
        r#"{"name":"a\u0000b"}"#,
        &long,
    ] {
        check_error(&with_params(params), McpError::Tool);
    }
    check_error(r#"{"id":1,"method":"tools/call"}"#, McpError::Tool);
    for params in [
        "[]",
        "null",
        "\"t\"",
        r#"{"name":"t","_meta":[]}"#,
        r#"{"name":"t","_meta":null}"#,
    ] {
        check_error(&with_params(params), McpError::Members);
    }
}

#[test]
fn a_message_that_readers_could_read_differently_is_refused() {
    for body in [
        r#"{"id":1,"method":"ping","method":"tools/call","params":{"name":"t"}}"#,
        r#"{"id":1,"method":"ping","\u006dethod":"tools/call","params":{"name":"t"}}"#,
        r#"{"id":1,"method":"ping","Method":"tools/call","params":{"name":"t"}}"#,
        r#"{"id":1,"id":2,"method":"tools/call","params":{"name":"t"}}"#,
        r#"{"id":1,"ID":2,"method":"tools/call","params":{"name":"t"}}"#,
        "{\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"t\"},\"param\u{17f}\":{}}",
        r#"{"id":1,"method":"tools/call","params":{"name":"t","name":"u"}}"#,
        r#"{"id":1,"method":"tools/call","params":{"name":"t","Name":"u"}}"#,
        r#"{"id":1,"method":"tools/call","params":{"name":"t","_meta":{"a":1,"a":2}}}"#,
        r#"{"id":1,"method":"\ud800"}"#,
        r#"{"id":1,"method":["tools/call"]}"#,
        r#"{"id":1,"\ud800":1}"#,
    ] {
        check_error(body, McpError::Members);
    }
}

#[test]
fn a_body_that_is_not_json_or_too_deep_is_refused() {
    for body in [
        "",
        "tools/call",
        "{",
        "{}{}",
        "{\"id\":01}",
        "\u{feff}{}",
        "{'id':1}",
        "{,}",
    ] {
        check_error(body, McpError::Json);
    }
    for body in ["null", "1", "\"tools/call\"", "true"] {
        check_error(body, McpError::Members);
    }
    let deep = format!(
        r#"{{"name":"t","arguments":{}{}}}"#,
        "[".repeat(200),
        "]".repeat(200)
    );
    check_error(&with_params(&deep), McpError::Depth);
    let brackets = format!(
        r#"{{"name":"t","arguments":{{"a":"\"{}"}}}}"#,
        "[".repeat(200)
    );
    assert_eq!(call(&with_params(&brackets)).tool, "t");
    let unicode = parse(b"{\"a\":\"\xff\"}", None, &McpSettings::default());
    assert_eq!(unicode.unwrap_err(), McpError::Json);
}

#[test]
fn a_batch_passes_only_in_a_version_that_has_batches_and_without_calls() {
    let batch = |body: &str, version: Option<&str>| {
        parse(body.as_bytes(), version, &McpSettings::default()).map(|_| ())
    };
    let pings = r#"[{"id":1,"method":"ping"},{"id":2,"method":"ping"}]"#;
    assert_eq!(batch(pings, Some("2025-03-26")), Ok(()));
    assert_eq!(batch(pings, None), Ok(()));
    assert_eq!(batch(pings, Some("2025-06-18")), Err(McpError::Batch));
    assert_eq!(batch(pings, Some("2025-11-25")), Err(McpError::Batch));
    let with_call =
        r#"[{"id":1,"method":"ping"},{"id":2,"method":"tools/call","params":{"name":"t"}}]"#;
    assert_eq!(batch(with_call, None), Err(McpError::CallInBatch));
    assert_eq!(batch("[1]", None), Err(McpError::Members));
    assert_eq!(batch("[]", None), Ok(()));
}
