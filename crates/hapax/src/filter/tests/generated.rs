//! Generated texts, payloads and filters: a comparison with an evaluator that does everything the
//! obvious way.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

proptest! {
    #[test]
    fn any_text_is_read_exactly_if_it_is_json(text in r#"[\[\]{}",:0-9eE.+\-a\\u ]{0,24}"#) {
        let is_json = serde_json::from_str::<&serde_json::value::RawValue>(&text).is_ok();
        prop_assert_eq!(Document::parse(&text).is_some(), is_json);
        let _ = Filter::parse(&text);
    }

    #[test]
    fn a_filter_says_what_an_obvious_evaluator_says(
        payload in value(3), filter in conditions(), tenant in any::<bool>(),
    ) {
        let event = event(&payload.to_string(), tenant);
        let compiled = Filter::parse(&filter.to_string()).unwrap();
        let expected = obvious::all(&filter, &event, &payload);
        prop_assert_eq!(compiled.matches(&event), expected, "{} {}", filter, payload);
    }
}

/// JSON with few names and values, so that conditions hold often.
fn value(depth: u32) -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-2..3_i64).prop_map(Value::from),
        "[ab]{0,2}".prop_map(Value::from),
    ];
    leaf.prop_recursive(depth, 16, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map("[ab]", inner, 0..3)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// A condition on one value, as a member of a filter.
fn member() -> impl Strategy<Value = (String, Value)> {
    let name = prop_oneof![
        "(/[ab01]){1,2}",
        Just("type".to_owned()),
        Just("tenant".to_owned())
    ];
    let bound = prop_oneof![
        (-2..3_i64).prop_map(Value::from),
        "[ab]{0,2}".prop_map(Value::from)
    ];
    let word = "[ab]{0,2}".prop_map(Value::from);
    let operand = prop_oneof![
        (
            prop::sample::select(vec!["$eq", "$ne", "$contains"]),
            value(2)
        ),
        (
            prop::sample::select(vec!["$in", "$nin"]),
            prop::collection::vec(value(2), 1..3).prop_map(Value::from)
        ),
        (
            prop::sample::select(vec!["$gt", "$gte", "$lt", "$lte"]),
            bound
        ),
        (prop::sample::select(vec!["$startsWith", "$endsWith"]), word),
        (Just("$exists"), any::<bool>().prop_map(Value::from)),
    ];
    (name, operand).prop_map(|(name, (operator, operand))| (name, json!({ operator: operand })))
}

fn conditions() -> impl Strategy<Value = Value> {
    let tests = prop::collection::btree_map("[ab]", member(), 1..3).prop_map(|tests| {
        let tests = tests.into_values();
        Value::Object(tests.collect())
    });
    tests.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 1..3).prop_map(|all| json!({ "$and": all })),
            prop::collection::vec(inner.clone(), 1..3).prop_map(|any| json!({ "$or": any })),
            inner.prop_map(|not| json!({ "$not": not })),
        ]
    })
}

/// The meaning of a filter, on trees and with recursion. Its numbers are small integers.
mod obvious {
    use super::*;

    pub(super) fn all(filter: &Value, event: &Event, payload: &Value) -> bool {
        let members = filter.as_object().unwrap();
        members.iter().all(|(name, value)| match name.as_str() {
            "$and" => list(value).iter().all(|it| all(it, event, payload)),
            "$or" => list(value).iter().any(|it| all(it, event, payload)),
            "$not" => !all(value, event, payload),
            name => {
                let found = match name {
                    "type" => Some(json!(event.kind)),
                    "tenant" => event.tenant.as_ref().map(|it| json!(it.as_str())),
                    pointer => payload.pointer(pointer).cloned(),
                };
                let tests = value.as_object().unwrap();
                tests
                    .iter()
                    .all(|(operator, operand)| one(operator, operand, found.as_ref()))
            }
        })
    }

    fn list(value: &Value) -> &[Value] {
        value.as_array().unwrap()
    }

    fn one(operator: &str, operand: &Value, found: Option<&Value>) -> bool {
        let order = || match (found?, operand) {
            (Value::Number(a), Value::Number(b)) => Some(a.as_i64()?.cmp(&b.as_i64()?)),
            (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
            _ => None,
        };
        let texts = || Some((found?.as_str()?, operand.as_str()?));
        match operator {
            "$eq" => found == Some(operand),
            "$ne" => found != Some(operand),
            "$in" => found.is_some_and(|it| list(operand).contains(it)),
            "$nin" => found.is_none_or(|it| !list(operand).contains(it)),
            "$gt" => order().is_some_and(std::cmp::Ordering::is_gt),
            "$gte" => order().is_some_and(std::cmp::Ordering::is_ge),
            "$lt" => order().is_some_and(std::cmp::Ordering::is_lt),
            "$lte" => order().is_some_and(std::cmp::Ordering::is_le),
            "$startsWith" => texts().is_some_and(|(text, start)| text.starts_with(start)),
            "$endsWith" => texts().is_some_and(|(text, end)| text.ends_with(end)),
            "$exists" => found.is_some() == operand.as_bool().unwrap(),
            "$contains" => match found {
                Some(Value::Array(items)) => items.contains(operand),
                _ => texts().is_some_and(|(text, part)| text.contains(part)),
            },
            other => panic!("{other}"),
        }
    }
}
