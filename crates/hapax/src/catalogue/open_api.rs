//! A catalogue as OpenAPI 3.1: the webhooks that a receiver has to accept.
//!
//! The body of a request is that of Standard Webhooks, whose `data` is the payload. It does not name
//! the version of the payload, so `data` matches the schema of any version.

use serde_json::{Map, Value, json};

use super::{
    document::{Document, EventType},
    export::{Components, info, schema_reference},
    schema::DIALECT,
};

/// A time for the envelope of examples.
const TIMESTAMP: &str = "2026-01-31T12:00:00.000Z";

/// The description of some types.
pub(super) fn describe(document: &Document, visible: &[&EventType]) -> Value {
    let components = Components::of(document, visible);
    let webhooks: Map<String, Value> = visible
        .iter()
        .map(|event| (event.kind.clone(), webhook(event, &components)))
        .collect();
    json!({
        "openapi": "3.1.0",
        "jsonSchemaDialect": DIALECT,
        "info": info(document),
        "webhooks": webhooks,
        "components": {"schemas": components.schemas, "parameters": parameters()},
    })
}

fn webhook(event: &EventType, components: &Components) -> Value {
    let versions = event.versions.iter().rev();
    let schemas: Vec<Value> = versions
        .map(|version| json!({"$ref": schema_reference(&components.schema_name(event, version))}))
        .collect();
    let data = match &schemas[..] {
        [one] => one.clone(),
        all => json!({"anyOf": all}),
    };
    let mut content = json!({
        "schema": {
            "type": "object",
            "required": ["type", "timestamp", "data"],
            "properties": {
                "type": {"const": event.kind},
                "timestamp": {"type": "string", "format": "date-time"},
                "data": data,
            },
        },
    });
    let examples = examples(event);
    if !examples.is_empty() {
        content["examples"] = Value::Object(examples);
    }
    let headers = ["webhook-id", "webhook-timestamp", "webhook-signature"];
    let headers = headers.map(|name| json!({"$ref": format!("#/components/parameters/{name}")}));
    json!({
        "post": {
            "summary": event.kind,
            "description": event.description,
            "deprecated": event.deprecated,
            "parameters": headers,
            "requestBody": {"required": true, "content": {"application/json": content}},
            "responses": {
                "2XX": {"description": "The event is accepted."},
                "410": {"description": "The endpoint is gone. It gets no more events."},
                "default": {"description": "The event is sent again later."},
            },
        },
    })
}

/// The examples of all versions as bodies of requests, by name.
fn examples(event: &EventType) -> Map<String, Value> {
    let mut examples = Map::new();
    for version in &event.versions {
        for (number, example) in (1..).zip(&version.examples) {
            let body = json!({"type": event.kind, "timestamp": TIMESTAMP, "data": example});
            let name = format!("v{}-{number}", version.number);
            examples.insert(name, json!({ "value": body }));
        }
    }
    examples
}

fn parameters() -> Value {
    let header = |name: &str, description: &str| {
        json!({
            "name": name,
            "in": "header",
            "required": true,
            "description": description,
            "schema": {"type": "string"},
        })
    };
    json!({
        "webhook-id": header("webhook-id", "The id of the event, the same at every attempt."),
        "webhook-timestamp": header(
            "webhook-timestamp",
            "The time of the attempt, in seconds since 1970.",
        ),
        "webhook-signature": header(
            "webhook-signature",
            "One or more signatures of Standard Webhooks, separated by spaces.",
        ),
    })
}
