//! Named places where a test may strike.
//!
//! A store and a relay call [`Failpoints::hit`] just before and just after
//! every line that commits or sends. A service passes [`Failpoints::none`],
//! which costs one branch; a test passes a function that kills the process.

use std::{fmt, sync::Arc};

/// Whom to tell when a named place is reached.
#[derive(Clone, Default)]
pub struct Failpoints(Option<Arc<dyn Fn(&'static str) + Send + Sync>>);

impl Failpoints {
    /// Nobody.
    pub const fn none() -> Self {
        Self(None)
    }

    /// Calls `strike` with the name of every place that is reached.
    pub fn calling(strike: impl Fn(&'static str) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(strike)))
    }

    /// Says that the place `name` is reached.
    pub fn hit(&self, name: &'static str) {
        if let Some(strike) = &self.0 {
            strike(name);
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
