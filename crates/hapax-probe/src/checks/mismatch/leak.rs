//! What the refusal of another payload tells of the first one.
//!
//! The client that sends another payload may be one that only knows the key. The check looks for
//! strings of the first payload and of its response in the refusal. Strings that the second request
//! contains, or that the responses of the operation have in common, are no secret.

use serde_json::Value;

use crate::{
    checks::mismatch::{again, not_refused, not_varied, reaction::Reaction},
    http::{Request, Response},
    subject::{First, Subject},
    verdict::{Judged, Judgement, Verdict},
};

/// The minimum length in bytes of a string that is looked for: a shorter one may be there by chance.
const STRING_MIN: usize = 8;
/// The minimum length in bytes of a body that is looked for.
const BODY_MIN: usize = 16;

pub(super) async fn leak(subject: &Subject<'_>) -> Judged {
    let first = subject.accepted().await?;
    let comparison = subject.accepted().await?;
    let Some(other) = subject.varied(&subject.payload()) else {
        return Ok(not_varied());
    };
    let answer = again(subject, &first, &other).await?;
    if !Reaction::of(subject.profile(), &first.answer, &answer).is_refusal() {
        return Ok(not_refused(&answer));
    }
    let request = subject.request(&first.key(), &other);
    let known = [
        text_of_request(&request),
        text_of_answer(&comparison.answer),
    ]
    .concat();
    let secrets = secrets(&first, &known);
    if secrets.is_empty() {
        return Ok(Judgement::skipped(
            "the first request and its response have no string that could be recognized",
        ));
    }
    let told = text_of_answer(&answer);
    let leaked = secrets
        .iter()
        .filter(|it| told.contains(it.as_str()))
        .count();
    Ok(if leaked == 0 {
        Judgement::new(
            Verdict::Pass,
            "nothing of the first request or its response",
        )
    } else {
        Judgement::new(
            Verdict::Fail,
            format!(
                "the refusal contains {leaked} strings of the first request or its response: {}",
                answer.describe()
            ),
        )
    })
}

/// Returns what only the first request and its response contain.
fn secrets(first: &First, known: &str) -> Vec<String> {
    let mut found = Vec::new();
    for body in [&first.payload.body, &first.answer.body] {
        if let Ok(value) = serde_json::from_slice(body) {
            strings(&value, &mut found);
        }
    }
    // Two responses of the same moment may contain the same time.
    found.retain(|it| it.len() >= STRING_MIN && it.parse::<jiff::Timestamp>().is_err());
    let body = String::from_utf8_lossy(&first.answer.body);
    if body.len() >= BODY_MIN {
        found.push(body.into_owned());
    }
    found.retain(|it| !known.contains(it.as_str()));
    found.sort();
    found.dedup();
    found
}

fn strings(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::String(text) => found.push(text.clone()),
        Value::Array(items) => {
            for item in items {
                strings(item, found);
            }
        }
        Value::Object(members) => {
            for value in members.values() {
                strings(value, found);
            }
        }
        _ => {}
    }
}

/// Returns everything that a response says: its body, as sent and with escapes resolved, and its
/// header fields.
fn text_of_answer(answer: &Response) -> String {
    let mut parts = vec![String::from_utf8_lossy(&answer.body).into_owned()];
    if let Some(value) = answer.json() {
        strings(&value, &mut parts);
    }
    for field in &answer.fields {
        parts.push(String::from_utf8_lossy(&field.value).into_owned());
    }
    joined(&parts)
}

fn text_of_request(request: &Request) -> String {
    let mut parts = vec![
        request.target.path_and_query(),
        String::from_utf8_lossy(&request.body).into_owned(),
    ];
    if let Ok(value) = serde_json::from_slice(&request.body) {
        strings(&value, &mut parts);
    }
    for (_, value) in &request.headers {
        parts.push(String::from_utf8_lossy(value).into_owned());
    }
    joined(&parts)
}

/// Joins texts so that no string is found across two of them.
fn joined(parts: &[String]) -> String {
    parts.iter().flat_map(|it| [it.as_str(), "\0"]).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{http::Target, plan::Payload};

    fn first(payload: &str, answer: &str) -> First {
        let target: Target = "http://localhost/orders".parse().expect("a URL");
        First {
            request: Request::new("POST", &target),
            payload: Payload {
                target,
                content_type: "application/json".to_owned(),
                body: payload.as_bytes().to_vec(),
            },
            answer: Response {
                status: 201,
                fields: Vec::new(),
                body: answer.as_bytes().to_vec(),
                elapsed: Duration::ZERO,
            },
        }
    }

    #[test]
    fn only_long_strings_that_nothing_else_contains_are_secret() {
        let first = first(
            r#"{"name":"Ada Lovelace","cur":"EUR","note":"as before"}"#,
            r#"{"id":"order-4711","at":"2026-11-27T17:00:00Z"}"#,
        );
        let whole = String::from_utf8_lossy(&first.answer.body).into_owned();
        let secrets = secrets(&first, "POST as before");
        assert_eq!(
            secrets,
            ["Ada Lovelace".to_owned(), "order-4711".to_owned(), whole]
        );
    }

    #[test]
    fn no_string_is_found_across_two_parts() {
        let joined = joined(&["ab".to_owned(), "cd".to_owned()]);
        assert!(joined.contains("ab") && joined.contains("cd") && !joined.contains("abcd"));
    }
}
