//! Failpoints: named places in the code at which a test can inject a crash.
//!
//! A store and a relay call [`Failpoints::hit`] directly before and after every line that commits
//! or sends. A service passes [`Failpoints::none`], which costs one branch. A test passes a
//! function that kills the process.

use std::{fmt, sync::Arc};

/// The function to call when a failpoint is reached.
#[derive(Clone, Default)]
pub struct Failpoints(Option<Arc<dyn Fn(&'static str) + Send + Sync>>);

impl Failpoints {
    /// No function.
    pub const fn none() -> Self {
        Self(None)
    }

    /// Calls `action` with the name of each failpoint that is reached.
    pub fn calling(action: impl Fn(&'static str) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(action)))
    }

    /// Reports that the failpoint `name` is reached.
    pub fn hit(&self, name: &'static str) {
        if let Some(action) = &self.0 {
            action(name);
        }
    }
}

impl fmt::Debug for Failpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() {
            "Failpoints(armed)"
        } else {
            "Failpoints(none)"
        })
    }
}
