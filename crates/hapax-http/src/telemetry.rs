//! Metrics of idempotent operations. Their handles are created once per operation.

use std::{sync::OnceLock, time::Duration};

use hapax::{
    key::Operation,
    telemetry::{
        IDEMPOTENCY_FENCED, IDEMPOTENCY_LOST_CLAIMS, IDEMPOTENCY_REQUESTS, IDEMPOTENCY_TAKEOVERS,
        IDEMPOTENCY_WAIT,
    },
};
use metrics::{Counter, Histogram};

/// How a request on a protected operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Created,
    Replayed,
    Mismatch,
    InProgress,
    Bypassed,
    FailedOpen,
    Gone,
    Released,
    StoreError,
}

impl Outcome {
    const ALL: [Self; 9] = [
        Self::Created,
        Self::Replayed,
        Self::Mismatch,
        Self::InProgress,
        Self::Bypassed,
        Self::FailedOpen,
        Self::Gone,
        Self::Released,
        Self::StoreError,
    ];

    /// Returns the name in metrics and spans.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Replayed => "replayed",
            Self::Mismatch => "mismatch",
            Self::InProgress => "in_progress",
            Self::Bypassed => "bypassed",
            Self::FailedOpen => "failed_open",
            Self::Gone => "gone",
            Self::Released => "released",
            Self::StoreError => "store_error",
        }
    }
}

/// Why an optimistic claim has committed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LostClaim {
    /// The key was stored, or another request was claiming it.
    Taken,
    /// The transaction conflicted with another one.
    Conflict,
    /// The handler returned a response that is not stored, or the transaction could not commit.
    NotStored,
}

impl LostClaim {
    /// Returns the name in metrics.
    const fn as_str(self) -> &'static str {
        match self {
            Self::Taken => "taken",
            Self::Conflict => "conflict",
            Self::NotStored => "not_stored",
        }
    }
}

/// The metrics of one operation. The handles are created at its first request, because the exporter
/// may not be installed earlier.
#[derive(Debug)]
pub(crate) struct Counts {
    operation: Operation,
    handles: OnceLock<Handles>,
}

#[derive(Debug)]
struct Handles {
    requests: [Counter; Outcome::ALL.len()],
    waits: Histogram,
}

impl Counts {
    pub(crate) const fn new(operation: Operation) -> Self {
        Self {
            operation,
            handles: OnceLock::new(),
        }
    }

    /// Counts a request.
    pub(crate) fn request(&self, outcome: Outcome) {
        self.handles().requests[outcome as usize].increment(1);
        if tracing::span_enabled!(tracing::Level::DEBUG) {
            tracing::Span::current().record("idempotency.outcome", outcome.as_str());
        }
    }

    /// Records how long a duplicate waited.
    pub(crate) fn wait(&self, waited: Duration) {
        self.handles().waits.record(waited);
    }

    /// Counts a key that was taken over from an owner that did not finish.
    pub(crate) fn takeover(&self, by: &'static str) {
        let operation = self.operation.as_str().to_owned();
        metrics::counter!(IDEMPOTENCY_TAKEOVERS, "operation" => operation, "by" => by).increment(1);
    }

    /// Counts an optimistic claim that has committed nothing.
    pub(crate) fn lost_claim(&self, reason: LostClaim) {
        let (operation, reason) = (self.operation.as_str().to_owned(), reason.as_str());
        metrics::counter!(
            IDEMPOTENCY_LOST_CLAIMS,
            "operation" => operation,
            "reason" => reason
        )
        .increment(1);
    }

    /// Counts an owner that has lost its key.
    pub(crate) fn fenced(&self) {
        let operation = self.operation.as_str().to_owned();
        metrics::counter!(IDEMPOTENCY_FENCED, "operation" => operation).increment(1);
    }

    fn handles(&self) -> &Handles {
        self.handles.get_or_init(|| {
            let operation = || self.operation.as_str().to_owned();
            Handles {
                requests: Outcome::ALL.map(|outcome| {
                    metrics::counter!(
                        IDEMPOTENCY_REQUESTS,
                        "operation" => operation(),
                        "outcome" => outcome.as_str()
                    )
                }),
                waits: metrics::histogram!(IDEMPOTENCY_WAIT, "operation" => operation()),
            }
        })
    }
}
