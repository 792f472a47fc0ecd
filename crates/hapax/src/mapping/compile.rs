//! Compilation of a mapping: its JSON becomes a template, or an error that names a place.

use std::{collections::BTreeSet, mem};

use super::{
    MappingError,
    template::{Path, Source, Template},
};
use crate::{
    filter::{
        FilterError,
        document::{Kind, Value},
        literal::{below, members, read_text},
        paths::Paths,
        subject::steps,
    },
    limits::{MAPPING_PATHS_MAX, MAPPING_VALUES_MAX},
    nearest,
};

const OPERATORS: [&str; 4] = ["$path", "$each", "$concat", "$literal"];
/// The first words of the paths into an event.
const FIELDS: [&str; 5] = ["id", "type", "timestamp", "tenant", "data"];

/// Compiles a mapping, and counts its values and paths.
#[derive(Debug, Default)]
pub(super) struct Compiler {
    values: usize,
    paths: usize,
    data: Paths,
    /// The paths into the items of the lists around the current place, the innermost list last.
    items: Vec<Paths>,
    names: BTreeSet<String>,
}

/// An object of the mapping with an operator.
struct Call<'c, 'd> {
    name: &'c str,
    members: &'c [(String, Value<'d>)],
    place: &'c str,
    /// Whether it is inside the `as` of a list.
    in_list: bool,
}

impl Compiler {
    /// Compiles the whole mapping.
    pub(super) fn root(&mut self, value: Value<'_>) -> Result<Template, MappingError> {
        self.template(value, "", false)
    }

    /// Takes the names in all paths.
    pub(super) fn take_names(&mut self) -> BTreeSet<String> {
        mem::take(&mut self.names)
    }

    /// The different paths into the payload.
    pub(super) fn into_data(self) -> Paths {
        self.data
    }

    fn template(
        &mut self,
        value: Value<'_>,
        place: &str,
        in_list: bool,
    ) -> Result<Template, MappingError> {
        self.values += 1;
        if self.values > MAPPING_VALUES_MAX {
            let problem = format!("is one value too many: {MAPPING_VALUES_MAX} are allowed");
            return Err(MappingError::new(place, problem));
        }
        match value.kind() {
            Kind::Null | Kind::False | Kind::True | Kind::Number => {
                Ok(Template::Literal(value.json().to_owned()))
            }
            Kind::Text => {
                let text = read_text(value, place).map_err(wrong)?;
                let path = self.path(&text, place, in_list)?;
                Ok(match path {
                    Some(path) => Template::Value {
                        path,
                        default: None,
                    },
                    None => Template::Literal(value.json().to_owned()),
                })
            }
            Kind::Array => {
                let items = value.items().enumerate();
                let items =
                    items.map(|(at, item)| self.template(item, &format!("{place}[{at}]"), in_list));
                Ok(Template::Array(items.collect::<Result<_, _>>()?))
            }
            Kind::Object => self.object(value, place, in_list),
        }
    }

    fn object(
        &mut self,
        value: Value<'_>,
        place: &str,
        in_list: bool,
    ) -> Result<Template, MappingError> {
        let members = members(value, place).map_err(wrong)?;
        if let Some((name, _)) = members.iter().find(|(name, _)| name.starts_with('$')) {
            return self.operator(&Call {
                name,
                members: &members,
                place,
                in_list,
            });
        }
        let member = |(name, value): (String, Value<'_>)| {
            let template = self.template(value, &below(place, &name), in_list)?;
            let name = serde_json::Value::from(name);
            Ok((format!("{name}:"), template))
        };
        let members = members.into_iter().map(member);
        Ok(Template::Object(
            members.collect::<Result<_, MappingError>>()?,
        ))
    }

    fn operator(&mut self, call: &Call<'_, '_>) -> Result<Template, MappingError> {
        let Call { place, in_list, .. } = *call;
        match call.name {
            "$path" => {
                call.check(Some("default"))?;
                let path = self.path_of(call)?;
                let default = match call.member("default") {
                    Some(value) => {
                        let default = self.template(value, &below(place, "default"), in_list)?;
                        Some(Box::new(default))
                    }
                    None => None,
                };
                Ok(Template::Value { path, default })
            }
            "$each" => {
                call.check(Some("as"))?;
                let path = self.path_of(call)?;
                // Otherwise the cost would be the product of two lists.
                if in_list && !matches!(path.source, Source::Item(_)) {
                    let problem = "must begin with @, because it is inside another $each";
                    return Err(MappingError::new(&below(place, "$each"), problem));
                }
                let each = call.member("as").ok_or_else(|| {
                    MappingError::new(place, "must have the member as, the value of each item")
                })?;
                self.items.push(Paths::default());
                let each = Box::new(self.template(each, &below(place, "as"), true)?);
                let items = self.items.pop().unwrap_or_default();
                Ok(Template::Each { path, each, items })
            }
            "$concat" => {
                call.check(None)?;
                self.concat(call.operand(), &below(place, "$concat"), in_list)
            }
            "$literal" => {
                call.check(None)?;
                Ok(Template::Literal(call.operand().json().to_owned()))
            }
            unknown => {
                let problem = unknown_word("operator", unknown, &OPERATORS);
                Err(MappingError::new(&below(place, unknown), problem))
            }
        }
    }

