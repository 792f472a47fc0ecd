//! Masked trials of mappings: a value that is masked in the payload stays masked in the body.

use super::*;

/// A payload with members that are masked.
const SECRETS: &str = r#"{
    "n": 7, "customer": {"email": "ann@example.com", "name": "Zo\u00eb"}, "cards": ["4111"],
    "raw": "{\"pin\": 12}", "token": {"id": "t1"}, "people": [{"phone": "555", "n": 1}, {"n": 2}]
}"#;

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

/// Checks what may be shown of what a mapping makes of [`SECRETS`].
#[track_caller]
fn check_masked(mapping: &str, expected: &str) {
    let compiled = Mapping::parse(mapping).unwrap_or_else(|error| panic!("{mapping}: {error}"));
    let shown = compiled.apply_masked(&event(SECRETS), &Mask::default());
    assert_eq!(shown.as_deref(), Some(expected), "{mapping}");
}
