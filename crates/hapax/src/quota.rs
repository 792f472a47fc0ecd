//! Quotas: how many keys and bytes one tenant may have stored.
//!
//! The store counts what every tenant has. Between two counts each node adds what it stores itself.
//! A tenant may therefore exceed its quota by what all other nodes store for it between two counts,
//! and no request has to count. A tenant over its quota cannot use new keys; stored responses are
//! still replayed. If the store cannot count for some time, a node forgets what it has added: it
//! does not subtract what expires meanwhile, and would refuse a tenant for keys that are gone.

use std::{
    collections::HashMap,
    sync::{PoisonError, RwLock},
};

use crate::key::Tenant;

/// The limits of one tenant. `None` means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// Number of stored keys.
    pub keys: Option<u64>,
    /// Bytes of stored responses and stored requests.
    pub bytes: Option<u64>,
}

/// The stored keys and bytes of one tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    /// The tenant.
    pub tenant: Tenant,
    /// Number of stored keys.
    pub keys: u64,
    /// Bytes of stored responses and stored requests.
    pub bytes: u64,
}

/// The stored keys and bytes of all tenants, and the quota.
#[derive(Debug, Default)]
pub struct Quotas {
    quota: Quota,
    used: RwLock<Used>,
}

#[derive(Debug, Default)]
struct Used {
    tenants: HashMap<Tenant, OfTenant>,
    /// Rounds since the last one in which the store could count.
    missed: u32,
}

/// Keys and bytes.
#[derive(Clone, Copy, Debug, Default)]
struct OfTenant {
    counted: (u64, u64),
    added: (u64, u64),
}

/// Number of rounds without a count after which what was added is forgotten.
const MISSED_MAX: u32 = 3;

/// The limit that is exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excess {
    /// The maximum number of keys.
    Keys(u64),
    /// The maximum number of bytes.
    Bytes(u64),
}

impl Quotas {
    /// Creates quotas with nothing counted yet.
    pub fn new(quota: Quota) -> Self {
        Self {
            quota,
            used: RwLock::default(),
        }
    }

    /// Whether there is any limit.
    pub fn is_on(&self) -> bool {
        self.quota != Quota::default()
    }

    /// The limit that one more key of this tenant would exceed.
    pub fn excess(&self, tenant: &Tenant) -> Option<Excess> {
        if !self.is_on() {
            return None;
        }
        let used = self.used.read().unwrap_or_else(PoisonError::into_inner);
        let it = used.tenants.get(tenant).copied().unwrap_or_default();
        let (keys, bytes) = (it.counted.0 + it.added.0, it.counted.1 + it.added.1);
        let over = |used: u64, most: Option<u64>| most.filter(|most| used >= *most);
        over(keys, self.quota.keys)
            .map(Excess::Keys)
            .or_else(|| over(bytes, self.quota.bytes).map(Excess::Bytes))
    }

    /// Adds keys and bytes that were stored. A key that is stored before its response is added in
    /// two steps.
    pub fn add(&self, tenant: &Tenant, keys: u64, bytes: usize) {
        if !self.is_on() {
            return;
        }
        let mut used = self.used.write().unwrap_or_else(PoisonError::into_inner);
        let (sum, size) = &mut used.tenants.entry(tenant.clone()).or_default().added;
        *sum += keys;
        *size += bytes as u64;
    }

    /// Replaces all amounts by what the store has counted. What is stored during the count is
    /// included in the next one.
    pub fn counted(&self, usage: Vec<Usage>) {
        let counted = |it: Usage| OfTenant {
            counted: (it.keys, it.bytes),
            added: (0, 0),
        };
        let tenants = usage.into_iter().map(|it| (it.tenant.clone(), counted(it)));
        let tenants = tenants.collect();
        let mut used = self.used.write().unwrap_or_else(PoisonError::into_inner);
        *used = Used { tenants, missed: 0 };
    }

    /// Records that the store could not count. The last count is kept, and for some rounds also
    /// what was added since.
    pub fn not_counted(&self) {
        let mut used = self.used.write().unwrap_or_else(PoisonError::into_inner);
        used.missed += 1;
        if used.missed >= MISSED_MAX {
            used.missed = 0;
            for it in used.tenants.values_mut() {
                it.added = (0, 0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_is_stopped_at_its_quota_and_no_other_is() {
        let quotas = Quotas::new(Quota {
            keys: Some(2),
            bytes: None,
        });
        let (alice, bob) = (tenant("alice"), tenant("bob"));
        assert_eq!(quotas.excess(&alice), None);
        quotas.add(&alice, 1, 1_000_000);
        assert_eq!(quotas.excess(&alice), None);
        quotas.add(&alice, 1, 0);
        assert_eq!(quotas.excess(&alice), Some(Excess::Keys(2)));
        assert_eq!(quotas.excess(&bob), None);
    }

    #[test]
    fn what_is_counted_replaces_what_was_added() {
        let quotas = Quotas::new(Quota {
            keys: None,
            bytes: Some(100),
        });
        let alice = tenant("alice");
        quotas.add(&alice, 1, 100);
        assert_eq!(quotas.excess(&alice), Some(Excess::Bytes(100)));
        quotas.counted(vec![Usage {
            tenant: alice.clone(),
            keys: 7,
            bytes: 99,
        }]);
        assert_eq!(quotas.excess(&alice), None);
        quotas.add(&alice, 1, 1);
        assert_eq!(quotas.excess(&alice), Some(Excess::Bytes(100)));
        quotas.counted(Vec::new());
        assert_eq!(quotas.excess(&alice), None);
    }

    #[test]
    fn while_nobody_can_count_a_tenant_is_not_refused_for_ever() {
        let quotas = Quotas::new(Quota {
            keys: Some(10),
            bytes: None,
        });
        let alice = tenant("alice");
        quotas.counted(vec![Usage {
            tenant: alice.clone(),
            keys: 9,
            bytes: 0,
        }]);
        quotas.add(&alice, 1, 0);
        for _ in 1..MISSED_MAX {
            quotas.not_counted();
            assert_eq!(quotas.excess(&alice), Some(Excess::Keys(10)));
        }
        quotas.not_counted();
        assert_eq!(quotas.excess(&alice), None);
        // The last count is kept.
        quotas.add(&alice, 1, 0);
        assert_eq!(quotas.excess(&alice), Some(Excess::Keys(10)));
    }

    #[test]
    fn without_a_quota_nothing_is_counted() {
        let quotas = Quotas::default();
        quotas.add(&tenant("alice"), 1, usize::MAX);
        assert_eq!(quotas.excess(&tenant("alice")), None);
        assert!(quotas.used.read().unwrap().tenants.is_empty());
    }

    fn tenant(name: &str) -> Tenant {
        Tenant::new(name).unwrap()
    }
}
