//! Tests of a build that has bugs on purpose.
//!
//! `HAPAX_SEEDED=name` plants a bug of [`hapax::seeded`] in the process of a
//! test, before it has a clock, a law or a far side: what fails then catches
//! that bug. A build that has no bugs fails every test that is asked to have
//! one.

use std::sync::Once;

/// The variable that names a bug.
const NAME: &str = "HAPAX_SEEDED";

/// Plants what the environment names, once; whoever has a clock of this crate need not ask.
///
/// # Panics
/// When there is no such bug, or none in this build.
pub fn plant() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if let Some((_, name)) = variable() {
            hapax::seeded::plant(&name).expect("a bug that this build has");
        }
    });
}

/// The variable, for a program that is started with an environment of its own.
pub fn variable() -> Option<(&'static str, String)> {
    let named = std::env::var_os(NAME)?;
    Some((NAME, named.to_string_lossy().into_owned()))
}
