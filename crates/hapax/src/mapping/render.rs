//! Application of a mapping to an event.
//!
//! Nothing is written before it is known to have a value, and nothing beyond the maximum size.

use std::borrow::Cow;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::Value as Json;

use super::{
    Compiled, MappingFailure,
    template::{Path, Source, Template},
};
use crate::{
    event::{Event, Payload},
    filter::{
        document::{Document, Kind, Value},
        paths::Paths,
    },
    keyring::ENCRYPTED_UNDER,
    limits::{MAPPED_BYTES_MAX, MAPPING_ITEMS_MAX, PAYLOAD_BYTES_MAX},
};

/// Makes the result of an event.
pub(super) fn render(compiled: &Compiled, event: &Event) -> Result<String, MappingFailure> {
    let payload = if compiled.data.is_empty() {
        None
    } else {
        Some(payload(event)?)
    };
    let document = match &payload {
        None => None,
        Some(text) => {
            let read = Document::parse(text);
            Some(read.ok_or_else(|| MappingFailure::new("the payload is not valid JSON"))?)
        }
    };
    let root = document.as_ref().map(Document::root);
    let data = root.map(|root| compiled.data.find(root));
    let fields = Fields::of(event);
    let mut renderer = Renderer {
        fields: &fields,
        data: data.unwrap_or_default(),
        items: 0,
        out: String::new(),
    };
    if !renderer.write(["", ""], &compiled.root, &[])? {
        return Err(MappingFailure::new("the event has no value for it"));
    }
    Ok(renderer.out)
}

/// The payload as JSON. Bytes are a string with their base64, as in the usual body of a webhook.
fn payload(event: &Event) -> Result<Cow<'_, str>, MappingFailure> {
    if event.headers.contains_key(ENCRYPTED_UNDER) {
        return Err(MappingFailure::new("the payload could not be decrypted"));
    }
    if event.payload.bytes().len() > PAYLOAD_BYTES_MAX {
        let problem = format!("the payload has more than {PAYLOAD_BYTES_MAX} bytes");
        return Err(MappingFailure::new(problem));
    }
    Ok(match &event.payload {
        Payload::Json(text) => Cow::Borrowed(text),
        Payload::Binary { bytes, .. } => Cow::Owned(format!("\"{}\"", STANDARD.encode(bytes))),
    })
}

/// The fields of an event, as JSON.
struct Fields {
    id: String,
    kind: String,
    timestamp: String,
    tenant: Option<String>,
}

impl Fields {
    fn of(event: &Event) -> Self {
        let json = |text: &str| Json::from(text).to_string();
        Self {
            id: json(&event.id.to_string()),
            kind: json(&event.kind),
            timestamp: json(&event.created_at.to_string()),
            tenant: event.tenant.as_ref().map(|it| json(it.as_str())),
        }
    }
}

/// A value that was found in an event.
#[derive(Clone, Copy)]
enum EventValue<'d> {
    /// A field of the event, which is a string.
    Field(&'d str),
    /// A value in the payload.
    Data(Value<'d>),
}

impl<'d> EventValue<'d> {
    fn json(self) -> &'d str {
        match self {
            Self::Field(json) => json,
            Self::Data(value) => value.json(),
        }
    }

    fn is_null(self) -> bool {
        self.kind() == Kind::Null
    }

    fn kind(self) -> Kind {
        match self {
            Self::Field(_) => Kind::Text,
            Self::Data(value) => value.kind(),
        }
    }
}

/// The values of the paths into an item of the innermost list, by their numbers.
type Item<'i, 'd> = &'i [Option<Value<'d>>];

struct Renderer<'d> {
    fields: &'d Fields,
    /// The values of the paths into the payload, by their numbers.
    data: Vec<Option<Value<'d>>>,
    /// The number of items of lists so far.
    items: usize,
    out: String,
}

impl<'d> Renderer<'d> {
    /// Writes a value after `before`. Returns whether there is one; otherwise nothing was written. The
    /// depth of a mapping is bounded.
    fn write(
        &mut self,
        before: [&str; 2],
        template: &Template,
        item: Item<'_, 'd>,
    ) -> Result<bool, MappingFailure> {
        match template {
            Template::Literal(json) => self.push(before, json)?,
            Template::Value { path, default } => {
                let found = self.find(path, item);
                match (found, default) {
                    (Some(found), None) => self.push(before, found.json())?,
                    (Some(found), Some(_)) if !found.is_null() => {
                        self.push(before, found.json())?;
                    }
                    (_, Some(default)) => return self.write(before, default, item),
                    (None, None) => return Ok(false),
                }
            }
            Template::Object(members) => {
                self.push(before, "{")?;
                let mut comma = "";
                for (name, template) in members {
                    if self.write([comma, name], template, item)? {
                        comma = ",";
                    }
                }
                self.push(["", ""], "}")?;
            }
            Template::Array(templates) => {
                self.push(before, "[")?;
                let mut comma = "";
                for template in templates {
                    if self.write([comma, ""], template, item)? {
                        comma = ",";
                    }
                }
                self.push(["", ""], "]")?;
            }
            Template::Each { path, each, items } => {
                return self.each(before, path, (each, items), item);
            }
            Template::Concat(parts) => return self.concat(before, parts, item),
        }
        Ok(true)
    }

