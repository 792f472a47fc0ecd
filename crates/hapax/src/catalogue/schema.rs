//! Schemas as JSON: where a schema contains schemas, and to what it may refer.
//!
//! `$ref` names a definition of the file, `#/$defs/NAME`, or the schema itself, `#`. The keywords
//! with which a schema could become part of another document are refused. That makes the references
//! of a schema easy to find, and to rewrite in a description that contains it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::{
    CatalogueError,
    document::{at_most, check_name},
};
use crate::limits::{
    CATALOGUE_DEFINITIONS_MAX, CATALOGUE_SCHEMA_BYTES_MAX, CATALOGUE_SCHEMA_DEPTH_MAX,
};

/// The dialect of all schemas.
pub(super) const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";
/// The member with definitions.
pub(super) const DEFINITIONS: &str = "$defs";

/// Keywords whose value is a schema.
const ONE: [&str; 11] = [
    "additionalProperties",
    "contains",
    "contentSchema",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
];
/// Keywords whose value is a list of schemas.
const LISTS: [&str; 4] = ["allOf", "anyOf", "oneOf", "prefixItems"];
/// Keywords whose value is an object of schemas.
const OBJECTS: [&str; 4] = [
    DEFINITIONS,
    "dependentSchemas",
    "patternProperties",
    "properties",
];
/// Keywords whose schemas apply to the same value as the schema that contains them.
const SAME_VALUE_ONE: [&str; 4] = ["else", "if", "not", "then"];
/// The same, for lists of schemas.
const SAME_VALUE_LISTS: [&str; 3] = ["allOf", "anyOf", "oneOf"];
/// Keywords that are not allowed.
const REFUSED: [&str; 7] = [
    "$anchor",
    "$dynamicAnchor",
    "$dynamicRef",
    "$id",
    "$recursiveRef",
    "$schema",
    "$vocabulary",
];

/// Keywords of earlier dialects, with those that replace them. Some are applied by the library too, but
/// the schemas in them are not visited here.
const EARLIER: [(&str, &str); 4] = [
    ("additionalItems", "items"),
    ("definitions", DEFINITIONS),
    ("dependencies", "dependentRequired or dependentSchemas"),
    ("$recursiveAnchor", "$ref"),
];

/// Visits a schema and the schemas in it, each with its place.
pub(super) fn walk<E, F>(schema: &mut Value, place: &str, visit: &mut F) -> Result<(), E>
where
    F: FnMut(&mut Map<String, Value>, &str) -> Result<(), E>,
{
    // The meta-schema refuses anything but an object or a boolean.
    let Value::Object(members) = schema else {
        return Ok(());
    };
    visit(members, place)?;
    for keyword in ONE {
        if let Some(inside) = members.get_mut(keyword) {
            walk(inside, &format!("{place}/{keyword}"), visit)?;
        }
    }
    for keyword in LISTS {
        if let Some(Value::Array(items)) = members.get_mut(keyword) {
            for (at, inside) in items.iter_mut().enumerate() {
                walk(inside, &format!("{place}/{keyword}/{at}"), visit)?;
            }
        }
    }
    for keyword in OBJECTS {
        if let Some(Value::Object(items)) = members.get_mut(keyword) {
            for (name, inside) in items {
                let name = name.replace('~', "~0").replace('/', "~1");
                walk(inside, &format!("{place}/{keyword}/{name}"), visit)?;
            }
        }
    }
    Ok(())
}

/// The name of the definition that a reference names; `None` for `#`, the schema itself.
pub(super) fn definition(reference: &str) -> Option<&str> {
    reference.strip_prefix("#/$defs/")
}

/// Checks the definitions that all schemas share. They refer only to each other.
pub(super) fn check_definitions(shared: &mut Map<String, Value>) -> Result<(), CatalogueError> {
    let place = "/$defs";
    check_names(place, shared)?;
    let names: Vec<String> = shared.keys().cloned().collect();
    for (name, schema) in &mut *shared {
        let place = format!("{place}/{name}");
        check_size(&place, schema)?;
        walk(schema, &place, &mut |members, place| {
            check_keywords(members, place)?;
            check_reference(members, place, false, |name| {
                names.iter().any(|known| known == name)
            })
        })?;
    }
    check_recursion("", None, Some(shared))
}

/// Checks a schema, and removes the name of its dialect.
pub(super) fn check(
    schema: &mut Value,
    place: &str,
    shared: &Map<String, Value>,
) -> Result<(), CatalogueError> {
    check_size(place, schema)?;
    if let Value::Object(members) = schema
        && let Some(dialect) = members.remove("$schema")
        && dialect.as_str() != Some(DIALECT)
    {
        let problem = format!("must be {DIALECT:?}");
        return Err(CatalogueError::new(format!("{place}/$schema"), problem));
    }
    let own: Vec<String> = match schema.get(DEFINITIONS) {
        Some(Value::Object(own)) => {
            let place = format!("{place}/{DEFINITIONS}");
            check_names(&place, own)?;
            if let Some(name) = own.keys().find(|name| shared.contains_key(*name)) {
                let problem = "has the name of a definition that all schemas share";
                return Err(CatalogueError::new(format!("{place}/{name}"), problem));
            }
            own.keys().cloned().collect()
        }
        _ => Vec::new(),
    };
    walk(schema, place, &mut |members, place| {
        check_keywords(members, place)?;
        check_reference(members, place, true, |name| {
            shared.contains_key(name) || own.iter().any(|known| known == name)
        })
    })?;
    let own = schema.get(DEFINITIONS).and_then(Value::as_object);
    check_recursion(place, Some(schema), own)
}

