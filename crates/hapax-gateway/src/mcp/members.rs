//! Members of a JSON object with the bytes of their values, as they were sent.
//!
//! The values are slices of the body, so that a message can be changed at one place and stay the
//! same everywhere else. A member that occurs twice is refused: parsers differ on which one counts.

use std::{fmt, ops::Range};

use hapax::limits::{JSON_DEPTH_MAX, JSON_MEMBERS_MAX};
use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, Visitor},
};
use serde_json::value::RawValue;

/// The members of an object, in the order in which they were sent.
pub(super) struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'a> Members<'a> {
    /// Parses an object. `None` if the text is not one, or if a member occurs twice.
    pub(super) fn parse(text: &'a [u8]) -> Option<Self> {
        serde_json::from_slice(text).ok()
    }

    /// The value of a member.
    pub(super) fn get(&self, name: &str) -> Option<&'a str> {
        let mut members = self.0.iter();
        let found = members.find(|(known, _)| known == name);
        found.map(|(_, value)| value.get())
    }

    /// The value of a member that is a string. `None` if there is none, or if it is of another
    /// type.
    pub(super) fn string(&self, name: &str) -> Option<String> {
        serde_json::from_str(self.get(name)?).ok()
    }

    /// Whether a member has the name of a known one in another case. Some readers ignore the case,
    /// and some of those also read the long s as an s.
    pub(super) fn has_similar(&self, known: &[&str]) -> bool {
        self.iter().any(|(name, _)| {
            let folded = name.replace('\u{17f}', "s");
            let mut known = known.iter();
            known.any(|known| name != *known && folded.eq_ignore_ascii_case(known))
        })
    }

    /// Names and values.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &'a str)> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_str(), value.get()))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MembersVisitor).map(Self)
    }
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Vec<(String, &'de RawValue)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object without duplicate members")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry::<String, &'de RawValue>()? {
            if members.len() >= JSON_MEMBERS_MAX {
                return Err(de::Error::custom("too many members"));
            }
            members.push(member);
        }
        let mut names: Vec<&str> = members.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        if names.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(de::Error::custom("a member occurs twice"));
        }
        Ok(members)
    }
}

/// The elements of an array. `None` if the text is not one.
pub(super) fn elements(text: &[u8]) -> Option<Vec<&RawValue>> {
    serde_json::from_slice(text).ok()
}

/// Where a part of a text is. `part` has to be a slice of `text`.
pub(super) fn range(text: &[u8], part: &str) -> Option<Range<usize>> {
    let start = part.as_ptr().addr().checked_sub(text.as_ptr().addr())?;
    let end = start.checked_add(part.len())?;
    (end <= text.len()).then_some(start..end)
}

/// Whether a text is nested deeper than a reader can be expected to follow.
pub(super) fn is_too_deep(text: &[u8]) -> bool {
    let (mut depth, mut is_string, mut is_escaped) = (0_usize, false, false);
    for byte in text {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_string => is_escaped = true,
            b'"' => is_string = !is_string,
            _ if is_string => {}
            b'{' | b'[' => {
                depth += 1;
                if depth > JSON_DEPTH_MAX {
                    return true;
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}

/// A string as JSON.
pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
