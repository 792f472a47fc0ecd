//! Numbers by their decimal value, which are compared exactly.
//!
//! `4200`, `4200.0` and `4.2e3` are equal, and `9007199254740993` is larger than
//! `9007199254740992`. A number is never expanded, so a large exponent costs no more than its own
//! digits. The fingerprints of `hapax-http` have the same equality and write it as text; here numbers
//! also have an order.

use std::cmp::Ordering;

/// Maximum number of digits of an exponent, without leading zeros. The sum of such an exponent and
/// the length of a text cannot overflow.
const EXPONENT_DIGITS: usize = 18;

/// A number: its significant digits, and the position of the decimal point.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decimal<'a> {
    is_negative: bool,
    /// The digits before the point without leading zeros, and without trailing zeros if there are
    /// none after it.
    whole: &'a [u8],
    /// The digits after the point without trailing zeros, and without leading zeros if there are
    /// none before it.
    fraction: &'a [u8],
    /// The power of ten for `0.` and these digits.
    point: i64,
}

impl<'a> Decimal<'a> {
    /// Parses a number as JSON has it; `None` if its exponent has more than 18 digits.
    pub(super) fn parse(number: &'a str) -> Option<Self> {
        let (digits, power) = number.split_once(['e', 'E']).unwrap_or((number, ""));
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let unsigned = whole.strip_prefix('-').unwrap_or(whole);
        let is_negative = unsigned.len() < whole.len();
        let (whole, fraction) = (unsigned.as_bytes(), fraction.as_bytes());
        let zeros = zeros(whole.iter().chain(fraction));
        if zeros == whole.len() + fraction.len() {
            return Some(Self {
                is_negative: false,
                whole: &[],
                fraction: &[],
                point: 0,
            });
        }
        let point = exponent(power)? + length(whole.len()) - length(zeros);
        let whole = &whole[zeros.min(unsigned.len())..];
        let fraction = &fraction[zeros.saturating_sub(unsigned.len())..];
        let fraction = without_trailing_zeros(fraction);
        let whole = if fraction.is_empty() {
            without_trailing_zeros(whole)
        } else {
            whole
        };
        Some(Self {
            is_negative,
            whole,
            fraction,
            point,
        })
    }

    fn sign(&self) -> i8 {
        match (self.whole, self.fraction) {
            ([], []) => 0,
            _ if self.is_negative => -1,
            _ => 1,
        }
    }

    fn digits(&self) -> impl Iterator<Item = &u8> {
        self.whole.iter().chain(self.fraction)
    }
}

impl Ord for Decimal<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_sign = self.sign().cmp(&other.sign());
        by_sign.then_with(|| {
            let by_point = self.point.cmp(&other.point);
            let size = by_point.then_with(|| self.digits().cmp(other.digits()));
            if self.is_negative {
                size.reverse()
            } else {
                size
            }
        })
    }
}

impl PartialOrd for Decimal<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Decimal<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Decimal<'_> {}

/// The value of an exponent, which may have a sign; 0 if there is none.
fn exponent(text: &str) -> Option<i64> {
    let digits = text.trim_start_matches(['+', '-']).trim_start_matches('0');
    if digits.is_empty() {
        return Some(0);
    }
    let value: i64 = digits
        .parse()
        .ok()
        .filter(|_| digits.len() <= EXPONENT_DIGITS)?;
    Some(if text.starts_with('-') { -value } else { value })
}

fn without_trailing_zeros(digits: &[u8]) -> &[u8] {
    &digits[..digits.len() - zeros(digits.iter().rev())]
}

fn zeros<'a>(digits: impl Iterator<Item = &'a u8>) -> usize {
    digits.take_while(|digit| **digit == b'0').count()
}

/// The length of a part of a text.
fn length(bytes: usize) -> i64 {
    i64::try_from(bytes).expect("no text in memory has 2^63 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_equal_by_their_decimal_value() {
        for equal in [
            &["0", "-0", "0.000", "0e9", "0e99999999999999999999"][..],
            &["0.1", "0.10", "1e-1", "10E-2", "0.01e1"],
            &["4200", "4200.0", "4.2e3", "42e+0002", "420000e-2"],
            &["-7", "-7.0", "-70e-1"],
            &[
                "9007199254740993",
                "9007199254740993.0",
                "9.007199254740993e15",
            ],
        ] {
            for (a, b) in equal.iter().zip(equal.iter().skip(1)) {
                assert_eq!(Decimal::parse(a), Decimal::parse(b), "{a} {b}");
            }
        }
    }

    #[test]
    fn numbers_are_in_order_at_any_size() {
        let ascending = [
            "-1e999999999999999999",
            "-9007199254740993",
            "-9007199254740992",
            "-10",
            "-9.5",
            "-9",
            "-0.2",
            "-0.10",
            "-1e-400",
            "0",
            "1e-400",
            "0.09",
            "0.1",
            "0.1000000000000000055511151231257827",
            "0.2",
            "1",
            "1.05",
            "1.5",
            "9",
            "10",
            "9007199254740992",
            "9007199254740993",
            "1e400",
            "1.1e400",
        ];
        for pair in ascending.windows(2) {
            let [a, b] = [pair[0], pair[1]].map(|it| Decimal::parse(it).unwrap());
            assert!(a < b, "{pair:?}");
            assert!(b > a, "{pair:?}");
        }
    }

    #[test]
    fn an_exponent_with_too_many_digits_has_no_value() {
        assert_eq!(Decimal::parse("1e1234567890123456789"), None);
        assert!(Decimal::parse("1e0000000000000000000000001").is_some());
    }
}
