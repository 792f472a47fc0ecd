//! Fields of requests: parsed from text, with an error that names the field.

use super::AdminError;
use crate::clock::Timestamp;

/// Parses an optional field. `what` describes a valid value.
///
/// # Errors
/// `Invalid` if `parse` returns `None`.
pub fn read_field<T>(
    field: &str,
    text: Option<&str>,
    what: &str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<Option<T>, AdminError> {
    let wrong = || AdminError::invalid(field, format!("must be {what}"));
    text.map(|text| parse(text).ok_or_else(wrong)).transpose()
}

/// Parses an optional time in RFC 3339.
///
/// # Errors
/// `Invalid` if the text is not a time.
pub fn read_time(field: &str, text: Option<&str>) -> Result<Option<Timestamp>, AdminError> {
    const WHAT: &str = "a moment such as 2026-01-31T12:00:00Z";
    read_field(field, text, WHAT, |text| text.parse().ok())
}

/// Parses an optional start of a page.
///
/// # Errors
/// `Invalid` if the text is not a cursor of the list.
pub fn read_cursor<T>(
    before: Option<&str>,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<Option<T>, AdminError> {
    read_field("before", before, "`next` of the previous page", parse)
}
