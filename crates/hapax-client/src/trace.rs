//! Trace context of an operation: one trace for all its attempts, and a span for each of them.
//!
//! The trace is the one that the caller names in the header `traceparent` of the request, or else a
//! new one. Each attempt sends the ids of its span.

use hapax::trace::{TRACEPARENT, TraceContext, TracePosition, Traces};
use http::{HeaderMap, HeaderValue};
use tracing::{Span, debug_span, field::Empty};

use crate::policy::IDEMPOTENCY_ATTEMPT;

/// Returns the place of an operation: below the caller's context, or at the root of a new trace.
pub(crate) fn place(traces: &Traces, headers: &HeaderMap) -> TracePosition {
    let mut values = headers.get_all(TRACEPARENT).iter();
    // If the header occurs twice, it is unknown which one the caller meant.
    let only = values.next().filter(|_| values.next().is_none());
    let sent = only.and_then(|value| TraceContext::parse(value.to_str().ok()?));
    traces.below(sent)
}

/// Adds the headers of an attempt, and returns its span.
pub(crate) fn attempt(
    traces: &Traces,
    operation: &TracePosition,
    number: u32,
    headers: &mut HeaderMap,
) -> Span {
    let place = traces.below(operation.context());
    headers.insert(IDEMPOTENCY_ATTEMPT, HeaderValue::from(number));
    if let Some(own) = place.context() {
        let own = HeaderValue::from_str(&own.to_string());
        headers.insert(TRACEPARENT, own.expect("it has digits and dashes only"));
    }
    debug_span!(
        "client.attempt",
        traceparent = place.own(),
        parent_span_id = place.parent(),
        otel.kind = "client",
        attempt = number,
        idempotency.key_hash = Empty,
        http.response.status_code = Empty,
    )
}
