//! Tests of mappings: what they make of an event, what is refused and where, hostile payloads, and a
//! comparison with an evaluator that does everything the obvious way.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use serde_json::{Value, json, value::RawValue};

use super::*;
use crate::{
    clock::{Random, Timestamp},
    event::{Headers, NewEvent},
    filter::document::VISITED,
    key::Tenant,
    keyring::ENCRYPTED_UNDER,
    limits::{
        MAPPED_BYTES_MAX, MAPPING_ITEMS_MAX, MAPPING_PATHS_MAX, MAPPING_VALUES_MAX,
        PAYLOAD_BYTES_MAX,
    },
    outbox::seal,
};

const ORDER: &str = r#"{
    "number": "A\u002d7", "amount": 100.10, "big": 9007199254740993, "paid": true, "note": null,
    "customer": {"name": "Zo\u00eb \"Z\"", "a.b": 1, "a/b": 2},
    "items": [{"sku": "A-1", "count": 2, "tags": ["x", "y"]}, {"sku": "B-7"}, 7],
    "none": []
}"#;

/// A payload with members that are masked.
const SECRETS: &str = r#"{
    "n": 7, "customer": {"email": "ann@example.com", "name": "Zo\u00eb"}, "cards": ["4111"],
    "raw": "{\"pin\": 12}", "token": {"id": "t1"}, "people": [{"phone": "555", "n": 1}, {"n": 2}]
}"#;

