//! Idempotency of a service: the store, the settings and the replay cache that its operations
//! share.

use std::{
    future::{Ready, ready},
    sync::{Arc, Mutex, PoisonError},
};

use axum::response::{IntoResponse, Response};
use futures_util::FutureExt as _;
use hapax::{
    key::{DerivationSecret, Operation, Scope},
    limits::PURGES_FRESH,
    purges::Purged,
    quota::Quotas,
    retention,
    single_flight::SingleFlight,
    store::{Keys, StoreError},
};
use http::{StatusCode, Uri};
use serde::{Deserialize, Serialize};
use tokio::{sync::OnceCell, time::timeout};

use crate::{
    body::Room,
    cache::{Generation, Replays, ScopeRef},
    extract::{Json, read_query},
    header::{IDEMPOTENCY_KEY, echo},
    key_status::KeyStatus,
    operation::OperationLayer,
    problem::Problem,
    purges::{PurgeReadGuard, Purges},
    settings::Settings,
    stored::Stored,
};

/// Idempotency keys of a service in one store: creates the layers of its operations.
///
/// Clones share the cache and all other state.
#[derive(Clone, Debug)]
pub struct Idempotency<K: Keys>(Arc<Shared<K>>);

#[derive(Debug)]
struct Shared<K> {
    store: K,
    settings: Settings,
    replays: Replays,
    purges: Purges,
    single_flight: SingleFlight<KeyStatus>,
    quotas: Quotas,
    room: Room,
    phased: Mutex<Vec<Operation>>,
    /// Read from the store once, by the first request whose key is derived.
    secret: OnceCell<DerivationSecret>,
}

impl<K: Keys> Idempotency<K> {
    /// Creates the shared state for operations whose keys are in `store`.
    pub fn new(store: K, settings: Settings) -> Self {
        Self(Arc::new(Shared {
            replays: Replays::new(settings.cache_bytes),
            purges: Purges::new(),
            single_flight: SingleFlight::new(),
            quotas: Quotas::new(settings.quota),
            room: Room::new(settings.body_file_bytes),
            phased: Mutex::default(),
            secret: OnceCell::new(),
            store,
            settings,
        }))
    }

    /// Creates the layer for the operation on the route `template`, such as `/orders/{id}`.
    ///
    /// By default the key is required and the operation is in atomic mode.
    ///
    /// # Panics
    /// Panics if the template is too long for a scope, or if [`Settings::service`] is not a valid
    /// name.
    pub fn operation(&self, template: &str) -> OperationLayer<K> {
        OperationLayer::new(self.clone(), template)
    }

