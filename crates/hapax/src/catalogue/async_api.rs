//! A catalogue as AsyncAPI 3.0: the messages that a receiver at a broker gets.
//!
//! Each type is a channel with a message for each version. The address of a channel is a setting of
//! a destination and is not known here. The payload of a message is the payload of the event, as
//! brokers get it unless a destination wraps it.

use serde_json::{Map, Value, json};

use super::{
    document::{Document, EventType, Version},
    export::{Components, info, schema_reference},
};

/// The format of the schemas.
const SCHEMA_FORMAT: &str = "application/schema+json;version=draft-2020-12";

/// The description of some types.
pub(super) fn describe(document: &Document, visible: &[&EventType]) -> Value {
    let components = Components::of(document, visible);
    let (mut channels, mut operations, mut messages) = (Map::new(), Map::new(), Map::new());
    for event in visible {
        let name = components.type_name(event);
        let (mut by_version, mut sent) = (Map::new(), Vec::new());
        for version in &event.versions {
            let (key, message) = (
                format!("v{}", version.number),
                components.schema_name(event, version),
            );
            let reference = format!("#/components/messages/{message}");
            by_version.insert(key.clone(), json!({ "$ref": reference }));
            sent.push(json!({"$ref": format!("#/channels/{name}/messages/{key}")}));
            messages.insert(message.clone(), described(event, version, &message));
        }
        let channel = json!({
            "address": null,
            "title": event.kind,
            "description": event.description,
            "messages": by_version,
        });
        channels.insert(name.to_owned(), channel);
        let operation = json!({
            "action": "send",
            "channel": {"$ref": format!("#/channels/{name}")},
            "messages": sent,
        });
        operations.insert(name.to_owned(), operation);
    }
    json!({
        "asyncapi": "3.0.0",
        "info": info(document),
        "defaultContentType": "application/json",
        "channels": channels,
        "operations": operations,
        "components": {"messages": messages, "schemas": components.schemas},
    })
}

/// The message of a version.
fn described(event: &EventType, version: &Version, schema: &str) -> Value {
    let mut message = json!({
        "name": event.kind,
        "title": format!("{}, version {}", event.kind, version.number),
        "description": event.description,
        "contentType": "application/json",
        "payload": {
            "schemaFormat": SCHEMA_FORMAT,
            "schema": {"$ref": schema_reference(schema)},
        },
    });
    if event.deprecated || version.deprecated {
        message["tags"] = json!([{"name": "deprecated"}]);
    }
    let examples: Vec<Value> = (1..)
        .zip(&version.examples)
        .map(|(number, example): (u32, _)| {
            json!({"name": format!("example-{number}"), "payload": example})
        })
        .collect();
    if !examples.is_empty() {
        message["examples"] = json!(examples);
    }
    message
}
