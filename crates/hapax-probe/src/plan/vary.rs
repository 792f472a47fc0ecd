//! The part of a payload that makes it another payload with another effect.

use std::str::FromStr;

use crate::{json_text, plan::Payload};

/// Where a payload is varied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Vary {
    /// A member of the JSON body, by JSON pointer.
    Pointer(String),
    /// A field of a form body.
    Form(String),
    /// A query parameter.
    Query(String),
}

impl FromStr for Vary {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(name) = text.strip_prefix("form:") {
            Ok(Self::Form(name.to_owned()))
        } else if let Some(name) = text.strip_prefix("query:") {
            Ok(Self::Query(name.to_owned()))
        } else if text.starts_with('/') {
            Ok(Self::Pointer(text.to_owned()))
        } else {
            Err(format!(
                "expected a JSON pointer such as /amount, form:NAME or query:NAME, got {text:?}"
            ))
        }
    }
}

impl Vary {
    /// Returns another payload, with another effect.
    pub(crate) fn apply(&self, payload: &Payload) -> Result<Payload, String> {
        match self {
            Self::Pointer(pointer) => {
                let text = payload.text().ok_or("the body is not text")?;
                let value = json_text::value(text, pointer)
                    .ok_or_else(|| format!("the body has no member {pointer}"))?;
                let other = other_json(value).ok_or_else(|| {
                    format!("{pointer} is neither a number, a string nor a boolean")
                })?;
                let body = json_text::replaced(text, pointer, &other)
                    .ok_or_else(|| format!("the body has no member {pointer}"))?;
                Ok(payload.with_body(body))
            }
            Self::Form(name) => {
                let mut found = false;
                let mut form = url::form_urlencoded::Serializer::new(String::new());
                for (key, value) in url::form_urlencoded::parse(&payload.body) {
                    if key == name.as_str() {
                        found = true;
                        form.append_pair(&key, &other_text(&value));
                    } else {
                        form.append_pair(&key, &value);
                    }
                }
                if found {
                    Ok(payload.with_body(form.finish()))
                } else {
                    Err(format!("the body has no field {name:?}"))
                }
            }
            Self::Query(name) => {
                let value = payload.target.query(name).unwrap_or_default();
                Ok(Payload {
                    target: payload.target.with_query(name, &other_text(&value)),
                    ..payload.clone()
                })
            }
        }
    }

    /// Returns the payload with this JSON text at the pointer.
    pub(crate) fn with_json(&self, payload: &Payload, value: &str) -> Option<Payload> {
        let Self::Pointer(pointer) = self else {
            return None;
        };
        let body = json_text::replaced(payload.text()?, pointer, value)?;
        Some(payload.with_body(body))
    }

    /// Returns the varied value as it is written in a JSON body.
    pub(crate) fn json<'a>(&self, payload: &'a Payload) -> Option<&'a str> {
        match self {
            Self::Pointer(pointer) => json_text::value(payload.text()?, pointer),
            Self::Form(_) | Self::Query(_) => None,
        }
    }
}

/// Returns another JSON value of the same type.
fn other_json(value: &str) -> Option<String> {
    match serde_json::from_str(value).ok()? {
        serde_json::Value::Number(_) => Some(other_number(value)),
        serde_json::Value::String(text) => {
            Some(serde_json::Value::from(other_text(&text)).to_string())
        }
        serde_json::Value::Bool(it) => Some((!it).to_string()),
        _ => None,
    }
}

fn other_text(text: &str) -> String {
    if is_decimal(text) {
        other_number(text)
    } else {
        format!("{text}x")
    }
}

/// Whether a text is a decimal number without an exponent, such as `12` or `-10.00`.
fn is_decimal(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
    [whole, fraction]
        .iter()
        .all(|it| !it.is_empty() && it.bytes().all(|byte| byte.is_ascii_digit()))
}

fn other_number(text: &str) -> String {
    // The largest number of a type has no successor in it.
    let largest = [
        i128::from(i32::MAX),
        i128::from(i64::MAX),
        i128::from(u64::MAX),
        i128::MAX,
    ];
    match text.parse::<i128>() {
        Ok(number) if largest.contains(&number) => (number - 1).to_string(),
        Ok(number) if number.to_string() == text => (number + 1).to_string(),
        _ => other_digit(text),
    }
}

/// Returns a number with another last digit, so that it has as many digits after the point as before.
fn other_digit(text: &str) -> String {
    let end = text.find(['e', 'E']).unwrap_or(text.len());
    let mut digits: Vec<char> = text.chars().collect();
    let last = digits
        .iter_mut()
        .take(end)
        .rev()
        .find(|it| it.is_ascii_digit());
    if let Some(digit) = last {
        let value = digit.to_digit(10).unwrap_or_default();
        let other = if value == 9 { 8 } else { value + 1 };
        *digit = char::from_digit(other, 10).unwrap_or('1');
    }
    digits.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(body: &str) -> Payload {
        Payload {
            target: "http://localhost/orders?cur=EUR".parse().expect("a URL"),
            content_type: "application/json".to_owned(),
            body: body.as_bytes().to_vec(),
        }
    }

    #[track_caller]
    fn check(vary: &str, body: &str, expected: &str) {
        let vary: Vary = vary.parse().expect("a valid place");
        let other = vary
            .apply(&payload(body))
            .expect("the payload can be varied");
        assert_eq!(other.text(), Some(expected));
    }

    #[test]
    fn a_value_becomes_another_of_its_type() {
        check("/a", r#"{"a": 41}"#, r#"{"a": 42}"#);
        check("/a", r#"{"a": 1.5}"#, r#"{"a": 1.6}"#);
        check("/a/b", r#"{"a":{"b":"x"}}"#, r#"{"a":{"b":"xx"}}"#);
        check("/a", r#"{"a": true}"#, r#"{"a": false}"#);
        check("form:a", "a=1&b=2", "a=2&b=2");
    }

    #[test]
    fn the_other_value_is_another_one_of_the_same_form() {
        for (one, other) in [
            ("10.00", "10.01"),
            ("10.99", "10.98"),
            ("-3", "-2"),
            ("007", "008"),
            ("2147483647", "2147483646"),
            ("9223372036854775807", "9223372036854775806"),
            ("18446744073709551615", "18446744073709551614"),
            ("1.2.3", "1.2.3x"),
            ("1e0", "1e0x"),
            ("", "x"),
            (".5", ".5x"),
        ] {
            assert_eq!(other_text(one), other, "{one}");
        }
        for (one, other) in [("1e0", "2e0"), ("1.9E5", "1.8E5"), ("0.0", "0.1")] {
            assert_eq!(other_number(one), other, "{one}");
        }
    }

    #[test]
    fn a_query_parameter_is_varied() {
        let vary: Vary = "query:cur".parse().expect("a valid place");
        let other = vary
            .apply(&payload("{}"))
            .expect("the payload can be varied");
        assert_eq!(other.target.path_and_query(), "/orders?cur=EURx");
    }

    #[test]
    fn a_member_that_does_not_exist_is_an_error() {
        let vary: Vary = "/b".parse().expect("a valid place");
        assert!(vary.apply(&payload(r#"{"a": 1}"#)).is_err());
        assert!("amount".parse::<Vary>().is_err());
    }
}