    /// Returns the handler of `POST /idempotency-keys`, which generates a key for a client that
    /// cannot generate one.
    ///
    /// The key is not stored until a request uses it. The handler accepts no query parameters.
    pub fn reserve_handler(
        &self,
    ) -> impl Fn(Uri) -> Ready<Result<Response, Problem>> + Clone + Send + Sync + 'static {
        let settings = self.0.settings.clone();
        move |uri| {
            if let Err(problem) = read_query::<NoQuery>(&uri) {
                return ready(Err(problem));
            }
            let profile = settings.profile;
            let key = settings.mint_key(profile);
            let retention = settings.retention.max(profile.retention_min());
            let expires_at = settings.clock.now().after(retention).as_millis();
            let expires_at = jiff::Timestamp::from_millisecond(expires_at).unwrap_or_default();
            let header = [(IDEMPOTENCY_KEY, echo(&key))];
            let body = Json(Reserved {
                key: key.as_str(),
                expires_at: expires_at.to_string(),
            });
            ready(Ok((StatusCode::CREATED, header, body).into_response()))
        }
    }

    /// Deletes a key, so that the next request with it runs again: on this node immediately, on
    /// other nodes within [`PURGES_FRESH`]. Returns false if the key did not exist.
    ///
    /// The deletion is unconditional: it also deletes a key that is in progress, and one under
    /// which a live saga was started.
    ///
    /// # Errors
    /// Fails if the store fails; the key then still exists.
    pub async fn forget(&self, scope: &Scope) -> Result<bool, StoreError> {
        let existed = self.0.store.forget(scope).await?;
        self.0.replays.forget(scope);
        Ok(existed)
    }

    /// Deletes a batch of expired keys, counts them in the metrics, and returns their number.
    ///
    /// A service calls this periodically, and again immediately while it returns more than zero.
    /// [`hapax::retention::Retention`] does so.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn purge(&self) -> Result<u64, StoreError> {
        retention::purge_keys(&self.0.store).await
    }

    /// Counts the stored keys and bytes of every tenant. Does nothing if no quota is set.
    ///
    /// A service calls this periodically, for instance every 30 s. Between two calls a tenant can
    /// exceed its quota by what other nodes store for it. The count reads all keys of the store.
    ///
    /// # Errors
    /// Fails if the store fails; the previous counts remain in use.
    pub async fn count_usage(&self) -> Result<(), StoreError> {
        let quotas = &self.0.quotas;
        if !quotas.is_on() {
            return Ok(());
        }
        let usage = self.0.store.usage().await;
        let usage = usage.inspect_err(|_| quotas.not_counted())?;
        quotas.counted(usage);
        Ok(())
    }

    /// Returns the settings.
    pub fn settings(&self) -> &Settings {
        &self.0.settings
    }

    /// Registers a phased operation that is on a route.
    pub(crate) fn note_phased(&self, operation: &Operation) {
        let mut phased = self.0.phased.lock().unwrap_or_else(PoisonError::into_inner);
        if !phased.contains(operation) {
            phased.push(operation.clone());
        }
    }

    /// Returns the phased operations that are on a route.
    pub(crate) fn phased(&self) -> Vec<Operation> {
        let phased = self.0.phased.lock();
        phased.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the secret with which the services of this store derive keys.
    pub(crate) async fn derivation_secret(&self) -> Result<&DerivationSecret, StoreError> {
        let read = || self.0.store.derivation_secret();
        self.0.secret.get_or_try_init(read).await
    }

    pub(crate) fn store(&self) -> &K {
        &self.0.store
    }

    /// Returns the response from the replay cache.
    ///
    /// If this node has not read recently enough which keys were purged, it reads that first.
    pub(crate) async fn cached_response(&self, scope: &ScopeRef<'_>) -> Option<Arc<Stored>> {
        let stored = self.in_memory(scope)?;
        let purges = &self.0.purges;
        if !purges.is_due() {
            return Some(stored);
        }
        if purges.is_fresh() {
            self.read_purges_soon();
            return Some(stored);
        }
        // Rare paths are boxed: the future of a replay is moved by copying, and should stay small.
        Box::pin(self.wait_for_purges()).await;
        purges.is_fresh().then(|| self.in_memory(scope)).flatten()
    }

    /// Returns the response from the replay cache, even if its key may have been purged.
    pub(crate) fn in_memory(&self, scope: &ScopeRef<'_>) -> Option<Arc<Stored>> {
        self.0.replays.get(scope, self.0.settings.moment())
    }

    /// Returns the generation of the cache, to be read before the store and then passed to
    /// [`Idempotency::cache_response`].
    pub(crate) async fn generation(&self) -> Generation {
        // The first read of purges empties the cache, so nothing is cached before it.
        if self.0.purges.is_new() && !self.0.replays.is_off() {
            Box::pin(self.wait_for_purges()).await;
        }
        self.0.replays.generation()
    }

    /// Caches a response, unless a key was purged since `since`.
    pub(crate) fn cache_response(&self, scope: &Scope, stored: &Arc<Stored>, since: Generation) {
        self.0.replays.keep(scope, stored, since);
    }

    /// Reads in the background which keys were purged, unless another request is reading it.
    fn read_purges_soon(&self) {
        if let Some(turn) = self.0.purges.try_turn() {
            let this = self.clone();
            tokio::spawn(async move { this.read_purges(turn).await }.boxed());
        }
    }

    /// Waits until this or another request has read which keys were purged, or has tried to since
    /// this call began.
    async fn wait_for_purges(&self) {
        let purges = &self.0.purges;
        let arrived = purges.now();
        let turn = purges.turn().await;
        if !purges.is_fresh() && !purges.was_tried_since(arrived) {
            self.read_purges(turn).await;
        }
    }

    /// Reads which keys were purged, and removes their responses from the cache.
    ///
    /// If a response was read from the store before its key was purged, and would be cached after
    /// this function has seen the purge, its generation is outdated and it is not cached.
    async fn read_purges(&self, turn: PurgeReadGuard) {
        let Shared {
            store,
            replays,
            purges,
            ..
        } = &*self.0;
        let began = purges.begin();
        let purged = timeout(PURGES_FRESH, store.purged(turn.as_ref())).await;
        match purged.unwrap_or(Err(StoreError::TimedOut)) {
            Ok(Purged { until, keys }) => {
                match keys {
                    Some(keys) => keys.iter().for_each(|key| replays.forget(key)),
                    None => replays.forget_all(),
                }
                purges.end(turn, until, began);
            }
            Err(error) => {
                if purges.fail() {
                    tracing::warn!(
                        error = error.error_chain(),
                        "cannot read which keys were purged: no response is replayed from memory"
                    );
                }
            }
        }
    }

    pub(crate) fn room(&self) -> &Room {
        &self.0.room
    }

    pub(crate) fn quotas(&self) -> &Quotas {
        &self.0.quotas
    }

    pub(crate) fn single_flight(&self) -> &SingleFlight<KeyStatus> {
        &self.0.single_flight
    }
}

#[derive(Serialize)]
struct Reserved<'a> {
    key: &'a str,
    expires_at: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoQuery {}
