//! Bounds for the requests in flight to an upstream: of all tenants, and of one.
//!
//! A request that exceeds a bound is refused at once. It was not sent, so its key is free.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use hapax::key::Tenant;

/// The bounds of an upstream.
#[derive(Debug)]
pub(super) struct Bounds {
    all_max: usize,
    tenant_max: Option<usize>,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts(Mutex<InUse>);

#[derive(Debug, Default)]
struct InUse {
    all: usize,
    /// Contains only tenants with requests in flight.
    by_tenant: HashMap<Tenant, usize>,
}

/// The place of a request in flight, which is free again when it is dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    counts: Arc<Counts>,
    tenant: Option<Tenant>,
}

impl Bounds {
    pub(super) fn new(all_max: usize, tenant_max: Option<usize>) -> Self {
        Self {
            all_max,
            tenant_max,
            counts: Arc::default(),
        }
    }

    /// Counts the requests in flight of an earlier configuration too.
    pub(super) fn continuing(self, earlier: &Self) -> Self {
        Self {
            counts: Arc::clone(&earlier.counts),
            ..self
        }
    }

    /// Whether there is a bound for one tenant.
    pub(super) fn counts_tenants(&self) -> bool {
        self.tenant_max.is_some()
    }

    /// Reserves a place. The error names the bound that is reached: `upstream` or `tenant`, as in the metrics.
    pub(super) fn slot(&self, tenant: Option<&Tenant>) -> Result<Slot, &'static str> {
        let tenant = tenant.filter(|_| self.tenant_max.is_some());
        let mut counts = self.counts.lock();
        if counts.all >= self.all_max {
            return Err("upstream");
        }
        if let (Some(tenant), Some(max)) = (tenant, self.tenant_max) {
            let own = counts.by_tenant.entry(tenant.clone()).or_default();
            if *own >= max {
                return Err("tenant");
            }
            *own += 1;
        }
        counts.all += 1;
        drop(counts);
        Ok(Slot {
            counts: Arc::clone(&self.counts),
            tenant: tenant.cloned(),
        })
    }
}

impl Counts {
    fn lock(&self) -> MutexGuard<'_, InUse> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut counts = self.counts.lock();
        counts.all -= 1;
        let Some(tenant) = &self.tenant else {
            return;
        };
        if let Some(own) = counts.by_tenant.get_mut(tenant) {
            *own -= 1;
            if *own == 0 {
                counts.by_tenant.remove(tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_cannot_take_the_places_of_the_others() {
        let bounds = Bounds::new(3, Some(2));
        let (alice, bob) = (Tenant::new("alice").unwrap(), Tenant::new("bob").unwrap());
        let first = bounds.slot(Some(&alice)).unwrap();
        let _second = bounds.slot(Some(&alice)).unwrap();
        assert_eq!(bounds.slot(Some(&alice)).err(), Some("tenant"));
        let _third = bounds.slot(Some(&bob)).unwrap();
        assert_eq!(bounds.slot(Some(&bob)).err(), Some("upstream"));
        drop(first);
        assert!(bounds.slot(Some(&alice)).is_ok());
        assert_eq!(bounds.counts.lock().by_tenant.len(), 2);
    }
}
