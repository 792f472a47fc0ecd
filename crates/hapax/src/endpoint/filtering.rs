//! Which endpoints take an event, by their filters.
//!
//! Customers write the filters, and those of 50 endpoints can take seconds for a large payload. They are
//! applied to it on a thread for blocking work, for one event at a time. For a small payload, the thread is
//! given to other tasks after each millisecond.

use std::{future::pending, panic::resume_unwind, sync::Arc, time::Duration};

use tokio::{
    sync::Semaphore,
    task::{spawn_blocking, yield_now},
    time::Instant,
};

use super::{index::OfType, record::Endpoint};
use crate::{filter::Reading, limits::FILTERED_INLINE_BYTES, outbox::OutboxEvent};

/// How long filters are applied before other tasks get the thread.
const SLICE: Duration = Duration::from_millis(1);

/// Applies the filters of endpoints.
#[derive(Debug)]
pub(super) struct Filtering {
    /// The place for a large payload.
    place: Arc<Semaphore>,
}

impl Default for Filtering {
    fn default() -> Self {
        Self {
            place: Arc::new(Semaphore::new(1)),
        }
    }
}

impl Filtering {
    /// Those endpoints that take an event.
    pub(super) async fn taking(
        &self,
        of_type: &OfType,
        event: &Arc<OutboxEvent>,
    ) -> Vec<Arc<Endpoint>> {
        let is_large = event.event.payload.bytes().len() > FILTERED_INLINE_BYTES;
        if !is_large || of_type.iter().all(|it| it.filter.is_none()) {
            return in_slices(of_type, event).await;
        }
        let place = Arc::clone(&self.place).acquire_owned().await;
        let place = place.expect("the semaphore is never closed");
        let (of_type, event) = (Arc::clone(of_type), Arc::clone(event));
        // If the caller is dropped, the work ends and keeps its place until then.
        let filtered = spawn_blocking(move || {
            let reading = Reading::of(&event.event);
            let taking = of_type.iter().filter(|it| it.takes_reading(&reading));
            let taking: Vec<_> = taking.cloned().collect();
            drop(place);
            taking
        });
        match filtered.await {
            Ok(taking) => taking,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => resume_unwind(panic),
                // The runtime ends, and this task with it.
                Err(_) => pending().await,
            },
        }
    }
}

async fn in_slices(of_type: &OfType, event: &OutboxEvent) -> Vec<Arc<Endpoint>> {
    let reading = Reading::of(&event.event);
    let (mut taking, mut began) = (Vec::new(), Instant::now());
    for endpoint in &**of_type {
        if endpoint.takes_reading(&reading) {
            taking.push(Arc::clone(endpoint));
        }
        if began.elapsed() >= SLICE {
            yield_now().await;
            began = Instant::now();
        }
    }
    taking
}
