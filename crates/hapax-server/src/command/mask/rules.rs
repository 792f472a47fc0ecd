//! Rules of `hapax mask`: values that are masked by the names of their members, and by their form.

use hapax::mask::{MASKED, Mask};
use regex::Regex;
use serde::de::IgnoredAny;

/// Names that are masked in addition to those of [`Mask`]. An operator needs them to see what
/// happened; the reader of a copy does not.
const NAMES: [&str; 13] = [
    "address",
    "birth",
    "birthday",
    "city",
    "dob",
    "firstname",
    "fullname",
    "lastname",
    "name",
    "postcode",
    "street",
    "surname",
    "zip",
];

/// A form of values, and what a match has to fulfil. If the pattern has a group, only the group has
/// to fulfil it and is masked.
type Form = (&'static str, Condition);

type Condition = fn(&str) -> bool;

/// The forms. They use ASCII classes only, so that the tables of Unicode are not needed.
const FORMS: [Form; 8] = [
    // The password of a URL.
    (r"://[^/ @:]*:([^/ ]+)@", any),
    (r"(?-u:\b)(?i-u:bearer|basic) +([A-Za-z0-9._~+/=-]+)", any),
    // A JSON web token.
    (
        r"(?-u:\b)eyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*",
        any,
    ),
    // Tokens of which issuers say by their beginning what they are.
    (
        r"(?-u:\b)(?:whsec_|whsk_|sk_|rk_|ghp_|gho_|github_pat_|glpat-|xox[a-z]-|AKIA|AIza)[A-Za-z0-9_+/=.-]{8,}",
        any,
    ),
    // An e-mail address, also an internationalized one.
    (
        r#"[^\x00-\x20"'<>(),;:=@/\\]+@[^\x00-\x20"'<>(),;:=@/\\]+\.[^\x00-\x20"'<>(),;:=@/\\.]+"#,
        any,
    ),
    (
        r"(?-u:\b)[A-Z]{2}[0-9]{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?(?-u:\b)",
        is_iban,
    ),
    (r"(?-u:\b)[0-9](?:[ -]?[0-9]){12,18}(?-u:\b)", is_card),
    // Phone numbers: international ones, and national ones with separators.
    (
        r"\+[0-9](?:[ ()./-]{0,2}[0-9]){7,14}|(?-u:\b)0[0-9](?:[ ()/-]{0,2}[0-9]){6,12}(?-u:\b)",
        is_phone,
    ),
];

/// A name and its value in a line of a log or in a header. The value is a string, a string whose
/// quotes are escaped, a string that is cut off, or a word.
const PAIR: &str = r#"(?x)
    ([A-Za-z_][A-Za-z0-9_.%\[-]*) \\*["'\]]?
    (\x20*(?:=>|[=:])\x20*)
    ( "(?:[^"\\]|\\.)*"
    | '[^']*'
    | \\"(?:[^"\\]|\\\\(?:\\.|[^"\\])|\\[^"\\])*\\"
    | \\*["'][^\r\n]*
    | [^\x20,;&"'\r\n]+ )"#;

/// The rules of one run.
#[derive(Debug)]
pub(super) struct Rules {
    mask: Mask,
    forms: Vec<(Regex, Condition)>,
    /// The patterns of the operator. A group in them has no meaning.
    own: Vec<Regex>,
    pair: Regex,
}

impl Rules {
    /// The usual rules with more names and patterns.
    pub(super) fn new(
        names: impl IntoIterator<Item: AsRef<str>>,
        patterns: &[String],
    ) -> Result<Self, regex::Error> {
        let names: Vec<_> = names.into_iter().collect();
        let names = names.iter().map(AsRef::as_ref).chain(NAMES);
        let forms = FORMS
            .iter()
            .map(|(form, is)| Regex::new(form).map(|form| (form, *is)));
        let own = patterns.iter().map(|pattern| Regex::new(pattern));
        Ok(Self {
            mask: Mask::with(names),
            forms: forms.collect::<Result<_, regex::Error>>()?,
            own: own.collect::<Result<_, regex::Error>>()?,
            pair: Regex::new(PAIR)?,
        })
    }

    /// Masks a line: JSON, or text.
    pub(super) fn line(&self, line: &str) -> String {
        self.json(line)
            .unwrap_or_else(|| self.forms(&self.pairs(line)))
    }

    /// Masks the cell of a column.
    pub(super) fn cell(&self, column: &str, cell: &str) -> String {
        if self.mask.hides(column) && !cell.is_empty() {
            return MASKED.to_owned();
        }
        self.line(cell)
    }

    /// Masks an object or an array; `None` if the text is something else.
    pub(super) fn json(&self, text: &str) -> Option<String> {
        if !begins_like_json(text) {
            return None;
        }
        let text = self.mask.json(text)?;
        let (mut shown, mut rest) = (String::with_capacity(text.len()), text.as_str());
        while let Some(start) = rest.find('"') {
            let end = start + string_length(&rest[start..]);
            shown.push_str(&self.numbers(&rest[..start]));
            shown.push_str(&self.string(&rest[start..end]));
            rest = &rest[end..];
        }
        shown.push_str(&self.numbers(rest));
        Some(shown)
    }

    /// Masks a string of JSON.
    fn string(&self, string: &str) -> String {
        let read: Option<String> = serde_json::from_str(string).ok();
        let masked = read.and_then(|text| {
            let masked = self.line(&text);
            (masked != text).then(|| serde_json::to_string(&masked).ok())?
        });
        masked.unwrap_or_else(|| string.to_owned())
    }

    /// Masks what is between two strings of JSON: a value as a whole, so that the result is JSON.
    fn numbers(&self, between: &str) -> String {
        let mut shown = String::with_capacity(between.len());
        for part in between.split_inclusive(is_structure) {
            let value = part.trim_end_matches(is_structure);
            if value.is_empty() || self.forms(value) == value {
                shown.push_str(part);
            } else {
                shown.push_str("\"***\"");
                shown.push_str(&part[value.len()..]);
            }
        }
        shown
    }

    /// Masks the values of names in a line of text.
    fn pairs(&self, line: &str) -> String {
        let (mut shown, mut rest) = (String::with_capacity(line.len()), line);
        while let Some(pair) = self.pair.captures(rest) {
            let (name, sign, value) = (&pair[1], &pair[2], pair.get(3));
            let value = value.map_or(rest.len()..rest.len(), |it| it.range());
            shown.push_str(&rest[..value.start]);
            rest = &rest[value.start..];
            if self.mask.hides(name) {
                let mut length = value.len();
                let is_quoted = rest.trim_start_matches('\\').starts_with(['"', '\'']);
                let is_part = rest[..length].contains(['(', '[', '{'])
                    || rest[length..].starts_with(['"', '\'']);
                // The value of a header can have spaces and commas, as can what is in brackets.
                if !is_quoted && (is_part || sign.contains(':')) {
                    length = rest.find(['\r', '\n']).unwrap_or(rest.len());
                }
                shown.push_str(MASKED);
                rest = &rest[length..];
            }
        }
        shown.push_str(rest);
        shown
    }

    /// Masks values by their form.
    fn forms(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (form, is) in &self.forms {
            let masked = form.replace_all(&text, |found: &regex::Captures<'_>| {
                let whole = &found[0];
                let start = found.get(0).map_or(0, |it| it.start());
                let hidden = found.get(1).map(|it| it.start() - start..it.end() - start);
                let hidden = hidden.unwrap_or(0..whole.len());
                if is(&whole[hidden.clone()]) {
                    format!("{}{MASKED}{}", &whole[..hidden.start], &whole[hidden.end..])
                } else {
                    whole.to_owned()
                }
            });
            text = masked.into_owned();
        }
        for own in &self.own {
            text = own.replace_all(&text, MASKED).into_owned();
        }
        text
    }
}

/// Whether the first line is the beginning of a JSON document over several lines.
pub(super) fn is_the_beginning_of_json(line: &str) -> bool {
    begins_like_json(line) && serde_json::from_str::<IgnoredAny>(line).is_err()
}

fn begins_like_json(text: &str) -> bool {
    text.trim_start().starts_with(['{', '['])
}

/// The length of the string of JSON at the beginning of a text, with its quotes.
fn string_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut place = 1;
    while let Some(byte) = bytes.get(place) {
        match byte {
            b'"' => return place + 1,
            b'\\' => place += 2,
            _ => place += 1,
        }
    }
    bytes.len()
}

