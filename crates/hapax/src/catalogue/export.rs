//! The components, which both descriptions of a catalogue contain.
//!
//! A description contains the schemas of the visible versions and the shared definitions to which
//! they refer, and nothing of other types. References are rewritten to these components.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
};

use serde_json::{Map, Value, json};

use super::{
    document::{Document, EventType, Version},
    schema::{DEFINITIONS, DIALECT, definition, walk},
};

/// The components of a description.
pub(super) struct Components {
    /// The names of types, by type. A name has only characters that are allowed in a component.
    types: BTreeMap<String, String>,
    /// The schemas, by the names of their components.
    pub(super) schemas: Map<String, Value>,
}

impl Components {
    /// The components of some types.
    pub(super) fn of(document: &Document, visible: &[&EventType]) -> Self {
        let mut components = Self {
            types: BTreeMap::new(),
            schemas: Map::new(),
        };
        let mut used = BTreeSet::new();
        for event in visible {
            let name = components.free_name(event, document);
            components.types.insert(event.kind.clone(), name);
            for version in &event.versions {
                let name = components.schema_name(event, version);
                let schema = rewritten(&version.schema, Some(&name), &mut used);
                components.schemas.insert(name, schema);
            }
        }
        while let Some(name) = used.pop_first() {
            if components.schemas.contains_key(&name) {
                continue;
            }
            if let Some(schema) = document.definitions.get(&name) {
                let schema = rewritten(schema, None, &mut used);
                components.schemas.insert(name, schema);
            }
        }
        components
    }

    /// A name for a type that no other type has, and none of whose versions is a definition.
    fn free_name(&self, event: &EventType, document: &Document) -> String {
        let base = event.kind.replace(['/', ':'], "-");
        let is_free = |name: &String| {
            let is_definition = |version: &Version| {
                let name = versioned(name, version);
                document.definitions.contains_key(&name)
            };
            !self.types.values().any(|taken| taken == name)
                && !event.versions.iter().any(is_definition)
        };
        let numbered = (2_u32..).map(|number| format!("{base}-{number}"));
        let mut names = std::iter::once(base.clone()).chain(numbered);
        let name = names.find(is_free);
        name.unwrap_or_else(|| event.kind.clone())
    }

    /// The name of a type as a component.
    pub(super) fn type_name<'a>(&'a self, event: &'a EventType) -> &'a str {
        self.types.get(&event.kind).unwrap_or(&event.kind)
    }

    /// The name of the component of a version.
    pub(super) fn schema_name(&self, event: &EventType, version: &Version) -> String {
        versioned(self.type_name(event), version)
    }
}

fn versioned(name: &str, version: &Version) -> String {
    format!("{name}.v{}", version.number)
}

/// The object `info` of a description.
pub(super) fn info(document: &Document) -> Value {
    let mut info = json!({"title": document.title, "version": document.version});
    if let Some(description) = &document.description {
        info["description"] = json!(description);
    }
    info
}

/// The schema of a version with the shared definitions that it uses.
pub(super) fn self_contained(document: &Document, version: &Version) -> Value {
    let mut schema = version.schema.clone();
    let mut open = BTreeSet::new();
    add_references(&schema, &mut open);
    if !schema.is_object() {
        return schema;
    }
    while let Some(name) = open.pop_first() {
        let is_known = schema[DEFINITIONS].get(&name).is_some();
        if let Some(shared) = document.definitions.get(&name)
            && !is_known
        {
            add_references(shared, &mut open);
            schema[DEFINITIONS][&name] = shared.clone();
        }
    }
    schema["$schema"] = json!(DIALECT);
    schema
}

/// Adds the names of the definitions to which a schema refers.
fn add_references(schema: &Value, into: &mut BTreeSet<String>) {
    let Ok(()) = walk(&mut schema.clone(), "", &mut |members, _| {
        let reference = members.get("$ref").and_then(Value::as_str);
        into.extend(reference.and_then(definition).map(str::to_owned));
        Ok::<(), Infallible>(())
    });
}

/// The reference of a component with a schema.
pub(super) fn schema_reference(name: &str) -> String {
    format!("#/components/schemas/{name}")
}

/// A component is an object, also if its schema is a boolean.
fn object(schema: Value) -> Value {
    match schema {
        Value::Bool(true) => json!({}),
        Value::Bool(false) => json!({"not": {}}),
        schema => schema,
    }
}

/// A schema whose references lead to components. `own` is the component of the schema itself, if it
/// is not a shared definition. The names of shared definitions are added to `used`.
fn rewritten(schema: &Value, own: Option<&str>, used: &mut BTreeSet<String>) -> Value {
    let mut rewritten = schema.clone();
    let is_own = |name: &str| own.is_some() && schema[DEFINITIONS].get(name).is_some();
    let own = own.map(schema_reference).unwrap_or_default();
    let Ok(()) = walk(&mut rewritten, "", &mut |members, _| {
        if let Some(Value::String(reference)) = members.get_mut("$ref") {
            let target = match definition(reference) {
                Some(name) if is_own(name) => format!("{own}/{DEFINITIONS}/{name}"),
                Some(name) => {
                    used.insert(name.to_owned());
                    schema_reference(name)
                }
                None => own.clone(),
            };
            *reference = target;
        }
        Ok::<(), Infallible>(())
    });
    object(rewritten)
}
