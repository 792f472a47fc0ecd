//! Settings that are JSON: a table of the configuration, or the same as JSON in a text.
//!
//! Settings pass through numbers of 64 bits, which do not keep every decimal. A table therefore
//! refuses a number that it could have changed. A text keeps every digit, and is what environment
//! variables contain. Both are shown and stored in the form in which they were written. A member that
//! appears twice is refused, because a table would keep the last one only.

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{Error, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Number, Value};

/// Maximum number of digits of a number in a table that is not an integer of 64 bits. That many
/// survive the conversion.
const DIGITS_MAX: usize = 15;
/// The first number with more digits before the point.
const LARGE: f64 = 1e15;
const TOO_EXACT: &str =
    "has more digits than a number of a table keeps: write the whole setting as a text";

const NOT_FINITE: &str = "is inf or nan, which JSON does not have: write another number or a text";

/// JSON as it was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum JsonSetting {
    /// JSON in a text.
    Text(String),
    /// A table of the configuration, or a JSON object.
    Table(Value),
}

impl JsonSetting {
    /// The setting as JSON.
    pub fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Table(table) => table.to_string(),
        }
    }
}

impl<'de> Deserialize<'de> for JsonSetting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Exact::deserialize(deserializer).map(|Exact(value)| match value {
            Value::String(text) => Self::Text(text),
            table => Self::Table(table),
        })
    }
}

/// A JSON value whose numbers are those that were written.
struct Exact(Value);

impl<'de> Deserialize<'de> for Exact {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ExactVisitor)
    }
}

struct ExactVisitor;

impl<'de> Visitor<'de> for ExactVisitor {
    type Value = Exact;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table, or a text with the same as JSON")
    }

    fn visit_bool<E: Error>(self, switch: bool) -> Result<Exact, E> {
        Ok(Exact(Value::from(switch)))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Exact, E> {
        Ok(Exact(Value::from(number)))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Exact, E> {
        Ok(Exact(Value::from(number)))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Exact, E> {
        if !number.is_finite() {
            return Err(E::custom(NOT_FINITE));
        }
        let shown = format!("{number:e}");
        let digits = shown.split('e').next().unwrap_or_default();
        let digits = digits.bytes().filter(u8::is_ascii_digit).count();
        let is_kept = digits <= DIGITS_MAX && number.abs() < LARGE;
        let number = Number::from_f64(number).filter(|_| is_kept);
        let number = number.ok_or_else(|| E::custom(TOO_EXACT))?;
        Ok(Exact(Value::Number(number)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Exact, E> {
        Ok(Exact(Value::from(text)))
    }

    fn visit_unit<E: Error>(self) -> Result<Exact, E> {
        Ok(Exact(Value::Null))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Exact, A::Error> {
        let mut list = Vec::new();
        while let Some(Exact(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(Exact(Value::Array(list)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Exact, A::Error> {
        let mut table = Map::new();
        while let Some((name, Exact(value))) = members.next_entry::<String, Exact>()? {
            if table.contains_key(&name) {
                return Err(A::Error::custom(format_args!("duplicate field `{name}`")));
            }
            table.insert(name, value);
        }
        Ok(Exact(Value::Object(table)))
    }
}

#[cfg(test)]
mod tests {
    use serde::de::{IntoDeserializer as _, value::F64Deserializer};
    use serde_json::json;

    use super::*;

    #[test]
    fn a_table_and_a_text_keep_their_form() {
        for written in [
            json!({"/amount": {"$gte": 100.25}, "tenant": {"$in": ["a", true, null, -7]}}),
            json!(r#"{"/amount": {"$gte": 12345678901234567890.25}}"#),
        ] {
            let setting = JsonSetting::deserialize(&written).unwrap();
            assert_eq!(serde_json::to_value(&setting).unwrap(), written);
            let text = written.as_str().map(str::to_owned);
            assert_eq!(setting.text(), text.unwrap_or_else(|| written.to_string()));
        }
    }

    #[test]
    fn a_number_that_a_table_could_change_is_refused() {
        for exact in [
            "0.1",
            "-100.10",
            "1e14",
            "9007199254740993",
            "18446744073709551615",
        ] {
            read(exact).unwrap();
        }
        for changed in ["0.1234567890123456789", "18446744073709551616", "1e300"] {
            let error = read(changed).unwrap_err().to_string();
            assert!(error.starts_with(TOO_EXACT), "{changed}: {error}");
        }
    }

    #[test]
    fn a_number_that_json_does_not_have_is_refused() {
        for number in [f64::INFINITY, f64::NEG_INFINITY, f64::NAN] {
            let written: F64Deserializer<serde_json::Error> = number.into_deserializer();
            let error = JsonSetting::deserialize(written).unwrap_err().to_string();
            assert_eq!(error, NOT_FINITE);
        }
    }

    #[test]
    fn a_member_that_appears_twice_is_refused() {
        let twice = r#"{"a": {"c": 1, "b": 2, "c": 3}}"#;
        let error = serde_json::from_str::<JsonSetting>(twice).unwrap_err();
        let error = error.to_string();
        assert!(error.starts_with("duplicate field `c`"), "{error}");
    }

    fn read(number: &str) -> serde_json::Result<JsonSetting> {
        serde_json::from_str(&format!("{{\"/a\": {number}}}"))
    }
}
