//! Deserialization of the configuration tree into types, with readable errors.
//!
//! An error names the setting and its source, and suggests the nearest known name if the name is
//! unknown. It repeats a value only if that was expected to be one of a few words; any other value
//! may be a secret. Texts from the environment and from flags are also parsed as numbers, booleans
//! and lists (`a, b`).

use std::{fmt, slice, str::FromStr};

use hapax::nearest;
use serde::{
    Deserializer,
    de::{
        self, DeserializeSeed, EnumAccess, Expected, IntoDeserializer as _, MapAccess, SeqAccess,
        Unexpected, VariantAccess, Visitor,
    },
    forward_to_deserialize_any,
};

use super::node::{Leaf, Node, Origin};

/// A setting that is not valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    path: String,
    problem: String,
    origin: Option<Origin>,
}

impl Wrong {
    /// An error about the setting at a path.
    pub fn at(path: impl Into<String>, problem: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            problem: problem.into(),
            origin: None,
        }
    }

    /// The path of the setting, such as `relay.lease`.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// What is wrong; continues a sentence that begins with the path.
    pub fn problem(&self) -> &str {
        &self.problem
    }

    fn below(mut self, name: &str) -> Self {
        self.path = match self.path.as_str() {
            "" => name.to_owned(),
            rest if rest.starts_with('[') => format!("{name}{rest}"),
            rest => format!("{name}.{rest}"),
        };
        self
    }

    /// Sets the source, unless it is known.
    #[must_use]
    pub fn came_from(mut self, node: Option<&Node>) -> Self {
        self.origin = self.origin.or_else(|| node?.origin().cloned());
        self
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Some(Origin::File(file)) => write!(f, "{file}: {} {}", self.path, self.problem),
            Some(Origin::Variable(name) | Origin::Flag(name)) => {
                write!(f, "{name} {}", self.problem)
            }
            _ => write!(f, "{} {}", self.path, self.problem),
        }
    }
}

impl std::error::Error for Wrong {}

impl de::Error for Wrong {
    fn custom<T: fmt::Display>(problem: T) -> Self {
        Self::at("", problem.to_string())
    }

    fn invalid_type(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::at("", format!("must be {expected}"))
    }

    fn invalid_value(unexpected: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid_type(unexpected, expected)
    }

    fn unknown_variant(word: &str, known: &'static [&'static str]) -> Self {
        let meant = did_you_mean(word, known.iter().copied());
        Self::at(
            "",
            format!("must be one of {}, not {word:?}{meant}", known.join(", ")),
        )
    }

    fn unknown_field(name: &str, known: &'static [&'static str]) -> Self {
        let meant = did_you_mean(name, known.iter().copied());
        Self::at(name, format!("is unknown{meant}"))
    }

    fn missing_field(name: &'static str) -> Self {
        Self::at(name, "is missing")
    }
}

/// The end of a sentence that refuses a word: `: did you mean NAME?`, or nothing if no known name is
/// near.
pub fn did_you_mean<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> String {
    nearest(word, known).map_or_else(String::new, |known| format!(": did you mean {known}?"))
}

/// Reads a number, directly or parsed from a text of the environment.
macro_rules! numbers {
    ($($method:ident $visit:ident $kind:ty, $name:literal;)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
            let number = match self {
                Node::Leaf(Leaf::Whole(number), _) => <$kind>::try_from(*number).ok(),
                // The same range as integers of a file.
                Node::Leaf(Leaf::Text(text), origin) if origin.is_text() => parsed::<i64>(text)
                    .and_then(|number| <$kind>::try_from(number).ok()),
                _ => None,
            };
            let number = number.ok_or_else(|| de::Error::custom($name));
            visitor.$visit(number.map_err(|wrong: Wrong| wrong.came_from(Some(self)))?)
                .map_err(|wrong: Wrong| wrong.came_from(Some(self)))
        })*
    };
}

fn parsed<T: FromStr>(text: &str) -> Option<T> {
    text.trim().parse().ok()
}

