//! What a request is told about a key that is taken.

use std::sync::Arc;

use axum::response::Response;
use tokio::time::Instant;

use crate::{
    problem::{self, EXPIRED, IN_PROGRESS, PAYLOAD_MISMATCH, Problem},
    request_id::RequestId,
    settings::{Profile, RETRY_AFTER},
    stored::Stored,
    telemetry::Outcome,
};

/// The word on a key: an answer, or why there is none.
#[derive(Clone, Debug)]
pub(crate) enum Told {
    /// The stored answer, and since when it is known to have stood: it was read from the store, or
    /// committed, after that.
    Replay(Arc<Stored>, Instant),
    /// Another payload was sent under this key.
    Mismatch,
    /// The first request is still running.
    InProgress,
    /// The key was used and its answer is no longer kept.
    Gone,
}

impl Told {
    /// How this is counted.
    pub(crate) const fn outcome(&self) -> Outcome {
        match self {
            Self::Replay(..) => Outcome::Replayed,
            Self::Mismatch => Outcome::Mismatch,
            Self::InProgress => Outcome::InProgress,
            Self::Gone => Outcome::Gone,
        }
    }

    /// The answer that says so.
    pub(crate) fn into_response(self, profile: Profile, id: &RequestId) -> Response {
        let problem = match self {
            Self::Replay(stored, _) => return stored.replay(),
            Self::Mismatch => Problem::new(PAYLOAD_MISMATCH)
                .status(profile.mismatch())
                .detail(
                    "the first request with this key had another path, query, content type, body \
                     or condition (If-Match, If-None-Match, If-Unmodified-Since); make a new key",
                ),
            Self::InProgress => Problem::new(IN_PROGRESS)
                .detail("send the same request again after the time in Retry-After")
                .retry_after(RETRY_AFTER),
            Self::Gone => {
                Problem::new(EXPIRED).detail("its answer is no longer kept; make a new key")
            }
        };
        problem::write_out(&problem, id)
    }
}