/// Refuses a schema that applies itself to the same value, over any number of references. A check would
/// not end, so the library ends it with a result that depends on the keywords between.
fn check_recursion(
    place: &str,
    root: Option<&Value>,
    definitions: Option<&Map<String, Value>>,
) -> Result<(), CatalogueError> {
    let mut schemas: BTreeMap<String, &Value> = BTreeMap::new();
    schemas.extend(root.map(|root| ("#".to_owned(), root)));
    for (name, schema) in definitions.into_iter().flatten() {
        schemas.insert(format!("#/{DEFINITIONS}/{name}"), schema);
    }
    for (start, schema) in &schemas {
        let (mut open, mut seen) = (Vec::new(), BTreeSet::new());
        references_at_same_value(schema, &mut open);
        while let Some(reference) = open.pop() {
            if reference == start.as_str() {
                let problem = "applies itself to the same value, so a check would not end";
                let place = format!("{place}{}", &start[1..]);
                return Err(CatalogueError::new(place, problem));
            }
            if seen.insert(reference)
                && let Some(schema) = schemas.get(reference)
            {
                references_at_same_value(schema, &mut open);
            }
        }
    }
    Ok(())
}

/// Adds the references of a schema that apply to the same value as the schema. Its depth is bounded.
fn references_at_same_value<'a>(schema: &'a Value, found: &mut Vec<&'a str>) {
    let Value::Object(members) = schema else {
        return;
    };
    found.extend(members.get("$ref").and_then(Value::as_str));
    let one = SAME_VALUE_ONE.iter().filter_map(|it| members.get(*it));
    let lists = SAME_VALUE_LISTS.iter().filter_map(|it| members.get(*it));
    let lists = lists.filter_map(Value::as_array).flatten();
    let dependent = members.get("dependentSchemas").and_then(Value::as_object);
    let dependent = dependent.into_iter().flat_map(Map::values);
    for inside in one.chain(lists).chain(dependent) {
        references_at_same_value(inside, found);
    }
}

fn check_names(place: &str, definitions: &Map<String, Value>) -> Result<(), CatalogueError> {
    let (count, most) = (definitions.len(), CATALOGUE_DEFINITIONS_MAX);
    at_most(place, "number of definitions", count, most)?;
    let mut names = definitions.keys();
    names.try_for_each(|name| check_name(place, name))
}

fn check_size(place: &str, schema: &Value) -> Result<(), CatalogueError> {
    let bytes = schema.to_string().len();
    at_most(place, "size in bytes", bytes, CATALOGUE_SCHEMA_BYTES_MAX)?;
    let depth = depth(schema);
    at_most(place, "nesting depth", depth, CATALOGUE_SCHEMA_DEPTH_MAX)
}

/// How deep a value is nested. The parser has bounded it.
pub(super) fn depth(value: &Value) -> usize {
    let inside = match value {
        Value::Array(items) => items.iter().map(depth).max(),
        Value::Object(members) => members.values().map(depth).max(),
        _ => return 0,
    };
    1 + inside.unwrap_or_default()
}

fn check_keywords(members: &Map<String, Value>, place: &str) -> Result<(), CatalogueError> {
    let mut earlier = EARLIER.iter();
    if let Some((keyword, instead)) = earlier.find(|(keyword, _)| members.contains_key(*keyword)) {
        let problem = format!("belongs to an earlier JSON Schema: use {instead}");
        return Err(CatalogueError::new(format!("{place}/{keyword}"), problem));
    }
    let Some(keyword) = REFUSED
        .iter()
        .find(|keyword| members.contains_key(**keyword))
    else {
        return Ok(());
    };
    let problem = "is not supported here: refer to definitions of the file with $ref";
    Err(CatalogueError::new(format!("{place}/{keyword}"), problem))
}

fn check_reference(
    members: &Map<String, Value>,
    place: &str,
    may_be_itself: bool,
    is_known: impl Fn(&str) -> bool,
) -> Result<(), CatalogueError> {
    let Some(reference) = members.get("$ref") else {
        return Ok(());
    };
    let problem = match reference.as_str().map(|text| (text, definition(text))) {
        Some((_, Some(name))) if is_known(name) => return Ok(()),
        Some((_, Some(name))) => format!("there is no definition {name:?}"),
        Some(("#", None)) if may_be_itself => return Ok(()),
        _ => "must be \"#/$defs/NAME\", or \"#\" in the schema of an event: nothing outside of \
              the file is read"
            .to_owned(),
    };
    Err(CatalogueError::new(format!("{place}/$ref"), problem))
}
