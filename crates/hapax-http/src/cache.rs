//! Replay cache: completed responses by key, bounded in bytes.
//!
//! A completed key does not change until it expires, so its response can be cached until then. A
//! look-up borrows the key. Forgetting a key also removes its response from the cache, even if a
//! request is reading this response from the store at the same time.

use std::{
    hash::Hash,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use hapax::key::{Operation, Scope, Tenant};
use quick_cache::{Equivalent, Weighter, sync::Cache};

use crate::{settings::Moment, stored::Stored};

/// A borrowed [`Scope`]. It has the same hash, because its fields are hashed in the same order.
#[derive(Clone, Copy, Debug, Hash)]
pub(crate) struct ScopeRef<'a> {
    pub(crate) tenant: &'a Tenant,
    pub(crate) operation: &'a Operation,
    pub(crate) key: &'a str,
}

impl<'a> ScopeRef<'a> {
    pub(crate) fn of(scope: &'a Scope) -> Self {
        Self {
            tenant: &scope.tenant,
            operation: &scope.operation,
            key: scope.key.as_str(),
        }
    }
}

impl Equivalent<Scope> for ScopeRef<'_> {
    fn equivalent(&self, scope: &Scope) -> bool {
        self.key == scope.key.as_str()
            && self.tenant == &scope.tenant
            && self.operation == &scope.operation
    }
}

/// The replay cache.
#[derive(Debug)]
pub(crate) struct Replays {
    responses: Option<Cache<Scope, Arc<Stored>, Bytes>>,
    forgotten: AtomicU64,
}

/// The number of keys that had been forgotten when a request began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Generation(u64);

impl Replays {
    /// Creates a cache of at most `bytes`; 0 disables it.
    pub(crate) fn new(bytes: u64) -> Self {
        let items = usize::try_from(bytes / 1024).unwrap_or(usize::MAX);
        Self {
            responses: (bytes > 0).then(|| Cache::with_weighter(items.max(1), bytes, Bytes)),
            forgotten: AtomicU64::new(0),
        }
    }

    /// Returns the response for a key, unless it has expired.
    pub(crate) fn get(&self, scope: &ScopeRef<'_>, now: Moment) -> Option<Arc<Stored>> {
        let responses = self.responses.as_ref()?;
        let stored = responses.get(scope)?;
        if stored.expires_at.is_past(now) {
            responses.remove(scope);
            return None;
        }
        Some(stored)
    }

    /// Returns the current generation, to be read before the store and then passed to
    /// [`Replays::keep`].
    pub(crate) fn generation(&self) -> Generation {
        Generation(self.forgotten.load(Ordering::SeqCst))
    }

    /// Caches a response, unless a key was forgotten since `since`.
    pub(crate) fn keep(&self, scope: &Scope, stored: &Arc<Stored>, since: Generation) {
        let Some(responses) = &self.responses else {
            return;
        };
        if self.generation().0 != since.0 {
            return;
        }
        responses.insert(scope.clone(), Arc::clone(stored));
        // Checked again after the insert: if a key was forgotten meanwhile, either this check sees
        // it, or `forget` removes the inserted response.
        if self.generation().0 != since.0 {
            responses.remove(scope);
        }
    }

    /// Removes all responses, because any key may have been forgotten.
    pub(crate) fn forget_all(&self) {
        self.forgotten.fetch_add(1, Ordering::SeqCst);
        if let Some(responses) = &self.responses {
            responses.clear();
        }
    }

    /// Whether the cache is disabled.
    pub(crate) fn is_off(&self) -> bool {
        self.responses.is_none()
    }

