//! Tests of the canonical form: against RFC 8785, except for numbers, which differ from it.

use proptest::prelude::*;
use serde_json::Value;

use super::*;

#[test]
fn order_and_space_make_no_difference() {
    check(
        r#"{ "b" : [ 1 , 2 ] , "a" : { "d":null,"c":true } }"#,
        r#"{"a":{"c":true,"d":null},"b":[1,2]}"#,
    );
    check(" [ ] ", "[]");
    check("{\n}", "{}");
    check(
        r#"{"c":{"z":1,"y":{"x":2,"w":3}},"b":0,"a":1}"#,
        r#"{"a":1,"b":0,"c":{"y":{"w":3,"x":2},"z":1}}"#,
    );
}

#[test]
fn number_tokens_stay_as_they_were_sent() {
    for number in [
        "9007199254740993",
        "9007199254740992",
        "1.0",
        "1",
        "1e3",
        "1E+3",
        "-0",
        "0.10",
    ] {
        check(number, number);
    }
    for bad in [
        "01", "+1", "1.", ".5", "1e", "-", "0x1", "NaN", "1e+", "--1",
    ] {
        check_refused(bad);
    }
}

#[test]
fn numbers_by_value_are_exact_decimals() {
    for (sent, value) in [
        ("4200", "42e2"),
        ("4200.0", "42e2"),
        ("4.2E3", "42e2"),
        ("420000e-2", "42e2"),
        ("42e+0002", "42e2"),
        ("0", "0"),
        ("-0.0e5", "0"),
        ("-7", "-7"),
        ("0.10", "1e-1"),
        ("-0.0102", "-102e-4"),
        ("9007199254740993", "9007199254740993"),
        ("9007199254740992", "9007199254740992"),
        ("1e99999999999999999999", "1e99999999999999999999"),
        ("10e9223372036854775807", "1e9223372036854775808"),
        ("0.1e-9223372036854775808", "1e-9223372036854775809"),
        ("1000e99999999999999999999", "1e100000000000000000002"),
        ("0.001e100000000000000000000", "1e99999999999999999997"),
        ("1000e-100000000000000000000", "1e-99999999999999999997"),
        ("0.001e-99999999999999999999", "1e-100000000000000000002"),
        ("0.01e10000000000000000000", "1e9999999999999999998"),
        ("-10e+00099999999999999999999", "-1e100000000000000000000"),
        ("0.0e99999999999999999999", "0"),
        ("-0e-99999999999999999999", "0"),
        ("{\"b\":[1.0],\"a\":\"1.0\"}", "{\"a\":\"1.0\",\"b\":[1]}"),
    ] {
        assert_eq!(by_value(sent), value, "{sent}");
        assert_eq!(by_value(value), value);
    }
}

