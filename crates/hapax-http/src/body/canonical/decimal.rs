//! Numbers by their decimal value: the digits without zeros at either end, and a power of ten.
//!
//! `4200`, `4200.0` and `4.2e3` are all written as `42e2`. The value is exact, so two integers that
//! are equal as doubles remain different. A zero has no sign.

/// Writes the value of a valid number.
///
/// A number with an exponent beyond 64 bits is written as it was sent.
pub(super) fn push_value(out: &mut Vec<u8>, number: &[u8]) {
    let start = out.len();
    if try_push(out, number).is_none() {
        out.truncate(start);
        out.extend_from_slice(number);
    }
}

fn try_push(out: &mut Vec<u8>, number: &[u8]) -> Option<()> {
    let start = out.len();
    let (digits, exponent) = split(number, |byte| matches!(byte, b'e' | b'E'));
    let (whole, fraction) = split(digits, |byte| byte == b'.');
    let mut exponent: i64 = match exponent {
        b"" => 0,
        exponent => std::str::from_utf8(exponent).ok()?.parse().ok()?,
    };
    exponent = exponent.checked_sub(i64::try_from(fraction.len()).ok()?)?;
    let unsigned = whole.strip_prefix(b"-").unwrap_or(whole);
    if unsigned.len() < whole.len() {
        out.push(b'-');
    }
    let first = out.len();
    let all = unsigned.iter().chain(fraction);
    out.extend(all.skip_while(|digit| **digit == b'0'));
    while out.len() > first && out.last() == Some(&b'0') {
        out.pop();
        exponent = exponent.checked_add(1)?;
    }
    if out.len() == first {
        out.truncate(start);
        out.push(b'0');
    } else if exponent != 0 {
        out.push(b'e');
        out.extend_from_slice(exponent.to_string().as_bytes());
    }
    Some(())
}

/// Splits at the first such byte; the second part is empty if there is none.
fn split(text: &[u8], is_separator: impl Fn(u8) -> bool) -> (&[u8], &[u8]) {
    match text.iter().position(|byte| is_separator(*byte)) {
        Some(at) => (&text[..at], &text[at + 1..]),
        None => (text, &[]),
    }
}
