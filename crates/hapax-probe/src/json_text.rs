//! Edits of a JSON text that leave all other bytes as they are.
//!
//! Payloads are changed as text, because a parser that writes numbers again would change more than a
//! check intends: `1.0` must stay `1.0`, and 2^53 + 1 must not become 2^53.

use std::ops::Range;

/// Where a value is in a JSON text, and where the members of the top-level object are.
struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
}

impl Scanner<'_> {
    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> Option<()> {
        self.skip_space();
        (self.peek()? == byte).then(|| self.at += 1)
    }

    /// Passes a string and returns its span, with the quotes.
    fn string(&mut self) -> Option<Range<usize>> {
        let start = self.at;
        self.take(b'"')?;
        loop {
            match self.peek()? {
                b'"' => {
                    self.at += 1;
                    return Some(start..self.at);
                }
                b'\\' => self.at += 2,
                _ => self.at += 1,
            }
        }
    }

    /// Passes a value and returns its span.
    fn value(&mut self) -> Option<Range<usize>> {
        self.skip_space();
        let start = self.at;
        match self.peek()? {
            b'"' => {
                self.string()?;
            }
            b'{' | b'[' => {
                let mut depth = 0_usize;
                loop {
                    match self.peek()? {
                        b'"' => {
                            self.string()?;
                            continue;
                        }
                        b'{' | b'[' => depth += 1,
                        b'}' | b']' => depth -= 1,
                        _ => {}
                    }
                    self.at += 1;
                    if depth == 0 {
                        break;
                    }
                }
            }
            _ => {
                while !matches!(
                    self.peek(),
                    None | Some(b',' | b'}' | b']' | b' ' | b'\t' | b'\n' | b'\r')
                ) {
                    self.at += 1;
                }
            }
        }
        Some(start..self.at)
    }
}

/// A member of an object: the span of its name, with the quotes, and of its value.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Member {
    name: Range<usize>,
    value: Range<usize>,
}

/// Returns the members of the object that begins at `at`.
fn members(text: &str, at: usize) -> Option<Vec<Member>> {
    let mut scanner = Scanner {
        text: text.as_bytes(),
        at,
    };
    scanner.take(b'{')?;
    let mut members = Vec::new();
    scanner.skip_space();
    if scanner.peek()? == b'}' {
        return Some(members);
    }
    loop {
        scanner.skip_space();
        let name = scanner.string()?;
        scanner.take(b':')?;
        let value = scanner.value()?;
        members.push(Member { name, value });
        scanner.skip_space();
        match scanner.peek()? {
            b',' => scanner.at += 1,
            b'}' => return Some(members),
            _ => return None,
        }
    }
}

/// Returns the span of the value at a JSON pointer. Array indices are not supported.
pub(crate) fn span(text: &str, pointer: &str) -> Option<Range<usize>> {
    serde_json::from_str::<serde::de::IgnoredAny>(text).ok()?;
    let mut scanner = Scanner {
        text: text.as_bytes(),
        at: 0,
    };
    let mut span = scanner.value()?;
    for step in pointer.split('/').skip(1) {
        let step = step.replace("~1", "/").replace("~0", "~");
        let found = members(text, span.start)?.into_iter().find(|member| {
            let name = text.get(member.name.clone()).unwrap_or_default();
            serde_json::from_str::<String>(name).is_ok_and(|it| it == step)
        })?;
        span = found.value;
    }
    Some(span)
}

/// Returns the value at a JSON pointer, as it is written.
pub(crate) fn value<'a>(text: &'a str, pointer: &str) -> Option<&'a str> {
    text.get(span(text, pointer)?)
}

/// Replaces the value at a JSON pointer by another text.
pub(crate) fn replaced(text: &str, pointer: &str, value: &str) -> Option<String> {
    let span = span(text, pointer)?;
    let mut replaced = text.to_owned();
    replaced.replace_range(span, value);
    Some(replaced)
}

/// Removes the member at a JSON pointer, with its comma.
pub(crate) fn without(text: &str, pointer: &str) -> Option<String> {
    let (parent, name) = pointer.rsplit_once('/')?;
    let name = name.replace("~1", "/").replace("~0", "~");
    let found = members(text, span(text, parent)?.start)?;
    let at = found.iter().position(|member| {
        let known = text.get(member.name.clone()).unwrap_or_default();
        serde_json::from_str::<String>(known).is_ok_and(|it| it == name)
    })?;
    let member = found.get(at)?;
    let before = at.checked_sub(1).and_then(|it| found.get(it));
    let range = match (before, found.get(at + 1)) {
        (_, Some(next)) => member.name.start..next.name.start,
        (Some(before), None) => before.value.end..member.value.end,
        (None, None) => member.name.start..member.value.end,
    };
    let mut removed = text.to_owned();
    removed.replace_range(range, "");
    Some(removed)
}

