//! Unique names for objects on a shared server.

use std::{
    process,
    sync::atomic::{AtomicU32, Ordering},
    time::SystemTime,
};

/// A name that no other object has, not even one that another run has left: letters, digits and
/// `_`.
pub fn unused(prefix: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    #[expect(
        clippy::disallowed_methods,
        reason = "the name must differ from those of all other runs"
    )]
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let micros = now.map_or(0, |it| it.as_micros());
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("{prefix}_{}_{micros}_{number}", process::id())
}
