//! Places where a test lets the shop die.
//!
//! `HAPAX_FAILPOINT=name:nth` kills this process with SIGKILL when the place
//! `name` is reached for the nth time, `name:nth:wait` holds it up there for longer than a lease of
//! the tests lasts, and `name:nth:text` makes it panic with that text. A release build does not even look.
//!
//! `HAPAX_SEEDED=name` gives this process a bug, in a build that has them; any other build refuses
//! to start, for what is run on it would prove nothing.

use hapax::{
    failpoint::Failpoints,
    seeded::{self, PlantError},
};

/// How long a place holds the shop up.
#[cfg(debug_assertions)]
const HELD_UP: std::time::Duration = std::time::Duration::from_secs(3);

/// Plants the bug that the environment names.
pub(crate) fn plant_from_environment() -> Result<(), PlantError> {
    let asked = std::env::vars_os().find(|(name, _)| name == "HAPAX_SEEDED");
    let Some((_, bug)) = asked else { return Ok(()) };
    let bug = seeded::plant(&bug.to_string_lossy())?;
    tracing::warn!(bug = bug.name(), "this process has a bug on purpose");
    Ok(())
}

/// What the environment asks for; nothing in a release build.
#[cfg(not(debug_assertions))]
pub(crate) fn from_environment() -> Failpoints {
    Failpoints::none()
}

/// What the environment asks for; nothing in a release build.
#[cfg(debug_assertions)]
pub(crate) fn from_environment() -> Failpoints {
    std::env::vars_os()
        .find(|(name, _)| name == "HAPAX_FAILPOINT")
        .and_then(|(_, value)| deadly(value.to_str()?))
        .unwrap_or_default()
}

#[cfg(debug_assertions)]
fn deadly(value: &str) -> Option<Failpoints> {
    use std::sync::atomic::{AtomicU64, Ordering};

    let mut parts = value.splitn(3, ':');
    let place = parts.next()?.to_owned();
    let nth = parts.next()?.parse::<u64>().ok()?;
    let text = parts.next().map(str::to_owned);
    let hits = AtomicU64::new(0);
    Some(Failpoints::calling(move |name| {
        if name == place && hits.fetch_add(1, Ordering::SeqCst) + 1 == nth {
            tracing::warn!("struck at {name}");
            match text.as_deref() {
                None => die(),
                #[expect(
                    clippy::disallowed_methods,
                    reason = "whoever is held up knows of no clock"
                )]
                Some("wait") => std::thread::sleep(HELD_UP),
                Some(text) => panic!("struck at {name}: {text:?}"),
            }
        }
    }))
}

/// Ends this process as a power cut would: no destructor, no flush, not one more instruction.
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
