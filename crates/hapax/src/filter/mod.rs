//! Filters: conditions on the content of an event, which select the events of a destination.
//!
//! A filter is a JSON object. Each member is a condition: its name says which value of the event is
//! looked at, its value says what is expected. All conditions have to hold.
//!
//! ```
//! use hapax::filter::Filter;
//!
//! let filter = Filter::parse(r#"{
//!     "/amount": {"$gte": 100},
//!     "/customer/country": {"$in": ["DE", "FR"]},
//!     "tenant": "acme"
//! }"#)?;
//! # Ok::<(), hapax::filter::FilterError>(())
//! ```
//!
//! A filter is checked and compiled once ([`Filter::parse`]). Applying it cannot fail: a value that
//! is missing, or that has another type than the condition expects, does not match. Numbers are
//! compared as decimals, exactly and at any size. The values of all conditions are found in time that is
//! linear in the size of the payload. Each condition costs at most the size of its value, and the size of a
//! filter is bounded.

pub(crate) mod document;
mod decimal;
mod table;
pub(crate) mod paths;
pub(crate) mod literal;
pub(crate) mod subject;
mod condition;
mod compile;
#[cfg(test)]
mod tests;

use std::{cell::OnceCell, fmt, str::FromStr, sync::Arc};

use crate::{
    event::{Event, Payload},
    keyring::ENCRYPTED_UNDER,
    limits::{FILTER_BYTES_MAX, FILTER_DEPTH_MAX, FILTER_PAYLOAD_BYTES_MAX},
};
use compile::Compiler;
use condition::Condition;
use document::Document;
use subject::Facts;

/// A filter of events, compiled.
#[derive(Clone)]
pub struct Filter(Arc<Compiled>);

struct Compiled {
    text: String,
    root: Condition,
    /// Whether a condition looks at the payload.
    reads_payload: bool,
}

/// The result of applying a filter to an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied<'a> {
    /// Every condition holds.
    Matches,
    /// The condition at this place of the filter does not hold, such as `/amount.$gte`.
    Fails(&'a str),
    /// The filter looks at the payload, which is not JSON, is larger than
    /// [`FILTER_PAYLOAD_BYTES_MAX`], or could not be decrypted.
    Unreadable,
}

impl Filter {
    /// Checks and compiles a filter from its JSON text.
    ///
    /// # Errors
    /// The first place that is not valid: text that is not JSON, an unknown operator, an operand of
    /// the wrong type, or a filter that is too large.
    pub fn parse(text: &str) -> Result<Self, FilterError> {
        if text.len() > FILTER_BYTES_MAX {
            let size = text.len();
            let problem = format!("has {size} bytes, at most {FILTER_BYTES_MAX} are allowed");
            return Err(FilterError::new("", problem));
        }
        let document =
            Document::parse(text).ok_or_else(|| FilterError::new("", "is not valid JSON"))?;
        // What follows is recursive.
        if document.depth() > FILTER_DEPTH_MAX {
            let problem = format!("is nested deeper than {FILTER_DEPTH_MAX} levels");
            return Err(FilterError::new("", problem));
        }
        let mut compiler = Compiler::default();
        let root = compiler.object(document.root(), "")?;
        Ok(Self(Arc::new(Compiled {
            text: text.to_owned(),
            root,
            reads_payload: compiler.reads_payload(),
        })))
    }

    /// Applies the filter to an event.
    pub fn apply(&self, event: &Event) -> Applied<'_> {
        self.apply_to(&Reading::of(event))
    }

    /// Applies the filter to an event to which others are applied too.
    pub(crate) fn apply_to(&self, reading: &Reading<'_>) -> Applied<'_> {
        let document = if self.0.reads_payload {
            let Some(document) = reading.document() else {
                return Applied::Unreadable;
            };
            Some(document)
        } else {
            None
        };
        let event = reading.event;
        let payload = document.map(Document::root);
        let facts = Facts { event, payload };
        match self.0.root.failing(&facts) {
            Some(place) => Applied::Fails(place),
            None => Applied::Matches,
        }
    }

    /// Whether the event matches.
    pub fn matches(&self, event: &Event) -> bool {
        self.apply(event) == Applied::Matches
    }

    /// The text of the filter, as it was given.
    pub fn as_str(&self) -> &str {
        &self.0.text
    }
}

/// An event to which several filters are applied. Its payload is parsed once, if one of them looks at it:
/// parsing a large payload takes longer than most conditions.
pub(crate) struct Reading<'a> {
    event: &'a Event,
    document: OnceCell<Option<Document<'a>>>,
}

impl<'a> Reading<'a> {
    /// A reading of an event. The payload is not parsed yet.
    pub(crate) const fn of(event: &'a Event) -> Self {
        let document = OnceCell::new();
        Self { event, document }
    }

    /// The event.
    pub(crate) const fn event(&self) -> &'a Event {
        self.event
    }

    fn document(&self) -> Option<&Document<'a>> {
        self.document.get_or_init(|| read(self.event)).as_ref()
    }
}

/// Reads the payload; `None` if it is not JSON, is too large, or is still encrypted.
fn read(event: &Event) -> Option<Document<'_>> {
    let is_encrypted = event.headers.contains_key(ENCRYPTED_UNDER);
    match &event.payload {
        Payload::Json(text) if !is_encrypted && text.len() <= FILTER_PAYLOAD_BYTES_MAX => {
            Document::parse(text)
        }
        Payload::Json(_) | Payload::Binary { .. } => None,
    }
}

impl FromStr for Filter {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Self, FilterError> {
        Self::parse(text)
    }
}

impl PartialEq for Filter {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Filter {}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Filter").field(&self.as_str()).finish()
    }
}

/// Why a filter is not valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterError {
    /// The place in the filter, such as `$or[1]./amount.$gte`; empty for the filter itself.
    pub place: String,
    /// What is wrong; continues a sentence that begins with the place.
    pub problem: String,
}

impl FilterError {
    fn new(place: &str, problem: impl Into<String>) -> Self {
        Self {
            place: place.to_owned(),
            problem: problem.into(),
        }
    }
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = match self.place.as_str() {
            "" => "the filter",
            place => place,
        };
        write!(f, "{place} {}", self.problem)
    }
}

impl std::error::Error for FilterError {}
