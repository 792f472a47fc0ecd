//! The work of a check: how many schemas are applied to how many values.
//!
//! A few references can apply a schema to one value very often: a chain of definitions, each with two
//! references to the next one, doubles the work with each definition, and a schema that refers to
//! itself twice doubles it with each level of the payload. So the work is counted before a payload is
//! checked. The count is never too low. It may be too high, because patterns of names are not compared
//! and each alternative counts.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::schema::{DEFINITIONS, definition};

/// The schemas of a catalogue, as far as they contain and name others.
#[derive(Debug, Default)]
pub(super) struct Work {
    nodes: Vec<Node>,
    /// The definitions that all schemas share.
    shared: HashMap<String, NodeIndex>,
}

/// The position of a schema.
pub(super) type NodeIndex = usize;

/// The schemas that a schema applies.
#[derive(Debug, Default)]
struct Node {
    /// Schemas that apply to the same value.
    same: Vec<NodeIndex>,
    /// Schemas of members, by name.
    properties: HashMap<String, NodeIndex>,
    /// Schemas of members with other names.
    other_members: Vec<NodeIndex>,
    /// Schemas that may apply to any member, according to its name.
    patterns: Vec<NodeIndex>,
    /// Schemas of the names of members.
    names: Vec<NodeIndex>,
    /// Schemas of the first items, by position.
    first_items: Vec<NodeIndex>,
    /// Schemas of any item.
    items: Vec<NodeIndex>,
}

/// The definitions that a schema can name, and the schema itself.
#[derive(Default)]
struct Names {
    root: Option<NodeIndex>,
    own: HashMap<String, NodeIndex>,
}

impl Work {
    /// Reads the definitions that all schemas share.
    pub(super) fn of(definitions: &Map<String, Value>) -> Self {
        let mut work = Self::default();
        work.shared = work.reserve_all(definitions);
        for (name, schema) in definitions {
            work.fill(work.shared[name], schema, &Names::default());
        }
        work
    }

    /// Adds a schema that was checked.
    pub(super) fn add(&mut self, schema: &Value) -> NodeIndex {
        let root = self.reserve();
        let definitions = schema.get(DEFINITIONS).and_then(Value::as_object);
        let own = definitions.map(|it| self.reserve_all(it));
        let names = Names {
            root: Some(root),
            own: own.unwrap_or_default(),
        };
        for (name, schema) in definitions.into_iter().flatten() {
            self.fill(names.own[name], schema, &names);
        }
        self.fill(root, schema, &names);
        root
    }

    /// Whether the check of a value takes more than `most` steps. It is counted up to there.
    pub(super) fn exceeds(&self, root: NodeIndex, value: &Value, most: usize) -> bool {
        let mut left = most;
        // In place of the name of a member: a schema applies nothing inside of it.
        let name = Value::Null;
        let mut open = vec![(root, value)];
        while let Some((index, value)) = open.pop() {
            let node = &self.nodes[index];
            // It is compared before the next ones are added, so `open` is bounded too.
            let Some(rest) = left.checked_sub(node.steps(value)) else {
                return true;
            };
            left = rest;
            node.extend(value, &name, &mut open);
        }
        false
    }

    fn reserve(&mut self) -> NodeIndex {
        self.nodes.push(Node::default());
        self.nodes.len() - 1
    }

    fn reserve_all(&mut self, definitions: &Map<String, Value>) -> HashMap<String, NodeIndex> {
        let names = definitions.keys();
        names.map(|it| (it.clone(), self.reserve())).collect()
    }

    /// The depth of schemas is bounded.
    fn fill(&mut self, index: NodeIndex, schema: &Value, names: &Names) {
        let mut node = Node::default();
        // A schema that is a boolean applies no others.
        for (keyword, inside) in schema.as_object().into_iter().flatten() {
            match (keyword.as_str(), inside) {
                ("$ref", Value::String(reference)) => {
                    node.same.extend(self.find(reference, names));
                }
                ("allOf" | "anyOf" | "oneOf", Value::Array(all)) => {
                    node.same.extend(self.fill_all(all, names));
                }
                ("if" | "then" | "else" | "not", inside) => {
                    node.same.extend(self.fill_all([inside], names));
                }
                ("dependentSchemas", Value::Object(all)) => {
                    node.same.extend(self.fill_all(all.values(), names));
                }
                ("properties", Value::Object(all)) => {
                    let inside = self.fill_all(all.values(), names);
                    node.properties = all.keys().cloned().zip(inside).collect();
                }
                ("patternProperties", Value::Object(all)) => {
                    node.patterns = self.fill_all(all.values(), names);
                }
                ("additionalProperties" | "unevaluatedProperties", inside) => {
                    node.other_members.extend(self.fill_all([inside], names));
                }
                ("propertyNames", inside) => node.names = self.fill_all([inside], names),
                ("prefixItems", Value::Array(all)) => node.first_items = self.fill_all(all, names),
                ("items" | "contains" | "unevaluatedItems", inside) => {
                    node.items.extend(self.fill_all([inside], names));
                }
                _ => {}
            }
        }
        self.nodes[index] = node;
    }

    fn fill_all<'a>(
        &mut self,
        schemas: impl IntoIterator<Item = &'a Value>,
        names: &Names,
    ) -> Vec<NodeIndex> {
        let fill = |schema: &'a Value| {
            let index = self.reserve();
            self.fill(index, schema, names);
            index
        };
        schemas.into_iter().map(fill).collect()
    }

    fn find(&self, reference: &str, names: &Names) -> Option<NodeIndex> {
        let Some(name) = definition(reference) else {
            return names.root;
        };
        let found = names.own.get(name).or_else(|| self.shared.get(name));
        found.copied()
    }
}

impl Node {
    /// The steps at a value: one for each schema that is applied next, and those of looking at what is inside
    /// of the value.
    fn steps(&self, value: &Value) -> usize {
        let inside = match value {
            Value::Object(members) => {
                let each = self.other_members.len() + self.patterns.len() + self.names.len();
                members.len().saturating_mul(2 + each)
            }
            Value::Array(items) => items.len().saturating_mul(2 + self.items.len()),
            _ => 0,
        };
        inside.saturating_add(self.same.len())
    }

    /// Adds the schemas that are applied next, each with its value, or with `name` in place of the name of a
    /// member. There are at most as many as steps.
    fn extend<'v>(
        &self,
        value: &'v Value,
        name: &'v Value,
        open: &mut Vec<(NodeIndex, &'v Value)>,
    ) {
        let mut add = |indexes: &[NodeIndex], value: &'v Value| {
            open.extend(indexes.iter().map(|index| (*index, value)));
        };
        add(&self.same, value);
        match value {
            Value::Object(members) => {
                for (member, inside) in members {
                    match self.properties.get(member) {
                        Some(index) => add(&[*index], inside),
                        None => add(&self.other_members, inside),
                    }
                    add(&self.patterns, inside);
                    add(&self.names, name);
                }
            }
            Value::Array(items) => {
                for (at, inside) in items.iter().enumerate() {
                    if let Some(index) = self.first_items.get(at) {
                        add(&[*index], inside);
                    }
                    add(&self.items, inside);
                }
            }
            _ => {}
        }
    }
}
