//! Mappings that are refused: each with its place and the problem, and those that are too large.

use super::*;
use crate::limits::{MAPPING_PATHS_MAX, MAPPING_VALUES_MAX};

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
fn an_error_names_the_setting() {
    let setting = |text: &str| Mapping::parse(text).unwrap_err().setting();
    assert_eq!(setting("{"), "mapping");
    assert_eq!(setting(r#"["$x"]"#), "mapping[0]");
    assert_eq!(setting(r#"{"a": {"$x": 1}}"#), "mapping.a.$x");
}

#[track_caller]
fn check_refused(mapping: &str, place: &str, problem: &str) {
    let error = Mapping::parse(mapping).unwrap_err();
    let shown = &mapping[..mapping.len().min(60)];
    assert_eq!(error.place, place, "{shown}: {error}");
    assert!(error.problem.contains(problem), "{shown}: {error}");
}
