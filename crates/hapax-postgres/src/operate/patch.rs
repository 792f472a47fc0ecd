//! A JSON merge patch (RFC 7396) over text: what it does not name keeps its text, every digit of it.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

/// Levels that a patch may have: each takes a call.
const DEPTH_MAX: usize = 64;

type Members<'a> = BTreeMap<String, Box<RawValue>>;

/// A JSON object with a patch merged into it; an error says what is wrong with the patch.
///
/// Members that the patch names are replaced, those that it says are null are left out, and objects are
/// merged into objects. The members of an object that is touched come out in the order of their names.
pub(super) fn merged(text: &str, patch: &str) -> Result<String, &'static str> {
    if !is_object(patch) {
        return Err("is a JSON object: what it names is replaced, null leaves out");
    }
    merge(Some(text), patch, 0)
}

/// The members of a patch, for the audit log: their names, and nobody's values.
pub(super) fn names(patch: &str) -> Vec<String> {
    let members: Members<'_> = serde_json::from_str(patch).unwrap_or_default();
    members.into_keys().collect()
}

fn merge(text: Option<&str>, patch: &str, depth: usize) -> Result<String, &'static str> {
    if !is_object(patch) {
        return Ok(patch.to_owned());
    }
    if depth == DEPTH_MAX {
        return Err("has more than 64 levels");
    }
    let changes: Members<'_> = read(patch)?;
    let mut members: Members<'_> = match text {
        Some(text) if is_object(text) => read(text)?,
        _ => BTreeMap::new(),
    };
    for (name, change) in changes {
        if change.get() == "null" {
            members.remove(&name);
            continue;
        }
        let before = members.get(&name).map(|it| it.get());
        let after = merge(before, change.get(), depth + 1)?;
        members.insert(name, RawValue::from_string(after).map_err(|_| NO_JSON)?);
    }
    serde_json::to_string(&members).map_err(|_| NO_JSON)
}

const NO_JSON: &str = "is no JSON";

fn read(text: &str) -> Result<Members<'_>, &'static str> {
    serde_json::from_str(text).map_err(|_| NO_JSON)
}

fn is_object(text: &str) -> bool {
    text.trim_start().starts_with('{')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_does_what_the_examples_of_its_rfc_say() {
        for (text, patch, result) in [
            (r#"{"a":"b"}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"b":"c"}"#, r#"{"a":"b","b":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"a":null}"#, "{}"),
            (r#"{"a":"b","b":"c"}"#, r#"{"a":null}"#, r#"{"b":"c"}"#),
            (r#"{"a":["b"]}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"c"}"#, r#"{"a":["b"]}"#, r#"{"a":["b"]}"#),
            (
                r#"{"a":{"b":"c"}}"#,
                r#"{"a":{"b":"d","c":null}}"#,
                r#"{"a":{"b":"d"}}"#,
            ),
            (r#"{"a":[{"b":"c"}]}"#, r#"{"a":[1]}"#, r#"{"a":[1]}"#),
            (r#"["a","b"]"#, r#"{"a":1}"#, r#"{"a":1}"#),
            (r#"{"e":null}"#, r#"{"a":1}"#, r#"{"a":1,"e":null}"#),
            ("{}", r#"{"a":{"bb":{"ccc":null}}}"#, r#"{"a":{"bb":{}}}"#),
        ] {
            assert_eq!(merged(text, patch).as_deref(), Ok(result), "{text} {patch}");
        }
    }

    #[test]
    fn what_a_patch_does_not_name_keeps_every_digit() {
        let text = r#"{"amount": 12345678901234567890.10, "to": {"x": 1e400,"y":"a"}}"#;
        let result = r#"{"amount":12345678901234567890.10,"to":{"x":1e400,"y":"b"}}"#;
        assert_eq!(merged(text, r#"{"to":{"y":"b"}}"#).as_deref(), Ok(result));
    }

    #[test]
    fn a_patch_that_is_none_is_refused_however_deep_it_is() {
        let deep = format!("{}1{}", r#"{"a":"#.repeat(100_000), "}".repeat(100_000));
        for patch in [
            "",
            "null",
            "[]",
            "1",
            "{",
            r#"{"a"}"#,
            r#"{"a":1} 2"#,
            &deep,
        ] {
            assert!(
                merged("{}", patch).is_err(),
                "{}",
                &patch[..patch.len().min(20)]
            );
        }
    }

    #[test]
    fn names_tell_no_values() {
        assert_eq!(names(r#"{"b":{"card":"4242"},"a":1}"#), ["a", "b"]);
    }
}
