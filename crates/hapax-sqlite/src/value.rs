//! Conversion of numbers to parameters of statements.

/// A number of rows as a parameter.
pub(crate) fn rows(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
