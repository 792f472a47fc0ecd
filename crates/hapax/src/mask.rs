//! Masking of payloads and stored responses: values of members with sensitive names are replaced
//! before an operator sees them.
//!
//! A name is split into words: `cardNumber`, `CARD_NUMBER` and `billing.card` contain the word
//! `card`, `discard` does not. A masked value is replaced as a whole, with everything in it, at any
//! depth, and also in JSON inside a string. Everything else is shown unchanged, byte for byte.
//! Content that is not JSON is not shown, only its type and length.

use std::collections::BTreeSet;

use serde::de::IgnoredAny;

use crate::limits::SHOWN_BYTES_MAX;

/// The names whose values are masked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mask {
    /// The words of each name.
    names: Vec<Vec<String>>,
}

/// Content as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shown {
    /// Masked JSON.
    Json(String),
    /// Content that is not JSON, or that is too long to be shown: only its type and length.
    Opaque {
        /// The media type, if it is known.
        content_type: Option<String>,
        /// The length in bytes.
        bytes: u64,
    },
}

/// The replacement of a masked value.
pub const MASKED: &str = "***";

/// Names that are always masked.
const USUAL: &[&str] = &[
    "account_number",
    "api_key",
    "apikey",
    "authorization",
    "card",
    "cardnumber",
    "cookie",
    "credential",
    "creditcard",
    "cvc",
    "cvv",
    "email",
    "iban",
    "pan",
    "passphrase",
    "passwd",
    "password",
    "phone",
    "pin",
    "private_key",
    "pwd",
    "secret",
    "ssn",
    "token",
];
/// Names with at least this many letters are also found at either end of a word: `accesstoken`,
/// `emailaddress`.
const LONG: usize = 5;

impl Default for Mask {
    fn default() -> Self {
        Self::with::<[&str; 0]>([])
    }
}

impl Mask {
    /// Creates a mask with the default names and additional ones.
    pub fn with<I: IntoIterator<Item: AsRef<str>>>(more: I) -> Self {
        let usual = USUAL.iter().map(|name| words(name));
        let more = more.into_iter().map(|name| words(name.as_ref()));
        let names = usual.chain(more).filter(|words| !words.is_empty());
        Self {
            names: names.collect(),
        }
    }

    /// Whether the value of a member or header with this name is masked.
    pub fn hides(&self, name: &str) -> bool {
        let words = words(name);
        let holds = |hidden: &Vec<String>| words.windows(hidden.len()).any(|some| is(some, hidden));
        self.names.iter().any(holds)
    }

    /// Masks JSON at any depth; `None` if the text is not JSON.
    pub fn json(&self, text: &str) -> Option<String> {
        self.json_with(text, |_| format!("\"{MASKED}\""))
    }

    /// Masks JSON like [`json`](Self::json), but keeps the shape of masked values: objects and arrays keep their
    /// members and items, null stays null, and the other values in them are replaced. Names in masked objects
    /// are replaced as well, except for those in `names`.
    pub(crate) fn json_in_shape(&self, text: &str, names: &BTreeSet<String>) -> Option<String> {
        self.json_with(text, |value| in_shape(value, names))
    }

    /// Replaces the values that are masked by what `replace` makes of them.
    fn json_with(&self, text: &str, replace: impl Fn(&str) -> String) -> Option<String> {
        serde_json::from_str::<IgnoredAny>(text).ok()?;
        let (bytes, mut shown) = (text.as_bytes(), String::with_capacity(text.len()));
        let (mut place, mut copied) = (0, 0);
        while place < bytes.len() {
            if bytes[place] != b'"' {
                place += 1;
                continue;
            }
            let end = string_end(bytes, place);
            let behind = beyond_space(bytes, end);
            let said = serde_json::from_str::<String>(&text[place..end]).ok();
            // A string before a colon is a name. Inside a string, names are enclosed in quotes.
            let instead = if bytes.get(behind) == Some(&b':') {
                // If a name cannot be decoded, its value is masked.
                let hidden = said.is_none_or(|name| self.hides(&name));
                let value = beyond_space(bytes, behind + 1);
                hidden.then(|| {
                    let until = value_end(bytes, value);
                    (value, until, replace(&text[value..until]))
                })
            } else {
                said.and_then(|said| self.json_within(&said))
                    .map(|masked| (place, end, masked))
            };
            place = end;
            if let Some((from, until, instead)) = instead {
                shown.push_str(&text[copied..from]);
                shown.push_str(&instead);
                (place, copied) = (until, until);
            }
        }
        shown.push_str(&text[copied..]);
        Some(shown)
    }

