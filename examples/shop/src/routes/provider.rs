//! Problems for clients when a provider did not execute an operation.

use std::time::Duration;

use hapax::{saga::Refusal, sink::BoxError, store::Transaction};
use hapax_http::{
    Phased,
    problem::{Problem, TIMEOUT, UNAVAILABLE},
};

use crate::{
    problem::{CARD_DECLINED, PROVIDER_FAILED, PROVIDER_REFUSED},
    providers::KEY_REUSED,
};

/// The `Retry-After` of these problems.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Returns the provider, or 503 if none is configured.
pub(super) fn provided<'a, P, T: Transaction>(
    provider: Option<&'a P>,
    phased: &Phased<T>,
) -> Result<&'a P, Problem> {
    provider.ok_or_else(|| {
        phased.nothing_happened();
        Problem::new(UNAVAILABLE)
            .detail("no provider is configured for this operation")
            .retry_after(RETRY_AFTER)
    })
}

/// Builds the problem for a refusal by the provider, which a retry would not change.
pub(super) fn refused(refusal: Refusal) -> Problem {
    match refusal.code.as_str() {
        "declined" => Problem::new(CARD_DECLINED),
        KEY_REUSED => Problem::internal(refusal.code),
        _ => Problem::new(PROVIDER_REFUSED).detail(refusal.to_string()),
    }
}

/// Builds the problem for a provider that failed and has done nothing.
pub(super) fn failed(error: BoxError) -> Problem {
    Problem::new(PROVIDER_FAILED)
        .detail("the provider failed, and nothing was done; try again")
        .retry_after(RETRY_AFTER)
        .caused_by(error)
}

/// Builds the problem for an unknown outcome, which a retry with the same key finds out.
pub(super) fn unknown(error: BoxError) -> Problem {
    Problem::new(TIMEOUT)
        .detail("the outcome at the provider is unknown; retry with the same key")
        .retry_after(RETRY_AFTER)
        .caused_by(error)
}
