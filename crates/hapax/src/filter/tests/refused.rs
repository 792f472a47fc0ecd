//! Filters that are refused: each with its place and the problem, and those that are too large.

use serde_json::json;

use super::*;
use crate::limits::{FILTER_CONDITIONS_MAX, FILTER_VALUES_MAX};

/// Filters that are refused, with the place and a part of the problem.
const REFUSED: &[(&str, &str, &str)] = &[
    ("", "", "is not valid JSON"),
    ("{", "", "is not valid JSON"),
    (r#"{"/a": 01}"#, "", "is not valid JSON"),
    ("[]", "", "must be an object of conditions"),
    ("1", "", "must be an object of conditions"),
    ("{}", "", "must have at least one condition"),
    (r#"{"/a": {}}"#, "/a", "is empty"),
    (r#"{"/a": {"$gte ": 1}}"#, "/a.$gte ", "did you mean $gte?"),
    (
        r#"{"/a": {"$starts": "x"}}"#,
        "/a.$starts",
        "did you mean $startsWith?",
    ),
    (
        r#"{"/a": {"$regex": "x"}}"#,
        "/a.$regex",
        "is an unknown operator",
    ),
    (
        r#"{"/a": {"$gt": 1, "b": 2}}"#,
        "/a.b",
        "stands among operators",
    ),
    (
        r#"{"/a": {"$gt": true}}"#,
        "/a.$gt",
        "must be a number or a string",
    ),
    (r#"{"/a": {"$in": []}}"#, "/a.$in", "must be a list of 1 to"),
    (r#"{"/a": {"$in": 1}}"#, "/a.$in", "must be a list of 1 to"),
    (
        r#"{"/a": {"$exists": 1}}"#,
        "/a.$exists",
        "must be true or false",
    ),
    (
        r#"{"/a": {"$startsWith": 1}}"#,
        "/a.$startsWith",
        "must be a string",
    ),
    (r#"{"$gt": 1}"#, "$gt", "is an operator"),
    (r#"{"$nor": []}"#, "$nor", "is an unknown combinator"),
    (r#"{"$or": []}"#, "$or", "must be a list of at least one"),
    (
        r#"{"$or": {"/a": 1}}"#,
        "$or",
        "must be a list of at least one",
    ),
    (r#"{"$or": [{"/a": 1}, 7]}"#, "$or[1]", "must be an object"),
    (
        r#"{"$or": [{"$not": {"/a": {"$x": 1}}}]}"#,
        "$or[0].$not./a.$x",
        "unknown operator",
    ),
    (
        r#"{"data.amount": 1}"#,
        "data.amount",
        "such as /data/amount",
    ),
    (r#"{"headers.": 1}"#, "headers.", "must be a JSON Pointer"),
    (r#"{"": 1}"#, "", "must be a JSON Pointer"),
    (r#"{"/a~b": 1}"#, "/a~b", "is not a JSON Pointer"),
    (r#"{"/a": 1, "/a": 2}"#, "/a", "appears twice"),
    (
        r#"{"/a": {"$eq": {"b": 1, "b": 1}}}"#,
        "/a.$eq.b",
        "appears twice",
    ),
    (r#"{"/a": "\ud800"}"#, "/a", "half of a surrogate pair"),
    (
        r#"{"/a": 1e1234567890123456789}"#,
        "/a",
        "at most 18 digits",
    ),
];

#[test]
fn what_is_not_a_filter_is_refused_at_its_place() {
    for (filter, place, problem) in REFUSED {
        check_refused(filter, place, problem);
    }
}

#[test]
fn a_filter_that_is_too_large_is_refused() {
    let long = format!("{{\"/a\": \"{}\"}}", "x".repeat(FILTER_BYTES_MAX));
    check_refused(&long, "", "at most 16384 are allowed");
    let nested = |levels: usize| {
        let (open, close) = ("{\"$not\": ".repeat(levels), "}".repeat(levels));
        format!("{open}{{\"/a\": 1}}{close}")
    };
    Filter::parse(&nested(FILTER_DEPTH_MAX - 1)).unwrap();
    check_refused(
        &nested(FILTER_DEPTH_MAX),
        "",
        "is nested deeper than 16 levels",
    );
    let conditions = |count: usize| {
        let conditions: Vec<_> = (0..count).map(|at| format!("\"/a{at}\": 1")).collect();
        format!("{{{}}}", conditions.join(","))
    };
    Filter::parse(&conditions(FILTER_CONDITIONS_MAX)).unwrap();
    let more = conditions(FILTER_CONDITIONS_MAX + 1);
    check_refused(
        &more,
        &format!("/a{FILTER_CONDITIONS_MAX}"),
        "is one condition too many",
    );
    let values = |count: usize| format!("{{\"/a\": {{\"$in\": {}}}}}", json!(vec![1; count]));
    Filter::parse(&values(FILTER_VALUES_MAX)).unwrap();
    check_refused(
        &values(FILTER_VALUES_MAX + 1),
        "/a.$in",
        "must be a list of 1 to",
    );
}

#[track_caller]
fn check_refused(filter: &str, place: &str, problem: &str) {
    let error = Filter::parse(filter).unwrap_err();
    let shown = &filter[..filter.len().min(60)];
    assert_eq!(error.place, place, "{shown}: {error}");
    assert!(error.problem.contains(problem), "{shown}: {error}");
}
