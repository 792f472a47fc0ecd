//! Inbox of webhooks: verifies received webhooks and processes each once.
//!
//! A [`WebhookLayer`] verifies Standard Webhooks and accepts each message in the transaction in
//! which its handler writes, so the effect and the inbox row are committed together. A message is
//! identified by its source, its id and the consumer of the layer. A duplicate receives a 200 and
//! has no effect. A message whose id was used with another payload by the same source is refused.
//! If a sender reports one fact under several ids, a [`DedupeKey`] takes the place of the id. A
//! handler that touches nothing but its transaction may run before its message is accepted
//! ([`WebhookLayer::transaction`]).
//!
//! No part of a message is processed before its signature is verified.

mod layer;
mod transaction;
mod dedupe;
mod accept;
mod at_commit;

use std::{fmt, sync::Arc, time::Duration};

use hapax::{
    Clock, Random,
    limits::{BODY_BYTES_MAX, BODY_FILE_BYTES, HANDLER},
    request_log::RequestLog,
    signature::{TOLERANCE, Verifier},
    store::Keys,
    trace::Traces,
};

use self::dedupe::Dedupe;
use crate::body::Room;
pub use dedupe::{DedupeKey, DedupeKeyError};
pub use layer::Verified;

/// Returns the keys of a source, or `None` for an unknown source.
type Sources = dyn Fn(&str) -> Option<Vec<Verifier>> + Send + Sync;

/// The layer of a route that receives webhooks, such as `/webhooks/{source}`.
///
/// The source is the route's parameter `source`, unless it is set with [`WebhookLayer::source`].
/// The handler finds the [`hapax::inbox::Message`] in the request's extensions.
#[derive(Clone)]
pub struct WebhookLayer<K: Keys>(Arc<Inbox<K>>);

impl<K: Keys> WebhookLayer<K> {
    /// Receives messages for `consumer` from the sources for which `sources` returns keys.
    ///
    /// A sender must have one source. A message that is signed with a key that two sources share
    /// can be sent to both, and is then processed once for each.
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
            dedupe: Dedupe::default(),
            body_max: BODY_BYTES_MAX,
            room: Arc::new(Room::new(BODY_FILE_BYTES)),
            tolerance: TOLERANCE,
            handler_max: HANDLER,
            accepts_at_commit: false,
            traces: Traces::off(),
            log: RequestLog::default(),
        }))
    }

    /// Sets the only source. A parameter `source` of the path is then ignored.
    #[must_use]
    pub fn source(mut self, source: impl Into<String>) -> Self {
        self.change().source = Some(source.into());
        self
    }

    /// Sets by what repeated messages are recognized. The default is the sender's id.
    ///
    /// If this changes, messages that were processed before and are delivered again are new.
    #[must_use]
    pub fn dedupe(mut self, key: DedupeKey) -> Self {
        self.change().dedupe.any = key;
        self
    }

    /// Sets by what repeated messages are recognized whose member `type` is `kind`.
    #[must_use]
    pub fn dedupe_type(mut self, kind: impl Into<String>, key: DedupeKey) -> Self {
        self.change().dedupe.types.insert(kind.into(), key);
        self
    }

    /// Sets the maximum length of a body in bytes.
    #[must_use]
    pub fn body_max(mut self, bytes: u64) -> Self {
        self.change().body_max = bytes;
        self
    }

    /// Sets how far the timestamp of an attempt may differ from the current time. The default is
    /// five minutes.
    #[must_use]
    pub fn tolerance(mut self, tolerance: Duration) -> Self {
        self.change().tolerance = tolerance;
        self
    }

    /// Sets the timeout of the handler.
    #[must_use]
    pub fn handler_max(mut self, handler_max: Duration) -> Self {
        self.change().handler_max = handler_max;
        self
    }

    /// Sets which messages are logged, one line each.
    #[must_use]
    pub fn log(mut self, log: RequestLog) -> Self {
        self.change().log = log;
        self
    }

    /// Records spans of messages. An incoming `traceparent` is passed on in any case.
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

/// The settings that all messages of a route share.
#[derive(Clone)]
struct Inbox<K> {
    store: K,
    clock: Clock,
    random: Random,
    consumer: String,
    sources: Arc<Sources>,
    source: Option<String>,
    dedupe: Dedupe,
    body_max: u64,
    room: Arc<Room>,
    tolerance: Duration,
    handler_max: Duration,
    /// Whether the handler touches nothing but its transaction, so that it may run before its
    /// message is accepted.
    accepts_at_commit: bool,
    traces: Traces,
    log: RequestLog,
}
