//! Single flight: of the duplicates on this node one leads, and the others wait for its outcome.

use std::sync::Arc;

use hapax::{
    key::{Fingerprint, Scope},
    limits::PURGES_FRESH,
    single_flight::{Follower, Join, Leader, Waited},
    store::Keys,
};
use tokio::time::{Instant, timeout_at};

use crate::{
    cache::{Generation, ScopeRef},
    key_status::KeyStatus,
    operation::ProtectedOperation,
    settings::until,
    stored::Stored,
};

/// The right to run, with the state of the replay cache when it was last read.
pub(super) struct Joined {
    pub(super) leader: Leader<KeyStatus>,
    /// Whether no other request with this key was running when this one arrived.
    pub(super) is_first: bool,
    pub(super) generation: Generation,
    pub(super) asked_at: Instant,
}

impl Joined {
    /// Returns the outcome for the followers, for a response that was read or committed after this
    /// request joined.
    pub(super) fn replay(&self, stored: Arc<Stored>) -> KeyStatus {
        KeyStatus::Replay(stored, self.asked_at)
    }
}

/// Joins the requests with this key. Returns the outcome as an `Err` if another request has run.
pub(super) async fn join<K: Keys>(
    operation: &Arc<ProtectedOperation<K>>,
    scope: &Scope,
    fingerprint: Fingerprint,
    deadline: Option<Instant>,
) -> Result<Joined, KeyStatus> {
    let end = until(Instant::now(), operation.policy.wait);
    let end = deadline.map_or(end, |deadline| deadline.min(end));
    let (leader, is_first) = loop {
        let arrived = Instant::now();
        match operation
            .idempotency
            .single_flight()
            .join(scope, fingerprint)
        {
            Join::Leader(leader) => break (leader, true),
            Join::Mismatch => return Err(KeyStatus::Mismatch),
            Join::Follower(follower) => match wait(operation, follower, end).await {
                Ok(leader) => break (leader, false),
                Err(status) if may_be_purged(&status, arrived) => {}
                Err(status) => return Err(status),
            },
        }
    };
    let generation = operation.idempotency.generation().await;
    let asked_at = Instant::now();
    // The previous leader may have finished between the first look at the cache and the join.
    match operation
        .idempotency
        .cached_response(&ScopeRef::of(scope))
        .await
    {
        None => Ok(Joined {
            leader,
            is_first,
            generation,
            asked_at,
        }),
        Some(stored) => {
            let status = if stored.fingerprint == fingerprint {
                KeyStatus::Replay(stored, asked_at)
            } else {
                KeyStatus::Mismatch
            };
            leader.finish(&status);
            Err(status)
        }
    }
}

/// Whether the response may belong to a key that was purged long before this request arrived.
///
/// A leader that started before the purge may have read the response, and it is not known when it
/// did.
fn may_be_purged(status: &KeyStatus, arrived: Instant) -> bool {
    match status {
        KeyStatus::Replay(_, since) => *since + PURGES_FRESH < arrived,
        KeyStatus::Mismatch | KeyStatus::InProgress | KeyStatus::Gone => false,
    }
}

async fn wait<K: Keys>(
    operation: &ProtectedOperation<K>,
    follower: Follower<KeyStatus>,
    end: Instant,
) -> Result<Leader<KeyStatus>, KeyStatus> {
    let arrived = Instant::now();
    let waited = timeout_at(end, follower.wait()).await;
    operation.counts.wait(arrived.elapsed());
    match waited {
        Ok(Waited::Leader(leader)) => Ok(leader),
        Ok(Waited::Finished(status)) => Err(status),
        Ok(Waited::Mismatch) => Err(KeyStatus::Mismatch),
        Err(_) => Err(KeyStatus::InProgress),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hapax::{idempotency::StoredResponse, key::IdempotencyKey};

    use super::*;
    use crate::{profile::Profile, settings::Moment};

    #[test]
    fn an_answer_that_was_asked_for_long_before_somebody_came_is_looked_up_again() {
        let response = StoredResponse {
            status: 200,
            ..StoredResponse::default()
        };
        let key = IdempotencyKey::new("k").unwrap();
        let (print, expires_at) = (Fingerprint::from_bytes([1; 32]), Moment::default());
        let stored = Stored::new(response, &key, print, expires_at, Profile::Hapax).unwrap();
        let (asked_at, stored) = (Instant::now(), Arc::new(stored));
        let status = KeyStatus::Replay(stored, asked_at);
        assert!(!may_be_purged(&status, asked_at));
        assert!(!may_be_purged(&status, asked_at + PURGES_FRESH));
        let moment = Duration::from_millis(1);
        assert!(may_be_purged(&status, asked_at + PURGES_FRESH + moment));
        assert!(!may_be_purged(
            &KeyStatus::Gone,
            asked_at + 2 * PURGES_FRESH
        ));
    }
}
