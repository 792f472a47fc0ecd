//! Outcome of a claim whose key is taken, and the response for it.

use std::sync::Arc;

use axum::response::Response;
use hapax::{
    admin::KeyState,
    key::{DERIVED_PREFIX, IdempotencyKey},
};
use tokio::time::Instant;

use crate::{
    problem::{self, EXPIRED, IN_PROGRESS, PAYLOAD_MISMATCH, Problem},
    profile::Profile,
    request_id::RequestId,
    settings::RETRY_AFTER,
    stored::Stored,
    telemetry::Outcome,
};

/// The advice for a mismatch of a key that the client has sent.
const MISMATCH: &str = "the first request with this key had a different path, query, content type, \
    body or condition (If-Match, If-None-Match, If-Unmodified-Since); use a new key for a different \
    request";
/// The advice for a mismatch of a key that the service has derived from the request.
const DERIVED_MISMATCH: &str = "the service derives the key of this operation from a part of the \
    request, and an earlier request with the same part was different in its path, query, content \
    type, body or condition; send the earlier request unchanged to receive its response, or send \
    this one with an Idempotency-Key of your own to have it executed as another request";

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

    /// Returns the state of the key, if the outcome determines it.
    pub(crate) fn state(&self) -> Option<&'static str> {
        match self {
            Self::Replay(stored, _) => Some(stored.state()),
            Self::Mismatch => None,
            Self::InProgress => Some(KeyState::InProgress.as_str()),
            Self::Gone => Some(KeyState::Tombstone.as_str()),
        }
    }

    /// Returns the response for this outcome of `key`.
    pub(crate) fn into_response(
        self,
        key: &IdempotencyKey,
        profile: Profile,
        id: &RequestId,
    ) -> Response {
        // The caller of a request whose key was derived has not sent one.
        let is_derived = key.as_str().starts_with(DERIVED_PREFIX);
        let codes = profile.codes();
        let problem = match self {
            Self::Replay(stored, _) => return stored.replay(),
            Self::Mismatch => Problem::new(PAYLOAD_MISMATCH)
                .status(profile.mismatch())
                .shown_as(codes.mismatch)
                .detail(if is_derived {
                    DERIVED_MISMATCH
                } else {
                    MISMATCH
                }),
            Self::InProgress => {
                let problem = Problem::new(IN_PROGRESS)
                    .shown_as(codes.in_progress)
                    .detail("send the same request again after the time in Retry-After")
                    .retry_after(RETRY_AFTER);
                if profile.says_retry_after() {
                    problem.retry_after_member(RETRY_AFTER)
                } else {
                    problem
                }
            }
            Self::Gone => Problem::new(EXPIRED)
                .shown_as(codes.expired)
                .detail(if is_derived {
                    "the response is no longer kept; to run the request again, send it with an \
                     Idempotency-Key of your own"
                } else {
                    "its response is no longer kept; use a new key"
                }),
        };
        problem::write_out(&problem, id)
    }
}
