//! The file of a catalogue, as types, with the rules that are not those of JSON Schema.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{CatalogueError, EVENT_VERSION, schema};
use crate::{
    limits::{
        CATALOGUE_BYTES_MAX, CATALOGUE_EXAMPLES_MAX, CATALOGUE_FLAGS_MAX, CATALOGUE_NAME_BYTES_MAX,
        CATALOGUE_TYPES_MAX, CATALOGUE_VERSIONS_MAX,
    },
    outbox::check_kind,
};

/// The file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Document {
    pub(super) title: String,
    pub(super) version: String,
    pub(super) description: Option<String>,
    /// Definitions to which all schemas can refer.
    #[serde(default, rename = "$defs")]
    pub(super) definitions: Map<String, Value>,
    pub(super) events: Vec<EventType>,
}

/// A type of events.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct EventType {
    /// The type, such as `order.created`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The meaning of the event, in Markdown.
    pub description: String,
    /// Whether the type is about to be removed.
    #[serde(default)]
    pub deprecated: bool,
    /// Flags: the type is described only where all of them are enabled.
    #[serde(default)]
    pub flags: BTreeSet<String>,
    /// The versions of the payload, the oldest one first.
    pub versions: Vec<Version>,
}

/// A version of the payload of a type.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Version {
    /// The number, from 1.
    #[serde(rename = "version")]
    pub number: u32,
    /// Whether the version is about to be removed.
    #[serde(default)]
    pub deprecated: bool,
    /// The JSON Schema of the payload.
    pub schema: Value,
    /// Payloads that match the schema.
    #[serde(default)]
    pub examples: Vec<Value>,
}

impl EventType {
    /// The latest version.
    pub fn latest(&self) -> Option<&Version> {
        self.versions.last()
    }

    /// The version that an event's header names, or the latest one.
    pub(super) fn version_of(&self, header: Option<&String>) -> Result<&Version, String> {
        let named = match header {
            None => self.latest(),
            Some(text) => {
                let number: Option<u32> = text.parse().ok();
                self.versions
                    .iter()
                    .find(|version| Some(version.number) == number)
            }
        };
        named.ok_or_else(|| {
            let name = header.map_or("", String::as_str);
            let name: String = name.chars().take(CATALOGUE_NAME_BYTES_MAX).collect();
            format!(
                "has no version {name:?} in the catalogue, which its header {EVENT_VERSION} names"
            )
        })
    }
}

impl Document {
    pub(super) fn parse(text: &str) -> Result<Self, CatalogueError> {
        at_most("", "size in bytes", text.len(), CATALOGUE_BYTES_MAX)?;
        let mut document: Self = serde_json::from_str(text)
            .map_err(|error| CatalogueError::new("", error.to_string()))?;
        document.check()?;
        Ok(document)
    }

    fn check(&mut self) -> Result<(), CatalogueError> {
        at_most(
            "/events",
            "number of types",
            self.events.len(),
            CATALOGUE_TYPES_MAX,
        )?;
        for (member, text) in [("/title", &self.title), ("/version", &self.version)] {
            if text.trim().is_empty() {
                return Err(CatalogueError::new(member, "is empty"));
            }
        }
        schema::check_definitions(&mut self.definitions)?;
        let mut seen = BTreeMap::new();
        for (at, event) in self.events.iter_mut().enumerate() {
            let place = format!("/events/{at}");
            if let Some(first) = seen.insert(event.kind.clone(), at) {
                let problem = format!(
                    "{} is in the catalogue twice: see /events/{first}",
                    event.kind
                );
                return Err(CatalogueError::new(format!("{place}/type"), problem));
            }
            event.check(&place, &self.definitions)?;
        }
        Ok(())
    }
}

impl EventType {
    fn check(&mut self, place: &str, shared: &Map<String, Value>) -> Result<(), CatalogueError> {
        check_kind(&self.kind)
            .map_err(|error| CatalogueError::new(format!("{place}/type"), error.to_string()))?;
        if self.description.trim().is_empty() {
            return Err(CatalogueError::new(
                format!("{place}/description"),
                "is empty",
            ));
        }
        let flags = format!("{place}/flags");
        at_most(
            &flags,
            "number of flags",
            self.flags.len(),
            CATALOGUE_FLAGS_MAX,
        )?;
        for flag in &self.flags {
            check_name(&flags, flag)?;
        }
        let place = format!("{place}/versions");
        let count = self.versions.len();
        at_most(&place, "number of versions", count, CATALOGUE_VERSIONS_MAX)?;
        if count == 0 {
            return Err(CatalogueError::new(place, "has no version"));
        }
        let mut before = 0;
        for (at, version) in self.versions.iter_mut().enumerate() {
            let place = format!("{place}/{at}");
            if version.number <= before {
                let problem = "must be a number from 1 and greater than that of the version before";
                return Err(CatalogueError::new(format!("{place}/version"), problem));
            }
            before = version.number;
            let (examples, most) = (version.examples.len(), CATALOGUE_EXAMPLES_MAX);
            at_most(&place, "number of examples", examples, most)?;
            schema::check(&mut version.schema, &format!("{place}/schema"), shared)?;
        }
        Ok(())
    }
}

/// Checks a flag, or the name of a definition.
pub(super) fn check_name(place: &str, name: &str) -> Result<(), CatalogueError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if name.is_empty() || name.len() > CATALOGUE_NAME_BYTES_MAX || !name.chars().all(allowed) {
        let problem =
            format!("a name must have 1 to {CATALOGUE_NAME_BYTES_MAX} letters, digits and . _ -");
        return Err(CatalogueError::new(place, problem));
    }
    Ok(())
}

pub(super) fn at_most(
    place: &str,
    what: &str,
    size: usize,
    max: usize,
) -> Result<(), CatalogueError> {
    if size <= max {
        return Ok(());
    }
    let problem = format!("{what} is {size}, at most {max} is allowed");
    Err(CatalogueError::new(place, problem))
}
