//! The sink of the destination that reads the outbox for all endpoints.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use futures_util::future::BoxFuture;
use tokio::sync::watch;

use super::{round, service::Endpoints};
use crate::{
    limits::ENDPOINT_BATCH,
    sink::{Offer, Outcome, Sink, SinkError},
};

/// The kind of the sink.
const KIND: &str = "endpoints";
const UNBOUND: &str = "only a relay delivers to endpoints: it has not opened its store yet, or this \
                       is not a relay";

/// The sink that sends each event to the endpoints of its tenant.
///
/// It is created before the store is open and delivers once it is [bound](Self::bind). Clones share
/// the endpoints.
#[derive(Clone)]
pub struct FanOut {
    bound: Arc<OnceLock<Endpoints>>,
    in_use: Arc<watch::Sender<bool>>,
}

impl FanOut {
    /// A sink that is not bound yet.
    pub fn unbound() -> Self {
        Self {
            bound: Arc::default(),
            in_use: Arc::new(watch::Sender::new(false)),
        }
    }

    /// Binds the sink to the endpoints of a store. Only the first call has an effect.
    pub fn bind(&self, endpoints: Endpoints) {
        let _bound_before = self.bound.set(endpoints);
    }

    /// The sink for a destination.
    pub fn sink(&self) -> Arc<dyn Sink> {
        self.in_use.send_replace(true);
        Arc::new(self.clone())
    }

    /// Whether a destination has this sink: true from the first call of [`sink`](Self::sink) on.
    pub fn in_use(&self) -> watch::Receiver<bool> {
        self.in_use.subscribe()
    }
}

impl Sink for FanOut {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn deliver<'a>(&'a self, offers: &'a [Offer]) -> BoxFuture<'a, Vec<Outcome>> {
        Box::pin(async move {
            if let Some(endpoints) = self.bound.get() {
                return round::deliver(endpoints, offers).await;
            }
            let failed = offers.iter();
            let failed = failed.map(|_| Err(SinkError::unavailable("unbound", UNBOUND)));
            failed.collect()
        })
    }

    fn batch_max(&self) -> usize {
        ENDPOINT_BATCH
    }
}

impl fmt::Debug for FanOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FanOut")
            .field("is_bound", &self.bound.get().is_some())
            .finish_non_exhaustive()
    }
}
