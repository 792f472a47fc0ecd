//! Quotas: who has as much stored as it may gets no new key, and every answer that it has.

use std::time::Duration;

use hapax::{
    idempotency::{Claim, judge},
    quota::Excess,
    store::Keys,
};

use crate::{
    operation::Act,
    problem::{Problem, QUOTA},
};

/// A quota is free again when keys expire, which is no matter of seconds.
const RETRY_AFTER: Duration = Duration::from_mins(1);

/// The refusal of a request whose tenant is over its quota, if its key is new.
///
/// Nobody else pays for the look at the store. Where it cannot be looked, the way of every request
/// says what becomes of this one.
pub(super) async fn refusal<K: Keys>(
    act: &Act<K>,
    claim: Claim,
    excess: Excess,
) -> Option<Problem> {
    let record = act.idempotency.store().look_up(&claim.scope).await.ok()?;
    let is_known = record.is_some_and(|record| {
        let now = record.read_at;
        judge(record, &claim, now).is_some()
    });
    if is_known {
        return None;
    }
    let detail = match excess {
        Excess::Keys(most) => format!("{most} keys are stored, and no more are allowed"),
        Excess::Bytes(most) => {
            format!("{most} bytes of answers are stored, and no more are allowed")
        }
    };
    tracing::info!(error_code = QUOTA.name(), "a tenant is over its quota");
    Some(Problem::new(QUOTA).detail(detail).retry_after(RETRY_AFTER))
}
