//! JSON merge patch (RFC 7396) on text.
//!
//! Values that the patch does not name keep their text, so that long numbers lose no digits.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

/// Maximum depth of a patch, because each level is a recursive call.
const DEPTH_MAX: usize = 64;

type Members<'a> = BTreeMap<String, Box<RawValue>>;

/// Applies a patch to a JSON object. The error says what is wrong with the patch.
///
/// Members that the patch names are replaced, members that are null in the patch are removed, and
/// objects are merged with objects. The members of a changed object are sorted by name.
pub(super) fn merged(text: &str, patch: &str) -> Result<String, &'static str> {
    if !is_object(patch) {
        return Err("must be a JSON object, in which null removes a member");
    }
    merge(Some(text), patch, 0)
}

/// The names of the members of a patch, without values, for the audit log.
pub fn patched_members(patch: &str) -> Vec<String> {
    let members: Members<'_> = serde_json::from_str(patch).unwrap_or_default();
    members.into_keys().collect()
}

fn merge(text: Option<&str>, patch: &str, depth: usize) -> Result<String, &'static str> {
    if !is_object(patch) {
        return Ok(patch.to_owned());
    }
    if depth == DEPTH_MAX {
        return Err("must have at most 64 levels");
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

const NO_JSON: &str = "must be valid JSON";

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
        assert_eq!(
            patched_members(r#"{"b":{"card":"4242"},"a":1}"#),
            ["a", "b"]
        );
    }
}
