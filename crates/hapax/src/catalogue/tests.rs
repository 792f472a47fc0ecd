//! Tests of the catalogue: which files are refused and where, which payloads match, and what the
//! descriptions contain.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::*;
use crate::{
    Random, Timestamp,
    event::{Headers, NewEvent, Payload},
    outbox::build_event,
};

/// A catalogue with shared definitions, two versions and a type with flags.
const SAMPLE: &str = r##"{
    "title": "Shop",
    "version": "1.2.0",
    "$defs": {
        "money": {
            "type": "object",
            "required": ["amount", "currency"],
            "properties": {
                "amount": {"type": "integer", "minimum": 0},
                "currency": {"$ref": "#/$defs/currency"}
            }
        },
        "currency": {"type": "string", "pattern": "^[A-Z]{3}$"},
        "secret": {"type": "string"}
    },
    "events": [
        {
            "type": "order.created",
            "description": "An order was placed.",
            "versions": [
                {
                    "version": 1,
                    "deprecated": true,
                    "schema": {"type": "object", "required": ["amount"]},
                    "examples": [{"amount": 5}]
                },
                {
                    "version": 2,
                    "schema": {
                        "$schema": "https://json-schema.org/draft/2020-12/schema",
                        "type": "object",
                        "required": ["id", "total"],
                        "properties": {
                            "id": {"type": "string", "format": "uuid"},
                            "total": {"$ref": "#/$defs/money"},
                            "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}}
                        },
                        "unevaluatedProperties": false,
                        "$defs": {"line": {"type": "object", "required": ["sku"]}}
                    },
                    "examples": [{
                        "id": "0190c2f4-3f6e-7aaa-8000-000000000001",
                        "total": {"amount": 500, "currency": "EUR"}
                    }]
                }
            ]
        },
        {
            "type": "lab/order:scored",
            "description": "A score.",
            "flags": ["beta", "lab"],
            "versions": [{"version": 1, "schema": {"$ref": "#/$defs/secret"}}]
        }
    ]
}"##;

fn sample() -> Value {
    serde_json::from_str(SAMPLE).unwrap()
}

fn catalogue() -> Catalogue {
    Catalogue::parse(&sample().to_string()).unwrap()
}

fn flags(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn check(new: NewEvent, others: OtherTypes) -> Result<(), EventError> {
    let (at, random) = (Timestamp::from_millis(1), Random::new(|| 7));
    let event = build_event(new, None, &Headers::new(), at, &random).unwrap();
    catalogue().event_check(others).check(&event)
}

#[track_caller]
fn refused(new: NewEvent, expected: &str) {
    let error = check(new, OtherTypes::Refused).unwrap_err();
    assert_eq!(error.to_string(), expected);
}

fn order(total: &Value) -> NewEvent {
    let id = "0190c2f4-3f6e-7aaa-8000-000000000001";
    NewEvent::json("order.created", &json!({"id": id, "total": total}))
}

#[test]
fn a_payload_that_matches_the_latest_version_is_accepted() {
    let new = order(&json!({"amount": 1, "currency": "EUR"}));
    assert_eq!(check(new, OtherTypes::Refused), Ok(()));
}

#[test]
fn a_payload_that_does_not_match_is_refused_with_the_place_and_the_rule_and_no_value() {
    let total = json!({"amount": 1, "currency": "EUR"});
    refused(
        order(&json!({"amount": -17, "currency": "EUR"})),
        "payload of order.created, version 2: \"/total/amount\" does not match \"minimum\": \
         must be at least 0",
    );
    refused(
        order(&json!({"amount": 1, "currency": "4242"})),
        "payload of order.created, version 2: \"/total/currency\" does not match \"pattern\": \
         does not match the pattern ^[A-Z]{3}$",
    );
    refused(
        NewEvent::json("order.created", &json!({"id": "4242", "total": total})),
        "payload of order.created, version 2: \"/id\" does not match \"format\": \
         is not a valid uuid",
    );
    let unknown =
        json!({"id": "0190c2f4-3f6e-7aaa-8000-000000000001", "card": "4242", "total": total});
    let error = check(
        NewEvent::json("order.created", &unknown),
        OtherTypes::Refused,
    );
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("\"/card\"") && !error.contains("4242"),
        "{error}"
    );
}

