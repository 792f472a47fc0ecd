//! Rules for declarations of destinations that hold in every store.

use serde_json::Value;

use super::{Actor, AdminError, Declared, partitions_of};
use crate::delivery::{Start, StartError};

impl Declared {
    /// Checks that an actor may see the declaration.
    ///
    /// # Errors
    /// `NotFound` for a destination of another tenant.
    pub fn check_actor(&self, actor: &Actor) -> Result<(), AdminError> {
        let spec = self.spec.as_deref().map_or(Ok(Value::Null), read_spec)?;
        let hidden = |_| AdminError::not_found(destination_object(&self.name));
        check_spec_tenant(actor, &spec).map_err(hidden)
    }

    /// The declaration, if it exists, is not removed, and the actor may see it.
    ///
    /// # Errors
    /// `NotFound` otherwise.
    pub fn present(known: Option<Self>, actor: &Actor, name: &str) -> Result<Self, AdminError> {
        let known = known.filter(|it| it.removed_at.is_none());
        let known = known.ok_or_else(|| AdminError::not_found(destination_object(name)))?;
        known.check_actor(actor)?;
        Ok(known)
    }
}

/// Checks the name of a destination.
///
/// # Errors
/// `Invalid` if it is empty, too long, or contains a slash or a zero byte.
pub fn check_destination_name(name: &str) -> Result<(), AdminError> {
    if name.is_empty() || name.len() > 255 || name.contains(['/', '\0']) {
        let problem = "must be 1 to 255 bytes long and contain no slash";
        return Err(AdminError::invalid("name", problem));
    }
    Ok(())
}

/// Parses a specification.
///
/// # Errors
/// `Invalid` if it is not a JSON object.
pub fn read_spec(spec: &str) -> Result<Value, AdminError> {
    let read = serde_json::from_str::<Value>(spec)
        .ok()
        .filter(Value::is_object);
    read.ok_or_else(|| AdminError::invalid("spec", "must be a JSON object"))
}

/// Parses a specification that is to be stored. A database may not be able to search JSON that
/// contains a NUL, so one such specification would break the lists of every tenant.
///
/// # Errors
/// `Invalid` if it is not a JSON object, or contains a NUL.
pub fn read_new_spec(spec: &str) -> Result<Value, AdminError> {
    let new = read_spec(spec)?;
    if contains_nul(&new) {
        return Err(AdminError::invalid("spec", "must not contain \\u0000"));
    }
    Ok(new)
}

fn contains_nul(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\0'),
        Value::Array(items) => items.iter().any(contains_nul),
        Value::Object(members) => members
            .iter()
            .any(|(name, value)| name.contains('\0') || contains_nul(value)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Checks that an actor of a tenant declares a destination of that tenant.
///
/// # Errors
/// `Invalid` if the specification has another tenant or none.
pub fn check_spec_tenant(actor: &Actor, spec: &Value) -> Result<(), AdminError> {
    match actor.tenant() {
        Some(own) if spec["tenant"].as_str() != Some(own) => {
            let problem = format!("must be {own}, the only tenant that you may use");
            Err(AdminError::invalid("tenant", problem))
        }
        _ => Ok(()),
    }
}

/// Where a destination with this specification starts: `now` unless it says otherwise.
///
/// # Errors
/// `Invalid` if it says neither `now` nor `beginning` nor a time.
pub fn start_of(spec: &Value) -> Result<Start, AdminError> {
    let invalid = |error: StartError| AdminError::invalid("start", error.to_string());
    match &spec["start"] {
        Value::Null => Ok(Start::Now),
        Value::String(text) => text.parse().map_err(invalid),
        _ => Err(invalid(StartError)),
    }
}

/// Checks that a new specification keeps what cannot be changed.
///
/// # Errors
/// `Invalid` if the number of partitions, or where the destination started, is another one.
pub fn check_spec_change(old: &Value, new: &Value) -> Result<(), AdminError> {
    let problem = "cannot be changed: create another destination";
    if partitions_of(old) != partitions_of(new) {
        return Err(AdminError::invalid("partitions", problem));
    }
    if start_of(old)? != start_of(new)? {
        return Err(AdminError::invalid("start", problem));
    }
    Ok(())
}

/// The name of a destination in errors and in the audit log.
pub fn destination_object(name: &str) -> String {
    format!("destination {name}")
}
