//! What is told of an operation: the answer, the attempts, and what to do.

use std::{
    io::{self, Write as _},
    process::ExitCode,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hapax::key::IdempotencyKey;
use hapax_client::{Answer, Attempts, Stopped};
use serde_json::{Map, Value, json};

use super::category::{NETWORK, category};
use crate::{command::Failure, output::Output};

/// Tells of an answer.
pub(super) fn answer(output: Output, answer: &Answer) -> Result<ExitCode, Failure> {
    let category = category(answer.status, answer.code.as_deref());
    if output.json {
        output.json(&object(answer))?;
    } else {
        output.bytes(&answer.body)?;
        told(&answer.attempts);
    }
    let Some(category) = category else {
        return Ok(ExitCode::SUCCESS);
    };
    let status = answer.status.as_u16();
    let code = answer.code.as_ref().map(|code| format!(" {code}"));
    let wait = answer.retry_after.filter(|wait| !wait.is_zero());
    let wait = wait.map(|wait| format!(", but not before {} s have passed", wait.as_secs()));
    let (code, wait) = (code.unwrap_or_default(), wait.unwrap_or_default());
    let story = format!("{status}{code}: {}{wait}", category.hint);
    Err(Failure::new(
        category.code,
        story.replace(char::is_control, " "),
    ))
}

/// Tells that no answer came.
pub(super) fn silence(
    output: Output,
    key: Option<&IdempotencyKey>,
    stopped: Stopped,
    attempts: &Attempts,
    story: &str,
) -> Result<ExitCode, Failure> {
    if output.json {
        output.json(&json!({
            "status": null,
            "error": story,
            "stopped": stopped.word(),
            "key": key.map(IdempotencyKey::as_str),
            "attempts": attempts,
        }))?;
    } else {
        told(attempts);
    }
    let key = key.map(|key| format!(" (key {})", key.quoted()));
    let (hint, key) = (NETWORK.hint, key.unwrap_or_default());
    Err(Failure::new(
        NETWORK.code,
        format!("no answer: {story}: {hint}{key}"),
    ))
}

/// The attempts, for whoever reads standard error.
fn told(attempts: &Attempts) {
    let _ = writeln!(io::stderr(), "{attempts}");
}

fn object(answer: &Answer) -> Value {
    let mut headers = Map::new();
    for name in answer.headers.keys() {
        let values = answer.headers.get_all(name).iter();
        let values = values.map(|value| String::from_utf8_lossy(value.as_bytes()));
        headers.insert(
            name.to_string(),
            values.collect::<Vec<_>>().join(", ").into(),
        );
    }
    let (text, base64) = match std::str::from_utf8(&answer.body) {
        Ok(text) => (Some(text), None),
        Err(_) => (None, Some(STANDARD.encode(&answer.body))),
    };
    let wait = answer.retry_after;
    json!({
        "status": answer.status.as_u16(),
        "code": answer.code,
        "headers": headers,
        "body": text,
        "body_base64": base64,
        "key": answer.key.as_ref().map(IdempotencyKey::as_str),
        "resumed": answer.is_resumed,
        "stopped": answer.stopped.word(),
        "retry_after_ms": wait.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)),
        "attempts": answer.attempts,
    })
}
