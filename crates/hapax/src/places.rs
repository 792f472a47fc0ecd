//! Places for what takes long, such as test events in flight and trials, in the memory of one process.
//!
//! They are bounded for each tenant, so that one whose servers do not respond leaves places to the others,
//! and for the process.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The places.
#[derive(Debug)]
pub struct Places {
    of_tenant: usize,
    all: usize,
    taken: Arc<Taken>,
}

/// The number of places that each tenant has taken.
#[derive(Debug, Default)]
struct Taken(Mutex<HashMap<String, usize>>);

/// A place, which is free again once this is dropped. It is shared with work that may outlive its request.
#[derive(Debug)]
pub struct Place {
    taken: Arc<Taken>,
    tenant: String,
}

impl Places {
    /// Creates places: so many for one tenant, and so many in all.
    pub fn new((of_tenant, all): (usize, usize)) -> Self {
        Self {
            of_tenant,
            all,
            taken: Arc::default(),
        }
    }

    /// A place for a tenant; `None` if the tenant or the process has none left.
    pub fn take(&self, tenant: &str) -> Option<Arc<Place>> {
        let mut taken = self.taken.lock();
        let of_tenant = taken.get(tenant).copied().unwrap_or(0);
        let all: usize = taken.values().sum();
        if of_tenant >= self.of_tenant || all >= self.all {
            return None;
        }
        taken.insert(tenant.to_owned(), of_tenant + 1);
        drop(taken);
        Some(Arc::new(Place {
            taken: Arc::clone(&self.taken),
            tenant: tenant.to_owned(),
        }))
    }
}

impl Taken {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.taken.lock();
        let left = taken.get(&self.tenant).map_or(0, |it| it.saturating_sub(1));
        if left == 0 {
            taken.remove(&self.tenant);
        } else {
            taken.insert(self.tenant.clone(), left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_leaves_places_to_others() {
        let places = Places::new((2, 3));
        let held = [places.take("alice"), places.take("alice")];
        assert!(held.iter().all(Option::is_some));
        assert!(places.take("alice").is_none());
        let other = places.take("bob");
        assert!(other.is_some());
        assert!(places.take("carol").is_none());
        drop(held);
        assert!(places.take("alice").is_some() && places.take("carol").is_some());
        drop(other);
        assert!(places.taken.lock().is_empty());
    }
}
