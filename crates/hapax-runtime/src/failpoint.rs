//! Failpoints, which tests switch on through the environment.
//!
//! `HAPAX_FAILPOINT=name:nth` kills this process with SIGKILL when it reaches the failpoint `name`
//! for the nth time. `name:nth:wait` blocks the thread for longer than a lease of the tests lasts,
//! and `name:nth:text` panics with that text. A release build ignores the variable.

use std::{
    ffi::OsString,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use hapax::failpoint::Failpoints;

/// How long a failpoint with `wait` blocks.
const WAIT: Duration = Duration::from_secs(3);

/// Reads the failpoint from the environment; a release build has none.
pub fn from_environment(environment: &[(OsString, OsString)]) -> Failpoints {
    if !cfg!(debug_assertions) {
        return Failpoints::none();
    }
    environment
        .iter()
        .find(|(name, _)| name == "HAPAX_FAILPOINT")
        .and_then(|(_, value)| parse(value.to_str()?))
        .unwrap_or_default()
}

fn parse(value: &str) -> Option<Failpoints> {
    let mut parts = value.splitn(3, ':');
    let failpoint = parts.next()?.to_owned();
    let nth = parts.next()?.parse::<u64>().ok()?;
    let text = parts.next().map(str::to_owned);
    let hits = AtomicU64::new(0);
    Some(Failpoints::calling(move |name| {
        if name == failpoint && hits.fetch_add(1, Ordering::SeqCst) + 1 == nth {
            tracing::warn!("failpoint {name} reached");
            match text.as_deref() {
                None => kill(),
                #[expect(
                    clippy::disallowed_methods,
                    reason = "a failpoint of a test build has no clock"
                )]
                Some("wait") => std::thread::sleep(WAIT),
                Some(text) => panic!("failpoint {name} reached: {text:?}"),
            }
        }
    }))
}

/// Kills this process as a power cut would: without destructors and flushes.
fn kill() {
    let id = std::process::id().to_string();
    let killed = std::process::Command::new("kill")
        .args(["-9", &id])
        .status();
    drop(killed);
    loop {
        std::thread::park();
    }
}
