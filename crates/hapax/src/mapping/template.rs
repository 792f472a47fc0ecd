//! The compiled form of a mapping. Its size is linear in that of the text.

use crate::filter::paths::Paths;

/// A value of the result.
#[derive(Debug)]
pub(super) enum Template {
    /// JSON, which is written as it is.
    Literal(String),
    /// A value of the event. The default stands in for one that is missing or null.
    Value {
        path: Path,
        default: Option<Box<Template>>,
    },
    /// Members with their names, in JSON and with the colon. Those without a value are left out.
    Object(Vec<(String, Template)>),
    /// Items. Those without a value are left out.
    Array(Vec<Template>),
    /// An array with a value for each item of a list of the event.
    Each {
        path: Path,
        each: Box<Template>,
        /// The different paths into an item. They are followed together, once for each item.
        items: Paths,
    },
    /// A string of several parts. It has no value if one of them has none.
    Concat(Vec<Template>),
}

/// Path to a value of an event.
#[derive(Debug)]
pub(super) struct Path {
    /// The path as it was written.
    pub(super) text: String,
    pub(super) source: Source,
}

/// Source of a value: the field of the event with which a path begins.
#[derive(Debug)]
pub(super) enum Source {
    /// The id of the event.
    Id,
    /// The event type.
    Type,
    /// When the event was created.
    Timestamp,
    /// The tenant.
    Tenant,
    /// A value in the payload: the number of its path.
    Data(usize),
    /// A value in the item of the innermost list: the number of its path.
    Item(usize),
}

impl Template {
    /// Whether the value can be a part of a string, as far as the mapping determines that.
    pub(super) fn is_part(&self) -> bool {
        match self {
            Self::Literal(json) => !json.starts_with(['{', '[', 'n']),
            Self::Value { default, .. } => default.as_ref().is_none_or(|it| it.is_part()),
            Self::Object(_) | Self::Array(_) | Self::Each { .. } | Self::Concat(_) => false,
        }
    }
}
