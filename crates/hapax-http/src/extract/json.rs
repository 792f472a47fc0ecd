//! Extractor for JSON bodies, whose refusals name the invalid member.

use axum::{
    body::Bytes,
    extract::{FromRequest, Request},
    response::{IntoResponse, Response},
};
use http::{HeaderValue, header::CONTENT_TYPE};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::error::Category;

use super::by_name::ByName;
use crate::{
    content::is_json,
    problem::{BODY_TOO_LARGE, CONTENT_TYPE as UNSUPPORTED, JSON_INVALID, Problem},
};

/// A JSON body, as an extractor and as a response.
///
/// The extractor refuses another content type with 415, a body that is not JSON with 400
/// `VALIDATION.json`, and a body that does not fit `T` with 400 `VALIDATION.member`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Json<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        if !request.headers().get(CONTENT_TYPE).is_some_and(is_json) {
            return Err(
                Problem::new(UNSUPPORTED).detail("the content type must be application/json")
            );
        }
        let body = Bytes::from_request(request, state).await;
        let body = body.map_err(|rejection| match rejection.status() {
            http::StatusCode::PAYLOAD_TOO_LARGE => Problem::new(BODY_TOO_LARGE),
            _ => Problem::new(JSON_INVALID).detail("the body could not be read"),
        })?;
        from_json(&body).map(Self)
    }
}

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        match serde_json::to_vec(&self.0) {
            Ok(body) => {
                let media_type = HeaderValue::from_static("application/json");
                ([(CONTENT_TYPE, media_type)], body).into_response()
            }
            Err(error) => Problem::internal(error).into_response(),
        }
    }
}

/// Deserializes `body`. Structs are accepted as objects only, never as arrays.
///
/// # Errors
/// 400 `VALIDATION.json` if it is not JSON, 400 `VALIDATION.member` if it does not fit `T`.
pub fn from_json<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    let mut reader = serde_json::Deserializer::from_slice(body);
    let value: T =
        serde_path_to_error::deserialize(ByName(&mut reader)).map_err(|error| refusal(&error))?;
    match reader.end() {
        Ok(()) => Ok(value),
        Err(_) => Err(Problem::new(JSON_INVALID).detail("text follows the JSON value")),
    }
}

fn refusal(error: &serde_path_to_error::Error<serde_json::Error>) -> Problem {
    let inner = error.inner();
    let place = format!("line {}, column {}", inner.line(), inner.column());
    if inner.classify() != Category::Data {
        return Problem::new(JSON_INVALID).detail(format!("the body is not valid JSON at {place}"));
    }
    let path = error.path().to_string();
    let text = inner.to_string();
    let text = text.split(" at line ").next().unwrap_or_default();
    Problem::invalid(member(&path, text), text.to_owned())
}

/// Returns the member that an error is about. Serde reports its path, but the name of a missing or
/// unknown member is only in the text of the error.
pub(super) fn member(path: &str, text: &str) -> String {
    let named = ["missing field `", "unknown field `", "duplicate field `"]
        .iter()
        .find_map(|start| text.strip_prefix(start)?.split('`').next());
    let path = if path == "." { "" } else { path };
    match (path, named) {
        ("", None) => ".".to_owned(),
        ("", Some(name)) => name.to_owned(),
        (path, Some(name)) if path.rsplit('.').next() != Some(name) => format!("{path}.{name}"),
        (path, _) => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only read by serde")]
    struct Order {
        amount: u32,
        item: Option<Item>,
    }

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only read by serde")]
    struct Item {
        sku: String,
    }

    #[test]
    fn a_refusal_names_the_member() {
        check(r#"{"amount":"x"}"#, "VALIDATION.member", Some("amount"));
        check(r#"{"amount":-1}"#, "VALIDATION.member", Some("amount"));
        check("{}", "VALIDATION.member", Some("amount"));
        check(
            r#"{"amount":1,"colour":2}"#,
            "VALIDATION.member",
            Some("colour"),
        );
        check(
            r#"{"amount":1,"amount":2}"#,
            "VALIDATION.member",
            Some("amount"),
        );
        check(
            r#"{"amount":1,"item":{"sku":7}}"#,
            "VALIDATION.member",
            Some("item.sku"),
        );
        check(
            r#"{"amount":1,"item":{}}"#,
            "VALIDATION.member",
            Some("item.sku"),
        );
        check(
            r#"{"amount":1,"item":{"sku":"a","b":1}}"#,
            "VALIDATION.member",
            Some("item.b"),
        );
        check("[1]", "VALIDATION.member", None);
    }

    #[test]
    fn an_array_is_no_object_at_any_depth() {
        for (text, member) in [("[1,null]", "."), (r#"{"amount":1,"item":["a"]}"#, "item")] {
            check(text, "VALIDATION.member", Some(member));
        }
        let orders = from_json::<Vec<Order>>(b"[[1,null]]").unwrap_err();
        assert_eq!(orders.named_member(), Some("[0]"));
        let orders = br#"[{"amount":1,"item":{"sku":"a"}},{"amount":2,"item":null}]"#;
        assert_eq!(from_json::<Vec<Order>>(orders).unwrap().len(), 2);
        let by_name = br#"{"x":["a"]}"#;
        assert!(from_json::<std::collections::HashMap<String, Item>>(by_name).is_err());
        assert!(from_json::<Box<serde_json::value::RawValue>>(b"[1]").is_ok());
        assert_eq!(
            from_json::<(u8, Option<char>)>(b"[1,null]").unwrap(),
            (1, None)
        );
    }

    #[test]
    fn what_is_no_json_is_refused_as_such() {
        for text in ["", "{", "{}x", "{\"amount\":1}{", "nul"] {
            check(
                text,
                if text == "{}x" {
                    "VALIDATION.member"
                } else {
                    "VALIDATION.json"
                },
                None,
            );
        }
    }

    #[track_caller]
    fn check(text: &str, code: &str, named: Option<&str>) {
        let problem = from_json::<Order>(text.as_bytes()).unwrap_err();
        assert_eq!(problem.code().name(), code, "{text}");
        if let Some(named) = named {
            assert_eq!(problem.named_member(), Some(named), "{text}");
        }
    }
}