#[test]
fn an_event_is_checked_against_the_version_that_it_names() {
    let old = NewEvent::json("order.created", &json!({"amount": 1}));
    refused(
        old.clone(),
        "payload of order.created, version 2: \"\" does not match \"required\": \
         missing properties 'id', 'total'",
    );
    let named = |version| old.clone().header(EVENT_VERSION, version);
    assert_eq!(check(named("1"), OtherTypes::Refused), Ok(()));
    refused(
        named("3"),
        "event type order.created has no version \"3\" in the catalogue, which its header \
         event-version names",
    );
}

#[test]
fn other_types_are_refused_or_accepted() {
    let other = NewEvent::json("order.paid", &1);
    assert_eq!(check(other.clone(), OtherTypes::Accepted), Ok(()));
    refused(other, "event type order.paid is not in the catalogue");
}

#[test]
fn a_payload_that_cannot_be_checked_is_refused() {
    let binary = Payload::Binary {
        content_type: "image/png".to_owned(),
        bytes: bytes::Bytes::from_static(b"\x89PNG"),
    };
    refused(
        NewEvent::new("order.created", binary),
        "payload of order.created, version 2: \"\" does not match \"type\": must be JSON",
    );
    let deep = format!("{}{}", "[".repeat(65), "]".repeat(65));
    refused(
        NewEvent::new("order.created", Payload::Json(deep)),
        "payload of order.created, version 2: \"\" does not match \"depth\": \
         is nested deeper than 64 levels",
    );
}

#[test]
fn a_check_of_a_store_without_a_catalogue_accepts_everything() {
    let new = NewEvent::json("anything", &1);
    let (at, random) = (Timestamp::from_millis(1), Random::new(|| 7));
    let event = build_event(new, None, &Headers::new(), at, &random).unwrap();
    assert_eq!(EventCheck::none().check(&event), Ok(()));
}

#[track_caller]
fn wrong(change: impl FnOnce(&mut Value), expected: &str) {
    let mut document = sample();
    change(&mut document);
    let error = Catalogue::parse(&document.to_string())
        .unwrap_err()
        .to_string();
    assert!(error.starts_with(expected), "{error}");
}

#[test]
fn text_that_is_not_a_catalogue_is_refused_with_its_line() {
    let error = Catalogue::parse("{\n  \"title\": \"a\",\n  \"banner\": 1\n}").unwrap_err();
    assert!(
        error.to_string().starts_with("unknown field `banner`"),
        "{error}"
    );
    assert!(
        error.to_string().ends_with("at line 3 column 10"),
        "{error}"
    );
}

#[test]
fn a_schema_that_is_not_valid_is_refused_with_its_place() {
    let schema = "/events/0/versions/1/schema";
    let set =
        |to: Value| move |document: &mut Value| document["events"][0]["versions"][1]["schema"] = to;
    wrong(
        set(json!({"type": "thing"})),
        "/events/0 (order.created, version 2): is not a valid schema: ",
    );
    wrong(
        set(json!({"properties": {"a": {"$ref": "#/$defs/absent"}}})),
        &format!("{schema}/properties/a/$ref: there is no definition \"absent\""),
    );
    for reference in [
        "https://example.com/a.json",
        "file:///etc/passwd",
        "#/properties/a",
        "a",
    ] {
        wrong(
            set(json!({"allOf": [{"$ref": reference}]})),
            &format!("{schema}/allOf/0/$ref: must be \"#/$defs/NAME\""),
        );
    }
    wrong(
        set(json!({"$schema": "http://json-schema.org/draft-07/schema#"})),
        &format!("{schema}/$schema: must be "),
    );
    wrong(
        set(json!({"items": {"$id": "https://example.com/a"}})),
        &format!("{schema}/items/$id: is not supported here"),
    );
    for keyword in ["definitions", "dependencies", "additionalItems"] {
        wrong(
            set(json!({"items": {keyword: {"a": {"$ref": "#/$defs/money"}}}})),
            &format!("{schema}/items/{keyword}: belongs to an earlier JSON Schema: use "),
        );
    }
    wrong(
        set(json!({"$defs": {"money": true}})),
        &format!("{schema}/$defs/money: has the name of a definition"),
    );
    let mut deep = json!(true);
    for _ in 0..33 {
        deep = json!({ "not": deep });
    }
    wrong(set(deep), &format!("{schema}: nesting depth is 33"));
}

