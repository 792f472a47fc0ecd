//! JSON with every number as it was sent and every member, duplicates included.
//!
//! `serde_json` checks the syntax. Its own values would read numbers as doubles and keep the last
//! of two members with one name, and both matter for a fingerprint.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// Arrays and objects inside each other.
const DEPTH_MAX: usize = 64;

/// A JSON value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Json {
    Null,
    Bool(bool),
    /// The token, as sent.
    Number(String),
    String(String),
    Array(Vec<Self>),
    /// The members in the order in which they were sent.
    Object(Vec<(String, Self)>),
}

/// Two members with the same name in one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Duplicates {
    Refused,
    Allowed,
}

impl Json {
    /// Parses a body; an error says what is wrong with it.
    pub(crate) fn parse(body: &[u8], duplicates: Duplicates) -> Result<Self, String> {
        let text = std::str::from_utf8(body).map_err(|error| error.to_string())?;
        let raw: &RawValue = serde_json::from_str(text).map_err(|error| error.to_string())?;
        value(raw, duplicates, 0)
    }

    /// The member of an object; the last one, if there are several.
    pub(crate) fn member(&self, name: &str) -> Option<&Self> {
        let Self::Object(members) = self else {
            return None;
        };
        let last = members.iter().rev().find(|(known, _)| known == name);
        last.map(|(_, value)| value)
    }
}

fn value(raw: &RawValue, duplicates: Duplicates, depth: usize) -> Result<Json, String> {
    if depth > DEPTH_MAX {
        return Err(format!("more than {DEPTH_MAX} arrays and objects deep"));
    }
    let text = raw.get();
    let wrong = |error: serde_json::Error| error.to_string();
    Ok(match text.as_bytes().first() {
        Some(b'{') => {
            let Members(members) = serde_json::from_str(text).map_err(wrong)?;
            object(members, duplicates, depth)?
        }
        Some(b'[') => {
            let elements: Vec<&RawValue> = serde_json::from_str(text).map_err(wrong)?;
            let elements = elements.into_iter();
            let elements = elements.map(|element| value(element, duplicates, depth + 1));
            Json::Array(elements.collect::<Result<_, _>>()?)
        }
        Some(b'"') => Json::String(serde_json::from_str(text).map_err(wrong)?),
        Some(b't') => Json::Bool(true),
        Some(b'f') => Json::Bool(false),
        Some(b'n') => Json::Null,
        _ => Json::Number(text.to_owned()),
    })
}

fn object(
    raw: Vec<(String, &RawValue)>,
    duplicates: Duplicates,
    depth: usize,
) -> Result<Json, String> {
    let mut members: Vec<(String, Json)> = Vec::with_capacity(raw.len());
    for (name, raw) in raw {
        let is_known = members.iter().any(|(known, _)| *known == name);
        if is_known && duplicates == Duplicates::Refused {
            return Err(format!("the member {name:?} is there twice"));
        }
        members.push((name, value(raw, duplicates, depth + 1)?));
    }
    Ok(Json::Object(members))
}

/// The members of an object, each with its text.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MembersVisitor)
    }
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Members<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry::<String, &'de RawValue>()? {
            members.push(member);
        }
        Ok(Members(members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Json {
        Json::parse(text.as_bytes(), Duplicates::Refused).expect("valid JSON")
    }

    #[test]
    fn numbers_stay_as_sent() {
        let json = parsed(r#" {"a": 1.0, "b": [9007199254740993, -0, 1e400]} "#);
        assert_eq!(json.member("a"), Some(&Json::Number("1.0".to_owned())));
        let numbers =
            ["9007199254740993", "-0", "1e400"].map(|token| Json::Number(token.to_owned()));
        assert_eq!(json.member("b"), Some(&Json::Array(numbers.to_vec())));
    }

    #[test]
    fn names_and_strings_are_unescaped() {
        let json = parsed(r#"{"\u0061": "\u00e9\n"}"#);
        assert_eq!(json.member("a"), Some(&Json::String("é\n".to_owned())));
    }

    #[test]
    fn duplicate_members_are_refused_unless_they_are_allowed() {
        let body = br#"{"a": 1, "\u0061": 2}"#;
        let refused = Json::parse(body, Duplicates::Refused);
        assert_eq!(refused, Err("the member \"a\" is there twice".to_owned()));
        let allowed = Json::parse(body, Duplicates::Allowed).expect("duplicates are allowed");
        assert_eq!(allowed.member("a"), Some(&Json::Number("2".to_owned())));
    }

    #[test]
    fn what_is_no_json_is_refused() {
        let deep = "[".repeat(100) + &"]".repeat(100);
        for wrong in ["", "{", "{} {}", "01", r#""\ud800""#, "nul", &deep] {
            let parsed = Json::parse(wrong.as_bytes(), Duplicates::Refused);
            assert!(parsed.is_err(), "{wrong}");
        }
        assert!(Json::parse(b"\"\xFF\"", Duplicates::Refused).is_err());
    }
}