impl<'de> Deserializer<'de> for &'de Node {
    type Error = Wrong;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        let read = match self {
            Node::Table(table) => {
                return visitor.visit_map(Parts {
                    rest: table.iter(),
                    value: None,
                });
            }
            Node::List(items, _) => {
                return visitor.visit_seq(Items {
                    rest: items.iter(),
                    at: 0,
                });
            }
            Node::Leaf(Leaf::Text(text), _) => visitor.visit_borrowed_str(text),
            Node::Leaf(Leaf::Whole(number), _) => visitor.visit_i64(*number),
            Node::Leaf(Leaf::Fraction(number), _) => visitor.visit_f64(*number),
            Node::Leaf(Leaf::Switch(switch), _) => visitor.visit_bool(*switch),
            Node::Leaf(Leaf::Nothing, _) => visitor.visit_unit(),
        };
        read.map_err(|wrong: Wrong| wrong.came_from(Some(self)))
    }

    numbers! {
        deserialize_u8 visit_u8 u8, "must be a whole number from 0 to 255";
        deserialize_u16 visit_u16 u16, "must be a whole number from 0 to 65535";
        deserialize_u32 visit_u32 u32, "must be a whole number from 0 to 4294967295";
        deserialize_u64 visit_u64 u64, "must be a whole number";
        deserialize_i64 visit_i64 i64, "must be a whole number";
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        let number = match self {
            Node::Leaf(Leaf::Fraction(number), _) => Some(*number),
            Node::Leaf(Leaf::Whole(number), _) => i32::try_from(*number).ok().map(f64::from),
            Node::Leaf(Leaf::Text(text), origin) if origin.is_text() => parsed(text),
            _ => None,
        };
        match number {
            Some(number) => visitor.visit_f64(number),
            None => Err(Wrong::at("", "must be a number").came_from(Some(self))),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        let switch = match self {
            Node::Leaf(Leaf::Switch(switch), _) => Some(*switch),
            Node::Leaf(Leaf::Text(text), origin) if origin.is_text() => parsed(text),
            _ => None,
        };
        match switch {
            Some(switch) => visitor.visit_bool(switch),
            None => Err(Wrong::at("", "must be true or false").came_from(Some(self))),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        let Node::Leaf(Leaf::Text(text), origin) = self else {
            return self.deserialize_any(visitor);
        };
        if !origin.is_text() {
            return self.deserialize_any(visitor);
        }
        let items = text
            .split(',')
            .map(str::trim)
            .filter(|item| !item.is_empty());
        let items: Vec<&str> = items.collect();
        let read = visitor.visit_seq(de::value::SeqDeserializer::new(items.into_iter()));
        read.map_err(|wrong: Wrong| wrong.came_from(Some(self)))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        match self {
            Node::Leaf(Leaf::Nothing, _) => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Wrong> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Wrong> {
        let choice = match self {
            Node::Leaf(Leaf::Text(word), _) => Ok((word.as_str(), None)),
            Node::Table(table) if table.len() == 1 => {
                let (name, part) = table.first_key_value().expect("a table of one");
                if variants.contains(&name.as_str()) {
                    Ok((name.as_str(), Some(part)))
                } else {
                    let wrong: Wrong = de::Error::unknown_field(name, variants);
                    Err(wrong.came_from(Some(part)))
                }
            }
            _ => Err(Wrong::at(
                "",
                format!("must be exactly one of {}", variants.join(", ")),
            )),
        };
        let read = choice.and_then(|(name, part)| visitor.visit_enum(Choice { name, part }));
        read.map_err(|wrong| wrong.came_from(Some(self)))
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        match self {
            // serde would also accept a list, as values without names.
            Node::List(..) | Node::Leaf(..) => {
                Err(Wrong::at("", "must be a table of settings").came_from(Some(self)))
            }
            Node::Table(_) => self.deserialize_any(visitor),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Wrong> {
        self.deserialize_map(visitor)
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i128 u128 f32 char str string bytes byte_buf unit unit_struct
        tuple tuple_struct identifier ignored_any
    }
}

/// The nodes of a table.
struct Parts<'de> {
    rest: std::collections::btree_map::Iter<'de, String, Node>,
    value: Option<(&'de str, &'de Node)>,
}

impl<'de> MapAccess<'de> for Parts<'de> {
    type Error = Wrong;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Wrong> {
        let Some((name, node)) = self.rest.next() else {
            return Ok(None);
        };
        self.value = Some((name, node));
        let key = seed.deserialize(name.as_str().into_deserializer());
        key.map(Some)
            .map_err(|wrong: Wrong| wrong.came_from(Some(node)))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Wrong> {
        let (name, node) = self
            .value
            .take()
            .expect("a value is asked for after its key");
        seed.deserialize(node)
            .map_err(|wrong| wrong.came_from(Some(node)).below(name))
    }
}

/// The nodes of a list.
struct Items<'de> {
    rest: slice::Iter<'de, Node>,
    at: usize,
}

impl<'de> SeqAccess<'de> for Items<'de> {
    type Error = Wrong;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Wrong> {
        let Some(node) = self.rest.next() else {
            return Ok(None);
        };
        let at = self.at;
        self.at += 1;
        let item = seed.deserialize(node);
        item.map(Some)
            .map_err(|wrong| wrong.came_from(Some(node)).below(&format!("[{at}]")))
    }
}

/// An enum value: a word, or a table with one entry.
struct Choice<'de> {
    name: &'de str,
    part: Option<&'de Node>,
}

impl<'de> EnumAccess<'de> for Choice<'de> {
    type Error = Wrong;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), Wrong> {
        let chosen = seed.deserialize(self.name.into_deserializer())?;
        Ok((chosen, self))
    }
}

impl<'de> VariantAccess<'de> for Choice<'de> {
    type Error = Wrong;

    fn unit_variant(self) -> Result<(), Wrong> {
        match self.part {
            None => Ok(()),
            Some(_) => Err(Wrong::at(self.name, "takes no settings")),
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Wrong> {
        let part = self
            .part
            .ok_or_else(|| Wrong::at(self.name, "needs its settings"))?;
        seed.deserialize(part)
            .map_err(|wrong| wrong.came_from(Some(part)).below(self.name))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Wrong> {
        self.part
            .ok_or_else(|| Wrong::at(self.name, "needs its settings"))?
            .deserialize_any(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Wrong> {
        self.part
            .ok_or_else(|| Wrong::at(self.name, "needs its settings"))?
            .deserialize_any(visitor)
    }
}
