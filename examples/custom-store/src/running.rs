//! The key of the open transaction, for claims that need not wait for the lock.

use std::sync::{Arc, Mutex, MutexGuard};

use hapax::{
    idempotency::Claim,
    key::{Fingerprint, Scope},
};

/// The key and the payload of the open transaction, if it has claimed one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Running(Arc<Mutex<Option<(Scope, Fingerprint)>>>);

/// Runs until it is dropped.
#[derive(Debug)]
pub(crate) struct RunningKey(Running);

impl Running {
    /// The caller has the lock of the only open transaction.
    pub(crate) fn start(&self, claim: Option<&Claim>) -> RunningKey {
        *self.lock() = claim.map(|claim| (claim.scope.clone(), claim.fingerprint));
        RunningKey(self.clone())
    }

    /// Whether the key of `claim` runs with another payload.
    pub(crate) fn has_other_payload(&self, claim: &Claim) -> bool {
        let running = self.lock();
        running.as_ref().is_some_and(|(scope, fingerprint)| {
            *scope == claim.scope && *fingerprint != claim.fingerprint
        })
    }

    fn lock(&self) -> MutexGuard<'_, Option<(Scope, Fingerprint)>> {
        self.0.lock().expect("no assignment panics half-way")
    }
}

impl Drop for RunningKey {
    fn drop(&mut self) {
        *self.0.lock() = None;
    }
}
