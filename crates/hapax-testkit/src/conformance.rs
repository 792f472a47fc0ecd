//! Conformance tests: each requirement of a suite becomes one test.
//!
//! Each test has its own multi-threaded runtime, because most requirements are about concurrency.
//! It also has a time limit, because an implementation that violates a requirement about waiting
//! typically waits forever.

use std::time::Duration;

use tokio::{runtime, time::timeout};

/// The time limit of one test. A busy machine needs a fraction of it.
pub const TEST_LIMIT: Duration = Duration::from_mins(1);

/// Runs a test to its end.
///
/// # Panics
/// Panics if the test fails or does not end within [`TEST_LIMIT`].
pub fn hold(test: impl Future<Output = ()>) {
    let runtime = runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()
        .expect("a runtime can be built");
    let outcome = runtime.block_on(async { timeout(TEST_LIMIT, test).await });
    runtime.shutdown_background();
    assert!(
        outcome.is_ok(),
        "the test did not end within {TEST_LIMIT:?}"
    );
}

/// Expands to one test per requirement, in one module per file.
#[doc(hidden)]
#[macro_export]
macro_rules! suite {
    ($subject:ident, $suite:ident, $($noun:ident { $($test:ident)* })*) => {
        $(mod $noun {
            use super::$subject;
            $(#[test]
            fn $test() {
                $crate::conformance::hold($crate::$suite::$noun::$test::<$subject>());
            })*
        })*
    };
}

/// Requires that the list of a suite contains exactly the tests that are defined in its files.
#[cfg(test)]
#[track_caller]
pub(crate) fn check_list(list: &str, files: &[(&str, &str)]) {
    use std::collections::BTreeSet;

    for (noun, text) in files {
        let start = list.find(&format!("            {noun} {{")).expect(noun);
        let listed = list[start..].lines().skip(1).map(str::trim);
        let listed: BTreeSet<_> = listed.take_while(|line| *line != "}").collect();
        let written = text.lines().filter_map(|line| {
            let name = line.strip_prefix("pub async fn ")?;
            name.split_once('<').map(|(name, _)| name)
        });
        assert_eq!(written.collect::<BTreeSet<_>>(), listed, "{noun}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "broken")]
    fn a_broken_law_fails_its_test() {
        hold(async { panic!("broken") });
    }

    #[test]
    fn a_law_may_use_several_threads_at_once() {
        hold(async {
            let (one, two) = (std::sync::mpsc::channel(), std::sync::mpsc::channel());
            let first = tokio::task::spawn(async move { (one.0.send(()), two.1.recv()) });
            let second = tokio::task::spawn(async move { (two.0.send(()), one.1.recv()) });
            first.await.unwrap().1.unwrap();
            second.await.unwrap().1.unwrap();
        });
    }
}
