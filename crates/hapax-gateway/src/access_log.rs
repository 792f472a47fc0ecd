//! Access log: one line per request, through `tracing`.
//!
//! With the log format `json` each line is a JSON object. It contains neither headers nor queries,
//! which may be credentials.

use std::time::Duration;

use http::{HeaderMap, Method, Version};

use crate::peer::Peer;

/// The content of a line.
pub(crate) struct Line<'a> {
    pub(crate) peer: &'a Peer,
    pub(crate) method: &'a Method,
    pub(crate) host: &'a str,
    pub(crate) path: &'a str,
    pub(crate) version: Version,
    pub(crate) route: Option<&'a str>,
    pub(crate) upstream: Option<&'a str>,
    pub(crate) request_id: &'a str,
    pub(crate) status: u16,
    pub(crate) took: Duration,
}

/// Writes the line of a request.
pub(crate) fn write(line: &Line<'_>, response: &HeaderMap) {
    let outcome = response.get(hapax_http::header::IDEMPOTENCY_STATUS);
    tracing::info!(
        client = %line.peer.address,
        tls = line.peer.is_tls,
        method = line.method.as_str(),
        host = line.host,
        path = line.path,
        version = ?line.version,
        route = line.route,
        upstream = line.upstream,
        request_id = line.request_id,
        status = line.status,
        idempotency = outcome.and_then(|value| value.to_str().ok()),
        took_ms = u64::try_from(line.took.as_millis()).unwrap_or(u64::MAX),
        "request"
    );
}
