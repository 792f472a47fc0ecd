//! Fingerprint: the hash of what makes a request the same request.
//!
//! SHA-256 over length-prefixed parts: operation, path, query, content type without parameters, and
//! the body by the equality of the profile. No other header takes part.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

use crate::{bugs::Bug, json::Json, profile::Equality};

/// The parts of a request that are compared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts<'a> {
    /// Method and route template.
    pub(crate) operation: &'a str,
    pub(crate) path: &'a str,
    pub(crate) query: &'a str,
    /// In lower case, without parameters.
    pub(crate) content_type: &'a str,
    pub(crate) body: &'a [u8],
    /// The body, if it is JSON.
    pub(crate) json: Option<&'a Json>,
}

impl Parts<'_> {
    /// The fingerprint, in hexadecimal digits.
    pub(crate) fn fingerprint(&self, equality: Equality, bug: Option<Bug>) -> String {
        let mut hash = Sha256::new();
        let mut add = |part: &[u8]| {
            hash.update(part.len().to_string());
            hash.update(b":");
            hash.update(part);
        };
        add(self.operation.as_bytes());
        if bug != Some(Bug::FingerprintWithoutPath) {
            add(self.path.as_bytes());
        }
        if bug != Some(Bug::FingerprintWithoutQuery) {
            add(self.query.as_bytes());
        }
        if bug != Some(Bug::FingerprintWithoutContentType) {
            add(self.content_type.as_bytes());
        }
        add(&self.body(equality, bug));
        hex(&hash.finalize()[..])
    }

    fn body(&self, equality: Equality, bug: Option<Bug>) -> Vec<u8> {
        if bug == Some(Bug::FingerprintOnlyLength) {
            return self.body.len().to_string().into_bytes();
        }
        let is_raw = match bug {
            Some(Bug::FingerprintRawBytes) => true,
            Some(Bug::FingerprintCanonical) => false,
            _ => equality == Equality::Raw,
        };
        match self.json {
            Some(json) if !is_raw => {
                let mut text = String::new();
                let writer = Canonical { equality, bug };
                writer.write(json, &mut text);
                text.into_bytes()
            }
            _ => self.body.to_vec(),
        }
    }
}

/// Writes equal values as equal text.
#[derive(Clone, Copy, Debug)]
struct Canonical {
    equality: Equality,
    bug: Option<Bug>,
}

impl Canonical {
    fn write(self, json: &Json, text: &mut String) {
        match json {
            Json::Null => text.push_str("null"),
            Json::Bool(value) => text.push_str(if *value { "true" } else { "false" }),
            Json::Number(token) => text.push_str(&self.number(token)),
            Json::String(value) if self.bug == Some(Bug::FingerprintFoldsCase) => {
                quoted(&value.to_lowercase(), text);
            }
            Json::String(value) => quoted(value, text),
            Json::Array(elements) => {
                text.push('[');
                for element in elements {
                    self.write(element, text);
                    text.push(',');
                }
                text.push(']');
            }
            Json::Object(members) => self.object(members, text),
        }
    }

    fn object(self, members: &[(String, Json)], text: &mut String) {
        let mut members: Vec<_> = members.iter().collect();
        if self.bug != Some(Bug::FingerprintOrderSensitive) {
            // Stable: of two members with one name, the first stays first.
            members.sort_by(|(a, _), (b, _)| a.cmp(b));
        }
        if self.bug == Some(Bug::FingerprintFirstDuplicateMember) {
            members.dedup_by(|(later, _), (earlier, _)| later == earlier);
        }
        if self.bug == Some(Bug::FingerprintNullIsAbsent) {
            members.retain(|(_, value)| *value != Json::Null);
        }
        text.push('{');
        for (name, value) in members {
            quoted(name, text);
            text.push(':');
            self.write(value, text);
            text.push(',');
        }
        text.push('}');
    }

    fn number(self, token: &str) -> String {
        if self.bug == Some(Bug::FingerprintThroughDoubles) {
            let double = token.parse::<f64>();
            return double.map_or_else(|_| token.to_owned(), |value| format!("{value:e}"));
        }
        if self.equality == Equality::ByValue && self.bug != Some(Bug::FingerprintNumbersAsSent) {
            return decimal(token).unwrap_or_else(|| token.to_owned());
        }
        token.to_owned()
    }
}

/// A number token by its value: significant digits without zeros around them, and a power of ten.
/// `None` if the exponent does not fit into 64 bits.
pub(crate) fn decimal(token: &str) -> Option<String> {
    let (sign, rest) = match token.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", token),
    };
    let (mantissa, exponent) = rest.split_once(['e', 'E']).unwrap_or((rest, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return Some("0".to_owned());
    }
    let significant = digits.trim_end_matches('0');
    let zeros = i64::try_from(digits.len() - significant.len()).ok()?;
    let fraction = i64::try_from(fraction.len()).ok()?;
    let exponent = exponent.parse::<i64>().ok()?;
    let exponent = exponent.checked_sub(fraction)?.checked_add(zeros)?;
    Some(format!("{sign}{significant}e{exponent}"))
}