    fn each(
        &mut self,
        before: [&str; 2],
        path: &Path,
        (each, items): (&Template, &Paths),
        item: Item<'_, 'd>,
    ) -> Result<bool, MappingFailure> {
        let list = match self.find(path, item).filter(|it| !it.is_null()) {
            None => return Ok(false),
            Some(EventValue::Data(list)) if list.kind() == Kind::Array => list,
            Some(_) => {
                let problem = format!("{} is not a list, as $each needs it", path.text);
                return Err(MappingFailure::new(problem));
            }
        };
        self.push(before, "[")?;
        let mut comma = "";
        for item in list.items() {
            self.items += 1;
            if self.items > MAPPING_ITEMS_MAX {
                let problem = format!("its lists have more than {MAPPING_ITEMS_MAX} items");
                return Err(MappingFailure::new(problem));
            }
            if self.write([comma, ""], each, &items.find(item))? {
                comma = ",";
            }
        }
        self.push(["", ""], "]")?;
        Ok(true)
    }

    fn concat(
        &mut self,
        before: [&str; 2],
        parts: &[Template],
        item: Item<'_, 'd>,
    ) -> Result<bool, MappingFailure> {
        let parts = parts.iter().map(|it| self.part(it, item));
        let parts: Result<Option<Vec<_>>, MappingFailure> = parts.collect();
        let Some(parts) = parts? else {
            return Ok(false);
        };
        self.push(before, "\"")?;
        for part in parts {
            self.push(["", ""], part)?;
        }
        self.push(["", ""], "\"")?;
        Ok(true)
    }

    /// A part of a string, with escapes; `None` if there is none.
    fn part<'t>(
        &self,
        template: &'t Template,
        item: Item<'_, 'd>,
    ) -> Result<Option<&'t str>, MappingFailure>
    where
        'd: 't,
    {
        match template {
            Template::Literal(json) => Ok(Some(unquoted(json))),
            Template::Value { path, default } => {
                let found = self.find(path, item).filter(|it| !it.is_null());
                match (found, default) {
                    (Some(found), _) if matches!(found.kind(), Kind::Array | Kind::Object) => {
                        let problem = format!(
                            "{} is not a text or a number, as $concat needs it",
                            path.text
                        );
                        Err(MappingFailure::new(problem))
                    }
                    (Some(found), _) => Ok(Some(unquoted(found.json()))),
                    (None, Some(default)) => self.part(default, item),
                    (None, None) => Ok(None),
                }
            }
            // None of these is a part.
            Template::Object(_)
            | Template::Array(_)
            | Template::Each { .. }
            | Template::Concat(_) => Ok(None),
        }
    }

    fn find(&self, path: &Path, item: Item<'_, 'd>) -> Option<EventValue<'d>> {
        let fields = self.fields;
        let value = |values: &[Option<Value<'d>>], number: usize| *values.get(number)?;
        match &path.source {
            Source::Id => Some(EventValue::Field(&fields.id)),
            Source::Type => Some(EventValue::Field(&fields.kind)),
            Source::Timestamp => Some(EventValue::Field(&fields.timestamp)),
            Source::Tenant => fields.tenant.as_deref().map(EventValue::Field),
            Source::Data(number) => value(&self.data, *number).map(EventValue::Data),
            Source::Item(number) => value(item, *number).map(EventValue::Data),
        }
    }

    fn push(&mut self, before: [&str; 2], text: &str) -> Result<(), MappingFailure> {
        for text in [before[0], before[1], text] {
            if text.len() > MAPPED_BYTES_MAX - self.out.len() {
                let problem = format!("the result has more than {MAPPED_BYTES_MAX} bytes");
                return Err(MappingFailure::new(problem));
            }
            self.out.push_str(text);
        }
        Ok(())
    }
}

/// A scalar without the quotation marks of a string.
fn unquoted(json: &str) -> &str {
    let inner = json.strip_prefix('"').and_then(|it| it.strip_suffix('"'));
    inner.unwrap_or(json)
}
