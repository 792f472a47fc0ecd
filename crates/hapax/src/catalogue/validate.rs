//! Checks of payloads against compiled schemas.
//!
//! The first value that does not match is reported, with the rule that it breaks. A report contains
//! names of the schema and of the payload, but no values of the payload: reports are logged.

use boon::{ErrorKind, ValidationError};
use serde_json::Value;

use super::{
    compiled::Compiled,
    document::{EventType, Version},
    schema::depth,
};
use crate::{
    limits::{CATALOGUE_PAYLOAD_DEPTH_MAX, CATALOGUE_STEPS_MAX, NOTE_CHARS},
    outbox::Mismatch,
};

impl Compiled {
    /// Checks a payload; `None` stands for one that is not JSON.
    pub(super) fn check_text(
        &self,
        event: &EventType,
        version: &Version,
        payload: Option<&str>,
    ) -> Result<(), Mismatch> {
        let whole = |rule: &str, problem: String| mismatch(event, version, "", rule, &problem);
        let Some(text) = payload else {
            return Err(whole("type", "must be JSON".to_owned()));
        };
        let value: Value = serde_json::from_str(text)
            .map_err(|error| whole("type", format!("cannot be read: {error}")))?;
        self.check_value(event, version, &value)
    }

    /// Checks a payload.
    pub(super) fn check_value(
        &self,
        event: &EventType,
        version: &Version,
        value: &Value,
    ) -> Result<(), Mismatch> {
        if depth(value) > CATALOGUE_PAYLOAD_DEPTH_MAX {
            let problem = format!("is nested deeper than {CATALOGUE_PAYLOAD_DEPTH_MAX} levels");
            return Err(mismatch(event, version, "", "depth", &problem));
        }
        let (index, root) = self.schema(event, version);
        if self.work.exceeds(root, value, CATALOGUE_STEPS_MAX) {
            let problem = format!("takes more than {CATALOGUE_STEPS_MAX} steps to check");
            return Err(mismatch(event, version, "", "work", &problem));
        }
        self.schemas.validate(value, index).map_err(|error| {
            let error = first(&error);
            let pointer = error.instance_location.to_string();
            let rule = rule(&error.kind);
            mismatch(event, version, &pointer, rule, &problem(&error.kind))
        })
    }
}

fn mismatch(
    event: &EventType,
    version: &Version,
    pointer: &str,
    rule: &str,
    problem: &str,
) -> Mismatch {
    Mismatch {
        kind: event.kind.clone(),
        version: version.number,
        pointer: pointer.chars().take(NOTE_CHARS).collect(),
        rule: rule.to_owned(),
        problem: problem.chars().take(NOTE_CHARS).collect(),
    }
}

/// The first error that says what is wrong. The alternatives of `anyOf` are not searched: none of
/// them is more likely to be the intended one.
fn first<'e, 's, 'v>(error: &'e ValidationError<'s, 'v>) -> &'e ValidationError<'s, 'v> {
    let mut error = error;
    while !matches!(
        error.kind,
        ErrorKind::AnyOf
            | ErrorKind::OneOf(_)
            | ErrorKind::Contains
            | ErrorKind::MinContains { .. }
            | ErrorKind::PropertyName { .. }
    ) && let Some(cause) = error.causes.first()
    {
        error = cause;
    }
    error
}

/// The keyword that a value does not match.
fn rule(kind: &ErrorKind<'_, '_>) -> &'static str {
    match kind.keyword_path().map(|path| path.keyword) {
        // The library has its singular.
        Some("additionalProperty") => "additionalProperties",
        Some(keyword) => keyword,
        None => "false",
    }
}

/// The expectation of the rule, without values of the payload.
fn problem(kind: &ErrorKind<'_, '_>) -> String {
    match kind {
        ErrorKind::FalseSchema => "is not allowed".to_owned(),
        ErrorKind::Format { want, .. } => format!("is not a valid {want}"),
        ErrorKind::Pattern { want, .. } => format!("does not match the pattern {want}"),
        ErrorKind::Minimum { want, .. } => format!("must be at least {want}"),
        ErrorKind::Maximum { want, .. } => format!("must be at most {want}"),
        ErrorKind::ExclusiveMinimum { want, .. } => format!("must be greater than {want}"),
        ErrorKind::ExclusiveMaximum { want, .. } => format!("must be less than {want}"),
        ErrorKind::MultipleOf { want, .. } => format!("must be a multiple of {want}"),
        kind => kind.to_string(),
    }
}