fn quoted(value: &str, text: &mut String) {
    // `{value:?}` escapes quotes and backslashes, so that no text can imitate two members.
    write!(text, "{value:?}").expect("writing to a string does not fail");
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        write!(text, "{byte:02x}").expect("writing to a string does not fail");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Duplicates;

    fn fingerprint(body: &str, equality: Equality, bug: Option<Bug>) -> String {
        let json = Json::parse(body.as_bytes(), Duplicates::Allowed).expect("valid JSON");
        let parts = Parts {
            operation: "POST /orders",
            path: "/orders",
            query: "",
            content_type: "application/json",
            body: body.as_bytes(),
            json: Some(&json),
        };
        parts.fingerprint(equality, bug)
    }

    #[track_caller]
    fn check(equality: Equality, bug: Option<Bug>, a: &str, b: &str, is_same: bool) {
        let same = fingerprint(a, equality, bug) == fingerprint(b, equality, bug);
        assert_eq!(same, is_same, "{a} and {b}");
    }

    #[test]
    fn canonical_json_ignores_space_and_order_and_keeps_number_tokens() {
        let canonical = Equality::Canonical;
        check(
            canonical,
            None,
            r#"{"a":1,"b":2}"#,
            r#"{ "b":2, "a":1 }"#,
            true,
        );
        check(canonical, None, r#"{"a":"\u0061"}"#, r#"{"a":"a"}"#, true);
        check(canonical, None, r#"{"a":1}"#, r#"{"a":1.0}"#, false);
        check(canonical, None, r#"{"a":1}"#, r#"{"a":1,"b":null}"#, false);
        check(canonical, None, r#"["a","b"]"#, r#"["a\",\"b"]"#, false);
    }

    #[test]
    fn by_value_compares_decimals_of_any_size() {
        let by_value = Equality::ByValue;
        check(by_value, None, "1", "1.0", true);
        check(by_value, None, "1", "10e-1", true);
        check(by_value, None, "100", "1E+2", true);
        check(by_value, None, "0", "-0.0e7", true);
        check(by_value, None, "1", "-1", false);
        check(
            by_value,
            None,
            "9007199254740992",
            "9007199254740993",
            false,
        );
        check(by_value, None, "1e400", "1e401", false);
    }

    #[test]
    fn raw_compares_bytes() {
        check(Equality::Raw, None, r#"{"a":1}"#, r#"{"a": 1}"#, false);
        check(Equality::Raw, None, r#"{"a":1}"#, r#"{"a":1}"#, true);
    }

    #[test]
    fn bugs_of_the_fingerprint_make_other_payloads_equal_or_equal_ones_different() {
        let canonical = Equality::Canonical;
        let doubles = Some(Bug::FingerprintThroughDoubles);
        check(
            canonical,
            doubles,
            "9007199254740992",
            "9007199254740993",
            true,
        );
        let order = Some(Bug::FingerprintOrderSensitive);
        check(
            canonical,
            order,
            r#"{"a":1,"b":2}"#,
            r#"{"b":2,"a":1}"#,
            false,
        );
        check(
            canonical,
            order,
            r#"{"a":1,"b":2}"#,
            r#"{"a": 1,"b": 2}"#,
            true,
        );
        let first = Some(Bug::FingerprintFirstDuplicateMember);
        check(canonical, first, r#"{"a":1}"#, r#"{"a":1,"a":2}"#, true);
        let null = Some(Bug::FingerprintNullIsAbsent);
        check(canonical, null, r#"{"a":1}"#, r#"{"a":1,"b":null}"#, true);
        let length = Some(Bug::FingerprintOnlyLength);
        check(canonical, length, r#"{"a":1}"#, r#"{"a":2}"#, true);
        let case = Some(Bug::FingerprintFoldsCase);
        check(canonical, case, r#"{"a":"x"}"#, r#"{"a":"X"}"#, true);
        let raw = Some(Bug::FingerprintRawBytes);
        check(canonical, raw, r#"{"a":1}"#, r#"{"a": 1}"#, false);
        let sent = Some(Bug::FingerprintNumbersAsSent);
        check(Equality::ByValue, sent, "1", "1.0", false);
        let canonical = Some(Bug::FingerprintCanonical);
        check(Equality::Raw, canonical, r#"{"a":1}"#, r#"{"a": 1}"#, true);
    }
}
