//! Fuzz target for the canonical form of JSON, from which the fingerprint is made. It compares
//! Hapax with another library that implements RFC 8785.
//!
//! Both agree on what valid JSON is, on the order of members and on how strings are written. There
//! are three intended differences:
//! - Hapax rejects duplicate members; the library keeps the last one.
//! - Hapax keeps number tokens as they were sent; the library converts numbers to doubles, and
//!   rejects a number that is out of the range of a double.
//! - Hapax limits nesting to 128 levels, the library to 127.
//!
//! The canonical form of a canonical form is the same text. White space, the order of members and
//! the way in which a string is escaped do not change it.
#![no_main]

use std::{collections::BTreeMap, fmt::Write as _};

use hapax_http::fuzz::{Refused, canonical};
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, value::RawValue};

fuzz_target!(|json: &[u8]| {
    let ours = canonical(json, &[]);
    let theirs: Result<Value, _> = serde_json::from_slice(json);
    let ours = match ours {
        Ok(ours) => String::from_utf8(ours).expect("a canonical form is text"),
        Err(Refused::Syntax) => return assert!(theirs.is_err(), "rejected by Hapax only"),
        Err(Refused::Duplicate | Refused::Depth | Refused::Members) => return,
    };
    assert_eq!(
        canonical(ours.as_bytes(), &[]).as_deref(),
        Ok(ours.as_bytes())
    );
    let mut other = String::new();
    scramble(&ours, &mut other);
    assert_eq!(
        canonical(other.as_bytes(), &[]).as_deref(),
        Ok(ours.as_bytes()),
        "{other}"
    );
    match theirs {
        Ok(value) => {
            let theirs =
                serde_json_canonicalizer::to_string(&value).expect("a value can be serialized");
            assert_eq!(with_doubles(&ours), theirs);
        }
        Err(error) => {
            let told = error.to_string();
            let known = ["number out of range", "recursion limit exceeded"];
            assert!(
                known.iter().any(|it| told.starts_with(it)),
                "the library rejects JSON that Hapax accepts: {told}"
            );
        }
    }
    check_folded(json);
});

/// Checks that folding replaces the value of a member and changes nothing else.
fn check_folded(json: &[u8]) {
    let Ok(folded) = canonical(json, &[("a", "\"\u{1}\u{e9}")]) else {
        panic!("folding rejects valid JSON");
    };
    let text = String::from_utf8(folded).expect("a canonical form is text");
    let Ok(members) = serde_json::from_str::<BTreeMap<String, Box<RawValue>>>(&text) else {
        return;
    };
    if let Some(value) = members.get("a") {
        assert_eq!(value.get(), "\"\\\"\\u0001\u{e9}\"");
    }
}

/// Writes the same JSON differently: members in reverse order, white space, every letter escaped.
fn scramble(json: &str, out: &mut String) {
    out.push_str("\t ");
    match json.as_bytes()[0] {
        b'{' => {
            let members: BTreeMap<String, Box<RawValue>> = parsed(json);
            list(out, '{', '}', members.iter().rev(), |out, (name, value)| {
                escape(name, out);
                out.push_str("\r\n:");
                scramble(value.get(), out);
            });
        }
        b'[' => {
            let items: Vec<Box<RawValue>> = parsed(json);
            list(out, '[', ']', items.iter(), |out, item| {
                scramble(item.get(), out)
            });
        }
        b'"' => escape(&parsed::<String>(json), out),
        _ => out.push_str(json),
    }
    out.push('\n');
}

fn list<T>(
    out: &mut String,
    open: char,
    close: char,
    items: impl Iterator<Item = T>,
    mut each: impl FnMut(&mut String, T),
) {
    out.push(open);
    for (place, item) in items.enumerate() {
        out.push_str(if place == 0 { " " } else { " , " });
        each(out, item);
    }
    out.push(close);
}

fn escape(text: &str, out: &mut String) {
    out.push('"');
    for unit in text.encode_utf16() {
        write!(out, "\\u{unit:04X}").expect("writing to a string does not fail");
    }
    out.push('"');
}

fn parsed<T: serde::de::DeserializeOwned>(json: &str) -> T {
    serde_json::from_str(json).expect("a canonical form is JSON")
}

/// Replaces every number of the canonical form by the double that RFC 8785 makes of it.
fn with_doubles(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    let (mut rest, mut in_string) = (json, false);
    while let Some(first) = rest.chars().next() {
        let is_number = !in_string && (first == '-' || first.is_ascii_digit());
        let length = match first {
            _ if is_number => number(rest),
            '\\' => 2,
            _ => first.len_utf8(),
        };
        let (token, behind) = rest.split_at(length);
        if is_number {
            let value: Value = parsed(token);
            out += &serde_json_canonicalizer::to_string(&value).expect("a number is valid JSON");
        } else {
            in_string ^= first == '"';
            out += token;
        }
        rest = behind;
    }
    out
}

fn number(text: &str) -> usize {
    let ends = |letter: char| !letter.is_ascii_digit() && !"+-.eE".contains(letter);
    text.find(ends).unwrap_or(text.len())
}
