//! The output of `hapax send`: the response, the attempts, and advice.

use std::{
    io::{self, Write as _},
    process::ExitCode,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hapax::key::IdempotencyKey;
use hapax_client::{Attempts, Response, Stopped};
use serde_json::{Map, Value, json};

use super::category::{Category, NETWORK, category};
use crate::{command::Failure, output::Output};

/// The key of an operation, and whether it is in a journal.
#[derive(Clone, Copy)]
pub(super) struct Kept<'a> {
    pub(super) key: Option<&'a IdempotencyKey>,
    pub(super) has_journal: bool,
}

/// Prints a response.
pub(super) fn answer(
    output: Output,
    answer: &Response,
    has_journal: bool,
) -> Result<ExitCode, Failure> {
    let key = answer.key.as_ref();
    let kept = Kept { key, has_journal };
    let category = category(answer.status, answer.code.as_deref());
    let category = category.map(|it| {
        if is_stored(answer) {
            it.of_stored()
        } else {
            it
        }
    });
    if output.json {
        output.json(&object(answer))?;
    } else {
        output.bytes(&answer.body)?;
        print_attempts(&answer.attempts);
    }
    let Some(category) = category else {
        return Ok(ExitCode::SUCCESS);
    };
    let status = answer.status.as_u16();
    let code = answer.code.as_ref().map(|code| format!(" {code}"));
    let wait = answer.retry_after.filter(|wait| !wait.is_zero());
    let wait = wait.map(|wait| format!(", but not before {} s have passed", wait.as_secs()));
    let (code, wait) = (code.unwrap_or_default(), wait.unwrap_or_default());
    let error_chain = format!("{status}{code}: {}{wait}", kept.advice(category));
    Err(Failure::new(
        category.code,
        error_chain.replace(char::is_control, " "),
    ))
}

/// Prints that no response was received.
pub(super) fn silence(
    output: Output,
    kept: Kept<'_>,
    stopped: Stopped,
    attempts: &Attempts,
    error_chain: &str,
) -> Result<ExitCode, Failure> {
    if output.json {
        output.json(&json!({
            "status": null,
            "error": error_chain,
            "stopped": stopped.word(),
            "key": kept.key.map(IdempotencyKey::as_str),
            "attempts": attempts,
        }))?;
    } else {
        print_attempts(attempts);
    }
    let advice = kept.advice(NETWORK);
    Err(Failure::new(
        NETWORK.code,
        format!("no answer: {error_chain}: {advice}"),
    ))
}

impl Kept<'_> {
    /// The advice to the user, with the key to use.
    ///
    /// A second run without the key is a second operation.
    fn advice(self, category: Category) -> String {
        let hint = category.hint;
        let Some(key) = self.key else {
            return hint.to_owned();
        };
        let word = quoted(key.as_str());
        if !category.is_again {
            return format!("{hint} (it was sent with --key {word})");
        }
        let why = if self.has_journal {
            "which the journal keeps"
        } else {
            "or it may be done twice"
        };
        format!("{hint}, with --key {word}, {why}")
    }
}

/// Whether every request with this key receives this response.
fn is_stored(answer: &Response) -> bool {
    let status = answer.headers.get("idempotency-status");
    status.is_some_and(|value| value == "stored" || value == "replayed")
}

/// A word quoted for a shell.
pub(super) fn quoted(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.:/@%+=,".contains(&byte);
    if !word.is_empty() && word.bytes().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Prints the attempts to standard error.
fn print_attempts(attempts: &Attempts) {
    let _ = writeln!(io::stderr(), "{attempts}");
}

fn object(answer: &Response) -> Value {
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
