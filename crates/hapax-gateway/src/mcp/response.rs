//! Response to a call: the id in it, and the replay for a request with another id.

use super::members::{Members, is_too_deep, quoted, range};

/// Maximum length of an id in bytes, as JSON.
const ID_BYTES_MAX: usize = 256;

/// The id of a request, as it was sent: a string or an integer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestId(Box<str>);

impl RequestId {
    /// Reads an id. MCP does not allow `null`, and a number with a fraction or an exponent would
    /// not come back as it was sent.
    pub(super) fn parse(json: &str) -> Option<Self> {
        let is_integer = json.parse::<i64>().is_ok() && !json.starts_with('+');
        let is_string = || serde_json::from_str::<String>(json).is_ok();
        let is_id = json.len() <= ID_BYTES_MAX && (is_integer || is_string());
        is_id.then(|| Self(json.into()))
    }

    /// The id as JSON, as it was sent.
    pub fn as_json(&self) -> &str {
        &self.0
    }

    /// Whether an id of a response is this one. Escapes may differ, and a number may have passed
    /// through a double.
    pub(super) fn belongs_to(&self, json: &str) -> bool {
        let text = |json: &str| serde_json::from_str::<String>(json).ok();
        let number = |json: &str| serde_json::from_str::<f64>(json).ok();
        match (text(&self.0), text(json)) {
            (Some(ours), Some(theirs)) => ours == theirs,
            (None, None) => {
                let (ours, theirs) = (number(&self.0), number(json));
                ours.is_some_and(|ours| {
                    theirs.is_some_and(|theirs| ours.total_cmp(&theirs).is_eq())
                })
            }
            _ => false,
        }
    }
}

/// Why a text is not the response to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ResponseError {
    /// The text is not a JSON-RPC response with one id and either a result or an error.
    #[error("the response is not a JSON-RPC response")]
    Malformed,
    /// The response has the id of another request.
    #[error("the response has the id of another request")]
    AnotherId,
}

/// What a response contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseKind {
    /// A result. A tool that has failed returns one too.
    Result,
    /// An error, with its code if that is an integer.
    Error(Option<i64>),
}

/// Checks that a body is the response to a request, and says what it contains. Only such a response
/// may be stored.
///
/// # Errors
/// Fails if it is not.
pub fn check_response(body: &[u8], id: &RequestId) -> Result<ResponseKind, ResponseError> {
    if is_too_deep(body) {
        return Err(ResponseError::Malformed);
    }
    let response = Members::parse(body).ok_or(ResponseError::Malformed)?;
    let found = response_id(&response).ok_or(ResponseError::Malformed)?;
    if !id.belongs_to(found) {
        return Err(ResponseError::AnotherId);
    }
    Ok(match response.get("error") {
        None => ResponseKind::Result,
        Some(error) => ResponseKind::Error(code_of(error)),
    })
}

fn code_of(error: &str) -> Option<i64> {
    let error = Members::parse(error.as_bytes())?;
    serde_json::from_str(error.get("code")?).ok()
}

/// The stored body of a response with the id of the new request. Every other byte is as stored.
///
/// # Errors
/// Fails if the body is not a JSON-RPC response.
pub fn replay(stored: &[u8], id: &RequestId) -> Result<Vec<u8>, ResponseError> {
    let response = Members::parse(stored).ok_or(ResponseError::Malformed)?;
    let old = response_id(&response).ok_or(ResponseError::Malformed)?;
    let at = range(stored, old).ok_or(ResponseError::Malformed)?;
    let (before, after) = (&stored[..at.start], &stored[at.end..]);
    Ok([before, id.as_json().as_bytes(), after].concat())
}

