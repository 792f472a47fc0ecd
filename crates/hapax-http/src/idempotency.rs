//! The contract for a whole service: its store, its settings, its cache.

use std::{
    future::{Ready, ready},
    sync::{Arc, Mutex, PoisonError},
};

use axum::response::{IntoResponse, Response};
use hapax::{
    key::{DerivationSecret, IdempotencyKey, Operation, Scope},
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
    operation::OperationLayer,
    problem::Problem,
    purges::{Purges, Turn},
    settings::Settings,
    stored::Stored,
    told::Told,
};

/// The contract over one store: makes the layers of a service's operations.
///
/// Cloning shares everything.
#[derive(Debug)]
pub struct Idempotency<K: Keys>(Arc<Shared<K>>);

#[derive(Debug)]
struct Shared<K> {
    store: K,
    settings: Settings,
    replays: Replays,
    purges: Purges,
    flights: SingleFlight<Told>,
    quotas: Quotas,
    room: Room,
    phased: Mutex<Vec<Operation>>,
    /// Read once, by the first request whose key is derived.
    secret: OnceCell<DerivationSecret>,
}

impl<K: Keys> Idempotency<K> {
    /// The contract over `store`.
    pub fn new(store: K, settings: Settings) -> Self {
        Self(Arc::new(Shared {
            replays: Replays::new(settings.cache_bytes),
            purges: Purges::new(),
            flights: SingleFlight::new(),
            quotas: Quotas::new(settings.quota),
            room: Room::new(settings.body_file_bytes),
            phased: Mutex::default(),
            secret: OnceCell::new(),
            store,
            settings,
        }))
    }

    /// The layer for the operation on the route `template`, such as `/orders/{id}`.
    ///
    /// The key is required and the mode atomic, until the layer is told otherwise.
    ///
    /// # Panics
    /// When the template is longer than a scope's part may be, or [`Settings::service`] is no name.
    pub fn operation(&self, template: &str) -> OperationLayer<K> {
        OperationLayer::new(self.clone(), template)
    }

    /// The handler of `POST /idempotency-keys`: makes a key for a client that cannot.
    ///
    /// Nothing is stored: a key that is never sent leaves no trace. It takes no query.
    pub fn reserve_handler(
        &self,
    ) -> impl Fn(Uri) -> Ready<Result<Response, Problem>> + Clone + Send + Sync + 'static {
        let settings = self.0.settings.clone();
        move |uri| {
            if let Err(problem) = read_query::<NoQuery>(&uri) {
                return ready(Err(problem));
            }
            let key = IdempotencyKey::mint(&settings.random);
            let expires_at = settings.clock.now().after(settings.retention).as_millis();
            let expires_at = jiff::Timestamp::from_millisecond(expires_at).unwrap_or_default();
            let header = [(IDEMPOTENCY_KEY, echo(&key))];
            let body = Json(Reserved {
                key: key.as_str(),
                expires_at: expires_at.to_string(),
            });
            ready(Ok((StatusCode::CREATED, header, body).into_response()))
        }
    }

    /// Deletes a key, so that its next request runs again: here at once, on other nodes within
    /// [`PURGES_FRESH`]. False when there was none.
    ///
    /// This is the service's own word: it deletes a key in progress too, and one that a live saga was
    /// started under.
    ///
    /// # Errors
    /// Fails as the store does; the key then still stands.
    pub async fn forget(&self, scope: &Scope) -> Result<bool, StoreError> {
        let existed = self.0.store.forget(scope).await?;
        self.0.replays.forget(scope);
        Ok(existed)
    }

    /// Deletes a batch of expired keys and counts them; returns how many went.
    ///
    /// A service calls this in turns with its other purges, at once again while it returns more
    /// than zero; [`hapax::retention::Retention`] does so.
    ///
    /// # Errors
    /// Fails as the store does.
    pub async fn purge(&self) -> Result<u64, StoreError> {
        retention::purge_keys(&self.0.store).await
    }

    /// Counts what every tenant has stored, where a quota bounds it.
    ///
    /// A service calls this in turns, every half minute for instance: between two calls a tenant
    /// may exceed its quota by what other nodes store for it. The store reads all its keys for it.
    ///
    /// # Errors
    /// Fails as the store does; what was counted last stands.
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

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.0.settings
    }

    /// Notes that an operation on a route is phased.
    pub(crate) fn note_phased(&self, operation: &Operation) {
        let mut phased = self.0.phased.lock().unwrap_or_else(PoisonError::into_inner);
        if !phased.contains(operation) {
            phased.push(operation.clone());
        }
    }

    /// The phased operations that stand on a route.
    pub(crate) fn phased(&self) -> Vec<Operation> {
        let phased = self.0.phased.lock();
        phased.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The secret under which this store's services derive keys.
    pub(crate) async fn derivation_secret(&self) -> Result<&DerivationSecret, StoreError> {
        let read = || self.0.store.derivation_secret();
        self.0.secret.get_or_try_init(read).await
    }

    pub(crate) fn store(&self) -> &K {
        &self.0.store
    }

    /// The answer that this node has in memory, as long as it knows which keys were purged; where it
    /// does not, it reads that first.
    pub(crate) async fn remembered(&self, scope: &ScopeRef<'_>) -> Option<Arc<Stored>> {
        let stored = self.in_memory(scope)?;
        let purges = &self.0.purges;
        if !purges.is_due() {
            return Some(stored);
        }
        if purges.is_fresh() {
            self.read_purges_soon();
            return Some(stored);
        }
        // Boxed, as all that is rare: the future of a replay is copied, and stays small.
        Box::pin(self.wait_for_purges()).await;
        purges.is_fresh().then(|| self.in_memory(scope)).flatten()
    }

    /// The answer that this node has in memory, though its key may have been purged.
    pub(crate) fn in_memory(&self, scope: &ScopeRef<'_>) -> Option<Arc<Stored>> {
        self.0.replays.get(scope, self.0.settings.moment())
    }

    /// To be asked before the store is, for [`Idempotency::remember`].
    pub(crate) async fn generation(&self) -> Generation {
        // What is kept before the first reading is forgotten by it.
        if self.0.purges.is_new() && !self.0.replays.is_off() {
            Box::pin(self.wait_for_purges()).await;
        }
        self.0.replays.generation()
    }

    /// Keeps an answer in memory, unless a key was purged since.
    pub(crate) fn remember(&self, scope: &Scope, stored: &Arc<Stored>, since: Generation) {
        self.0.replays.keep(scope, stored, since);
    }

    /// Reads in the background which keys were purged, unless somebody does.
    fn read_purges_soon(&self) {
        if let Some(turn) = self.0.purges.try_turn() {
            let this = self.clone();
            tokio::spawn(async move { this.read_purges(turn).await });
        }
    }

    /// Waits until somebody has read which keys were purged, or has tried to since this was asked.
    async fn wait_for_purges(&self) {
        let purges = &self.0.purges;
        let arrived = purges.now();
        let turn = purges.turn().await;
        if !purges.is_fresh() && !purges.was_tried_since(arrived) {
            self.read_purges(turn).await;
        }
    }

    /// Reads which keys were purged, and forgets their answers.
    ///
    /// An answer that was read from the store before its key was purged, and is kept only after this
    /// has seen the purge, is of an older generation: it is not kept.
    async fn read_purges(&self, turn: Turn) {
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
                        "purged keys cannot be read: no answer is replayed from memory"
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

    pub(crate) fn flights(&self) -> &SingleFlight<Told> {
        &self.0.flights
    }
}

impl<K: Keys> Clone for Idempotency<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
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