#[test]
fn a_value_of_the_event_is_copied_as_it_was_written() {
    check(r#""$.data.amount""#, "100.10");
    check(r#""$.data.big""#, "9007199254740993");
    check(r#""$.data.number""#, r#""A\u002d7""#);
    check(r#""$.data.customer.name""#, r#""Zo\u00eb \"Z\"""#);
    check(r#""$.data.items.1""#, r#"{"sku": "B-7"}"#);
    check(r#""$.data.items.0.tags""#, r#"["x", "y"]"#);
    check(r#""$.data.none""#, "[]");
    check(r#""$.data.note""#, "null");
    check(r#""$.data""#, ORDER);
}

#[test]
fn the_fields_of_the_event_are_strings() {
    check(
        r#"["$.type", "$.timestamp", "$.tenant"]"#,
        r#"["order.paid","1970-01-01T00:00:00.000Z","acme"]"#,
    );
    let id = Mapping::parse(r#"["$.id"]"#).unwrap();
    let event = order();
    assert_eq!(id.apply(&event).unwrap(), format!("[\"{}\"]", event.id));
    let mut plain = order();
    plain.tenant = None;
    let mapping = Mapping::parse(r#"{"t": "$.tenant", "u": "$/type"}"#).unwrap();
    assert_eq!(mapping.apply(&plain).unwrap(), r#"{"u":"order.paid"}"#);
}

#[test]
fn a_path_has_dots_or_is_a_json_pointer() {
    check(r#""$/data/customer/a.b""#, "1");
    check(r#""$/data/customer/a~1b""#, "2");
    check(r#""$.data.customer.a/b""#, "2");
    check(r#""$/data/items/1/sku""#, "\"B-7\"");
}

#[test]
fn what_is_no_path_is_written_as_it_is() {
    check(
        r#"{"a": 1.50, "b": [true, null, "@here", "a $.b"], "\u0063": {}}"#,
        r#"{"a":1.50,"b":[true,null,"@here","a $.b"],"c":{}}"#,
    );
    check(
        r#"{"$literal": {"$path": ["$.data", "$5"]}}"#,
        r#"{"$path": ["$.data", "$5"]}"#,
    );
    check(r#""@""#, r#""@""#);
}

#[test]
fn a_missing_value_is_left_out_or_has_a_default() {
    check(
        r#"{"a": "$.data.no", "b": "$.data.amount.no", "c": ["$.data.no", 1, "$.data.items.9"]}"#,
        r#"{"c":[1]}"#,
    );
    check(
        r#"[{"$path": "$.data.no", "default": {"x": "$.type"}},
            {"$path": "$.data.no", "default": {"$path": "$.data.none", "default": 1}},
            {"$path": "$.data.note", "default": 2}, {"$path": "$.data.note"},
            {"$path": "$.data.paid", "default": 3}, {"$path": "$.data.no", "default": "$.data.no"}]"#,
        r#"[{"x":"order.paid"},[],2,null,true]"#,
    );
    check_fails(r#""$.data.no""#, "the event has no value for it");
}

#[test]
fn a_list_has_a_value_for_each_item() {
    check(
        r#"{"lines": {"$each": "$.data.items", "as": {"s": "@.sku", "n": "@/count", "t": "$.tenant"}}}"#,
        r#"{"lines":[{"s":"A-1","n":2,"t":"acme"},{"s":"B-7","t":"acme"},{"t":"acme"}]}"#,
    );
    check(
        r#"{"$each": "$.data.items", "as": "@.sku"}"#,
        r#"["A-1","B-7"]"#,
    );
    check(
        r#"{"$each": "$.data.items", "as": {"$each": "@.tags", "as": ["@"]}}"#,
        r#"[[["x"],["y"]]]"#,
    );
    check(r#"[{"$each": "$.data.none", "as": 1}]"#, "[[]]");
    // Null is no list, and neither is nothing.
    check(
        r#"[{"$each": "$.data.note", "as": 1}, {"$each": "$.data.no", "as": 1}]"#,
        "[]",
    );
    check_fails(
        r#"{"$each": "$.data.customer", "as": 1}"#,
        "$.data.customer is not a list",
    );
    check_fails(r#"{"$each": "$.type", "as": 1}"#, "$.type is not a list");
}

#[test]
fn a_text_is_joined_of_parts() {
    check(
        r#"{"$concat": ["Order ", "$.data.number", ": ", "$.data.amount", " \"", "$.data.paid",
            1.0, "$.data.customer.name", "$.type"]}"#,
        r#""Order A\u002d7: 100.10 \"true1.0Zo\u00eb \"Z\"order.paid""#,
    );
    // A part without a value, and one that is null.
    check(
        r#"[{"$concat": ["a", "$.data.no"]}, {"$concat": ["a", "$.data.note"]},
            {"$concat": ["a", {"$path": "$.data.note", "default": "b"}]},
            {"$concat": [{"$literal": "$"}, "$.data.amount"]}]"#,
        r#"["ab","$100.10"]"#,
    );
    check(
        r#"{"$each": "$.data.items", "as": {"$concat": ["@.sku", "!"]}}"#,
        r#"["A-1!","B-7!"]"#,
    );
    check_fails(
        r#"{"$concat": ["a", "$.data.items"]}"#,
        "$.data.items is not a text or a number",
    );
}

/// Mappings that are refused, with the place and a part of the problem.
const REFUSED: &[(&str, &str, &str)] = &[
    ("", "", "is not valid JSON"),
    ("{", "", "is not valid JSON"),
    (r#""$""#, "", "begins with $ and is no path"),
    (r#"{"a": "$5"}"#, "a", "begins with $ and is no path"),
    (r#"{"a": ["$data.x"]}"#, "a[0]", "is no path"),
    (r#""$.""#, "", "has an empty name"),
    (r#""$.data..x""#, "", "has an empty name"),
    (r#""$.database.x""#, "", "did you mean data?"),
    (r#""$/""#, "", "unknown field of an event"),
    (r#""$/data/a~b""#, "", "is not a JSON Pointer"),
    (r#""$.type.x""#, "", "leads into type"),
    (r#"{"a": "@.x"}"#, "a", "no $each is around it"),
    (
        r#"{"a": {"$pathway": "$.data"}}"#,
        "a.$pathway",
        "did you mean $path?",
    ),
    (r#"{"a": {"$if": 1}}"#, "a.$if", "unknown operator"),
    (r#"{"$path": 1}"#, "$path", "must be a string"),
    (r#"{"$path": "x"}"#, "$path", "must be a path"),
    (
        r#"{"$path": "$.data", "else": 1}"#,
        "else",
        "does not belong beside $path",
    ),
    (r#"{"a": 1, "$path": "$.data"}"#, "a", "does not belong"),
    (
        r#"{"$path": "$.data", "$each": "$.data"}"#,
        "$each",
        "does not belong beside $path",
    ),
    (r#"{"$each": "$.data"}"#, "", "must have the member as"),
    (
        r#"{"$each": "$.data", "as": {"$each": "$.data", "as": 1}}"#,
        "as.$each",
        "must begin with @",
    ),
    (r#"{"$concat": []}"#, "$concat", "at least one part"),
    (r#"{"$concat": "a"}"#, "$concat", "at least one part"),
    (
        r#"{"$concat": ["a", null]}"#,
        "$concat[1]",
        "must be a path",
    ),
    (
        r#"{"$concat": [{"$path": "$.id", "default": []}]}"#,
        "$concat[0]",
        "must be a path",
    ),
    (
        r#"{"$concat": [{"$concat": ["a"]}]}"#,
        "$concat[0]",
        "must be a path",
    ),
    (r#"{"a": 1, "a": 2}"#, "a", "appears twice"),
    (r#"{"a": "\ud800"}"#, "a", "half of a surrogate pair"),
];

#[test]
fn what_is_not_a_mapping_is_refused_at_its_place() {
    for (mapping, place, problem) in REFUSED {
        check_refused(mapping, place, problem);
    }
}

#[test]
fn a_mapping_that_is_too_large_is_refused() {
    let long = format!("\"{}\"", "x".repeat(MAPPING_BYTES_MAX));
    check_refused(&long, "", "at most 16384 are allowed");
    let nested = |levels: usize| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
    Mapping::parse(&nested(MAPPING_DEPTH_MAX)).unwrap();
    check_refused(
        &nested(MAPPING_DEPTH_MAX + 1),
        "",
        "is nested deeper than 16 levels",
    );
    let list = |count: usize, item: &str| format!("[{}]", vec![item; count].join(","));
    Mapping::parse(&list(MAPPING_VALUES_MAX - 1, "1")).unwrap();
    let place = format!("[{}]", MAPPING_VALUES_MAX - 1);
    check_refused(
        &list(MAPPING_VALUES_MAX, "1"),
        &place,
        "is one value too many",
    );
    Mapping::parse(&list(MAPPING_PATHS_MAX, "\"$.data\"")).unwrap();
    let place = format!("[{MAPPING_PATHS_MAX}]");
    let paths = list(MAPPING_PATHS_MAX + 1, "\"$.data\"");
    check_refused(&paths, &place, "is one path too many");
}

#[test]
fn a_result_that_is_too_large_fails() {
    let payload = |bytes: usize| format!("\"{}\"", "x".repeat(bytes - 2));
    let mapping = Mapping::parse(r#"["$.data"]"#).unwrap();
    let largest = event(&payload(MAPPED_BYTES_MAX - 2));
    assert_eq!(mapping.apply(&largest).unwrap().len(), MAPPED_BYTES_MAX);
    let larger = event(&payload(MAPPED_BYTES_MAX - 1));
    let failure = mapping.apply(&larger).unwrap_err().to_string();
    assert!(
        failure.contains("the result has more than 262144 bytes"),
        "{failure}"
    );
    // What has no value does not count.
    let text = format!(
        r#"{{"{}": "$.data.x", "{}": {{"$concat": ["$.data", "$.tenant"]}}, "a": "$.data"}}"#,
        "n".repeat(1_000),
        "m".repeat(1_000)
    );
    let mut largest = event(&payload(MAPPED_BYTES_MAX - 6));
    largest.tenant = None;
    let result = Mapping::parse(&text).unwrap().apply(&largest).unwrap();
    assert_eq!(result.len(), MAPPED_BYTES_MAX);
}

#[test]
fn lists_that_are_too_long_fail() {
    let items = |count: usize| format!("[{}]", vec!["1"; count].join(","));
    let mapping = r#"[{"$each": "$.data", "as": "@.x"}, {"$each": "$.data", "as": "@"}]"#;
    let mapping = Mapping::parse(mapping).unwrap();
    mapping
        .apply(&event(&items(MAPPING_ITEMS_MAX / 2)))
        .unwrap();
    let failure = mapping.apply(&event(&items(MAPPING_ITEMS_MAX / 2 + 1)));
    let failure = failure.unwrap_err().to_string();
    assert!(failure.contains("more than 10000 items"), "{failure}");
}

#[test]
fn a_payload_that_cannot_be_read_fails_if_the_mapping_reads_it() {
    let mut broken = order();
    broken.payload = Payload::Json("{".to_owned());
    let mut spliced = order();
    spliced.payload = Payload::Json(r#"1, "type": "x""#.to_owned());
    let mut large = order();
    large.payload = Payload::Json(format!("[{}1]", " ".repeat(PAYLOAD_BYTES_MAX)));
    let mut encrypted = order();
    let header = (ENCRYPTED_UNDER.to_owned(), "k1".to_owned());
    encrypted.headers.extend([header]);
    let (reading, other) = (r#"["$.data.x", 1]"#, r#"["$.tenant"]"#);
    for event in [broken, spliced, large, encrypted] {
        assert!(Mapping::parse(reading).unwrap().apply(&event).is_err());
        let other = Mapping::parse(other).unwrap().apply(&event);
        assert_eq!(other.unwrap(), r#"["acme"]"#);
    }
    let mut binary = order();
    binary.payload = Payload::Binary {
        content_type: "image/x".to_owned(),
        bytes: vec![0, 255, 1].into(),
    };
    let mapping = Mapping::parse(r#"{"data": "$.data", "x": "$.data.x"}"#).unwrap();
    assert_eq!(mapping.apply(&binary).unwrap(), r#"{"data":"AP8B"}"#);
}

#[test]
fn a_hostile_payload_costs_no_more_than_its_bytes() {
    let start = Instant::now();
    let half = PAYLOAD_BYTES_MAX / 2;
    let deep = format!("{}{}", "[".repeat(half), "]".repeat(half));
    let wide = format!("[{}1]", "1,".repeat(half - 2));
    let members: Vec<_> = (0..60_000).map(|at| format!("\"a{at}\":1")).collect();
    let many = format!(
        "{{\"items\":[{}1],{}}}",
        "1,".repeat(9_000),
        members.join(",")
    );
    let paths: Vec<_> = (0..90).map(|at| format!("\"$.data.a{at}9.x\"")).collect();
    let mapping = format!(
        r#"[{{"$each": "$.data.items", "as": [{}]}}, {}]"#,
        paths.join(","),
        r#"{"$each": "$.data.0.0.0", "as": "@.0.0"}"#
    );
    let mapping = Mapping::parse(&mapping).unwrap();
    for payload in [deep, wide, many] {
        let _ = mapping.apply(&event(&payload));
    }
    let elapsed = start.elapsed();
    assert!(elapsed < Duration::from_secs(5), "{elapsed:?}");
}

#[test]
fn the_payload_is_visited_once_whatever_the_number_of_paths() {
    const MEMBERS: usize = 10_000;
    let list = |begin: &str, count: usize| {
        let paths: Vec<_> = (0..count).map(|at| format!("\"{begin}{at}\"")).collect();
        paths.join(",")
    };
    let members: Vec<_> = (0..MEMBERS).map(|at| format!("\"m{at}\":1")).collect();
    let object = format!("{{{}}}", members.join(","));
    let mapping = format!("[{}]", list("$.data.m", 98));
    check_visits(&mapping, &object, 2 * MEMBERS);
    // The same in an item of a list.
    let in_list = format!("{{\"items\":[{object}]}}");
    let mapping = format!(
        r#"{{"$each": "$.data.items", "as": [{}]}}"#,
        list("@.m", 98)
    );
    check_visits(&mapping, &in_list, 2 * MEMBERS + 3);
    // One item of many lists.
    let each = r#"{"$each": "$.data.items", "as": "@.m7"}"#;
    let mapping = format!("[{}]", vec![each; 50].join(","));
    check_visits(&mapping, &in_list, 20 * MEMBERS);
    // Many items in which paths have the same beginning.
    let deep = format!("{}1{}", "[".repeat(30), "]".repeat(30));
    let items = format!("[{}]", vec![deep; 500].join(","));
    let begin = format!("@{}.", ".0".repeat(29));
    let mapping = format!(r#"{{"$each": "$.data", "as": [{}]}}"#, list(&begin, 90));
    check_visits(&mapping, &items, 500 * 31);
}

#[test]
fn an_error_names_the_setting() {
    let setting = |text: &str| Mapping::parse(text).unwrap_err().setting();
    assert_eq!(setting("{"), "mapping");
    assert_eq!(setting(r#"["$x"]"#), "mapping[0]");
    assert_eq!(setting(r#"{"a": {"$x": 1}}"#), "mapping.a.$x");
}

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

#[test]
fn a_value_that_is_masked_stays_masked_under_another_name() {
    check_masked(r#"{"who": "$.data.customer.email"}"#, r#"{"who":"***"}"#);
    check_masked(
        r#"{"$concat": ["Mail to ", "$.data.customer.email"]}"#,
        r#""Mail to ***""#,
    );
    check_masked(
        r#""$.data.customer""#,
        r#"{"email": "***", "name": "Zo\u00eb"}"#,
    );
    check_masked(r#"["$.data.raw"]"#, r#"["{\"pin\": \"***\"}"]"#);
    check_masked(
        r#"{"$each": "$.data.people", "as": {"a": "@.phone", "b": "@.n"}}"#,
        r#"[{"a":"***","b":1},{"b":2}]"#,
    );
    // A new name masks too.
    check_masked(r#"{"api_key": "$.data.n"}"#, r#"{"api_key":"***"}"#);
}

#[test]
fn a_list_or_an_object_that_is_masked_keeps_its_shape() {
    check_masked(r#"{"$each": "$.data.cards", "as": "@"}"#, r#"["***"]"#);
    check_masked(
        r#"{"all": "$.data.cards", "first": "$.data.cards.0", "second": "$.data.cards.1"}"#,
        r#"{"all":["***"],"first":"***"}"#,
    );
    check_masked(r#"{"a": "$.data.token.id"}"#, r#"{"a":"***"}"#);
    check_masked(
        r#"[{"$path": "$.data.token.no", "default": "none"}]"#,
        r#"["none"]"#,
    );
    // A name in a masked object is shown only if the mapping names it.
    check_masked(r#"["$.data.token"]"#, r#"[{"***1": "***"}]"#);
    check_masked(
        r#"["$.data.token", {"$each": "$.data.people", "as": "@.id"}]"#,
        r#"[{"id": "***"},[]]"#,
    );
    // It cannot be applied, as when it is sent.
    let event = event(SECRETS);
    let token = Mapping::parse(r#"{"$concat": ["t=", "$.data.token"]}"#).unwrap();
    assert!(token.apply(&event).is_err());
    assert_eq!(token.apply_masked(&event, &Mask::default()), None);
}

#[test]
fn a_masked_value_that_is_null_counts_as_missing() {
    let event = event(r#"{"token": null, "pins": null}"#);
    let mapping = r#"[{"$path": "$.data.token", "default": "none"}, "$.data.token",
        {"$concat": ["t=", "$.data.token"]}, {"$each": "$.data.pins", "as": "@"}]"#;
    let mapping = Mapping::parse(mapping).unwrap();
    let made = r#"["none",null]"#;
    assert_eq!(mapping.apply(&event).unwrap(), made);
    let shown = mapping.apply_masked(&event, &Mask::default());
    assert_eq!(shown.as_deref(), Some(made));
}

#[test]
fn a_payload_that_is_not_json_is_masked_as_a_whole() {
    let mask = Mask::default();
    let mut binary = event(SECRETS);
    binary.payload = Payload::Binary {
        content_type: "text/plain".to_owned(),
        bytes: "ann@example.com".into(),
    };
    let whole = Mapping::parse(r#"{"all": "$.data"}"#).unwrap();
    let shown = whole.apply_masked(&binary, &mask);
    assert_eq!(shown.as_deref(), Some(r#"{"all":"***"}"#));
}

fn order() -> Event {
    event(ORDER)
}

/// An event of the tenant `acme` with this payload.
fn event(payload: &str) -> Event {
    let new = NewEvent::new("order.paid", Payload::Json(payload.to_owned()))
        .tenant(Tenant::new("acme").unwrap());
    let now = Timestamp::from_millis(0);
    seal(new, None, &Headers::new(), now, &Random::new(|| 1)).unwrap()
}

#[track_caller]
fn check(mapping: &str, expected: &str) {
    let compiled = Mapping::parse(mapping).unwrap_or_else(|error| panic!("{mapping}: {error}"));
    assert_eq!(compiled.apply(&order()).unwrap(), expected, "{mapping}");
}

/// Checks what may be shown of what a mapping makes of [`SECRETS`].
#[track_caller]
fn check_masked(mapping: &str, expected: &str) {
    let compiled = Mapping::parse(mapping).unwrap_or_else(|error| panic!("{mapping}: {error}"));
    let shown = compiled.apply_masked(&event(SECRETS), &Mask::default());
    assert_eq!(shown.as_deref(), Some(expected), "{mapping}");
}

/// Checks how many values and names of a payload are visited to apply a mapping.
#[track_caller]
fn check_visits(mapping: &str, payload: &str, visits_max: usize) {
    let (mapping, event) = (Mapping::parse(mapping).unwrap(), event(payload));
    VISITED.set(0);
    mapping.apply(&event).unwrap();
    let visits = VISITED.get();
    assert!(visits <= visits_max, "{visits} visits");
}

#[track_caller]
fn check_fails(mapping: &str, problem: &str) {
    let failure = Mapping::parse(mapping).unwrap().apply(&order());
    let failure = failure.unwrap_err().to_string();
    assert!(failure.contains(problem), "{mapping}: {failure}");
}

#[track_caller]
fn check_refused(mapping: &str, place: &str, problem: &str) {
    let error = Mapping::parse(mapping).unwrap_err();
    let shown = &mapping[..mapping.len().min(60)];
    assert_eq!(error.place, place, "{shown}: {error}");
    assert!(error.problem.contains(problem), "{shown}: {error}");
}