    fn concat(
        &mut self,
        parts: Value<'_>,
        place: &str,
        in_list: bool,
    ) -> Result<Template, MappingError> {
        let part = |(at, part): (usize, Value<'_>)| {
            let place = format!("{place}[{at}]");
            let template = self.template(part, &place, in_list)?;
            if template.is_part() {
                return Ok(template);
            }
            let problem = "must be a path, a string, a number or a boolean";
            Err(MappingError::new(&place, problem))
        };
        let items = parts.items().enumerate().map(part);
        let items: Vec<_> = items.collect::<Result<_, _>>()?;
        if items.is_empty() {
            let problem = "must be a list of at least one part";
            return Err(MappingError::new(place, problem));
        }
        Ok(Template::Concat(items))
    }

    /// The path that is the operand of an operator.
    fn path_of(&mut self, call: &Call<'_, '_>) -> Result<Path, MappingError> {
        let place = below(call.place, call.name);
        let text = read_text(call.operand(), &place).map_err(wrong)?;
        let path = self.path(&text, &place, call.in_list)?;
        path.ok_or_else(|| MappingError::new(&place, "must be a path such as $.data.amount"))
    }

    /// Parses a path; `None` for a string that is written as it is.
    fn path(
        &mut self,
        text: &str,
        place: &str,
        in_list: bool,
    ) -> Result<Option<Path>, MappingError> {
        let source = if let Some(rest) = text.strip_prefix('$') {
            self.event_source(rest)
        } else if let Some(rest) = text.strip_prefix('@') {
            let is_path = rest.starts_with(['.', '/']) || rest.is_empty() && in_list;
            match (is_path, in_list) {
                (false, _) => return Ok(None),
                (true, false) => {
                    Err("is a path into an item, and no $each is around it".to_owned())
                }
                (true, true) => names(rest).map(|steps| self.item_source(steps)),
            }
        } else {
            return Ok(None);
        };
        let source = source.map_err(|problem| MappingError::new(place, problem))?;
        self.paths += 1;
        if self.paths > MAPPING_PATHS_MAX {
            let problem = format!("is one path too many: {MAPPING_PATHS_MAX} are allowed");
            return Err(MappingError::new(place, problem));
        }
        // The path is valid, and its first character is `$` or `@`.
        self.names.extend(names(&text[1..]).unwrap_or_default());
        let text = text.to_owned();
        Ok(Some(Path { text, source }))
    }

    /// Parses a path of the event without its `$`. The error continues a sentence about the string.
    fn event_source(&mut self, path: &str) -> Result<Source, String> {
        if !path.starts_with(['.', '/']) {
            return Err(
                "begins with $ and is no path: write a path such as $.data.amount, or \
                        {\"$literal\": \"$...\"} for the text itself"
                    .to_owned(),
            );
        }
        let mut steps = names(path)?;
        let field = steps.remove(0);
        let source = match field.as_str() {
            "id" => Source::Id,
            "type" => Source::Type,
            "timestamp" => Source::Timestamp,
            "tenant" => Source::Tenant,
            "data" => return Ok(Source::Data(self.data.add(steps))),
            unknown => return Err(unknown_word("field of an event", unknown, &FIELDS)),
        };
        if steps.is_empty() {
            return Ok(source);
        }
        Err(format!("leads into {field}, which has no members"))
    }

    fn item_source(&mut self, steps: Vec<String>) -> Source {
        let innermost = self.items.last_mut();
        Source::Item(innermost.expect("there is a list around it").add(steps))
    }
}

impl<'d> Call<'_, 'd> {
    /// Refuses members beside the operator and `second`.
    fn check(&self, second: Option<&str>) -> Result<(), MappingError> {
        let is_other = |name: &str| name != self.name && Some(name) != second;
        let mut others = self.members.iter().filter(|(name, _)| is_other(name));
        others.next().map_or(Ok(()), |(name, _)| {
            let problem = format!("does not belong beside {}", self.name);
            Err(MappingError::new(&below(self.place, name), problem))
        })
    }

    fn member(&self, wanted: &str) -> Option<Value<'d>> {
        let mut members = self.members.iter();
        members
            .find(|(name, _)| name == wanted)
            .map(|(_, value)| *value)
    }

    /// The operand of the operator.
    fn operand(&self) -> Value<'d> {
        self.member(self.name)
            .expect("the operator is one of the members")
    }
}

/// The names of a path: behind dots, or as a JSON Pointer; none for the empty path. The error continues a
/// sentence about the path.
fn names(path: &str) -> Result<Vec<String>, String> {
    if let Some(pointer) = path.strip_prefix('/') {
        return steps(pointer);
    }
    let Some(dotted) = path.strip_prefix('.') else {
        return Ok(Vec::new());
    };
    let names: Vec<_> = dotted.split('.').map(str::to_owned).collect();
    if names.iter().any(String::is_empty) {
        return Err("has an empty name: write slashes if a name is empty or has a dot".to_owned());
    }
    Ok(names)
}

/// What the filter's reader of JSON refuses.
fn wrong(error: FilterError) -> MappingError {
    let FilterError { place, problem } = error;
    MappingError { place, problem }
}

fn unknown_word(what: &str, word: &str, known: &[&str]) -> String {
    let all = known.join(", ");
    match nearest(word, known.iter().copied()) {
        Some(meant) => format!("names an unknown {what}: did you mean {meant}?"),
        None => format!("names an unknown {what}: it must be one of {all}"),
    }
}
