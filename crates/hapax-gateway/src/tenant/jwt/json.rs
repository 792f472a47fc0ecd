//! JSON objects in which no member occurs twice, at any level.
//!
//! Parsers differ on which of two members with one name counts, so an issuer and the gateway could
//! read different claims from the same bytes. The nesting is limited by `serde_json` to 128 levels,
//! and the size by the caller.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Number, Value};

/// Parses an object. `None` if the bytes are not one, or if a member occurs twice.
pub(crate) fn object(bytes: &[u8]) -> Option<Map<String, Value>> {
    match serde_json::from_slice(bytes) {
        Ok(Strict(Value::Object(members))) => Some(members),
        _ => None,
    }
}

/// A value without duplicate members.
struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor).map(Self)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON without duplicate members")
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E: de::Error>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E: de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(Strict(element)) = elements.next_element()? {
            array.push(element);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            let Strict(value) = members.next_value()?;
            if object.insert(name, value).is_some() {
                return Err(de::Error::custom("a member occurs twice"));
            }
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_that_occurs_twice_is_refused_at_every_level() {
        assert!(object(br#"{"a":1,"b":[{"c":null,"d":true}],"e":1.5}"#).is_some());
        for text in [
            r#"{"a":1,"a":1}"#,
            r#"{"a":1,"\u0061":2}"#,
            r#"{"b":{"a":1,"a":2}}"#,
            r#"{"b":[{"a":1,"a":2}]}"#,
        ] {
            assert!(object(text.as_bytes()).is_none(), "{text}");
        }
    }

    #[test]
    fn only_one_complete_object_is_accepted() {
        let deep = format!(r#"{{"a":{}1{}}}"#, "[".repeat(200), "]".repeat(200));
        for text in [
            "",
            "null",
            "[]",
            "\"a\"",
            "{}{}",
            "{} x",
            "{\"a\":1e999}",
            "\u{feff}{}",
            &deep,
            r#"{"\ud800":1}"#,
            r#"{"a":"\ud800"}"#,
            "{\"a\":\"\n\"}",
            "{'a':1}",
            "{a:1}",
        ] {
            assert!(object(text.as_bytes()).is_none(), "{text}");
        }
        assert!(object(b"{\"a\":\"\xff\"}").is_none());
        assert!(object(b" {} \n").is_some());
    }
}