/// Adds a member to the object at the top.
pub(crate) fn with_member(text: &str, name: &str, value: &str) -> Option<String> {
    let start = text.find('{')?;
    let comma = if members(text, start)?.is_empty() {
        ""
    } else {
        ","
    };
    let name = serde_json::Value::from(name);
    let mut added = text.to_owned();
    added.insert_str(start + 1, &format!("{name}:{value}{comma}"));
    Some(added)
}

/// Writes the members of the object at the top in reverse order. An object with fewer than two
/// members has only one order.
pub(crate) fn reversed(text: &str) -> Option<String> {
    let found = members(text, text.find('{')?)?;
    if found.len() < 2 {
        return None;
    }
    let written: Vec<String> = found
        .iter()
        .rev()
        .filter_map(|it| {
            Some(format!(
                "{}:{}",
                text.get(it.name.clone())?,
                text.get(it.value.clone())?
            ))
        })
        .collect();
    Some(format!("{{{}}}", written.join(",")))
}

/// Adds white space that has no meaning.
pub(crate) fn spaced(text: &str) -> Option<String> {
    let start = text.find('{')?;
    let end = text.rfind('}')?;
    let inner = text.get(start + 1..end)?;
    Some(format!("{{\r\n\t {inner} \n}}"))
}

/// Writes another value for the member at a JSON pointer in front of all members.
pub(crate) fn duplicated(text: &str, pointer: &str, first: &str) -> Option<String> {
    with_member(text, &top_member(text, pointer)?, first)
}

/// Writes another value for the member at a JSON pointer behind all members.
pub(crate) fn appended(text: &str, pointer: &str, last: &str) -> Option<String> {
    let name = serde_json::Value::from(top_member(text, pointer)?);
    let end = text.rfind('}')?;
    let mut added = text.to_owned();
    added.insert_str(end, &format!(",{name}:{last}"));
    Some(added)
}

/// Returns the name of the member of the object at the top that a JSON pointer names.
fn top_member(text: &str, pointer: &str) -> Option<String> {
    let name = pointer.strip_prefix('/')?;
    span(text, pointer)?;
    (!name.contains('/')).then(|| name.replace("~1", "/").replace("~0", "~"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"{ "a": 1.0, "b/c": {"d": [1, {"e": "}\""}], "f": -2e3}, "g": null }"#;

    #[test]
    fn a_value_is_found_as_it_is_written() {
        assert_eq!(value(TEXT, "/a"), Some("1.0"));
        assert_eq!(value(TEXT, "/b~1c/f"), Some("-2e3"));
        assert_eq!(value(TEXT, "/b~1c/d"), Some(r#"[1, {"e": "}\""}]"#));
        assert_eq!(value(TEXT, "/g"), Some("null"));
        assert_eq!(value(TEXT, ""), Some(TEXT));
        assert_eq!(value(TEXT, "/x"), None);
        assert_eq!(value("[1]", "/0"), None);
        assert_eq!(value("{", "/a"), None);
    }

    #[test]
    fn a_replacement_changes_nothing_else() {
        let other = replaced(TEXT, "/a", "9007199254740993").expect("the member exists");
        assert_eq!(other, TEXT.replacen("1.0", "9007199254740993", 1));
    }

    #[test]
    fn members_are_added_reversed_and_duplicated() {
        assert_eq!(with_member("{}", "x", "1").as_deref(), Some(r#"{"x":1}"#));
        assert_eq!(
            reversed(r#"{"a": 1, "b": [2]}"#).as_deref(),
            Some(r#"{"b":[2],"a":1}"#)
        );
        assert_eq!(reversed(r#"{"a": 1}"#), None);
        assert_eq!(
            duplicated(r#"{"a":1}"#, "/a", "2").as_deref(),
            Some(r#"{"a":2,"a":1}"#)
        );
        assert_eq!(
            appended(r#"{"a":1}"#, "/a", "2").as_deref(),
            Some(r#"{"a":1,"a":2}"#)
        );
        assert_eq!(duplicated(r#"{"a":1}"#, "/b", "2"), None);
    }

    #[test]
    fn a_member_is_removed_with_its_comma() {
        let of = |pointer: &str| without(r#"{"a":1, "b" : {"c":2}, "d":3 }"#, pointer);
        assert_eq!(of("/a").as_deref(), Some(r#"{"b" : {"c":2}, "d":3 }"#));
        assert_eq!(of("/b/c").as_deref(), Some(r#"{"a":1, "b" : {}, "d":3 }"#));
        assert_eq!(of("/d").as_deref(), Some(r#"{"a":1, "b" : {"c":2} }"#));
        assert_eq!(of("/x"), None);
        assert_eq!(without("[1]", "/0"), None);
    }

    #[test]
    fn added_space_keeps_the_value() {
        let spaced = spaced(r#"{"a":"b c"}"#).expect("an object");
        let value: serde_json::Value = serde_json::from_str(&spaced).expect("valid JSON");
        assert_eq!(value, serde_json::json!({"a": "b c"}));
    }
}
