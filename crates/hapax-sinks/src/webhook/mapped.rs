//! Bodies that a mapping makes.
//!
//! Mapping a large payload takes longer than other tasks of a worker of the runtime can wait. It runs on a
//! thread for blocking work, and the number of such threads is bounded. A delivery waits for its place, and then
//! for its body, during half of its timeout, and uses no thread while it waits for its place. If it ends or is
//! dropped while it waits for that, nothing runs; work that has begun ends and keeps its place until then.

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
    time::{Instant, error::Elapsed, timeout_at},
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
    /// Makes the body of an offer. It is shown as it is, or masked. That of a large payload is made
    /// before `end_by`, or this relay is busy.
    pub(super) async fn body(
        &self,
        mapping: &Mapping,
        offer: &Offer,
        mask: Option<&Mask>,
        end_by: Instant,
    ) -> Result<Body, SinkError> {
        if offer.event().payload.bytes().len() <= MAPPED_INLINE_BYTES {
            return make(mapping, offer.event(), mask);
        }
        let busy = |elapsed: Elapsed| SinkError::unavailable(BUSY, elapsed);
        let place = timeout_at(end_by, Arc::clone(&self.0).acquire_owned()).await;
        let place = place.map_err(busy)?;
        let place = place.expect("the semaphore is never closed");
        let (mapping, mask) = (mapping.clone(), mask.cloned());
        let event = Arc::clone(&offer.event);
        let made = spawn_blocking(move || {
            let made = make(&mapping, &event.event, mask.as_ref());
            drop(place);
            made
        });
        match timeout_at(end_by, made).await.map_err(busy)? {
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
    use crate::{
        sample::{clock, offer},
        settings::{DestinationSettings, JsonSetting},
        webhook::{Webhook, WebhookSettings},
    };

    /// The maximum time that a test waits for anything.
    const PATIENCE: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn other_tasks_run_while_a_large_payload_is_mapped() {
        for (bytes, is_large) in [(8, false), (MAPPED_INLINE_BYTES + 1, true)] {
            // The test has one thread, which the task gets only if it is given away.
            let task = tokio::spawn(async {});
            let places = Places::default();
            let end_by = Instant::now() + PATIENCE;
            let offer = payload(bytes);
            let made = places.body(&mapping(), &offer, None, end_by).await;
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
        let body = |offer, end_by| {
            let places = places.clone();
            async move { places.body(&mapping(), offer, None, end_by).await }
        };
        body(&small, Instant::now()).await.unwrap();
        let failure = body(&large, Instant::now()).await.unwrap_err();
        assert_eq!(failure.error_type(), BUSY);
        drop(all);
        body(&large, Instant::now() + PATIENCE).await.unwrap();
        assert_eq!(places.0.available_permits(), MAPPINGS_AT_ONCE);
    }

    #[test]
    fn a_large_payload_is_mapped_for_a_limited_time() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .max_blocking_threads(1)
            .build()
            .unwrap();
        runtime.block_on(async {
            let places = Places::default();
            let large = payload(MAPPED_INLINE_BYTES + 1);
            // The mapping waits for the only thread.
            let (end, ended) = std::sync::mpsc::channel::<()>();
            let other = spawn_blocking(move || ended.recv().is_err());
            let mapping = mapping();
            let made = places.body(&mapping, &large, None, Instant::now());
            let made = timeout_at(Instant::now() + PATIENCE, made).await;
            let failure = made.expect("it ends in time").unwrap_err();
            assert_eq!(failure.error_type(), BUSY);
            assert_eq!(places.0.available_permits(), MAPPINGS_AT_ONCE - 1);
            drop(end);
            assert!(other.await.unwrap());
            let place = timeout_at(Instant::now() + PATIENCE, places.0.acquire()).await;
            let _place = place.expect("its place is free in the end").unwrap();
        });
    }

    #[tokio::test]
    async fn a_payload_that_cannot_be_mapped_is_rejected_wherever_it_is_mapped() {
        let mapping = Mapping::parse(r#"{"$each": "$.data.n", "as": 1}"#).unwrap();
        for bytes in [8, MAPPED_INLINE_BYTES + 1] {
            let offer = payload(bytes);
            let end_by = Instant::now() + PATIENCE;
            let places = Places::default();
            let made = places.body(&mapping, &offer, None, end_by).await;
            let failure = made.unwrap_err();
            assert!(matches!(failure, SinkError::Rejected { .. }), "{failure}");
            assert_eq!(failure.error_type(), "mapping");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_wait_for_a_mapping_is_not_part_of_the_time_of_its_request() {
        // It accepts connections and does not respond.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let settings = WebhookSettings {
            url: format!("http://{}/", listener.local_addr().unwrap()),
            secret: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".into(),
            mapping: Some(JsonSetting::Text(MAPPING.to_owned())),
            allow: vec!["127.0.0.0/8".parse().unwrap()],
            ..WebhookSettings::default()
        };
        let (wait, timeout) = (Duration::from_secs(4), Duration::from_secs(10));
        let destination = DestinationSettings {
            timeout,
            ..DestinationSettings::default()
        };
        let webhook = Webhook::new(&settings, destination, clock()).unwrap();
        let count = u32::try_from(MAPPINGS_AT_ONCE).unwrap();
        let all = webhook.places.0.acquire_many(count).await.unwrap();
        let large = payload(MAPPED_INLINE_BYTES + 1);
        let began = Instant::now();
        let mut delivering = std::pin::pin!(webhook.deliver_one(&large));
        let waits = timeout_at(began + wait, &mut delivering).await;
        waits.expect_err("it waits for a place");
        drop(all);
        let (outcome, sent) = delivering.await;
        assert_eq!(outcome.unwrap_err().error_type(), "timeout");
        assert!(!sent.headers.is_empty());
        assert!(sent.prepared_in >= wait, "{:?}", sent.prepared_in);
        assert!(began.elapsed() >= sent.prepared_in + timeout);
    }

    const MAPPING: &str = r#"{"n": "$.data.n"}"#;

    fn mapping() -> Mapping {
        Mapping::parse(MAPPING).unwrap()
    }

    /// An offer of an event whose payload has at least this many bytes.
    fn payload(bytes: usize) -> Offer {
        let text = format!(r#"{{"n": 1, "more": "{}"}}"#, "x".repeat(bytes));
        offer(NewEvent::new("order.paid", Payload::Json(text)))
    }
}
