//! Failpoints: places at which a test kills the relay.
//!
//! `HAPAX_FAILPOINT=name:nth` kills this process with SIGKILL when the place `name` is reached for
//! the nth time. Release builds ignore the variable.

use std::ffi::OsString;

use hapax::failpoint::Failpoints;

/// The failpoints of the environment; none in a release build.
#[cfg(not(debug_assertions))]
pub(crate) fn from_environment(_: &[(OsString, OsString)]) -> Failpoints {
    Failpoints::none()
}

/// The failpoints of the environment; none in a release build.
#[cfg(debug_assertions)]
pub(crate) fn from_environment(environment: &[(OsString, OsString)]) -> Failpoints {
    let asked = environment
        .iter()
        .find(|(name, _)| name == "HAPAX_FAILPOINT");
    asked
        .and_then(|(_, value)| deadly(value.to_str()?))
        .unwrap_or_default()
}

#[cfg(debug_assertions)]
fn deadly(value: &str) -> Option<Failpoints> {
    use std::sync::atomic::{AtomicU64, Ordering};

    let (place, nth) = value.rsplit_once(':')?;
    let (place, nth) = (place.to_owned(), nth.parse::<u64>().ok()?);
    let hits = AtomicU64::new(0);
    Some(Failpoints::calling(move |name| {
        if name == place && hits.fetch_add(1, Ordering::SeqCst) + 1 == nth {
            die();
        }
    }))
}

/// Kills this process as a power failure would: no destructors, no flush, no further instruction.
#[cfg(debug_assertions)]
fn die() {
    let id = std::process::id().to_string();
    let killed = std::process::Command::new("kill")
        .args(["-9", &id])
        .status();
    drop(killed);
    loop {
        std::thread::park();
    }
}