/// Whether it separates the values of JSON that are not strings.
fn is_structure(letter: char) -> bool {
    matches!(letter, '{' | '}' | '[' | ']' | ',' | ':') || letter.is_whitespace()
}

fn any(_: &str) -> bool {
    true
}

/// Whether the check digit of a card number is right (Luhn).
fn is_card(text: &str) -> bool {
    let digits = text.bytes().rev().filter(u8::is_ascii_digit);
    let sum: u32 = digits
        .enumerate()
        .map(|(place, digit)| {
            let digit = u32::from(digit - b'0') * if place % 2 == 0 { 1 } else { 2 };
            digit / 10 + digit % 10
        })
        .sum();
    sum.is_multiple_of(10)
}

/// Whether the check digits of an IBAN are right (ISO 7064, modulo 97).
fn is_iban(text: &str) -> bool {
    let compact: Vec<u8> = text.bytes().filter(|byte| *byte != b' ').collect();
    let turned = compact[4..].iter().chain(&compact[..4]);
    let rest = turned.fold(0_u32, |rest, byte| match byte {
        b'0'..=b'9' => (rest * 10 + u32::from(byte - b'0')) % 97,
        _ => (rest * 100 + u32::from(byte - b'A') + 10) % 97,
    });
    rest == 1
}

