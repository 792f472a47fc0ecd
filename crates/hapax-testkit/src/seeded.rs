//! Seeded bugs in the processes of tests.
//!
//! `HAPAX_SEEDED=name` activates a bug of [`hapax::seeded`] in a test's process, before the test
//! creates a clock, a fixture or a receiver. A test that then fails detects the bug. In a build
//! without seeded bugs every test with this variable fails.

use std::sync::Once;

/// The environment variable that names a bug.
const NAME: &str = "HAPAX_SEEDED";

/// Activates the bug that the environment names, once. The clock of this crate calls it.
///
/// # Panics
/// Panics if the bug does not exist or is not in this build.
pub fn plant() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if let Some((_, name)) = variable() {
            hapax::seeded::plant(&name).expect("the build contains this bug");
        }
    });
}

/// The variable, for a program that is started with its own environment.
pub fn variable() -> Option<(&'static str, String)> {
    let named = std::env::var_os(NAME)?;
    Some((NAME, named.to_string_lossy().into_owned()))
}
