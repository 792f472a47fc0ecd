//! Generated texts, payloads and mappings: a comparison with an evaluator that does everything the
//! obvious way.

use proptest::prelude::*;
use serde_json::{Value, json, value::RawValue};

use super::*;

proptest! {
    #[test]
    fn any_text_is_refused_or_makes_json(
        text in r#"[\[\]{}",:0-9$@./a\\u ]{0,24}"#, payload in value(2),
    ) {
        if let Ok(mapping) = Mapping::parse(&text)
            && let Ok(result) = mapping.apply(&event(&payload.to_string()))
        {
            prop_assert!(serde_json::from_str::<&RawValue>(&result).is_ok(), "{text}: {result}");
        }
    }

    #[test]
    fn a_mapping_makes_what_an_obvious_evaluator_makes(
        payload in value(3), mapping in template(),
    ) {
        let event = event(&payload.to_string());
        let compiled = Mapping::parse(&mapping.to_string()).unwrap();
        let made = compiled.apply(&event).ok();
        let made = made.map(|it| serde_json::from_str::<Value>(&it).unwrap());
        let expected = obvious::value(&mapping, &payload, None).ok().flatten();
        prop_assert_eq!(made, expected, "{} {}", mapping, payload);
    }

    #[test]
    fn what_is_shown_has_the_shape_of_what_is_made(payload in value(3), mapping in template()) {
        let event = event(&payload.to_string());
        let mask = Mask::with(["a"]);
        let compiled = Mapping::parse(&mapping.to_string()).unwrap();
        // The names of the result mask as well.
        let made = compiled.apply(&event).ok().and_then(|it| mask.json(&it));
        let shown = compiled.apply_masked(&event, &mask);
        let (made, shown) = (made.as_deref().map(shape), shown.as_deref().map(shape));
        prop_assert_eq!(made, shown, "{} {}", mapping, payload);
    }
}

/// The brackets, commas and colons of JSON whose strings have none.
fn shape(json: &str) -> String {
    json.chars().filter(|it| "{}[],:".contains(*it)).collect()
}

/// JSON with few names and values, so that paths often lead to something.
fn value(depth: u32) -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-2..3_i64).prop_map(Value::from),
        "[ab]{0,2}".prop_map(Value::from),
    ];
    leaf.prop_recursive(depth, 24, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map("[ab]", inner, 0..3)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn path() -> impl Strategy<Value = String> + Clone {
    r"\$\.data(\.[ab01]){0,2}"
}

fn item_path() -> impl Strategy<Value = String> + Clone {
    r"@(\.[ab01]){0,2}"
}

/// A mapping. Inside a list, a part of the paths begins at the item.
fn template() -> impl Strategy<Value = Value> {
    let inside = values(prop_oneof![path(), item_path()]);
    let lists = (path(), inside).prop_map(|(path, each)| json!({"$each": path, "as": each}));
    prop_oneof![values(path()), lists]
}

fn values(path: impl Strategy<Value = String> + Clone + 'static) -> impl Strategy<Value = Value> {
    let part = prop_oneof![
        path.clone().prop_map(Value::from),
        "[ab]{0,2}".prop_map(Value::from),
        (-2..3_i64).prop_map(Value::from),
    ];
    let leaf = prop_oneof![
        path.clone().prop_map(Value::from),
        (path, value(1)).prop_map(|(path, default)| json!({"$path": path, "default": default})),
        prop::collection::vec(part, 1..3).prop_map(|parts| json!({ "$concat": parts })),
        value(1),
        value(2).prop_map(|value| json!({ "$literal": value })),
    ];
    leaf.prop_recursive(2, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map("[ab]", inner, 0..3)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// The meaning of a mapping, on trees and with recursion.
mod obvious {
    use super::*;

    /// The value; `None` if there is none, and an error if the mapping cannot be applied.
    pub(super) fn value(
        template: &Value,
        payload: &Value,
        item: Option<&Value>,
    ) -> Result<Option<Value>, ()> {
        let again = |template: &Value| value(template, payload, item);
        match template {
            Value::String(text) => Ok(text_value(text, payload, item)),
            Value::Array(items) => {
                let made: Result<Vec<_>, ()> = items.iter().map(again).collect();
                Ok(Some(made?.into_iter().flatten().collect()))
            }
            Value::Object(members) => match members.keys().find(|it| it.starts_with('$')) {
                None => {
                    let mut made = serde_json::Map::new();
                    for (name, template) in members {
                        if let Some(value) = again(template)? {
                            made.insert(name.clone(), value);
                        }
                    }
                    Ok(Some(Value::Object(made)))
                }
                Some(name) => operator(name, members, payload, item),
            },
            other => Ok(Some(other.clone())),
        }
    }

    fn operator(
        name: &str,
        members: &serde_json::Map<String, Value>,
        payload: &Value,
        item: Option<&Value>,
    ) -> Result<Option<Value>, ()> {
        let operand = &members[name];
        let found = || {
            let found = text_value(operand.as_str().unwrap(), payload, item);
            found.filter(|it| !it.is_null())
        };
        match name {
            "$literal" => Ok(Some(operand.clone())),
            "$path" => match found() {
                Some(found) => Ok(Some(found)),
                None => value(&members["default"], payload, item),
            },
            "$each" => match found() {
                None => Ok(None),
                Some(Value::Array(items)) => {
                    let each = |it: &Value| value(&members["as"], payload, Some(it));
                    let made: Result<Vec<_>, ()> = items.iter().map(each).collect();
                    Ok(Some(made?.into_iter().flatten().collect()))
                }
                Some(_) => Err(()),
            },
            "$concat" => {
                let mut text = String::new();
                for part in operand.as_array().unwrap() {
                    match value(part, payload, item)? {
                        None | Some(Value::Null) => return Ok(None),
                        Some(Value::String(part)) => text.push_str(&part),
                        Some(Value::Array(_) | Value::Object(_)) => return Err(()),
                        Some(scalar) => text.push_str(&scalar.to_string()),
                    }
                }
                Ok(Some(Value::from(text)))
            }
            other => panic!("{other}"),
        }
    }

    /// What a string stands for: the value at a path, or itself.
    fn text_value(text: &str, payload: &Value, item: Option<&Value>) -> Option<Value> {
        let (start, path) = match (text.strip_prefix("$.data"), text.strip_prefix('@'), item) {
            (Some(path), ..) => (payload, path),
            (None, Some(path), Some(item)) => (item, path),
            _ => return Some(Value::from(text)),
        };
        start.pointer(&path.replace('.', "/")).cloned()
    }
}