/// Whether it is written like a phone number: a long row of digits alone is an id.
fn is_phone(text: &str) -> bool {
    text.starts_with('+') || text.contains([' ', '(', ')', '/', '-'])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> String {
        Rules::new([""; 0], &[]).unwrap().line(text)
    }

    #[test]
    fn what_identifies_a_person_or_opens_a_door_is_masked() {
        for (text, expected) in [
            ("from ann.lee+x@mail.example.org", "from ***"),
            ("an jörg@bücher.example,", "an ***,"),
            ("card 4111 1111 1111 1111.", "card ***."),
            ("4111-1111-1111-1111", "***"),
            ("DE89 3704 0044 0532 0130 00 paid", "*** paid"),
            ("GB82WEST12345698765432", "***"),
            ("call +49 (30) 901820-11 now", "call *** now"),
            ("call 030/901820-11", "call ***"),
            ("Authorization: Bearer abc.def", "Authorization: ***"),
            ("sent bearer abc.def-1 twice", "sent bearer *** twice"),
            ("Cookie: a=1; b=2\r\n", "Cookie: ***\r\n"),
            ("postgres://me:s3cret@db/shop", "postgres://me:***@db/shop"),
            ("whsec_MfKQ9r8GKYqrTwjU", "***"),
            ("user=ann password='a b' n=1", "user=ann password=*** n=1"),
            (
                "https://x.example/?token=abc&n=1",
                "https://x.example/?token=***&n=1",
            ),
            (r#"a name="Ann Lee" n=1"#, "a name=*** n=1"),
            ("postgres://me:p@ss@db/shop", "postgres://me:***@db/shop"),
            ("postgres://ann:a@db/shop", "postgres://ann:***@db/shop"),
            (
                "user[password]=a&user%5Bpassword%5D=b&n=1",
                "user[password]=***&user%5Bpassword%5D=***&n=1",
            ),
            // As the debug formats of languages write it.
            (r#"token=Some("a b")"#, "token=***"),
            (r#"tokens=["a", "b"]"#, "tokens=***"),
            (
                r#"{"password"=>"a b", "n"=>1}"#,
                r#"{"password"=>***, "n"=>1}"#,
            ),
            (
                r#"body="{\"token\":\"a \\\"b\",\"n\":1}" n=1"#,
                r#"body="{\"token\":***,\"n\":1}" n=1"#,
            ),
            // JSON that is cut off.
            (r#"{"n":1,"password":"a b"#, r#"{"n":1,"password":***"#),
            (r#"{"n":1,"card":{"number":"4"#, r#"{"n":1,"card":***"#),
        ] {
            assert_eq!(line(text), expected, "{text}");
        }
    }

    #[test]
    fn what_an_investigation_needs_stays() {
        for text in [
            "2026-11-21T06:00:00.000123456Z INFO stored operation=\"POST /orders\" status=201",
            "event 01936f2a-7c1e-7d0a-9b1c-5a1f0e6c2d11 key_hash=1f0e6c2d1101936f took 12 ms",
            "4111111111111112 is no card, GB82WEST12345698765431 no IBAN",
            "10.1.2.3:8080 -> [::1]:443, 0123456789012",
            "",
        ] {
            assert_eq!(line(text), text);
        }
    }

    #[test]
    fn what_a_pattern_matches_is_masked_as_a_whole() {
        let patterns = ["(ord|inv)-[0-9]+", "x(y?)z"].map(str::to_owned);
        let rules = Rules::new([""; 0], &patterns).unwrap();
        assert_eq!(rules.line("inv-17 of xz"), "*** of ***");
        assert_eq!(rules.line(r#"{"a":"ord-1"}"#), r#"{"a":"***"}"#);
    }

    #[test]
    fn json_stays_json() {
        for (text, expected) in [
            (
                r#"{"to":"\u0061@b.example","n":1.00}"#,
                r#"{"to":"***","n":1.00}"#,
            ),
            (r#"{"n":4111111111111111,"m":[]}"#, r#"{"n":"***","m":[]}"#),
            (
                "[-4111111111111111, 0.4111111111111111,4111111111111111.5, 1e5]",
                r#"["***", "***","***", 1e5]"#,
            ),
            (r#"{"line":"pin=1 \"x\""}"#, r#"{"line":"pin=*** \"x\""}"#),
            (
                r#"{"customer":{"name":"Ann"}}"#,
                r#"{"customer":{"name":"***"}}"#,
            ),
            (r#"["{\"email\":1}"]"#, r#"["{\"email\":\"***\"}"]"#),
        ] {
            let shown = line(text);
            assert_eq!(shown, expected);
            serde_json::from_str::<IgnoredAny>(&shown).unwrap();
        }
    }
}