/// An error response of JSON-RPC. Without an id, `id` is `null`. `data` is JSON.
pub fn error_response(
    id: Option<&RequestId>,
    code: i32,
    message: &str,
    data: Option<&str>,
) -> Vec<u8> {
    let id = id.map_or("null", RequestId::as_json);
    let message = quoted(message);
    let data = data.map_or_else(String::new, |data| format!(r#","data":{data}"#));
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":{message}{data}}}}}"#)
        .into_bytes()
}

/// The id of a message that is a response.
pub(super) fn response_id<'a>(message: &Members<'a>) -> Option<&'a str> {
    let has = |name| message.get(name).is_some();
    let is_response = !has("method") && (has("result") != has("error"));
    message.get("id").filter(|_| is_response)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(json: &str) -> RequestId {
        RequestId::parse(json).unwrap()
    }

    #[test]
    fn a_replay_changes_the_id_and_no_other_byte() {
        for (stored, expected) in [
            (
                r#"{"jsonrpc":"2.0","id":1,"result":{"id":1,"n":1.0e5}}"#,
                r#"{"jsonrpc":"2.0","id":"new","result":{"id":1,"n":1.0e5}}"#,
            ),
            (
                "{ \"result\" : {\"text\":\"\\\"id\\\":1 \\ud800\"} ,\r\n \"\\u0069d\" : \"old\" }\n",
                "{ \"result\" : {\"text\":\"\\\"id\\\":1 \\ud800\"} ,\r\n \"\\u0069d\" : \"new\" }\n",
            ),
            (
                r#"{"id":null,"error":{"code":-32603,"message":"x"}}"#,
                r#"{"id":"new","error":{"code":-32603,"message":"x"}}"#,
            ),
        ] {
            let replayed = replay(stored.as_bytes(), &id("\"new\"")).unwrap();
            assert_eq!(String::from_utf8(replayed).unwrap(), expected);
        }
    }

    #[test]
    fn a_text_that_is_not_one_response_is_not_replayed() {
        for stored in [
            "",
            "[]",
            "null",
            r#"{"result":1}"#,
            r#"{"id":1}"#,
            r#"{"id":1,"result":1,"error":{}}"#,
            r#"{"id":1,"method":"ping","result":1}"#,
            r#"{"id":1,"id":1,"result":1}"#,
            r#"{"id":1,"\u0069d":2,"result":1}"#,
            r#"{"id":1,"result":1}{"#,
            r#"{"id":1,"result":1"#,
        ] {
            let error = replay(stored.as_bytes(), &id("2")).unwrap_err();
            assert_eq!(error, ResponseError::Malformed, "{stored}");
        }
        assert!(replay(b"{\"id\":1,\"result\":\"\xff\"}", &id("2")).is_err());
    }

    #[test]
    fn an_id_is_a_string_or_an_integer() {
        for json in [
            "1",
            "-1",
            "0",
            "9223372036854775807",
            "\"\"",
            "\"a\\u00e9\"",
            "\"1\"",
        ] {
            assert_eq!(id(json).as_json(), json);
        }
        for json in [
            "null",
            "1.5",
            "1e3",
            "true",
            "[]",
            "{}",
            "+1",
            "9223372036854775808",
            "\"\\ud800\"",
            "",
            "NaN",
            "\"a",
        ] {
            assert_eq!(RequestId::parse(json), None, "{json}");
        }
        assert_eq!(RequestId::parse(&format!("\"{}\"", "a".repeat(255))), None);
    }

    #[test]
    fn a_response_belongs_to_a_request_by_value() {
        let answers = |ours: &str, theirs: &str| id(ours).belongs_to(theirs);
        assert!(answers("1", "1") && answers("1", "1.0") && answers("\"a\"", "\"\\u0061\""));
        assert!(answers("9007199254740993", "9007199254740992"));
        assert!(!answers("1", "\"1\"") && !answers("\"1\"", "1"));
        assert!(!answers("1", "2") && !answers("1", "null") && !answers("\"\"", "null"));
        let body = br#"{"jsonrpc":"2.0","id":2,"result":{}}"#;
        assert_eq!(check_response(body, &id("2")), Ok(ResponseKind::Result));
        for (error, code) in [
            (r#"{"code":-32602,"message":"x"}"#, Some(-32602)),
            (r#"{"code":1.5}"#, None),
            ("{}", None),
            ("null", None),
        ] {
            let body = format!(r#"{{"id":2,"error":{error}}}"#);
            let answer = check_response(body.as_bytes(), &id("2"));
            assert_eq!(answer, Ok(ResponseKind::Error(code)), "{error}");
        }
        assert_eq!(
            check_response(body, &id("1")),
            Err(ResponseError::AnotherId)
        );
        assert_eq!(
            check_response(b"<html>", &id("1")),
            Err(ResponseError::Malformed)
        );
    }

    #[test]
    fn an_error_response_quotes_its_message() {
        let body = error_response(Some(&id("7")), -32000, "a \"b\"\n", Some("[1]"));
        let value: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(value["id"], 7);
        assert_eq!(value["error"]["message"], "a \"b\"\n");
        assert_eq!(value["error"]["data"][0], 1);
        let body = error_response(None, -32000, "", None);
        let value: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert!(value["id"].is_null() && value["error"]["data"].is_null());
    }
}
