//! Assertion that a value matches a pattern.

/// Asserts that a value matches a pattern, and shows the value if it does not.
///
/// A text after the pattern is shown too.
#[macro_export]
macro_rules! assert_matches {
    ($value:expr, $pattern:pat $(if $guard:expr)?) => {
        match $value {
            $pattern $(if $guard)? => {}
            ref other => panic!("{other:?} does not match {}", stringify!($pattern)),
        }
    };
    ($value:expr, $pattern:pat, $text:literal) => {
        match $value {
            $pattern => {}
            ref other => panic!(
                "{}: {other:?} does not match {}",
                format_args!($text),
                stringify!($pattern)
            ),
        }
    };
}
