//! Numbers by their decimal value: the digits without zeros at either end, and a power of ten.
//!
//! `4200`, `4200.0` and `4.2e3` are all written as `42e2`. The value is exact at any size, so two
//! integers that are equal as doubles remain different. A zero has no sign and no power.
//!
//! Only digits are copied and counted. A number is never expanded, so a large exponent costs no more
//! than its own digits.

/// The number of digits of an exponent that is added as an integer. A longer one is at least ten to
/// the power of 19, which is more than the number of bytes of any text.
const EXPONENT_DIGITS: usize = 19;

/// Writes the value of a valid number.
pub(super) fn push_value(out: &mut Vec<u8>, number: &[u8]) {
    let (digits, exponent) = split(number, |byte| matches!(byte, b'e' | b'E'));
    let (whole, fraction) = split(digits, |byte| byte == b'.');
    let unsigned = whole.strip_prefix(b"-").unwrap_or(whole);
    let start = out.len();
    if unsigned.len() < whole.len() {
        out.push(b'-');
    }
    let first = out.len();
    let all = unsigned.iter().chain(fraction);
    out.extend(all.skip_while(|digit| **digit == b'0'));
    if out.len() == first {
        out.truncate(start);
        out.push(b'0');
        return;
    }
    let written = out.len();
    while out.last() == Some(&b'0') {
        out.pop();
    }
    let zeros = written - out.len();
    push_exponent(out, exponent, length(zeros) - length(fraction.len()));
}

/// Writes the sum of an exponent, as it was sent, and `shift`; nothing if it is zero.
fn push_exponent(out: &mut Vec<u8>, exponent: &[u8], shift: i64) {
    let is_negative = exponent.first() == Some(&b'-');
    let front = exponent
        .iter()
        .take_while(|byte| matches!(**byte, b'+' | b'-' | b'0'));
    let digits = &exponent[front.count()..];
    if digits.len() <= EXPONENT_DIGITS {
        let value = digits.iter().fold(0_i128, |value, digit| {
            value * 10 + i128::from(*digit - b'0')
        });
        let value = if is_negative { -value } else { value };
        let sum = value + i128::from(shift);
        if sum != 0 {
            out.push(b'e');
            out.extend_from_slice(sum.to_string().as_bytes());
        }
        return;
    }
    // The shift is smaller than the exponent, so the sum has the sign of the exponent.
    out.push(b'e');
    if is_negative {
        out.push(b'-');
    }
    let first = out.len();
    out.extend_from_slice(digits);
    if is_negative == (shift < 0) {
        if let carry @ 1.. = add(&mut out[first..], shift.unsigned_abs()) {
            out.insert(first, digit(carry));
        }
    } else {
        subtract(&mut out[first..], shift.unsigned_abs());
        let zeros = out[first..].iter().take_while(|byte| **byte == b'0');
        let zeros = zeros.count();
        out.drain(first..first + zeros);
    }
}

/// Adds to a number of at least 20 digits, in place. Returns the digit that has to be put in front,
/// or 0.
fn add(digits: &mut [u8], mut amount: u64) -> u64 {
    for place in digits.iter_mut().rev() {
        let sum = u64::from(*place - b'0') + amount;
        *place = digit(sum % 10);
        amount = sum / 10;
    }
    amount
}

/// Subtracts from a number that is larger, in place.
fn subtract(digits: &mut [u8], mut amount: u64) {
    for place in digits.iter_mut().rev() {
        let (value, taken) = (u64::from(*place - b'0'), amount % 10);
        let borrow = u64::from(value < taken);
        *place = digit(value + 10 * borrow - taken);
        amount = amount / 10 + borrow;
    }
}

fn digit(value: u64) -> u8 {
    b'0' + u8::try_from(value).expect("it is less than ten")
}

/// The length of a part of a text.
fn length(bytes: usize) -> i64 {
    i64::try_from(bytes).expect("no text in memory has 2^63 bytes")
}

/// Splits at the first such byte; the second part is empty if there is none.
fn split(text: &[u8], is_separator: impl Fn(u8) -> bool) -> (&[u8], &[u8]) {
    match text.iter().position(|byte| is_separator(*byte)) {
        Some(at) => (&text[..at], &text[at + 1..]),
        None => (text, &[]),
    }
}
