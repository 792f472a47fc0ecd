//! Filtering: the endpoints that take an event, by their filters.
//!
//! Customers write the filters, and those of 50 endpoints can take seconds for a large payload. They are
//! applied to it on a thread for blocking work, for one event at a time, and an event waits for that for a
//! limited time. For a small payload, the thread is given to other tasks after each millisecond.

use std::{future::pending, panic::resume_unwind, sync::Arc, time::Duration};

use tokio::{
    sync::Semaphore,
    task::{spawn_blocking, yield_now},
    time::{Instant, timeout_at},
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
    /// Those endpoints that take an event; `None` if its payload is large, and filters could not be applied
    /// to it before `begin_by`.
    pub(super) async fn taking(
        &self,
        of_type: &OfType,
        event: &Arc<OutboxEvent>,
        begin_by: Instant,
    ) -> Option<Vec<Arc<Endpoint>>> {
        let is_large = event.event.payload.bytes().len() > FILTERED_INLINE_BYTES;
        if !is_large || of_type.iter().all(|it| it.filter.is_none()) {
            return Some(in_slices(of_type, event).await);
        }
        let place = timeout_at(begin_by, Arc::clone(&self.place).acquire_owned()).await;
        // A place that is free is returned also after that time.
        let place = place.ok().filter(|_| Instant::now() < begin_by)?;
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
            Ok(taking) => Some(taking),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        clock::{Random, Timestamp},
        endpoint::record::{EndpointColumns, EndpointState},
        event::{Headers, NewEvent},
        key::Tenant,
        outbox::build_event,
    };

    #[tokio::test]
    async fn a_large_payload_waits_for_its_filters_for_a_limited_time() {
        let filtering = Filtering::default();
        let now = Instant::now();
        let later = now + Duration::from_mins(1);
        assert_eq!(taking(&filtering, 1, now).await, Some(1));
        assert_eq!(taking(&filtering, FILTERED_INLINE_BYTES, now).await, None);
        let in_time = taking(&filtering, FILTERED_INLINE_BYTES, later).await;
        assert_eq!(in_time, Some(1));
        // Another event has the place.
        let place = Arc::clone(&filtering.place).acquire_owned().await;
        let soon = Instant::now() + Duration::from_millis(10);
        assert_eq!(taking(&filtering, FILTERED_INLINE_BYTES, soon).await, None);
        drop(place);
    }

    /// The number of endpoints that take an event whose payload has more than this many bytes.
    async fn taking(filtering: &Filtering, bytes: usize, begin_by: Instant) -> Option<usize> {
        let columns = EndpointColumns {
            id: "a".to_owned(),
            tenant: "acme".to_owned(),
            types: r#"["*"]"#.to_owned(),
            filter: Some(r#"{"/n": {"$gte": 1}}"#.to_owned()),
            payload_mode: "full".to_owned(),
            is_enabled: true,
            version: 1,
            ..EndpointColumns::default()
        };
        let EndpointState::Present(endpoint) = columns.read().state else {
            panic!("the endpoint can be read");
        };
        let of_type: OfType = Arc::from([endpoint]);
        let payload = serde_json::json!({"n": 1, "more": "x".repeat(bytes)});
        let new = NewEvent::json("order.paid", &payload);
        let tenant = Tenant::new("acme").unwrap();
        let now = Timestamp::from_millis(0);
        let event = build_event(new, Some(&tenant), &Headers::new(), now, &Random::new(|| 1));
        let event = Arc::new(OutboxEvent {
            position: 1,
            event: event.unwrap(),
        });
        let taking = filtering.taking(&of_type, &event, begin_by).await;
        taking.map(|it| it.len())
    }
}
