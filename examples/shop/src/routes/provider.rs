//! What a client is told of a foreign provider that did not do what was asked.

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

/// When a client may come again, at the earliest.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The provider, or 503 where the shop was not told of one.
pub(super) fn provided<'a, P, T: Transaction>(
    provider: Option<&'a P>,
    phased: &Phased<T>,
) -> Result<&'a P, Problem> {
    provider.ok_or_else(|| {
        phased.nothing_happened();
        Problem::new(UNAVAILABLE)
            .detail("this service has no provider for it")
            .retry_after(RETRY_AFTER)
    })
}

/// The provider refused, and that stands.
pub(super) fn refused(refusal: Refusal) -> Problem {
    match refusal.code.as_str() {
        "declined" => Problem::new(CARD_DECLINED),
        KEY_REUSED => Problem::internal(refusal.code),
        _ => Problem::new(PROVIDER_REFUSED).detail(refusal.to_string()),
    }
}

/// The provider fails, and has done nothing.
pub(super) fn failed(error: BoxError) -> Problem {
    Problem::new(PROVIDER_FAILED)
        .detail("the provider failed, and nothing happened; try again")
        .retry_after(RETRY_AFTER)
        .caused_by(error)
}

/// Nobody knows what the provider did; who comes again is told.
pub(super) fn unknown(error: BoxError) -> Problem {
    Problem::new(TIMEOUT)
        .detail("the provider does not say what it did; a retry finds out")
        .retry_after(RETRY_AFTER)
        .caused_by(error)
}