    /// Removes the response for a key that the store has forgotten.
    pub(crate) fn forget(&self, scope: &Scope) {
        self.forgotten.fetch_add(1, Ordering::SeqCst);
        if let Some(responses) = &self.responses {
            responses.remove(scope);
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Bytes;

impl Weighter<Scope, Arc<Stored>> for Bytes {
    fn weight(&self, scope: &Scope, stored: &Arc<Stored>) -> u64 {
        let parts = [
            scope.tenant.as_str(),
            scope.operation.as_str(),
            scope.key.as_str(),
        ];
        parts.iter().map(|part| part.len() as u64).sum::<u64>() + stored.weight()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hapax::{
        Timestamp,
        idempotency::StoredResponse,
        key::{Fingerprint, IdempotencyKey},
    };

    use super::*;
    use crate::profile::Profile;

    #[test]
    fn an_answer_is_found_by_borrowed_parts_and_only_by_its_own() {
        let cache = Replays::new(1 << 20);
        cache.keep(&scope("a", "k"), &stored(10), cache.generation());
        let found = |tenant, key| scope_ref(&cache, tenant, key, at(0, 0));
        assert!(found("a", "k"));
        assert!(!found("b", "k"));
        assert!(!found("a", "K"));
    }

    #[test]
    fn an_answer_ends_with_its_expiry() {
        let cache = Replays::new(1 << 20);
        cache.keep(&scope("a", "k"), &stored(10), cache.generation());
        assert!(scope_ref(&cache, "a", "k", at(9, 9)));
        assert!(!scope_ref(&cache, "a", "k", at(10, 10)));
        assert!(!scope_ref(&cache, "a", "k", at(0, 0)));
    }

    #[test]
    fn an_answer_ends_although_the_wall_clock_was_set_back_or_the_other_one_stood() {
        for (wall, reading) in [(-3_600, 10), (10, 0)] {
            let cache = Replays::new(1 << 20);
            cache.keep(&scope("a", "k"), &stored(10), cache.generation());
            assert!(scope_ref(&cache, "a", "k", at(-3_600, 9)));
            assert!(!scope_ref(&cache, "a", "k", at(wall, reading)));
        }
    }

    #[test]
    fn an_answer_that_was_read_before_its_key_was_forgotten_is_not_kept() {
        let cache = Replays::new(1 << 20);
        let before = cache.generation();
        cache.forget(&scope("a", "k"));
        cache.keep(&scope("a", "k"), &stored(10), before);
        assert!(!scope_ref(&cache, "a", "k", at(0, 0)));
    }

    #[test]
    fn the_bound_is_in_bytes() {
        let cache = Replays::new(64 * 1024);
        for n in 0..10_000 {
            cache.keep(&scope("a", &n.to_string()), &stored(10), cache.generation());
        }
        assert!(cache.responses.as_ref().unwrap().weight() <= 64 * 1024);
    }

    #[test]
    fn a_cache_of_no_bytes_keeps_nothing() {
        let cache = Replays::new(0);
        cache.keep(&scope("a", "k"), &stored(10), cache.generation());
        assert!(!scope_ref(&cache, "a", "k", at(0, 0)));
    }

    fn scope_ref(cache: &Replays, tenant: &str, key: &str, now: Moment) -> bool {
        let scope = scope(tenant, key);
        let borrowed = ScopeRef {
            tenant: &scope.tenant,
            operation: &scope.operation,
            key: scope.key.as_str(),
        };
        cache.get(&borrowed, now).is_some()
    }

    /// The moment at `wall` seconds by the wall clock and `reading` seconds by the stopwatch.
    fn at(wall: i64, reading: u64) -> Moment {
        Moment::new(
            Timestamp::from_millis(wall * 1_000),
            Duration::from_secs(reading),
        )
    }

    fn scope(tenant: &str, key: &str) -> Scope {
        Scope {
            tenant: Tenant::new(tenant).unwrap(),
            operation: Operation::new("POST /orders").unwrap(),
            key: IdempotencyKey::new(key).unwrap(),
        }
    }

    fn stored(seconds: u64) -> Arc<Stored> {
        let response = StoredResponse {
            status: 200,
            ..StoredResponse::default()
        };
        let expires_at = Moment::default().after(Duration::from_secs(seconds));
        let key = IdempotencyKey::new("k").unwrap();
        let print = Fingerprint::from_bytes([1; 32]);
        Arc::new(Stored::new(response, &key, print, expires_at, Profile::Hapax).unwrap())
    }
}
