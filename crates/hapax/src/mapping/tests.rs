//! Tests of mappings: what they make of an event, results that are too large, and hostile payloads.

mod refused;
mod masked;
mod generated;

use std::time::{Duration, Instant};

use super::*;
use crate::{
    clock::{Random, Timestamp},
    event::{Headers, NewEvent},
    filter::document::VISITED,
    key::Tenant,
    keyring::ENCRYPTED_UNDER,
    limits::{MAPPED_BYTES_MAX, MAPPING_ITEMS_MAX, PAYLOAD_BYTES_MAX},
    outbox::build_event,
};

const ORDER: &str = r#"{
    "number": "A\u002d7", "amount": 100.10, "big": 9007199254740993, "paid": true, "note": null,
    "customer": {"name": "Zo\u00eb \"Z\"", "a.b": 1, "a/b": 2},
    "items": [{"sku": "A-1", "count": 2, "tags": ["x", "y"]}, {"sku": "B-7"}, 7],
    "none": []
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

fn order() -> Event {
    event(ORDER)
}

/// An event of the tenant `acme` with this payload.
fn event(payload: &str) -> Event {
    let new = NewEvent::new("order.paid", Payload::Json(payload.to_owned()))
        .tenant(Tenant::new("acme").unwrap());
    let now = Timestamp::from_millis(0);
    build_event(new, None, &Headers::new(), now, &Random::new(|| 1)).unwrap()
}

#[track_caller]
fn check(mapping: &str, expected: &str) {
    let compiled = Mapping::parse(mapping).unwrap_or_else(|error| panic!("{mapping}: {error}"));
    assert_eq!(compiled.apply(&order()).unwrap(), expected, "{mapping}");
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
