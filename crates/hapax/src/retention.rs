//! Retention: deletes expired rows, one batch of each kind in turn.
//!
//! In a round every kind gets one batch, then every kind that is not finished gets the next one, so
//! that a kind that grows as fast as it is deleted does not keep the others from being deleted. A
//! kind that fails does not stop the others either. A round ends when nothing is left, or after
//! [`PURGE_TURNS`] batches of each kind.

use std::{fmt, future::Future, pin::Pin, time::Duration};

use crate::{
    limits::{EVENT_RETENTION, INBOX_RETENTION, PURGE_TURNS, SAGA_RETENTION},
    store::{Keys, Outbox, Sagas, StoreError},
    telemetry::IDEMPOTENCY_EXPIRED,
};

/// How long finished rows are kept. Keys are not listed, because each key has its own retention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ages {
    /// Events, after every destination has settled them.
    pub events: Duration,
    /// Messages of the inbox, after they were received.
    pub inbox: Duration,
    /// Sagas, after their end.
    pub sagas: Duration,
}

impl Default for Ages {
    fn default() -> Self {
        Self {
            events: EVENT_RETENTION,
            inbox: INBOX_RETENTION,
            sagas: SAGA_RETENTION,
        }
    }
}

/// The kinds of rows that are deleted, in order.
#[derive(Debug, Default)]
pub struct Retention {
    kinds: Vec<Kind>,
}

type Purged = Pin<Box<dyn Future<Output = Result<u64, StoreError>> + Send>>;

struct Kind {
    name: &'static str,
    purge: Box<dyn Fn() -> Purged + Send + Sync>,
}

impl Retention {
    /// Creates an empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a kind. `purge` deletes one batch and returns the number of deleted rows; 0 means that
    /// nothing is left. `name` is logged if it fails.
    #[must_use]
    pub fn and<P, F>(mut self, name: &'static str, purge: P) -> Self
    where
        P: Fn() -> F + Send + Sync + 'static,
        F: Future<Output = Result<u64, StoreError>> + Send + 'static,
    {
        let purge = Box::new(move || -> Purged { Box::pin(purge()) });
        self.kinds.push(Kind { name, purge });
        self
    }

    /// Adds the expired keys of a store.
    #[must_use]
    pub fn keys(self, store: &impl Keys) -> Self {
        let store = store.clone();
        self.and("keys", move || {
            let store = store.clone();
            async move { purge_keys(&store).await }
        })
    }

    /// Adds the events of a store, with their deliveries and attempts, and its inbox.
    #[must_use]
    pub fn events(self, store: &impl Outbox, ages: Ages) -> Self {
        let store = store.clone();
        self.and("events", move || {
            let store = store.clone();
            async move { store.purge_events(ages.events, ages.inbox).await }
        })
    }

    /// Adds the sagas of a store.
    #[must_use]
    pub fn sagas(self, store: &impl Sagas, ages: Ages) -> Self {
        let store = store.clone();
        self.and("sagas", move || {
            let store = store.clone();
            async move { store.purge_sagas(ages.sagas).await }
        })
    }

    /// Deletes in turns until nothing is left, or until every kind has had [`PURGE_TURNS`] batches.
    /// Returns whether there is more to delete, so that the next round should follow at once.
    ///
    /// A kind that fails is logged, and has its next batch in the next round.
    pub async fn round(&self) -> bool {
        let mut left: Vec<&Kind> = self.kinds.iter().collect();
        for _ in 0..PURGE_TURNS {
            let mut unfinished = Vec::with_capacity(left.len());
            for kind in left {
                match (kind.purge)().await {
                    Ok(0) => {}
                    Ok(_) => unfinished.push(kind),
                    Err(error) => tracing::warn!(
                        kind = kind.name,
                        error = error.error_chain(),
                        "cannot delete rows whose retention is over"
                    ),
                }
            }
            left = unfinished;
            if left.is_empty() {
                return false;
            }
        }
        true
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kind")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// Deletes a batch of expired keys, counts them by operation in the metrics, and returns the number
/// of deleted keys.
///
/// # Errors
/// Fails if the store fails.
pub async fn purge_keys(store: &impl Keys) -> Result<u64, StoreError> {
    let expired = store.purge_keys().await?;
    for (operation, rows) in &expired {
        let operation = operation.as_str().to_owned();
        metrics::counter!(IDEMPOTENCY_EXPIRED, "operation" => operation).increment(*rows);
    }
    Ok(expired.iter().map(|(_, rows)| rows).sum())
}
