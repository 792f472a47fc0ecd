//! Outcome of a claim whose key is taken, and the response for it.

use std::sync::Arc;

use axum::response::Response;
use hapax::admin::KeyState;
use tokio::time::Instant;

use crate::{
    problem::{self, EXPIRED, IN_PROGRESS, PAYLOAD_MISMATCH, Problem},
    request_id::RequestId,
    settings::{Profile, RETRY_AFTER},
    stored::Stored,
    telemetry::Outcome,
};

/// The outcome of a claim whose key is taken: the stored response, or the reason why there is none.
#[derive(Clone, Debug)]
pub(crate) enum KeyStatus {
    /// The stored response, with a point in time after which it was read from the store or
    /// committed.
    Replay(Arc<Stored>, Instant),
    /// The key was used for a different request.
    Mismatch,
    /// The first request is still running.
    InProgress,
    /// The key was used, and its response is no longer kept.
    Gone,
}

impl KeyStatus {
    /// Returns the outcome for the metrics.
    pub(crate) const fn outcome(&self) -> Outcome {
        match self {
            Self::Replay(..) => Outcome::Replayed,
            Self::Mismatch => Outcome::Mismatch,
            Self::InProgress => Outcome::InProgress,
            Self::Gone => Outcome::Gone,
        }
    }

    /// Returns the state of the key, if the outcome tells it.
    pub(crate) fn state(&self) -> Option<&'static str> {
        match self {
            Self::Replay(stored, _) => Some(stored.state()),
            Self::Mismatch => None,
            Self::InProgress => Some(KeyState::InProgress.as_str()),
            Self::Gone => Some(KeyState::Tombstone.as_str()),
        }
    }

    /// Returns the response for this outcome.
    pub(crate) fn into_response(self, profile: Profile, id: &RequestId) -> Response {
        let problem = match self {
            Self::Replay(stored, _) => return stored.replay(),
            Self::Mismatch => Problem::new(PAYLOAD_MISMATCH)
                .status(profile.mismatch())
                .detail(
                    "the first request with this key had a different path, query, content type, \
                     body or condition (If-Match, If-None-Match, If-Unmodified-Since); use a new \
                     key for a different request",
                ),
            Self::InProgress => Problem::new(IN_PROGRESS)
                .detail("send the same request again after the time in Retry-After")
                .retry_after(RETRY_AFTER),
            Self::Gone => {
                Problem::new(EXPIRED).detail("its response is no longer kept; use a new key")
            }
        };
        problem::write_out(&problem, id)
    }
}
