//! Received webhooks, taken once.
//!
//! A [`WebhookLayer`] verifies Standard Webhooks and accepts each message in the
//! transaction that its handler writes in: the effect and the mark that it was
//! taken are one commit. A message is known by its source, its id and the
//! layer's consumer. One that comes again is answered 200 and does nothing; one
//! whose id this source has used with another payload is refused.
//!
//! Nothing of a message is looked at before its signature is verified.

mod layer;
mod accept;

use std::{fmt, sync::Arc, time::Duration};

use hapax::{
    Clock, Random,
    limits::{BODY_BYTES_MAX, BODY_FILE_BYTES, HANDLER},
    signature::{TOLERANCE, Verifier},
    store::Keys,
    trace::Traces,
};

use crate::body::Room;
pub use layer::Verified;

/// Who may send: the keys of a source, or `None` for a source that is not known.
type Sources = dyn Fn(&str) -> Option<Vec<Verifier>> + Send + Sync;

/// The layer of a route that receives webhooks, such as `/webhooks/{source}`.
///
/// The source is the route's parameter `source`, unless the layer is given one. The handler finds
/// the [`hapax::inbox::Message`] in the request's extensions.
#[derive(Clone)]
pub struct WebhookLayer<K: Keys>(Arc<Inbox<K>>);

impl<K: Keys> WebhookLayer<K> {
    /// Receives for `consumer`, from the sources whose keys `sources` knows.
    ///
    /// A sender must have one source: a message that is signed with a key that two sources share
    /// can be sent to both, and is taken once from each.
    pub fn new(
        store: K,
        clock: Clock,
        random: Random,
        consumer: impl Into<String>,
        sources: impl Fn(&str) -> Option<Vec<Verifier>> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(Inbox {
            store,
            clock,
            random,
            consumer: consumer.into(),
            sources: Arc::new(sources),
            source: None,
            body_max: BODY_BYTES_MAX,
            room: Arc::new(Room::new(BODY_FILE_BYTES)),
            tolerance: TOLERANCE,
            handler_max: HANDLER,
            traces: Traces::off(),
        }))
    }

    /// Receives from this source alone, whatever the path says.
    #[must_use]
    pub fn source(mut self, source: impl Into<String>) -> Self {
        self.change().source = Some(source.into());
        self
    }

    /// Bounds the body, in bytes.
    #[must_use]
    pub fn body_max(mut self, bytes: u64) -> Self {
        self.change().body_max = bytes;
        self
    }

    /// Takes attempts that lie this far from now; five minutes by default.
    #[must_use]
    pub fn tolerance(mut self, tolerance: Duration) -> Self {
        self.change().tolerance = tolerance;
        self
    }

    /// Bounds the handler's time.
    #[must_use]
    pub fn handler_max(mut self, handler_max: Duration) -> Self {
        self.change().handler_max = handler_max;
        self
    }

    /// Traces messages; a `traceparent` that comes in travels on in any case.
    #[must_use]
    pub fn traces(mut self, traces: Traces) -> Self {
        self.change().traces = traces;
        self
    }

    fn change(&mut self) -> &mut Inbox<K> {
        Arc::make_mut(&mut self.0)
    }
}

impl<K: Keys> fmt::Debug for WebhookLayer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WebhookLayer")
            .field(&self.0.consumer)
            .finish()
    }
}

/// What all messages of a route share.
#[derive(Clone)]
struct Inbox<K> {
    store: K,
    clock: Clock,
    random: Random,
    consumer: String,
    sources: Arc<Sources>,
    source: Option<String>,
    body_max: u64,
    room: Arc<Room>,
    tolerance: Duration,
    handler_max: Duration,
    traces: Traces,
}
