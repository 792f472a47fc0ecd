//! The line of a request in the request log.

use axum::response::Response;
use hapax::{key::Scope, request_log::Line, store::Keys};
use http::{HeaderValue, request::Parts};
use tokio::time::Instant;

use crate::{
    header,
    operation::ProtectedOperation,
    problem::Code,
    request_id::{self, RequestId},
};

/// The outcome of a request that was refused before its key was claimed. The metrics do not count
/// it.
pub(super) const REFUSED: &str = "refused";
/// The state of a key that is not stored.
pub(super) const FREE: &str = "free";

/// The part of a request's log line that is known when the request arrives.
#[derive(Clone)]
pub(super) struct RequestLine {
    arrived: Instant,
    attempt: Option<u32>,
    correlation_id: Option<HeaderValue>,
}

impl RequestLine {
    pub(super) fn new(arrived: Instant, parts: &Parts) -> Self {
        Self {
            arrived,
            attempt: header::attempt(&parts.headers),
            correlation_id: correlation_id(parts).cloned(),
        }
    }

    /// Writes the line of a request that ended with this response. `line` says which request it is.
    pub(super) fn write<K: Keys>(
        &self,
        operation: &ProtectedOperation<K>,
        outcome: &'static str,
        response: &Response,
        line: Line<'_>,
    ) {
        let sent = self.correlation_id.as_ref();
        let sent = sent.and_then(|id| id.to_str().ok());
        let code = response.extensions().get::<Code>();
        operation.idempotency.settings().log.write(&Line {
            operation: Some(operation.name.as_str()),
            outcome,
            status: Some(response.status().as_u16()),
            error_code: code.map(Code::name),
            attempt: self.attempt,
            correlation_id: sent.or(line.request_id),
            took: self.arrived.elapsed(),
            ..line
        });
    }
}

/// Starts a log line with the key, the tenant and the id of a request.
pub(super) fn of<'a>(scope: &'a Scope, id: &'a RequestId) -> Line<'a> {
    Line {
        key: Some(scope.key.as_str()),
        tenant: Some(scope.tenant.as_str()),
        request_id: Some(id.as_str()),
        ..Line::default()
    }
}

/// Returns the correlation id that the caller sent, if it is valid.
pub(super) fn correlation_id(parts: &Parts) -> Option<&HeaderValue> {
    let sent = parts.headers.get("x-correlation-id")?;
    request_id::is_sane(sent.as_bytes()).then_some(sent)
}