    /// Content of a media type as it is shown. Without a media type it is treated as JSON if it can
    /// be parsed as JSON.
    pub fn content(&self, content_type: Option<&str>, bytes: &[u8]) -> Shown {
        let may_be = content_type.is_none_or(is_json) && bytes.len() <= SHOWN_BYTES_MAX;
        let text = str::from_utf8(bytes).ok().filter(|_| may_be);
        text.and_then(|text| self.json(text)).map_or_else(
            || Shown::Opaque {
                content_type: content_type.map(str::to_owned),
                bytes: bytes.len() as u64,
            },
            Shown::Json,
        )
    }

    /// The beginning of a receiver's response as it is shown: JSON is masked, anything else is
    /// unchanged. `None` if it begins like JSON but cannot be parsed, because it is unknown to
    /// which member a value of truncated JSON belongs.
    pub fn head(&self, head: &[u8]) -> Option<String> {
        let text = String::from_utf8_lossy(head);
        let text = beginning(&text);
        if text.starts_with(['{', '[', '"']) {
            self.json(text)
        } else {
            Some(text.to_owned())
        }
    }

    /// Masks a string that contains JSON, and encodes it as a string again; `None` if nothing in it
    /// is masked.
    fn json_within(&self, text: &str) -> Option<String> {
        let text = beginning(text);
        if !text.starts_with(['{', '[']) {
            return None;
        }
        let masked = self.json(text).filter(|masked| masked != text)?;
        serde_json::to_string(&masked).ok()
    }
}

/// The text without what some encoders put before JSON, such as a byte order mark. A parser does
/// not accept it, but a reader can still read the values.
fn beginning(text: &str) -> &str {
    let says_nothing = |it: char| {
        it.is_whitespace()
            || it.is_control()
            || matches!(it, '\u{feff}' | char::REPLACEMENT_CHARACTER)
    };
    text.trim_start_matches(says_nothing)
}

/// Whether a media type is JSON, or a format that is based on JSON.
fn is_json(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    let essence = essence.to_ascii_lowercase();
    essence.ends_with("/json") || essence.ends_with("+json")
}

/// Whether these words are a sensitive name. The last word may be in the plural.
fn is(words: &[String], hidden: &[String]) -> bool {
    if let ([word], [hidden]) = (words, hidden)
        && hidden.len() >= LONG
    {
        return word.starts_with(hidden.as_str()) || word.trim_end_matches('s').ends_with(hidden);
    }
    words.iter().zip(hidden).all(|(word, hidden)| {
        word == hidden || word.strip_suffix('s').is_some_and(|one| one == hidden)
    })
}

