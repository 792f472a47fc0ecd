//! The schemas of a catalogue, compiled.

use std::{collections::HashMap, error::Error};

use boon::{CompileError, Compiler, Draft, SchemaIndex, Schemas, UrlLoader};
use serde_json::{Value, json};

use super::{
    CatalogueError,
    document::{Document, EventType, Version},
    schema::{DEFINITIONS, definition, walk},
    work::{NodeIndex, Work},
};
use crate::limits::CATALOGUE_VALUE_STEPS_MAX;

/// The address of the catalogue. It is a name that leads nowhere: nothing is loaded.
const ROOT: &str = "https://catalogue.invalid";

/// All schemas.
pub(super) struct Compiled {
    pub(super) schemas: Schemas,
    pub(super) work: Work,
    indexes: HashMap<(String, u32), (SchemaIndex, NodeIndex)>,
}

/// Refuses to load documents.
struct Nothing;

impl UrlLoader for Nothing {
    fn load(&self, _: &str) -> Result<Value, Box<dyn Error>> {
        Err("nothing outside of the file is read".into())
    }
}

impl Compiled {
    /// Compiles the definitions and the schemas of a document that was checked.
    pub(super) fn of(document: &Document) -> Result<Self, CatalogueError> {
        let mut compiler = Compiler::new();
        compiler.set_default_draft(Draft::V2020_12);
        compiler.enable_format_assertions();
        compiler.use_loader(Box::new(Nothing));
        let mut schemas = Schemas::new();
        let mut compile = |schema: Value, address: &str, fragment: &str| {
            // A document that was added before is kept.
            compiler.add_resource(address, schema).map_err(Box::new)?;
            let location = format!("{address}{fragment}");
            compiler.compile(&location, &mut schemas).map_err(Box::new)
        };

        let shared = format!("{ROOT}/definitions");
        for name in document.definitions.keys() {
            let definitions = json!({ DEFINITIONS: document.definitions });
            let fragment = format!("#/{DEFINITIONS}/{name}");
            compile(definitions, &shared, &fragment).map_err(|error| {
                let invalid = invalid_definition(&error);
                wrong(&error, invalid.unwrap_or_else(|| fragment[1..].to_owned()))
            })?;
        }
        let mut work = Work::of(&document.definitions);
        let mut indexes = HashMap::new();
        for (at, event) in document.events.iter().enumerate() {
            for version in &event.versions {
                let address = format!("{ROOT}/events/{at}/{}", version.number);
                let place = format!("/events/{at} ({}, version {})", event.kind, version.number);
                let root = work.add(&version.schema);
                if work.exceeds(root, &Value::Null, CATALOGUE_VALUE_STEPS_MAX) {
                    let problem = format!(
                        "applies more than {CATALOGUE_VALUE_STEPS_MAX} schemas to one value: its \
                         references lead to the same schemas too often"
                    );
                    return Err(CatalogueError::new(place, problem));
                }
                let schema = resolved(&version.schema, document, &shared);
                let index = compile(schema, &address, "").map_err(|error| wrong(&error, place))?;
                indexes.insert((event.kind.clone(), version.number), (index, root));
            }
        }
        Ok(Self {
            schemas,
            work,
            indexes,
        })
    }

    /// The schema of a version: where it is compiled, and where its work is counted.
    pub(super) fn schema(&self, event: &EventType, version: &Version) -> (SchemaIndex, NodeIndex) {
        let key = (event.kind.clone(), version.number);
        let found = self.indexes.get(&key).copied();
        found.expect("every version is compiled")
    }
}

fn wrong(error: &CompileError, place: String) -> CatalogueError {
    let problem = format!("{error:#}").replace(ROOT, "").replace('\n', "; ");
    CatalogueError::new(place, format!("is not a valid schema: {problem}"))
}

/// The place of the definition that is not valid. All of them are checked together with the first one.
fn invalid_definition(error: &CompileError) -> Option<String> {
    let CompileError::ValidationError { src, .. } = error else {
        return None;
    };
    let mut innermost = src;
    while let Some(cause) = innermost.causes.first() {
        innermost = cause;
    }
    let location = innermost.instance_location.to_string();
    let path = location.strip_prefix("/$defs/")?;
    let name = path.split('/').next()?;
    Some(format!("/{DEFINITIONS}/{name}"))
}

/// A schema whose references to shared definitions lead to their document.
fn resolved(schema: &Value, document: &Document, shared: &str) -> Value {
    let mut schema = schema.clone();
    let Ok(()) = walk(&mut schema, "", &mut |members, _| {
        if let Some(Value::String(reference)) = members.get_mut("$ref")
            && definition(reference).is_some_and(|name| document.definitions.contains_key(name))
        {
            reference.insert_str(0, shared);
        }
        Ok::<(), std::convert::Infallible>(())
    });
    schema
}
