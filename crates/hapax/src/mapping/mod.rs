//! Mappings: what a webhook sends instead of its usual body, made of an event by a template.
//!
//! A mapping is a JSON document. Its strings that begin with `$.` are paths into the event; everything
//! else is written as it is. A value that the event does not have is left out.
//!
//! ```
//! use hapax::mapping::Mapping;
//!
//! let mapping = Mapping::parse(r#"{
//!     "text": {"$concat": ["Order ", "$.data.number", " was paid"]},
//!     "amount": {"$path": "$.data.amount", "default": 0},
//!     "lines": {"$each": "$.data.items", "as": {"sku": "@.sku", "source": "shop"}}
//! }"#)?;
//! # Ok::<(), hapax::mapping::MappingError>(())
//! ```
//!
//! A mapping is checked and compiled once ([`Mapping::parse`]). Applying it reads nothing but the event. All
//! its paths are followed together, so its cost is linear in the size of the payload, for any number of paths,
//! and in the size of the mapping for each item of a list. The size of a mapping, of its lists and of its
//! result are bounded. A mapping has no conditions, no arithmetic and no variables.

mod template;
mod compile;
mod render;
#[cfg(test)]
mod tests;

use std::{collections::BTreeSet, fmt, str::FromStr, sync::Arc};

use crate::{
    event::{Event, Payload},
    filter::{document::Document, paths::Paths},
    limits::{MAPPING_BYTES_MAX, MAPPING_DEPTH_MAX},
    mask::{MASKED, Mask},
};
use compile::Compiler;
use template::Template;

/// A mapping of events, compiled.
#[derive(Clone)]
pub struct Mapping(Arc<Compiled>);

struct Compiled {
    text: String,
    root: Template,
    /// The different paths into the payload. They are followed together, once for an event.
    data: Paths,
    /// The names in all paths, which a masked payload keeps.
    names: BTreeSet<String>,
}

impl Mapping {
    /// Checks and compiles a mapping from its JSON text.
    ///
    /// # Errors
    /// The first place that is not valid: text that is not JSON, an unknown operator, a path to nothing
    /// that events have, or a mapping that is too large.
    pub fn parse(text: &str) -> Result<Self, MappingError> {
        if text.len() > MAPPING_BYTES_MAX {
            let size = text.len();
            let problem = format!("has {size} bytes, at most {MAPPING_BYTES_MAX} are allowed");
            return Err(MappingError::new("", problem));
        }
        let document =
            Document::parse(text).ok_or_else(|| MappingError::new("", "is not valid JSON"))?;
        // What follows is recursive.
        if document.depth() > MAPPING_DEPTH_MAX {
            let problem = format!("is nested deeper than {MAPPING_DEPTH_MAX} levels");
            return Err(MappingError::new("", problem));
        }
        let mut compiler = Compiler::default();
        let root = compiler.root(document.root())?;
        Ok(Self(Arc::new(Compiled {
            text: text.to_owned(),
            root,
            names: compiler.take_names(),
            data: compiler.into_data(),
        })))
    }

    /// Makes the JSON text of an event. Values of the payload are copied byte for byte.
    ///
    /// # Errors
    /// The result is empty or larger than [`MAPPED_BYTES_MAX`](crate::limits::MAPPED_BYTES_MAX), a value of
    /// the event has a type that the mapping cannot use, or the payload cannot be read. The same event
    /// always has the same result.
    pub fn apply(&self, event: &Event) -> Result<String, MappingFailure> {
        render::render(&self.0, event)
    }

    /// Makes the JSON text of an event as it may be shown. Values that `mask` hides are replaced in the
    /// payload, because the mapping may give them other names, and then in the result by their new names. In
    /// the payload, masked objects and arrays keep their shape, so that the mapping finds there what it finds in
    /// the payload itself. A payload that is not JSON is replaced as a whole.
    ///
    /// `None` if the mapping cannot be applied to the event, or if the payload or the result exceeds its
    /// maximum size because a replacement is longer than what it replaces.
    pub fn apply_masked(&self, event: &Event, mask: &Mask) -> Option<String> {
        let payload = match &event.payload {
            Payload::Json(text) => mask.json_in_shape(text, &self.0.names),
            Payload::Binary { .. } => None,
        };
        let payload = payload.unwrap_or_else(|| format!("\"{MASKED}\""));
        let shown = Event {
            payload: Payload::Json(payload),
            ..event.clone()
        };
        let body = self.apply(&shown).ok()?;
        mask.json(&body)
    }

    /// The text of the mapping, as it was given.
    pub fn as_str(&self) -> &str {
        &self.0.text
    }
}

impl FromStr for Mapping {
    type Err = MappingError;

    fn from_str(text: &str) -> Result<Self, MappingError> {
        Self::parse(text)
    }
}

impl PartialEq for Mapping {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Mapping {}

impl fmt::Debug for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Mapping").field(&self.as_str()).finish()
    }
}

/// Why a mapping is not valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappingError {
    /// The place in the mapping, such as `lines.as.sku`; empty for the mapping itself.
    pub place: String,
    /// What is wrong; continues a sentence that begins with the place.
    pub problem: String,
}

impl MappingError {
    fn new(place: &str, problem: impl Into<String>) -> Self {
        Self {
            place: place.to_owned(),
            problem: problem.into(),
        }
    }

    /// The name of a setting with this place in it, such as `mapping.lines.as.sku`.
    pub fn setting(&self) -> String {
        match self.place.as_str() {
            "" => "mapping".to_owned(),
            // The mapping itself is an array.
            place if place.starts_with('[') => format!("mapping{place}"),
            place => format!("mapping.{place}"),
        }
    }
}

impl fmt::Display for MappingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = match self.place.as_str() {
            "" => "the mapping",
            place => place,
        };
        write!(f, "{place} {}", self.problem)
    }
}

impl std::error::Error for MappingError {}

/// Why a mapping could not be applied to an event. It names paths of the mapping, and no value of the event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappingFailure(String);

impl MappingFailure {
    fn new(problem: impl Into<String>) -> Self {
        Self(problem.into())
    }
}

impl fmt::Display for MappingFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the mapping cannot be applied: {}", self.0)
    }
}

impl std::error::Error for MappingFailure {}
