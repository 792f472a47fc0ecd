//! Tests of filters: what matches, hostile payloads, and which texts are read as JSON.

mod refused;
mod generated;

use super::*;
use crate::{
    clock::{Random, Timestamp},
    event::{Headers, NewEvent},
    key::Tenant,
    limits::PAYLOAD_BYTES_MAX,
    outbox::build_event,
};

/// A payload with a value of each type.
const ORDER: &str = r#"{
    "amount": 100.10, "big": 9007199254740993, "paid": true, "note": null,
    "customer": {"country": "DE", "name": "Zo\u00eb", "a/b": 1, "m~n": 2, "": 3},
    "items": [{"sku": "A-1", "count": 2}, {"sku": "B-7", "count": 1.0}],
    "tags": ["new", "gift", 7], "empty": {}, "none": []
}"#;

#[test]
fn a_value_is_equal_to_what_is_given() {
    check(r#"{"/paid": true}"#, true);
    check(r#"{"/paid": false}"#, false);
    check(r#"{"/paid": "true"}"#, false);
    check(r#"{"/note": null}"#, true);
    check(r#"{"/missing": null}"#, false);
    check(r#"{"/customer/country": "DE"}"#, true);
    check(r#"{"/customer/country": "de"}"#, false);
    check(r#"{"/customer/name": "Zoë"}"#, true);
    check(r#"{"/customer/name": "Zo\u00eb"}"#, true);
    check(r#"{"/items/1": {"count": 1, "sku": "B-7"}}"#, true);
    check(r#"{"/items/1": {"sku": "B-7"}}"#, false);
    check(r#"{"/items/1": {"sku": "B-7", "count": 1, "x": 1}}"#, false);
    check(r#"{"/tags": ["new", "gift", 7.0]}"#, true);
    check(r#"{"/tags": ["new", "gift"]}"#, false);
    check(r#"{"/tags": ["gift", "new", 7]}"#, false);
    check(r#"{"/empty": {"$eq": {}}}"#, true);
    check(r#"{"/none": []}"#, true);
    check(r#"{"/none": {"$eq": {}}}"#, false);
}

#[test]
fn several_filters_read_the_payload_of_an_event_once() {
    let order = order();
    let reading = Reading::of(&order);
    let only_type = Filter::parse(r#"{"type": "order.created"}"#).unwrap();
    assert_eq!(only_type.apply_to(&reading), Applied::Matches);
    assert!(reading.document.get().is_none());
    for (filter, expected) in [
        (r#"{"/paid": true}"#, Applied::Matches),
        (r#"{"/paid": false}"#, Applied::Fails("/paid")),
    ] {
        let filter = Filter::parse(filter).unwrap();
        let before = reading.document.get().map(std::ptr::from_ref);
        assert_eq!(filter.apply_to(&reading), expected);
        let after = reading.document.get().map(std::ptr::from_ref);
        assert!(after.is_some() && (before.is_none() || before == after));
    }
}

#[test]
fn a_path_is_a_json_pointer() {
    check(r#"{"/customer/a~1b": 1}"#, true);
    check(r#"{"/customer/m~0n": 2}"#, true);
    check(r#"{"/customer/": 3}"#, true);
    check(r#"{"/items/0/sku": "A-1"}"#, true);
    check(r#"{"/items/00/sku": "A-1"}"#, false);
    check(r#"{"/items/2/sku": {"$exists": false}}"#, true);
    check(r#"{"/items/-/sku": {"$exists": false}}"#, true);
    check(r#"{"/items/sku": {"$exists": false}}"#, true);
    check(r#"{"/amount/x": {"$exists": false}}"#, true);
    check(
        r#"{"/items/18446744073709551616": {"$exists": false}}"#,
        true,
    );
}

#[test]
fn numbers_are_compared_as_decimals() {
    check(r#"{"/amount": 100.1}"#, true);
    check(r#"{"/amount": 1001e-1}"#, true);
    check(r#"{"/amount": "100.10"}"#, false);
    check(r#"{"/big": 9007199254740993}"#, true);
    check(r#"{"/big": 9007199254740992}"#, false);
    check(r#"{"/big": {"$gt": 9007199254740992}}"#, true);
    check(r#"{"/amount": {"$gte": 100.1, "$lte": 100.100}}"#, true);
    check(r#"{"/amount": {"$gt": 100.1}}"#, false);
    check(r#"{"/amount": {"$lt": 100.1000000000000000001}}"#, true);
    check(r#"{"/amount": {"$lt": 1e400}}"#, true);
    check(r#"{"/amount": {"$gt": -1e400}}"#, true);
}

#[test]
fn a_comparison_is_for_two_numbers_or_two_strings() {
    check(r#"{"/customer/country": {"$gte": "DE"}}"#, true);
    check(r#"{"/customer/country": {"$lt": "E"}}"#, true);
    check(r#"{"/customer/name": {"$gt": "Zo"}}"#, true);
    for operator in ["$gt", "$gte", "$lt", "$lte"] {
        for path in ["/paid", "/note", "/items", "/customer", "/missing"] {
            check(&format!("{{\"{path}\": {{\"{operator}\": 1}}}}"), false);
        }
        check(
            &format!("{{\"/amount\": {{\"{operator}\": \"1\"}}}}"),
            false,
        );
        check(
            &format!("{{\"/customer/country\": {{\"{operator}\": 1}}}}"),
            false,
        );
    }
}

#[test]
fn a_missing_value_is_equal_to_nothing() {
    check(r#"{"/missing": {"$eq": 1}}"#, false);
    check(r#"{"/missing": {"$ne": 1}}"#, true);
    check(r#"{"/missing": {"$in": [1, null]}}"#, false);
    check(r#"{"/missing": {"$nin": [1, null]}}"#, true);
    check(r#"{"/missing": {"$startsWith": ""}}"#, false);
    check(r#"{"/missing": {"$contains": ""}}"#, false);
    check(r#"{"/missing": {"$exists": true}}"#, false);
    check(r#"{"/missing": {"$exists": false}}"#, true);
    check(r#"{"/note": {"$exists": true}}"#, true);
    check(r#"{"$not": {"/missing": {"$gt": 1}}}"#, true);
}

#[test]
fn strings_and_arrays_have_operators_of_their_own() {
    check(r#"{"/customer/name": {"$startsWith": "Zo"}}"#, true);
    check(r#"{"/customer/name": {"$endsWith": "ë"}}"#, true);
    check(r#"{"/customer/name": {"$endsWith": "e"}}"#, false);
    check(r#"{"/customer/name": {"$contains": "o\u00eb"}}"#, true);
    check(r#"{"/amount": {"$startsWith": "1"}}"#, false);
    check(r#"{"/amount": {"$contains": "1"}}"#, false);
    check(r#"{"/tags": {"$contains": "gift"}}"#, true);
    check(r#"{"/tags": {"$contains": 7.0}}"#, true);
    check(r#"{"/tags": {"$contains": "gif"}}"#, false);
    check(
        r#"{"/items": {"$contains": {"count": 2, "sku": "A-1"}}}"#,
        true,
    );
    check(r#"{"/customer": {"$contains": "DE"}}"#, false);
    check(r#"{"/customer/country": {"$in": ["FR", "DE"]}}"#, true);
    check(r#"{"/customer/country": {"$nin": ["FR", "DE"]}}"#, false);
}

#[test]
fn all_conditions_of_an_object_have_to_hold() {
    check(r#"{"/paid": true, "/customer/country": "DE"}"#, true);
    check(r#"{"/paid": true, "/customer/country": "FR"}"#, false);
    check(
        r#"{"$and": [{"/paid": true}, {"/amount": {"$gt": 1}}]}"#,
        true,
    );
    check(
        r#"{"$and": [{"/paid": true}, {"/amount": {"$gt": 999}}]}"#,
        false,
    );
    check(
        r#"{"$or": [{"/paid": false}, {"/amount": {"$gt": 1}}]}"#,
        true,
    );
    check(
        r#"{"$or": [{"/paid": false}, {"/amount": {"$gt": 999}}]}"#,
        false,
    );
    check(
        r#"{"$not": {"/paid": true, "/customer/country": "FR"}}"#,
        true,
    );
    check(r#"{"$not": {"$not": {"/paid": true}}}"#, true);
}

#[test]
fn the_fields_of_an_event_have_names_without_a_slash() {
    check(r#"{"type": "order.created"}"#, true);
    check(r#"{"type": {"$endsWith": ".paid"}}"#, false);
    check(r#"{"tenant": "acme"}"#, true);
    check(
        r#"{"aggregate_type": "order", "aggregate_id": {"$startsWith": "ord_"}}"#,
        true,
    );
    check(r#"{"headers.source": {"$in": ["checkout"]}}"#, true);
    check(r#"{"headers.other": {"$exists": false}}"#, true);
    check(r#"{"type": {"$gt": 1}}"#, false);
    let plain = event("1", false);
    for (filter, expected) in [
        (r#"{"tenant": {"$exists": false}}"#, true),
        (r#"{"aggregate_id": {"$ne": "ord_1"}}"#, true),
        (r#"{"aggregate_type": "order"}"#, false),
    ] {
        assert_eq!(
            Filter::parse(filter).unwrap().matches(&plain),
            expected,
            "{filter}"
        );
    }
}

#[test]
fn a_condition_that_does_not_hold_is_named_by_its_place() {
    let failing = |filter: &str| match Filter::parse(filter).unwrap().apply(&order()) {
        Applied::Fails(place) => place.to_owned(),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        failing(r#"{"/paid": true, "/amount": {"$gt": 1, "$lt": 2}}"#),
        "/amount.$lt"
    );
    assert_eq!(failing(r#"{"/paid": false}"#), "/paid");
    assert_eq!(
        failing(r#"{"$and": [{"/paid": true}, {"tenant": "x"}]}"#),
        "$and[1].tenant"
    );
    assert_eq!(failing(r#"{"$or": [{"/paid": false}]}"#), "$or");
    assert_eq!(failing(r#"{"$not": {"/paid": true}}"#), "$not");
}

#[test]
fn an_event_whose_payload_is_not_json_does_not_match_a_filter_of_the_payload() {
    let bytes = Payload::Binary {
        content_type: "application/json".to_owned(),
        bytes: "{\"a\":1}".into(),
    };
    let mut binary = order();
    binary.payload = bytes;
    let mut broken = order();
    broken.payload = Payload::Json("{".to_owned());
    let mut large = order();
    large.payload = Payload::Json(format!("[{}1]", " ".repeat(PAYLOAD_BYTES_MAX)));
    let mut encrypted = order();
    let header = (ENCRYPTED_UNDER.to_owned(), "k1".to_owned());
    encrypted.headers.extend([header]);
    for event in [binary, broken, large, encrypted] {
        let apply = |filter: &str| Filter::parse(filter).unwrap().apply(&event) == Applied::Matches;
        assert!(!apply(r#"{"/a": {"$exists": false}}"#));
        assert!(!apply(r#"{"$or": [{"type": "order.created"}, {"/a": 1}]}"#));
        assert!(!apply(r#"{"$not": {"/a": 1}}"#));
        assert!(apply(r#"{"type": "order.created"}"#));
        let unreadable = Filter::parse(r#"{"/a": 1}"#).unwrap();
        assert_eq!(unreadable.apply(&event), Applied::Unreadable);
    }
}

#[test]
fn a_hostile_payload_costs_no_more_than_its_bytes() {
    let half = PAYLOAD_BYTES_MAX / 2;
    let deep = format!("{}{}", "[".repeat(half), "]".repeat(half));
    let deep_object = format!("{}1{}", "{\"a\":".repeat(half / 4), "}".repeat(half / 4));
    let wide = format!("[{}1]", "1,".repeat(half - 2));
    let same = format!("{{{}\"a\":2}}", "\"a\":1,".repeat(100_000));
    let halves = r#"{"a": "\ud800", "\udc00": 1, "b": [1]}"#;
    let filter = r#"{"$or": [{"/a/a/a/a": 7}, {"/a": {"$contains": [[[[1]]]]}}, {"/b/0": 1},
                     {"/a": 2}]}"#;
    let filter = Filter::parse(filter).unwrap();
    for (payload, expected) in [
        (deep.as_str(), false),
        (deep_object.as_str(), false),
        (wide.as_str(), false),
        // Of members with the same name the last one counts.
        (same.as_str(), true),
        (halves, true),
    ] {
        assert_eq!(
            filter.matches(&event(payload, true)),
            expected,
            "{}",
            &payload[..9]
        );
    }
}

#[test]
fn what_may_be_emitted_as_json_can_be_read() {
    for text in [
        ORDER,
        "1",
        "-0.5e-7",
        "\"\"",
        "\"a\\\"b\\\\\"",
        " [ ] ",
        "{}",
        "[[],[{}]]",
        "true ",
        "null",
        "[1",
        "{\"a\"}",
        "{\"a\":}",
        "[1,]",
        "{\"a\":1,}",
        "{,}",
        "01",
        "1.",
        "-",
        "1e",
        "+1",
        "tru",
        "\"\\x\"",
        "\"\\u12g4\"",
        "\"\u{1}\"",
        "1 2",
        "]",
        "",
        "[1}",
        "{\"a\":1]",
        "\"\\ud800\"",
        "\"",
    ] {
        let is_json = serde_json::from_str::<&serde_json::value::RawValue>(text).is_ok();
        assert_eq!(Document::parse(text).is_some(), is_json, "{text:?}");
    }
}

fn order() -> Event {
    event(ORDER, true)
}

/// An event with this payload; with a tenant, an aggregate and a header, or without.
fn event(payload: &str, is_complete: bool) -> Event {
    let mut new = NewEvent::new("order.created", Payload::Json(payload.to_owned()));
    if is_complete {
        new = new
            .about("order", "ord_1")
            .header("source", "checkout")
            .tenant(Tenant::new("acme").unwrap());
    }
    let now = Timestamp::from_millis(0);
    build_event(new, None, &Headers::new(), now, &Random::new(|| 1)).unwrap()
}

#[track_caller]
fn check(filter: &str, expected: bool) {
    let compiled = Filter::parse(filter).unwrap_or_else(|error| panic!("{filter}: {error}"));
    assert_eq!(compiled.matches(&order()), expected, "{filter}");
}