/// A recursion over the members of a value ends, one at the same value does not.
#[test]
fn a_schema_that_applies_itself_to_the_same_value_is_refused() {
    let schema = "/events/0/versions/1/schema";
    let set = |to: Value| {
        move |document: &mut Value| {
            document["events"][0]["versions"][1] = json!({"version": 2, "schema": to});
        }
    };
    let problem = ": applies itself to the same value";
    for same in [
        json!({"$ref": "#"}),
        json!({"anyOf": [{"type": "object"}, {"$ref": "#"}]}),
        json!({"allOf": [{"if": true, "then": {"not": {"$ref": "#"}}}]}),
        json!({"dependentSchemas": {"a": {"$ref": "#"}}}),
        json!({"$ref": "#/$defs/a", "$defs": {"a": {"oneOf": [{"$ref": "#"}]}}}),
    ] {
        wrong(set(same), &format!("{schema}{problem}"));
    }
    let inside =
        json!({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"else": {"$ref": "#/$defs/a"}}}});
    wrong(set(inside), &format!("{schema}/$defs/a{problem}"));
    wrong(
        |document| document["$defs"]["secret"] = json!({"allOf": [{"$ref": "#/$defs/secret"}]}),
        &format!("/$defs/secret{problem}"),
    );
    for below in [
        json!({"properties": {"a": {"$ref": "#"}}, "items": {"$ref": "#"}}),
        json!({"allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}], "$defs": {"a": true}}),
    ] {
        let mut document = sample();
        set(below)(&mut document);
        Catalogue::parse(&document.to_string()).unwrap();
    }
}

/// Each definition applies the next one twice, so the last one is applied more than a million million times.
#[test]
fn a_schema_that_doubles_its_work_with_each_definition_is_refused() {
    let chain = |length: usize| {
        move |document: &mut Value| {
            for at in 0..length {
                let next = json!({"$ref": format!("#/$defs/d{}", at + 1)});
                document["$defs"][format!("d{at}")] = json!({"allOf": [next, next]});
            }
            document["$defs"][format!("d{length}")] = json!({"type": "object"});
            let schema = json!({"$ref": "#/$defs/d0"});
            document["events"][1]["versions"][0]["schema"] = schema;
        }
    };
    wrong(
        chain(40),
        "/events/1 (lab/order:scored, version 1): applies more than 10000 schemas to one value",
    );
    let mut document = sample();
    chain(8)(&mut document);
    Catalogue::parse(&document.to_string()).unwrap();
}

/// The schema is small, and so is the payload. Each level of the payload doubles the work.
#[test]
fn a_payload_that_takes_too_long_to_check_is_refused() {
    let twice = json!({"properties": {"a": {"$ref": "#"}}, "items": {"$ref": "#"}});
    let schema = json!({"type": ["object", "array"], "allOf": [twice, twice]});
    let document = json!({
        "title": "Tree",
        "version": "1.0.0",
        "events": [{
            "type": "tree",
            "description": "A tree.",
            "versions": [{"version": 1, "schema": schema}]
        }]
    });
    let catalogue = Catalogue::parse(&document.to_string()).unwrap();
    let check = |depth: usize, open: &str, close: &str| {
        let text = format!("{}{{}}{}", open.repeat(depth), close.repeat(depth));
        let new = NewEvent::new("tree", Payload::Json(text));
        let (at, random) = (Timestamp::from_millis(1), Random::new(|| 7));
        let event = build_event(new, None, &Headers::new(), at, &random).unwrap();
        catalogue.check(&event, OtherTypes::Refused)
    };
    for (open, close) in [("{\"a\": ", "}"), ("[", "]")] {
        assert_eq!(check(10, open, close), Ok(()));
        let error = check(60, open, close).unwrap_err().to_string();
        assert_eq!(
            error,
            "payload of tree, version 1: \"\" does not match \"work\": takes more than 5000000 \
             steps to check"
        );
    }
}

/// A payload of the maximum size with as many values as possible.
#[test]
fn a_long_list_is_checked() {
    let mut document = sample();
    document["events"][1]["versions"][0]["schema"] = json!({"items": {"type": "integer"}});
    let catalogue = Catalogue::parse(&document.to_string()).unwrap();
    let list = format!("[{}1]", "1,".repeat(500_000));
    let new = NewEvent::new("lab/order:scored", Payload::Json(list));
    let (at, random) = (Timestamp::from_millis(1), Random::new(|| 7));
    let event = build_event(new, None, &Headers::new(), at, &random).unwrap();
    assert_eq!(catalogue.check(&event, OtherTypes::Refused), Ok(()));
}

#[test]
fn a_property_with_the_name_of_a_keyword_is_a_property() {
    let mut document = sample();
    let schema = json!({"properties": {"$id": {"type": "string"}, "$ref": {"type": "string"}}});
    document["events"][0]["versions"][1]["schema"] = schema;
    Catalogue::parse(&document.to_string()).unwrap();
}

#[test]
fn a_definition_that_no_schema_uses_is_checked_too() {
    wrong(
        |document| document["$defs"]["secret"] = json!({"type": 5}),
        "/$defs/secret: is not a valid schema",
    );
    wrong(
        |document| document["$defs"]["secret"] = json!({"$ref": "#/$defs/line"}),
        "/$defs/secret/$ref: there is no definition \"line\"",
    );
}

#[test]
fn an_example_that_does_not_match_its_schema_is_refused() {
    wrong(
        |document| document["events"][0]["versions"][0]["examples"][0] = json!({}),
        "/events/0/versions/0/examples/0: payload of order.created, version 1",
    );
}

#[test]
fn a_type_and_a_version_exist_once() {
    wrong(
        |document| document["events"][1]["type"] = json!("order.created"),
        "/events/1/type: order.created is in the catalogue twice: see /events/0",
    );
    wrong(
        |document| document["events"][0]["versions"][1]["version"] = json!(1),
        "/events/0/versions/1/version: must be a number from 1",
    );
    wrong(
        |document| document["events"][0]["versions"] = json!([]),
        "/events/0/versions: has no version",
    );
    wrong(
        |document| document["events"][1]["flags"] = json!(["a b"]),
        "/events/1/flags: a name must have",
    );
}

#[test]
fn a_type_with_flags_is_described_only_where_all_of_them_are_enabled() {
    let catalogue = catalogue();
    for (enabled, expected) in [
        (flags(&[]), 1),
        (flags(&["beta"]), 1),
        (flags(&["beta", "lab", "other"]), 2),
    ] {
        assert_eq!(catalogue.visible(&enabled).len(), expected);
        for description in [catalogue.open_api(&enabled), catalogue.async_api(&enabled)] {
            let text = description.to_string();
            assert_eq!(text.contains("scored"), expected == 2, "{text}");
            assert_eq!(text.contains("secret"), expected == 2, "{text}");
        }
    }
}

#[test]
fn a_description_contains_what_its_references_name() {
    let catalogue = catalogue();
    let all = flags(&["beta", "lab"]);
    for description in [catalogue.open_api(&all), catalogue.async_api(&all)] {
        let mut seen = 0;
        let mut open = vec![&description];
        while let Some(value) = open.pop() {
            if let Some(reference) = value.get("$ref").and_then(Value::as_str) {
                let pointer = reference.strip_prefix('#').unwrap();
                assert!(description.pointer(pointer).is_some(), "{reference}");
                seen += 1;
            }
            match value {
                Value::Array(items) => open.extend(items),
                Value::Object(members) => open.extend(members.values()),
                _ => {}
            }
        }
        assert!(seen > 5, "{description}");
        let schemas = description["components"]["schemas"].as_object().unwrap();
        let names: Vec<&str> = schemas.keys().map(String::as_str).collect();
        let expected = [
            "currency",
            "lab-order-scored.v1",
            "money",
            "order.created.v1",
            "order.created.v2",
            "secret",
        ];
        assert_eq!(names, expected);
        let line = &schemas["order.created.v2"]["properties"]["lines"]["items"]["$ref"];
        assert_eq!(line, "#/components/schemas/order.created.v2/$defs/line");
    }
}

#[test]
fn types_whose_names_differ_only_in_their_separators_have_different_components() {
    let mut document = sample();
    document["events"][0]["type"] = json!("lab-order-scored");
    let catalogue = Catalogue::parse(&document.to_string()).unwrap();
    let description = catalogue.async_api(&flags(&["beta", "lab"]));
    let channels: Vec<&String> = description["channels"]
        .as_object()
        .unwrap()
        .keys()
        .collect();
    assert_eq!(channels, ["lab-order-scored", "lab-order-scored-2"]);
}

#[test]
fn a_schema_on_its_own_contains_the_definitions_that_it_uses() {
    let catalogue = catalogue();
    let version = catalogue.types()[0].latest().unwrap();
    let schema = catalogue.schema(version);
    let definitions = schema["$defs"].as_object().unwrap();
    let names: Vec<&String> = definitions.keys().collect();
    assert_eq!(names, ["currency", "line", "money"]);
    assert_eq!(schema["properties"]["total"]["$ref"], "#/$defs/money");
}
