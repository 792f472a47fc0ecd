//! State that all operations of a client share: its policy, and a budget for each destination.
//!
//! There are at most [`BUDGETS`] balances. When all of them are in use, those that are in their
//! initial state are removed. Further destinations share one balance, so that a client cannot get
//! more retries by spreading them over destinations. Metrics distinguish the same number of
//! destinations for the whole life of the client, because a metrics collector never forgets a
//! counter.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use hapax::{Clock, Random, limits::BUDGETS, retry::Balance};

use crate::policy::Policy;

/// The name of destinations without a separate balance.
const OTHERS: &str = "others";

/// State that all operations of a client share.
pub(crate) struct Shared {
    pub(crate) policy: Policy,
    pub(crate) clock: Clock,
    pub(crate) random: Random,
    balances: Mutex<HashMap<Arc<str>, Balance>>,
    labels: Mutex<HashSet<Arc<str>>>,
    others: Arc<str>,
}

impl Shared {
    pub(crate) fn new(policy: Policy, clock: Clock, random: Random) -> Self {
        Self {
            policy,
            clock,
            random,
            balances: Mutex::default(),
            labels: Mutex::default(),
            others: OTHERS.into(),
        }
    }

    /// Opens a balance for a destination and returns its name.
    pub(crate) fn account(&self, destination: Arc<str>) -> Arc<str> {
        let now = self.clock.now();
        let mut balances = self.lock();
        if !balances.contains_key(&destination) && balances.len() >= BUDGETS {
            balances.retain(|_, balance| !balance.is_fresh(now));
        }
        let name = if balances.contains_key(&destination) || balances.len() < BUDGETS {
            destination
        } else {
            Arc::clone(&self.others)
        };
        let fresh = || Balance::new(self.policy.budget, now);
        balances.entry(Arc::clone(&name)).or_insert_with(fresh);
        name
    }

    /// The name of a balance in metrics.
    pub(crate) fn label(&self, account: &Arc<str>) -> Arc<str> {
        let mut labels = self.labels.lock().unwrap_or_else(PoisonError::into_inner);
        if labels.len() < BUDGETS {
            labels.insert(Arc::clone(account));
        }
        let known = labels.get(account).unwrap_or(&self.others);
        Arc::clone(known)
    }

    /// Calls a function with a balance.
    pub(crate) fn balance<T>(&self, account: &Arc<str>, act: impl FnOnce(&mut Balance) -> T) -> T {
        let now = self.clock.now();
        let fresh = || Balance::new(self.policy.budget, now);
        // The balance may have been removed meanwhile, if it was in its initial state.
        act(self.lock().entry(Arc::clone(account)).or_insert_with(fresh))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Balance>> {
        self.balances.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use hapax_testkit::clock::{ManualClock, seeded_random};

    use super::*;

    #[test]
    fn a_spent_budget_is_not_forgotten_however_many_destinations_there_are() {
        let clock = ManualClock::new();
        let shared = Shared::new(Policy::default(), clock.clock(), seeded_random(1));
        let now = clock.now();
        let spend = |name: String| {
            let account = shared.account(name.into());
            while shared.balance(&account, |it| it.take(now)) {}
            account
        };
        for n in 0..BUDGETS {
            assert_eq!(*spend(format!("http://{n}:80")), format!("http://{n}:80"));
        }
        assert_eq!(&*spend("http://one-more:80".to_owned()), OTHERS);
        assert_eq!(&*shared.account("http://another:80".into()), OTHERS);
        for n in 0..BUDGETS {
            let name = format!("http://{n}:80").into();
            assert_eq!(shared.label(&name), name);
        }
        assert_eq!(&*shared.label(&"http://another:80".into()), OTHERS);
        let known = shared.account("http://7:80".into());
        assert!(!shared.balance(&known, |it| it.allows(now)));
        assert!(shared.lock().len() <= BUDGETS + 1);
    }
}
