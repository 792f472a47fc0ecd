//! `tracing` layer that collects traced spans.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::SystemTime,
};

use hapax::trace::TRACEPARENT;
use tokio::sync::mpsc;
use tracing::{
    Metadata, Subscriber,
    level_filters::LevelFilter,
    span::{Attributes, Id, Record},
};
use tracing_subscriber::{Layer, filter::filter_fn, layer::Context, registry::LookupSpan};

use crate::span::{EndedSpan, OpenSpan};

/// Collects spans that have trace ids, and passes them to the exporter.
#[derive(Clone, Debug)]
pub struct Spans {
    queue: mpsc::Sender<EndedSpan>,
    dropped: Arc<AtomicU64>,
    now: fn() -> SystemTime,
}

impl Spans {
    pub(crate) fn new(
        queue: mpsc::Sender<EndedSpan>,
        dropped: Arc<AtomicU64>,
        now: fn() -> SystemTime,
    ) -> Self {
        Self {
            queue,
            dropped,
            now,
        }
    }

    /// The layer. It sees only traced spans, no log events and no other spans.
    pub fn layer<S>(self) -> impl Layer<S>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let filter = filter_fn(is_traced).with_max_level_hint(LevelFilter::DEBUG);
        Taking(self).with_filter(filter)
    }
}

/// Whether a span may belong to traced work. `tracing` also asks this before a span exists.
fn is_traced(metadata: &Metadata<'_>) -> bool {
    let is_ours = metadata.target().starts_with("hapax");
    metadata.is_span() && (is_ours || metadata.fields().field(TRACEPARENT).is_some())
}

/// The layer without its filter.
struct Taking(Spans);

impl<S> Layer<S> for Taking
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let metadata = attributes.metadata();
        if metadata.fields().field(TRACEPARENT).is_none() {
            return;
        }
        let mut open = OpenSpan::new(metadata.name(), (self.0.now)());
        attributes.record(&mut open);
        if let Some(span) = context.span(id).filter(|_| open.is_traced()) {
            span.extensions_mut().insert(open);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(open) = span.extensions_mut().get_mut::<OpenSpan>()
        {
            values.record(open);
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let open = context
            .span(&id)
            .and_then(|span| span.extensions_mut().remove::<OpenSpan>());
        let Some(ended) = open.and_then(OpenSpan::end) else {
            return;
        };
        // Spans never wait for a collector. If the queue is full, the span is counted and dropped.
        if self.0.queue.try_send(ended).is_err() {
            self.0.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}
