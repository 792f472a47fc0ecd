//! Reading a page: events of one endpoint, in a bounded number of reads of the outbox.
//!
//! The outbox is read in the order of the frontier, with the events of all tenants, and those of the
//! endpoint are kept. So a page costs the same however rare its events are; it may be empty, and its
//! frontier has moved all the same.

use std::sync::Arc;

use super::endpoint::Endpoint;
use crate::{
    delivery::{Frontier, Shards},
    limits::{POLLING_BYTES, POLLING_READ, POLLING_READS},
    outbox::OutboxEvent,
    store::{Batch, Source, StoreError},
};

/// The events of one read, and the frontier after it.
#[derive(Clone, Debug)]
pub(super) struct Read {
    pub(super) events: Vec<Arc<OutboxEvent>>,
    /// The frontier after the events, and after all others that were skipped.
    pub(super) frontier: Frontier,
    /// Whether there may be more events now.
    pub(super) has_more: bool,
}

impl Read {
    /// Whether there is nothing to return at once.
    pub(super) fn is_idle(&self) -> bool {
        self.events.is_empty() && !self.has_more
    }
}

/// Reads up to `limit` events of an endpoint after a frontier, at least one if the first reads find
/// one.
pub(super) async fn read<S: Source>(
    store: &S,
    endpoint: &Endpoint,
    from: &Frontier,
    limit: usize,
) -> Result<Read, StoreError> {
    let mut page = Builder {
        endpoint,
        limit: limit.max(1),
        bytes: 0,
        events: Vec::new(),
    };
    let mut at = from.clone();
    for number in 0..POLLING_READS {
        // The first read fits the page if all of its events are for this endpoint.
        let count = if number == 0 {
            page.limit
        } else {
            POLLING_READ
        };
        let batch = store.read(&at, Shards::ALL, count).await?;
        if batch.events.is_empty() {
            return Ok(page.end(batch.frontier, false));
        }
        let room = page.room(&batch);
        if room == batch.events.len() {
            page.take(&batch);
            at = batch.frontier;
            continue;
        }
        // A frontier cannot be cut, so the part that fits is read again.
        if let Some(part) = again(store, &page, &at, room).await? {
            page.take(&part);
            at = part.frontier;
        }
        return Ok(page.end(at, true));
    }
    Ok(page.end(at, true))
}

/// Reads the first `room` events after a frontier; `None` if they do not fit the page, because
/// events that were committed late have come between.
async fn again<S: Source>(
    store: &S,
    page: &Builder<'_>,
    at: &Frontier,
    room: usize,
) -> Result<Option<Batch>, StoreError> {
    if room > 0 {
        let part = store.read(at, Shards::ALL, room).await?;
        if page.room(&part) == part.events.len() {
            return Ok(Some(part));
        }
    }
    if page.events.is_empty() {
        // The first event of a page always fits.
        return store.read(at, Shards::ALL, 1).await.map(Some);
    }
    Ok(None)
}

/// A page that is being filled.
struct Builder<'a> {
    endpoint: &'a Endpoint,
    limit: usize,
    bytes: usize,
    events: Vec<Arc<OutboxEvent>>,
}

impl Builder<'_> {
    /// How many events of a batch can be read before the page is full.
    fn room(&self, batch: &Batch) -> usize {
        let (mut count, mut bytes) = (self.events.len(), self.bytes);
        for (place, event) in batch.events.iter().enumerate() {
            if !self.endpoint.takes(&event.event) {
                continue;
            }
            bytes += event.event.stored_bytes();
            if count == self.limit || count > 0 && bytes > POLLING_BYTES {
                return place;
            }
            count += 1;
        }
        batch.events.len()
    }

    fn take(&mut self, batch: &Batch) {
        let endpoint = self.endpoint;
        for event in &batch.events {
            if endpoint.takes(&event.event) {
                self.bytes += event.event.stored_bytes();
                self.events.push(Arc::clone(event));
            }
        }
    }

    fn end(self, frontier: Frontier, has_more: bool) -> Read {
        Read {
            events: self.events,
            frontier,
            has_more,
        }
    }
}
