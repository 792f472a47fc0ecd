//! The catalogue of operational events, which users add to their own.

use serde_json::{Value, json};

use super::kind::OperationalKind;

/// The catalogue, with the default prefix.
const CATALOGUE: &str = include_str!("catalogue.json");

/// The event catalogue of all operational events with a prefix, in the format of
/// `hapax::catalogue`. Its member `events` can be added to the catalogue of a service.
pub fn catalogue(prefix: &str) -> Value {
    let mut catalogue: Value = serde_json::from_str(CATALOGUE).unwrap_or_default();
    let events = catalogue.get_mut("events").and_then(Value::as_array_mut);
    for event in events.into_iter().flatten() {
        let name = event["type"].as_str().unwrap_or_default();
        let name = name.strip_prefix(super::PREFIX).unwrap_or(name);
        if OperationalKind::parse(name).is_some() {
            let renamed = format!("{prefix}{name}");
            event["type"] = json!(renamed);
        }
    }
    catalogue
}