#[test]
fn strings_are_written_in_one_way() {
    check(r#""A\u0041\/\u00e9\ud83d\ude00""#, "\"AA/\u{e9}\u{1f600}\"");
    check(r#""\u000a\u001F\u0008\u007f""#, "\"\\n\\u001f\\b\u{7f}\"");
    for bad in [
        r#""\ud800""#,
        r#""\udc00\ud800""#,
        r#""\ud800\u0041""#,
        r#""\x""#,
        r#""\u12""#,
        "\"a",
        "\"\n\"",
    ] {
        check_refused(bad);
    }
    assert!(canonical(b"\"\xff\"", &[], Numbers::AsSent).is_err());
}

#[test]
fn names_are_sorted_by_their_utf_16_code_units() {
    check(
        "{\"\u{ff5e}\":1,\"\u{1f600}\":2}",
        "{\"\u{1f600}\":2,\"\u{ff5e}\":1}",
    );
    check(r#"{"b":1,"\u0061":2}"#, r#"{"a":2,"b":1}"#);
    check(
        "{\"a\":1,\"\\n\":2,\"\\\"\":3}",
        "{\"\\n\":2,\"\\\"\":3,\"a\":1}",
    );
    check(r#"{"aa":1,"a":2}"#, r#"{"a":2,"aa":1}"#);
}

#[test]
fn a_member_that_comes_twice_is_refused_however_it_is_spelled() {
    for text in [
        r#"{"a":1,"a":1}"#,
        r#"{"a":1,"b":2,"\u0061":3}"#,
        r#"[{"x":{"":1,"":2}}]"#,
    ] {
        let error = canonical(text.as_bytes(), &[], Numbers::AsSent);
        assert!(matches!(error, Err(JsonError::Duplicate { .. })), "{text}");
    }
    check(
        r#"{"a":{"a":1},"b":{"a":1}}"#,
        r#"{"a":{"a":1},"b":{"a":1}}"#,
    );
}

#[test]
fn nesting_is_bounded() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert!(canonical(nested(JSON_DEPTH_MAX).as_bytes(), &[], Numbers::AsSent).is_ok());
    let deeper = canonical(nested(JSON_DEPTH_MAX + 1).as_bytes(), &[], Numbers::AsSent);
    assert_eq!(deeper, Err(JsonError::Depth));
    assert_eq!(
        canonical("[".repeat(1_000_000).as_bytes(), &[], Numbers::AsSent),
        Err(JsonError::Depth)
    );
}

#[test]
fn the_members_of_an_object_are_bounded_with_those_around_it() {
    let object = |members: usize, last: &str| {
        let members: Vec<_> = (1..members).map(|n| format!("\"{n}\":0")).collect();
        format!("{{{},\"last\":{last}}}", members.join(","))
    };
    let full = object(JSON_MEMBERS_MAX, "0");
    assert!(canonical(full.as_bytes(), &[], Numbers::AsSent).is_ok());
    // Two objects in sequence: the limit applies to each of them.
    assert!(canonical(format!("[{full},{full}]").as_bytes(), &[], Numbers::AsSent).is_ok());
    let inside = "{\"a\":0,\"b\":0}";
    for more in [
        object(JSON_MEMBERS_MAX + 1, "0"),
        object(JSON_MEMBERS_MAX, inside),
    ] {
        let refused = canonical(more.as_bytes(), &[], Numbers::AsSent).err();
        assert_eq!(refused, Some(JsonError::Members));
    }
}

#[test]
fn what_is_no_json_is_refused() {
    for bad in [
        "",
        " ",
        "{",
        "[1,]",
        "{\"a\"}",
        "{\"a\":1,}",
        "{a:1}",
        "1 2",
        "tru",
        "[1}",
        "'a'",
        "\u{feff}1",
    ] {
        check_refused(bad);
    }
}

#[test]
fn a_folded_member_stands_in_for_what_was_sent_at_the_top_alone() {
    let folded = [("email", "ann@x.org")];
    let of = |text: &str| {
        String::from_utf8(canonical(text.as_bytes(), &folded, Numbers::AsSent).unwrap()).unwrap()
    };
    assert_eq!(
        of(r#"{"email":"Ann@X.org","a":1}"#),
        r#"{"a":1,"email":"ann@x.org"}"#
    );
    assert_eq!(of(r#"{"a":{"email":"Ann"}}"#), r#"{"a":{"email":"Ann"}}"#);
}

proptest! {
    #[test]
    fn it_agrees_with_rfc_8785_on_all_but_numbers(value in json()) {
        let sent = serde_json::to_vec_pretty(&value).unwrap();
        let ours = canonical(&sent, &[], Numbers::AsSent).unwrap();
        let theirs = serde_json_canonicalizer::to_vec(&value).unwrap();
        prop_assert_eq!(String::from_utf8(ours).unwrap(), String::from_utf8(theirs).unwrap());
    }

    #[test]
    fn it_takes_what_serde_takes_and_is_its_own_canonical_form(text in "[\\[\\]{},:\"a\\\\u0-9.e+\\- ]{0,24}") {
        let ours = canonical(text.as_bytes(), &[], Numbers::AsSent);
        let theirs = serde_json::from_str::<Box<serde_json::value::RawValue>>(&text);
        match ours {
            Ok(once) => {
                prop_assert!(theirs.is_ok(), "serde refuses {text:?}");
                prop_assert_eq!(canonical(&once, &[], Numbers::AsSent).unwrap(), once);
            }
            Err(JsonError::Duplicate { .. }) => {}
            // Serde does not check the inside of strings here; only lone surrogates may differ.
            Err(_) => prop_assert!(theirs.is_err() || text.contains("\\u"), "serde takes {text:?}"),
        }
    }

    #[test]
    fn every_spelling_of_a_decimal_has_one_value(digits in any::<i64>(), power in -99_i64..99, zeros in 0_usize..9) {
        prop_assume!(digits != 0);
        let value = by_value(&format!("{digits}e{power}"));
        let zeros = "0".repeat(zeros);
        prop_assert_eq!(&by_value(&format!("{digits}.{zeros}0E{power}")), &value);
        let shifted = power - i64::try_from(zeros.len()).unwrap();
        prop_assert_eq!(&by_value(&format!("{digits}{zeros}e{shifted}")), &value);
        prop_assert_eq!(by_value(&value), value);
    }

    #[test]
    fn numbers_are_equal_if_and_only_if_their_rationals_are(a in decimal(), b in decimal()) {
        let (value, other) = (by_value(&a.to_string()), by_value(&b.to_string()));
        prop_assert_eq!(value == other, a.is_equal(&b), "{} and {}", a, b);
    }

    /// The sum is computed with numbers that are as long as the exponent.
    #[test]
    fn an_exponent_beyond_64_bits_is_exact(
        exponent in 100_000_000_000_000_000_000_i128..i128::MAX / 2,
        zeros in 0_usize..12,
        is_negative in any::<bool>(),
    ) {
        let exponent = if is_negative { -exponent } else { exponent };
        let padding = "0".repeat(zeros);
        let moved = i128::try_from(zeros).unwrap();
        prop_assert_eq!(by_value(&format!("7{padding}e{exponent}")), format!("7e{}", exponent + moved));
        let fraction = format!("0.{padding}7e{exponent}");
        prop_assert_eq!(by_value(&fraction), format!("7e{}", exponent - moved - 1));
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        for numbers in [Numbers::AsSent, Numbers::ByValue] {
            let _ = canonical(&bytes, &[], numbers);
        }
    }
}

/// The number `mantissa * 10^power`, and the number of digits that are written after its point.
#[derive(Debug)]
struct Decimal {
    mantissa: i32,
    power: i32,
    decimals: usize,
}

/// Small numbers, so that two of them are often equal.
fn decimal() -> impl Strategy<Value = Decimal> {
    (-120_i32..120, -3_i32..4, 0_usize..5).prop_map(|(mantissa, power, decimals)| Decimal {
        mantissa,
        power,
        decimals,
    })
}

impl Decimal {
    /// Compares the exact values, both multiplied by a power of ten that makes them integers.
    fn is_equal(&self, other: &Self) -> bool {
        let scaled =
            |it: &Self| i64::from(it.mantissa) * 10_i64.pow(u32::try_from(it.power + 3).unwrap());
        scaled(self) == scaled(other)
    }
}

impl std::fmt::Display for Decimal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sign = if self.mantissa < 0 { "-" } else { "" };
        // At least one digit before the point, and no zero in front of another digit.
        let digits = format!(
            "{:0width$}",
            self.mantissa.unsigned_abs(),
            width = self.decimals + 1
        );
        let (whole, fraction) = digits.split_at(digits.len() - self.decimals);
        let power = self.power + i32::try_from(self.decimals).unwrap();
        match (fraction, power) {
            ("", 0) => write!(f, "{sign}{whole}"),
            ("", power) => write!(f, "{sign}{whole}e{power}"),
            (fraction, power) => write!(f, "{sign}{whole}.{fraction}E{power:+}"),
        }
    }
}

#[test]
fn a_hostile_exponent_costs_no_more_than_its_digits() {
    let zeros = "0".repeat(500_000);
    let nines = "9".repeat(500_000);
    assert_eq!(by_value("1e999999999999"), "1e999999999999");
    assert_eq!(by_value("-1e-999999999999"), "-1e-999999999999");
    assert_eq!(by_value(&format!("0e{nines}")), "0");
    assert_eq!(by_value(&format!("1e{zeros}")), "1");
    assert_eq!(by_value(&format!("1{zeros}e-500000")), "1");
    assert_eq!(by_value(&format!("10e{nines}")), format!("1e1{zeros}"));
    assert_eq!(by_value(&format!("0.1e1{zeros}")), format!("1e{nines}"));
}

fn json() -> impl Strategy<Value = Value> {
    let number = -9_007_199_254_740_991_i64..9_007_199_254_740_991;
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        number.prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 64, 8, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
            proptest::collection::hash_map(any::<String>(), inner, 0..8)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

#[track_caller]
fn check(json: &str, expected: &str) {
    let ours = canonical(json.as_bytes(), &[], Numbers::AsSent).unwrap();
    assert_eq!(String::from_utf8(ours).unwrap(), expected);
}

fn by_value(json: &str) -> String {
    let value = canonical(json.as_bytes(), &[], Numbers::ByValue).unwrap();
    String::from_utf8(value).unwrap()
}

#[track_caller]
fn check_refused(json: &str) {
    let refused = canonical(json.as_bytes(), &[], Numbers::AsSent);
    assert!(
        matches!(refused, Err(JsonError::Syntax { .. })),
        "{json:?}: {refused:?}"
    );
}
