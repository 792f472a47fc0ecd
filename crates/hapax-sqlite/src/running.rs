//! The key of the transaction that holds the writer, and its payload.
//!
//! A claim waits for the writer until the transaction before it has ended. A claim of the same key
//! with another payload need not wait: it is a mismatch already. There is one writer, so at most one
//! key is running, and only this process has the file open.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hapax::{
    idempotency::Claim,
    key::{Fingerprint, Scope},
};

/// The key that runs, if there is one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Running(Arc<Mutex<Option<(Scope, Fingerprint)>>>);

/// A key that runs until this is dropped.
#[derive(Debug)]
pub(crate) struct RunningKey<'a>(&'a Running);

impl Running {
    /// Records that the key of `claim` runs. Only the writer's thread calls this, for one
    /// transaction after another.
    pub(crate) fn start(&self, claim: &Claim) -> RunningKey<'_> {
        *self.lock() = Some((claim.scope.clone(), claim.fingerprint));
        RunningKey(self)
    }

    /// Whether the key of `claim` runs with another payload.
    pub(crate) fn has_other_payload(&self, claim: &Claim) -> bool {
        let running = self.lock();
        running.as_ref().is_some_and(|(scope, fingerprint)| {
            *scope == claim.scope && *fingerprint != claim.fingerprint
        })
    }

    /// No code that can panic runs under this lock, so a poisoned lock is still consistent.
    fn lock(&self) -> MutexGuard<'_, Option<(Scope, Fingerprint)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for RunningKey<'_> {
    fn drop(&mut self) {
        *self.0.lock() = None;
    }
}

#[cfg(test)]
mod tests {
    use hapax_testkit::events::{claim, fingerprint};

    use super::*;

    #[test]
    fn another_payload_is_another_one_of_the_key_that_runs() {
        let running = Running::default();
        let mut other = claim("k");
        other.fingerprint = fingerprint(2);
        assert!(!running.has_other_payload(&other));
        let key = running.start(&claim("k"));
        assert!(running.has_other_payload(&other));
        assert!(!running.has_other_payload(&claim("k")));
        let mut elsewhere = claim("l");
        elsewhere.fingerprint = fingerprint(2);
        assert!(!running.has_other_payload(&elsewhere));
        drop(key);
        assert!(!running.has_other_payload(&other));
    }
}
