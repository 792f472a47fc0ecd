//! JSON values as text, with one way of writing for each value.
//!
//! Two responses are compared by this text. A comparison of parsed values would read numbers as
//! doubles, and 9007199254740993 would be 9007199254740992. Numbers are compared digit by digit here:
//! 1.50 is 1.5, and 1e1 is 10. The order of members has no meaning.

use std::collections::BTreeMap;

use serde_json::{Value, value::RawValue};

/// Returns the one way of writing of a JSON text, or `None` if it is not JSON.
pub(crate) fn canonical(json: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(json).ok()?;
    // The parser refuses a text that is nested too deeply; what follows may recurse.
    serde_json::from_str::<Value>(text).ok()?;
    written(text)
}

fn written(text: &str) -> Option<String> {
    let text = text.trim();
    match text.as_bytes().first()? {
        b'{' => {
            let members: BTreeMap<String, &RawValue> = serde_json::from_str(text).ok()?;
            let members: Option<Vec<String>> = members
                .iter()
                .map(|(name, value)| {
                    let name = Value::from(name.as_str());
                    Some(format!("{name}:{}", written(value.get())?))
                })
                .collect();
            Some(format!("{{{}}}", members?.join(",")))
        }
        b'[' => {
            let items: Vec<&RawValue> = serde_json::from_str(text).ok()?;
            let items: Option<Vec<String>> = items.iter().map(|it| written(it.get())).collect();
            Some(format!("[{}]", items?.join(",")))
        }
        b'"' => {
            let string: String = serde_json::from_str(text).ok()?;
            Some(Value::from(string).to_string())
        }
        b'-' | b'0'..=b'9' => Some(number(text)),
        _ => Some(text.to_owned()),
    }
}

/// Returns a number as its digits without zeros at both ends, and the power of ten that belongs to the
/// last one.
fn number(text: &str) -> String {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let Ok(exponent) = exponent.parse::<i64>() else {
        return text.to_owned();
    };
    let (sign, digits) = match mantissa.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", mantissa),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all = format!("{whole}{fraction}");
    let short = all.trim_end_matches('0');
    let zeros = all.len() - short.len();
    let short = short.trim_start_matches('0');
    if short.is_empty() {
        return "0".to_owned();
    }
    let length = |it: usize| i64::try_from(it).unwrap_or(i64::MAX);
    let power = exponent
        .saturating_sub(length(fraction.len()))
        .saturating_add(length(zeros));
    format!("{sign}{short}e{power}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(one: &str, two: &str, equal: bool) {
        let [one, two] = [one, two].map(|it| canonical(it.as_bytes()).expect("valid JSON"));
        assert_eq!(one == two, equal, "{one} {two}");
    }

    #[test]
    fn large_numbers_are_compared_digit_by_digit() {
        check("9007199254740992", "9007199254740993", false);
        check(
            r#"{"a":123456789012345678901234567890}"#,
            r#"{"a":123456789012345678901234567891}"#,
            false,
        );
    }

    #[test]
    fn a_number_has_one_value_however_it_is_written() {
        check("1.50", "1.5", true);
        check("1e1", "10", true);
        check("10.0E+1", "100", true);
        check("-0", "0", true);
        check("0.0120", "12e-3", true);
        check("1", "-1", false);
        check("1", "10", false);
        check("0.1", "0.01", false);
        check("1", "\"1\"", false);
    }

    #[test]
    fn order_and_space_have_no_meaning_and_items_have_an_order() {
        check(
            r#"{"a":[1,{"b":null}],"c":"\u00e9"}"#,
            r#" { "c" : "é", "a" : [ 1, { "b" : null } ] } "#,
            true,
        );
        check("[1,2]", "[2,1]", false);
        check("true", "false", false);
        assert_eq!(canonical(b"{"), None);
        assert_eq!(canonical(b"\xff"), None);
        assert_eq!(canonical("[".repeat(10_000).as_bytes()), None);
    }
}
