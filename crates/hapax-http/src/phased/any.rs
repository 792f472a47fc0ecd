//! Type-erased phases of a store, so that only phased operations require a store that supports
//! them.

use std::time::Duration;

use futures_util::future::BoxFuture;
use hapax::{
    event::Headers,
    idempotency::StoredResponse,
    phases::{Entry, Ownership},
    store::{ClaimOutcome, Phases, StoreError},
};

/// The part of [`Phases`] that a request needs.
pub(crate) trait AnyPhases<T>: Send + Sync {
    fn enter(&self, entry: Entry) -> BoxFuture<'_, Result<ClaimOutcome<Ownership>, StoreError>>;

    fn renew<'a>(
        &'a self,
        owned: &'a Ownership,
        lease: Duration,
    ) -> BoxFuture<'a, Result<(), StoreError>>;

    fn phase<'a>(
        &'a self,
        owned: &'a Ownership,
        recovery_point: Option<&'a str>,
        context: Headers,
    ) -> BoxFuture<'a, Result<T, StoreError>>;

    fn reach<'a>(
        &'a self,
        owned: &'a Ownership,
        recovery_point: &'a str,
    ) -> BoxFuture<'a, Result<(), StoreError>>;

    fn finish<'a>(
        &'a self,
        owned: &'a Ownership,
        response: &'a StoredResponse,
    ) -> BoxFuture<'a, Result<Duration, StoreError>>;

    fn give_back<'a>(&'a self, owned: &'a Ownership) -> BoxFuture<'a, Result<(), StoreError>>;

    fn release<'a>(&'a self, owned: &'a Ownership) -> BoxFuture<'a, Result<(), StoreError>>;
}

impl<K: Phases> AnyPhases<K::Tx> for K {
    fn enter(&self, entry: Entry) -> BoxFuture<'_, Result<ClaimOutcome<Ownership>, StoreError>> {
        Box::pin(Phases::enter(self, entry))
    }

    fn renew<'a>(
        &'a self,
        owned: &'a Ownership,
        lease: Duration,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(Phases::renew(self, owned, lease))
    }

    fn phase<'a>(
        &'a self,
        owned: &'a Ownership,
        recovery_point: Option<&'a str>,
        context: Headers,
    ) -> BoxFuture<'a, Result<K::Tx, StoreError>> {
        Box::pin(Phases::phase(self, owned, recovery_point, context))
    }

    fn reach<'a>(
        &'a self,
        owned: &'a Ownership,
        recovery_point: &'a str,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(Phases::reach(self, owned, recovery_point))
    }

    fn finish<'a>(
        &'a self,
        owned: &'a Ownership,
        response: &'a StoredResponse,
    ) -> BoxFuture<'a, Result<Duration, StoreError>> {
        Box::pin(Phases::finish(self, owned, response))
    }

    fn give_back<'a>(&'a self, owned: &'a Ownership) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(Phases::give_back(self, owned))
    }

    fn release<'a>(&'a self, owned: &'a Ownership) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(Phases::release(self, owned))
    }
}
