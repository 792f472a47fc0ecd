//! Bodies that a mapping makes.
//!
//! Mapping a large payload takes longer than other tasks of a worker of the runtime can wait. It runs on a
//! thread for blocking work, and the number of such threads is bounded. A delivery waits for its place during
//! half of its timeout, and uses no thread meanwhile. If it is dropped while it waits, nothing runs; work that
//! has begun ends and keeps its place until then.

use std::{panic::resume_unwind, sync::Arc};

use bytes::Bytes;
use hapax::{
    endpoint::BUSY,
    event::Event,
    mapping::Mapping,
    mask::Mask,
    sink::{Offer, SinkError},
};
use tokio::{
    sync::Semaphore,
    task::spawn_blocking,
    time::{Instant, timeout_at},
};

use crate::limits::{MAPPED_INLINE_BYTES, MAPPINGS_AT_ONCE};

/// The places for mappings of large payloads. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Places(Arc<Semaphore>);

/// A body.
#[derive(Debug)]
pub(super) struct Body {
    /// The body that is sent.
    pub(super) sent: Bytes,
    /// The body as it may be shown; empty if it cannot be shown.
    pub(super) shown: Bytes,
}

impl Default for Places {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAPPINGS_AT_ONCE)))
    }
}

impl Places {
    /// Makes the body of an offer. It is shown as it is, or masked. A large payload waits for a place until
    /// `begin_by`.
    pub(super) async fn body(
        &self,
        mapping: &Mapping,
        offer: &Offer,
        mask: Option<&Mask>,
        begin_by: Instant,
    ) -> Result<Body, SinkError> {
        if offer.event().payload.bytes().len() <= MAPPED_INLINE_BYTES {
            return make(mapping, offer.event(), mask);
        }
        let place = timeout_at(begin_by, Arc::clone(&self.0).acquire_owned()).await;
        let place = place.map_err(|elapsed| SinkError::unavailable(BUSY, elapsed))?;
        let place = place.expect("the semaphore is never closed");
        let (mapping, mask) = (mapping.clone(), mask.cloned());
        let event = Arc::clone(&offer.event);
        let made = spawn_blocking(move || {
            let made = make(&mapping, &event.event, mask.as_ref());
            drop(place);
            made
        });
        match made.await {
            Ok(made) => made,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => resume_unwind(panic),
                // The runtime ends.
                Err(error) => Err(SinkError::unavailable(BUSY, error)),
            },
        }
    }
}

fn make(mapping: &Mapping, event: &Event, mask: Option<&Mask>) -> Result<Body, SinkError> {
    let made = mapping.apply(event);
    let sent = made.map_err(|failure| SinkError::rejected("mapping", failure))?;
    let sent = Bytes::from(sent);
    let shown = match mask {
        None => sent.clone(),
        Some(mask) => {
            let masked = mapping.apply_masked(event, mask);
            masked.map(Bytes::from).unwrap_or_default()
        }
    };
    Ok(Body { sent, shown })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hapax::event::{NewEvent, Payload};

    use super::*;
    use crate::sample::offer;

    /// The maximum time that a test waits for anything.
    const PATIENCE: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn other_tasks_run_while_a_large_payload_is_mapped() {
        for (bytes, is_large) in [(8, false), (MAPPED_INLINE_BYTES + 1, true)] {
            // The test has one thread, which the task gets only if it is given away.
            let task = tokio::spawn(async {});
            let places = Places::default();
            let begin_by = Instant::now() + PATIENCE;
            let offer = payload(bytes);
            let made = places.body(&mapping(), &offer, None, begin_by).await;
            let body = made.unwrap();
            assert_eq!(body.sent, r#"{"n":1}"#);
            assert_eq!(body.shown, body.sent);
            assert_eq!(task.is_finished(), is_large, "{bytes}");
        }
    }

    #[tokio::test]
    async fn a_large_payload_waits_for_a_place_for_a_limited_time() {
        let places = Places::default();
        let count = u32::try_from(MAPPINGS_AT_ONCE).unwrap();
        let all = places.0.acquire_many(count).await.unwrap();
        let (small, large) = (payload(8), payload(MAPPED_INLINE_BYTES + 1));
        let body = |offer, begin_by| {
            let places = places.clone();
            async move { places.body(&mapping(), offer, None, begin_by).await }
        };
        body(&small, Instant::now()).await.unwrap();
        let failure = body(&large, Instant::now()).await.unwrap_err();
        assert_eq!(failure.error_type(), BUSY);
        drop(all);
        body(&large, Instant::now() + PATIENCE).await.unwrap();
        assert_eq!(places.0.available_permits(), MAPPINGS_AT_ONCE);
    }

    #[tokio::test]
    async fn a_payload_that_cannot_be_mapped_is_rejected_wherever_it_is_mapped() {
        let mapping = Mapping::parse(r#"{"$each": "$.data.n", "as": 1}"#).unwrap();
        for bytes in [8, MAPPED_INLINE_BYTES + 1] {
            let offer = payload(bytes);
            let begin_by = Instant::now() + PATIENCE;
            let places = Places::default();
            let made = places.body(&mapping, &offer, None, begin_by).await;
            let failure = made.unwrap_err();
            assert!(matches!(failure, SinkError::Rejected { .. }), "{failure}");
            assert_eq!(failure.error_type(), "mapping");
        }
    }

    fn mapping() -> Mapping {
        Mapping::parse(r#"{"n": "$.data.n"}"#).unwrap()
    }

    /// An offer of an event whose payload has at least this many bytes.
    fn payload(bytes: usize) -> Offer {
        let text = format!(r#"{{"n": 1, "more": "{}"}}"#, "x".repeat(bytes));
        offer(NewEvent::new("order.paid", Payload::Json(text)))
    }
}