/// The words of a name, in lower case. A word ends at a digit, at a capital letter, and at any
/// other character.
fn words(name: &str) -> Vec<String> {
    let letters: Vec<char> = name.chars().collect();
    let mut words = vec![String::new()];
    for (place, letter) in letters.iter().enumerate() {
        if !letter.is_alphanumeric() {
            words.push(String::new());
            continue;
        }
        let before = place.checked_sub(1).map(|place| letters[place]);
        if before.is_some_and(|before| begins(before, *letter, letters.get(place + 1))) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut() {
            word.extend(letter.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Whether a word begins at this letter: `cardNumber`, `APIKey`, `card2`.
fn begins(before: char, letter: char, next: Option<&char>) -> bool {
    let hump = letter.is_uppercase()
        && (before.is_lowercase() || next.is_some_and(|next| next.is_lowercase()));
    hump || before.is_numeric() != letter.is_numeric()
}

/// A value with its objects, arrays and nulls, and nothing else of it. The text must be JSON. Names that are
/// not in `names` are numbered, because a name can be what has to be hidden: `{"cards": {"4111": "visa"}}`.
fn in_shape(json: &str, names: &BTreeSet<String>) -> String {
    let bytes = json.as_bytes();
    let (mut place, mut members, mut shown) = (0, 0_usize, String::new());
    while let Some(byte) = bytes.get(place) {
        if matches!(
            byte,
            b'{' | b'}' | b'[' | b']' | b',' | b':' | b' ' | b'\t' | b'\n' | b'\r'
        ) {
            shown.push(char::from(*byte));
            place += 1;
            continue;
        }
        let end = value_end(bytes, place);
        let text = &json[place..end];
        let (is_kept, instead) = if bytes.get(beyond_space(bytes, end)) == Some(&b':') {
            members += 1;
            let name = serde_json::from_str::<String>(text);
            let is_known = name.is_ok_and(|name| names.contains(&name));
            (is_known, format!("\"{MASKED}{members}\""))
        } else {
            (text == "null", format!("\"{MASKED}\""))
        };
        shown.push_str(if is_kept { text } else { &instead });
        place = end;
    }
    shown
}

/// The index after the closing quote of the string that begins here. The text must be JSON.
fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut place = start + 1;
    while let Some(byte) = bytes.get(place) {
        match byte {
            b'"' => return place + 1,
            b'\\' => place += 2,
            _ => place += 1,
        }
    }
    bytes.len()
}

/// The index after the value that begins here. The text must be JSON.
fn value_end(bytes: &[u8], start: usize) -> usize {
    let (mut place, mut depth) = (start, 0_usize);
    while let Some(byte) = bytes.get(place) {
        match byte {
            b'"' => place = string_end(bytes, place),
            b'{' | b'[' => {
                depth += 1;
                place += 1;
            }
            b'}' | b']' if depth > 0 => {
                depth -= 1;
                place += 1;
            }
            b',' | b'}' | b']' | b' ' | b'\t' | b'\n' | b'\r' if depth == 0 => return place,
            _ => {
                place += 1;
                continue;
            }
        }
        if depth == 0 {
            return place;
        }
    }
    bytes.len()
}

fn beyond_space(bytes: &[u8], mut place: usize) -> usize {
    while matches!(bytes.get(place), Some(b' ' | b'\t' | b'\n' | b'\r')) {
        place += 1;
    }
    place
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn names_are_hidden_by_their_words() {
        let mask = Mask::with(["date of birth", "x-shop-id"]);
        for name in [
            "card",
            "Card",
            "CARD_NUMBER",
            "cardNumber",
            "cards",
            "billing.card",
            "card2",
            "email",
            "customerEmail",
            "emailaddress",
            "accesstoken",
            "access_tokens",
            "APIKey",
            "api-key",
            "Authorization",
            "set-cookie",
            "PIN",
            "dateOfBirth",
            "date_of_birth",
            "X-Shop-Id",
            "clientSecret",
            "passwordHash",
        ] {
            assert!(mask.hides(name), "{name}");
        }
        for name in [
            "",
            "_",
            "discard",
            "cardinal",
            "pinned",
            "span",
            "company",
            "id",
            "amount",
            "birth",
            "birthOfDate",
            "shop",
            "traceparent",
            "correlation_id",
            "e-mai-l",
        ] {
            assert!(!mask.hides(name), "{name}");
        }
    }

    #[test]
    fn what_is_hidden_is_hidden_at_any_depth_and_the_rest_stays_byte_for_byte() {
        let mask = Mask::default();
        let check = |text: &str, shown: &str| assert_eq!(mask.json(text).as_deref(), Some(shown));
        check(r#"{"b": 1.00, "a":"x"}"#, r#"{"b": 1.00, "a":"x"}"#);
        check(
            r#"{"card" : {"no": [1, "}"]} , "a": 1}"#,
            r#"{"card" : "***" , "a": 1}"#,
        );
        check(
            r#"[[{"token":null}],{"a":{"pin":12}}]"#,
            r#"[[{"token":"***"}],{"a":{"pin":"***"}}]"#,
        );
        check(r#"{"\u0063ard":1}"#, r#"{"\u0063ard":"***"}"#);
        check(r#"{"\ud800":1}"#, r#"{"\ud800":"***"}"#);
        check(r#"["card", "\"email\":1"]"#, r#"["card", "\"email\":1"]"#);
        check(r#"{"raw":"{\"pin\":1}"}"#, r#"{"raw":"{\"pin\":\"***\"}"}"#);
        check("12345678901234567890123", "12345678901234567890123");
        check(r#"{"token":[]}"#, r#"{"token":"***"}"#);
    }

    #[test]
    fn the_shape_of_what_is_hidden_can_be_kept_without_its_values_and_names() {
        let mask = Mask::default();
        let names = BTreeSet::from(["id".to_owned()]);
        let check = |text: &str, shown: &str| {
            let masked = mask.json_in_shape(text, &names);
            assert_eq!(masked.as_deref(), Some(shown));
        };
        check(
            r#"{"cards": ["4111", 5500, {}], "a": ["b"]}"#,
            r#"{"cards": ["***", "***", {}], "a": ["b"]}"#,
        );
        check(
            r#"{"card": {"4111" : "visa", "id": {"\"": true}}}"#,
            r#"{"card": {"***1" : "***", "id": {"***3": "***"}}}"#,
        );
        check(
            r#"{"token":{"\u0069d":-1.5e3,"\ud800":2}}"#,
            r#"{"token":{"\u0069d":"***","***2":"***"}}"#,
        );
        check(r#"{"token":"a\": {"}"#, r#"{"token":"***"}"#);
        let empty = r#"{"token":null,"pins":[null,[],{}]}"#;
        check(empty, empty);
        assert_eq!(mask.json_in_shape("{", &names), None);
    }

    #[test]
    fn what_is_no_json_is_not_shown() {
        let mask = Mask::default();
        let opaque = |content_type: Option<&str>, bytes: u64| Shown::Opaque {
            content_type: content_type.map(str::to_owned),
            bytes,
        };
        let json = Some("application/problem+json; charset=utf-8");
        assert_eq!(
            mask.content(json, b"{\"a\":1}"),
            Shown::Json("{\"a\":1}".into())
        );
        assert_eq!(mask.content(None, b"1"), Shown::Json("1".into()));
        assert_eq!(mask.content(json, b"{"), opaque(json, 1));
        assert_eq!(
            mask.content(Some("text/plain"), b"{}"),
            opaque(Some("text/plain"), 2)
        );
        assert_eq!(mask.content(None, b"\xff"), opaque(None, 1));
        let long = format!("\"{}\"", "a".repeat(SHOWN_BYTES_MAX));
        assert_eq!(
            mask.content(None, long.as_bytes()),
            opaque(None, long.len() as u64)
        );
    }

    #[test]
    fn the_beginning_of_an_answer_is_masked_or_not_shown_whatever_stands_before_it() {
        let mask = Mask::default();
        let check = |head: &str, shown: Option<&str>| {
            for before in ["", " \n", "\u{feff}", "\u{feff} \u{feff}", "\0\u{1b}"] {
                let head = format!("{before}{head}");
                assert_eq!(mask.head(head.as_bytes()).as_deref(), shown, "{head:?}");
            }
        };
        check("no such host", Some("no such host"));
        check(r#"{"pin":1}"#, Some(r#"{"pin":"***"}"#));
        check(r#""{\"pin\":1}""#, Some(r#""{\"pin\":\"***\"}""#));
        check(
            r#"{"a":"\ufeff{\"pin\":1}"}"#,
            Some(r#"{"a":"{\"pin\":\"***\"}"}"#),
        );
        for cut in [r#"{"pin":"12"#, r#"[{"pin":"12"#, r#""{\"pin\":\"12"#] {
            check(cut, None);
        }
        let wide = b"\xff\xfe{\0\"\0p\0i\0n\0\"\0:\x001\0}\0";
        assert_eq!(mask.head(wide), None);
        assert_eq!(mask.head(b"").as_deref(), Some(""));
    }

    /// The same masking by means of a parsed tree, as a reference for the tests.
    fn masked(mask: &Mask, value: Value) -> Value {
        match value {
            Value::Array(items) => items.into_iter().map(|it| masked(mask, it)).collect(),
            Value::Object(members) => members
                .into_iter()
                .map(|(name, value)| {
                    let value = if mask.hides(&name) {
                        json!(MASKED)
                    } else {
                        masked(mask, value)
                    };
                    (name, value)
                })
                .collect(),
            other => other,
        }
    }

    fn tree() -> impl Strategy<Value = Value> {
        let text = prop_oneof![
            "[a-z\"\\\\{}\\[\\]:, é\u{1}]{0,8}",
            Just("card".to_owned()),
            Just("userEmail".to_owned()),
        ];
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            // A string that contains JSON is masked inside.
            text.clone()
                .prop_filter("no JSON", |it| !it.starts_with(['{', '[', ' ']))
                .prop_map(Value::from),
        ];
        leaf.prop_recursive(5, 64, 6, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::vec((text.clone(), inner), 0..6)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_masked_text_says_what_the_masked_tree_says(tree in tree(), pretty: bool) {
            let mask = Mask::default();
            let text = if pretty {
                serde_json::to_string_pretty(&tree).unwrap()
            } else {
                tree.to_string()
            };
            let shown = mask.json(&text).unwrap();
            let read: Value = serde_json::from_str(&shown).unwrap();
            prop_assert_eq!(read, masked(&mask, tree));
        }

        #[test]
        fn a_mask_without_anything_to_hide_changes_nothing(tree in tree()) {
            let mask = Mask { names: Vec::new() };
            let text = serde_json::to_string_pretty(&tree).unwrap();
            prop_assert_eq!(mask.json(&text), Some(text));
        }

        #[test]
        fn whatever_is_given_nothing_breaks(text in ".{0,64}") {
            let shown = Mask::default().json(&text);
            let is_json = serde_json::from_str::<IgnoredAny>(&text).is_ok();
            prop_assert_eq!(shown.is_some(), is_json);
        }
    }
}
