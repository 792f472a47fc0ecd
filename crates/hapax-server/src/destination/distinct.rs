//! A check of JSON that is parsed into a `Value`, which keeps the last of two members with one name.
//!
//! A declaration can contain a mapping or a filter, where it would be unclear which of the two was meant. In a
//! text they are refused as well.

use std::{collections::BTreeSet, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, SeqAccess, Visitor},
};

/// JSON in which no object has two members with one name. The values are not kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DistinctNames;

impl<'de> Deserialize<'de> for DistinctNames {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(DistinctNames)
    }
}

impl<'de> Visitor<'de> for DistinctNames {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_unit<E: Error>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self, A::Error> {
        while items.next_element::<Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self, A::Error> {
        let mut names = BTreeSet::new();
        while let Some((name, _)) = members.next_entry::<String, Self>()? {
            if names.contains(&name) {
                return Err(A::Error::custom(format_args!("duplicate field `{name}`")));
            }
            names.insert(name);
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_appears_twice_in_an_object_is_refused() {
        let check = |text: &str| serde_json::from_str::<DistinctNames>(text);
        for good in [
            r#"{"a": {"b": 1}, "b": [{"b": 1}, {"b": -1.5}], "c": "b"}"#,
            "[null, true, 18446744073709551615, 1e300]",
            "{}",
        ] {
            check(good).unwrap();
        }
        for bad in [
            r#"{"b": 1, "a": 2, "b": 3}"#,
            r#"[{"a": {"b": 1, "\u0062": 1}}]"#,
        ] {
            let error = check(bad).unwrap_err().to_string();
            assert!(error.starts_with("duplicate field `b`"), "{bad}: {error}");
        }
    }
}
