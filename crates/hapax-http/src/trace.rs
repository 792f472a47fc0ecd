//! Trace context of a request, from its headers to the headers of its events.
//!
//! A [`TraceContext`] in the request's extensions has precedence over the header. A service that
//! traces by other means sets it to choose the parent span of the request's events.

use axum::response::Response;
use hapax::{
    event::Headers,
    trace::{TRACEPARENT, TRACESTATE, TraceContext, TracePosition, Traces, is_tracestate},
};
use http::request::Parts;
use tracing::{Span, debug_span, field::Empty};

use crate::header;

/// Returns the span context of a request: a child of the caller's span, or the root of a new trace.
pub(crate) fn place(traces: &Traces, parts: &Parts) -> TracePosition {
    traces.below(sent(parts))
}

/// Creates the span of a request on a protected operation.
pub(crate) fn request_span(operation: &str, parts: &Parts, place: &TracePosition) -> Span {
    debug_span!(
        "request",
        traceparent = place.own(),
        parent_span_id = place.parent(),
        otel.kind = "server",
        otel.name = operation,
        otel.status_code = Empty,
        operation,
        http.request.method = parts.method.as_str(),
        http.response.status_code = Empty,
        attempt = header::attempt(&parts.headers),
        idempotency.key_hash = Empty,
        idempotency.outcome = Empty,
    )
}

/// Creates the span of a verified message.
pub(crate) fn message_span(consumer: &str, source: &str, id: &str, place: &TracePosition) -> Span {
    debug_span!(
        "accept",
        traceparent = place.own(),
        parent_span_id = place.parent(),
        otel.kind = "consumer",
        otel.status_code = Empty,
        consumer,
        source,
        event_id = id,
        outcome = Empty,
        http.response.status_code = Empty,
    )
}

/// Records the status of the response on its span.
pub(crate) fn answered(span: &Span, response: &Response) {
    let status = response.status();
    span.record("http.response.status_code", status.as_u16());
    if status.is_server_error() {
        span.record("otel.status_code", "error");
    }
}

/// Adds the trace context of a request to the headers of its events.
///
/// Malformed headers are left out, and so is a `tracestate` without a `traceparent`.
pub(crate) fn write_context(context: &mut Headers, parts: &Parts, place: Option<&TracePosition>) {
    let own = place.map_or_else(|| sent(parts), TracePosition::context);
    let Some(own) = own else { return };
    context.insert(TRACEPARENT.to_owned(), own.to_string());
    let state = parts.headers.get(TRACESTATE);
    if let Some(state) = state.filter(|value| is_tracestate(value.as_bytes()))
        && let Ok(state) = state.to_str()
    {
        context.insert(TRACESTATE.to_owned(), state.to_owned());
    }
}

fn sent(parts: &Parts) -> Option<TraceContext> {
    if let Some(placed) = parts.extensions.get::<TraceContext>() {
        return Some(*placed);
    }
    let mut values = parts.headers.get_all(TRACEPARENT).iter();
    // If the header occurs twice, it is unknown which one the caller meant.
    let only = values.next().filter(|_| values.next().is_none())?;
    TraceContext::parse(only.to_str().ok()?)
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn what_came_in_travels_on_where_nothing_is_traced() {
        check(&[(TRACEPARENT, PARENT)], &[PARENT]);
        let state = (TRACESTATE, "vendor=a@b,other=1");
        check(&[(TRACEPARENT, PARENT), state], &[PARENT, state.1]);
        check(&[state], &[]);
        check(&[(TRACEPARENT, "00-1-2-01"), state], &[]);
        check(&[(TRACEPARENT, PARENT), (TRACEPARENT, PARENT)], &[]);
        let long = "a".repeat(513);
        check(&[(TRACEPARENT, PARENT), (TRACESTATE, &long)], &[PARENT]);
    }

    #[test]
    fn what_the_service_has_placed_wins_over_the_header() {
        let placed = PARENT.replace("0af7", "1111");
        let request = Request::builder().header(TRACEPARENT, PARENT);
        let request = request.extension(TraceContext::parse(&placed).unwrap());
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let mut context = Headers::new();
        write_context(&mut context, &parts, None);
        assert_eq!(context[TRACEPARENT], placed);
    }

    #[track_caller]
    fn check(headers: &[(&str, &str)], expected: &[&str]) {
        let request = headers.iter().fold(Request::builder(), |request, header| {
            request.header(header.0, header.1)
        });
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let mut context = Headers::new();
        write_context(&mut context, &parts, None);
        let carried: Vec<&str> = context.values().map(String::as_str).collect();
        assert_eq!(carried, expected);
    }
}
