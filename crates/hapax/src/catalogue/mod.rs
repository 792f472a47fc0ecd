//! Event catalogue: the event types of a service, with a description, JSON Schemas and examples.
//!
//! A catalogue is a JSON file that is kept beside the code of the service. [`Catalogue::parse`]
//! checks it completely and compiles its schemas once: a catalogue that exists is valid, and so are
//! its examples. Schemas are JSON Schema 2020-12. They refer only to definitions of the same file;
//! nothing is read from other files or from the network.
//!
//! [`Catalogue::event_check`] is for the settings of a store: `emit` then refuses an event that does
//! not match. [`Catalogue::open_api`] and [`Catalogue::async_api`] describe the events for receivers.
//!
//! ```
//! use hapax::catalogue::{Catalogue, OtherTypes};
//!
//! let catalogue = Catalogue::parse(r#"{
//!     "title": "Shop",
//!     "version": "1.0.0",
//!     "events": [{
//!         "type": "order.created",
//!         "description": "A customer has placed an order.",
//!         "versions": [{
//!             "version": 1,
//!             "schema": {"type": "object", "required": ["id"]},
//!             "examples": [{"id": "ord_1"}]
//!         }]
//!     }]
//! }"#)?;
//! let check = catalogue.event_check(OtherTypes::Refused);
//! # Ok::<(), hapax::catalogue::CatalogueError>(())
//! ```

mod document;
mod schema;
mod work;
mod compiled;
mod validate;
mod export;
mod open_api;
mod async_api;
#[cfg(test)]
mod tests;

use std::{collections::BTreeSet, fmt, sync::Arc};

use serde_json::Value;

use crate::{
    event::{Event, Payload},
    outbox::{EventCheck, EventError},
};

pub use document::{EventType, Version};

use compiled::Compiled;
use document::Document;

/// The header of an event that names the version of its payload, such as `2`. Without the header,
/// the payload is of the latest version.
pub const EVENT_VERSION: &str = "event-version";

/// A catalogue of event types, checked and compiled. Clones share it.
#[derive(Clone)]
pub struct Catalogue(Arc<Inner>);

struct Inner {
    document: Document,
    compiled: Compiled,
}

/// Policy for events whose type is not in the catalogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherTypes {
    /// They are refused.
    Refused,
    /// They are emitted without a check.
    Accepted,
}

impl Catalogue {
    /// Reads and checks a catalogue from its JSON text.
    ///
    /// # Errors
    /// The first place that is not valid: text that is not JSON, an unknown or missing member, a
    /// schema that is not valid or refers to something outside of the file, an example that does
    /// not match its schema, or a part that is too large.
    pub fn parse(text: &str) -> Result<Self, CatalogueError> {
        let document = Document::parse(text)?;
        let compiled = Compiled::of(&document)?;
        let inner = Inner { document, compiled };
        inner.check_examples()?;
        Ok(Self(Arc::new(inner)))
    }

    /// The name of the service or of the set of events.
    pub fn title(&self) -> &str {
        &self.0.document.title
    }

    /// The version of the catalogue.
    pub fn version(&self) -> &str {
        &self.0.document.version
    }

    /// The description of the catalogue, in Markdown.
    pub fn description(&self) -> Option<&str> {
        self.0.document.description.as_deref()
    }

    /// All event types, in the order of the file.
    pub fn types(&self) -> &[EventType] {
        &self.0.document.events
    }

    /// The event types without a flag, and those all of whose flags are in `flags`.
    pub fn visible(&self, flags: &BTreeSet<String>) -> Vec<&EventType> {
        let is_visible = |event: &&EventType| event.flags.is_subset(flags);
        self.types().iter().filter(is_visible).collect()
    }

    /// A check for the settings of a store.
    pub fn event_check(&self, others: OtherTypes) -> EventCheck {
        let catalogue = self.clone();
        EventCheck::calling(move |event| catalogue.check(event, others))
    }

    /// Checks an event against the schema of its type and version.
    ///
    /// # Errors
    /// Fails if the payload does not match, or if the catalogue does not contain the type, unless
    /// `others` accepts it, or the version.
    pub fn check(&self, event: &Event, others: OtherTypes) -> Result<(), EventError> {
        let Some(known) = self.types().iter().find(|known| known.kind == event.kind) else {
            return match others {
                OtherTypes::Accepted => Ok(()),
                OtherTypes::Refused => Err(EventError::NotInCatalogue {
                    kind: event.kind.as_str().into(),
                    problem: "is not in the catalogue".into(),
                }),
            };
        };
        let version = known
            .version_of(event.headers.get(EVENT_VERSION))
            .map_err(|problem| EventError::NotInCatalogue {
                kind: event.kind.as_str().into(),
                problem: problem.into(),
            })?;
        let payload = match &event.payload {
            Payload::Json(text) => Some(text.as_str()),
            Payload::Binary { .. } => None,
        };
        let checked = self.0.compiled.check_text(known, version, payload);
        checked.map_err(|mismatch| EventError::Mismatch(Box::new(mismatch)))
    }

    /// The schema of a version with the shared definitions that it uses, as a schema on its own.
    pub fn schema(&self, version: &Version) -> Value {
        export::self_contained(&self.0.document, version)
    }

    /// The OpenAPI 3.1 description of the visible events as webhooks.
    pub fn open_api(&self, flags: &BTreeSet<String>) -> Value {
        open_api::describe(&self.0.document, &self.visible(flags))
    }

    /// The AsyncAPI 3.0 description of the visible events, for receivers at a broker.
    pub fn async_api(&self, flags: &BTreeSet<String>) -> Value {
        async_api::describe(&self.0.document, &self.visible(flags))
    }
}

impl Inner {
    fn check_examples(&self) -> Result<(), CatalogueError> {
        for (at, event) in self.document.events.iter().enumerate() {
            for (nth, version) in event.versions.iter().enumerate() {
                for (index, example) in version.examples.iter().enumerate() {
                    let checked = self.compiled.check_value(event, version, example);
                    checked.map_err(|mismatch| {
                        let place = format!("/events/{at}/versions/{nth}/examples/{index}");
                        CatalogueError::new(place, mismatch.to_string())
                    })?;
                }
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Catalogue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Catalogue").field(&self.title()).finish()
    }
}

/// Why a catalogue is not valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogueError {
    /// The place: a JSON pointer into the file, such as `/events/0/versions/0/schema`. It is empty for
    /// an error of the whole file, whose problem names the line and the column.
    pub place: String,
    /// What is wrong.
    pub problem: String,
}

impl CatalogueError {
    fn new(place: impl Into<String>, problem: impl Into<String>) -> Self {
        Self {
            place: place.into(),
            problem: problem.into(),
        }
    }
}

impl fmt::Display for CatalogueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.place.is_empty() {
            f.write_str(&self.problem)
        } else {
            write!(f, "{}: {}", self.place, self.problem)
        }
    }
}

impl std::error::Error for CatalogueError {}
