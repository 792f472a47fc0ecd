//! Quotas: a tenant that has reached its quota gets no new keys, but all of its stored responses.

use std::time::Duration;

use hapax::{
    idempotency::{Claim, evaluate_claim},
    quota::Excess,
    store::Keys,
};

use crate::{
    operation::ProtectedOperation,
    problem::{Problem, QUOTA},
};

/// The value of `Retry-After`. Space becomes available when keys expire, which takes more than
/// seconds.
const RETRY_AFTER: Duration = Duration::from_mins(1);

/// Returns the refusal of a request whose tenant is over its quota, if its key is new.
///
/// Only requests of such a tenant need this look-up in the store. If the look-up fails, the request
/// is processed as usual, and fails in its claim if the store is still unavailable.
pub(super) async fn refusal<K: Keys>(
    operation: &ProtectedOperation<K>,
    claim: Claim,
    excess: Excess,
) -> Option<Problem> {
    let record = operation
        .idempotency
        .store()
        .look_up(&claim.scope)
        .await
        .ok()?;
    let is_known = record.is_some_and(|record| {
        let now = record.read_at;
        evaluate_claim(record, &claim, now).is_some()
    });
    if is_known {
        return None;
    }
    let detail = match excess {
        Excess::Keys(most) => format!("the quota of {most} stored keys is used up"),
        Excess::Bytes(most) => {
            format!("the quota of {most} bytes of stored responses is used up")
        }
    };
    tracing::info!(error_code = QUOTA.name(), "a tenant has reached its quota");
    Some(Problem::new(QUOTA).detail(detail).retry_after(RETRY_AFTER))
}
