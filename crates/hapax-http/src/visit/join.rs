//! Single flight: of the duplicates on this node one leads, and the others wait for its outcome.

use std::sync::Arc;

use hapax::{
    key::{Fingerprint, Scope},
    limits::PURGES_FRESH,
    single_flight::{Arrival, Follow, Lead, Turn},
    store::Keys,
};
use tokio::time::{Instant, timeout_at};

use crate::{
    cache::{Generation, ScopeRef},
    operation::Act,
    settings::until,
    stored::Stored,
    told::Told,
};

/// The right to run, with the state of the replay cache when it was last read.
pub(super) struct Joined {
    pub(super) lead: Lead<Told>,
    pub(super) generation: Generation,
    pub(super) asked_at: Instant,
}

impl Joined {
    /// Returns the outcome for the followers, for a response that was read or committed after this
    /// request joined.
    pub(super) fn replay(&self, stored: Arc<Stored>) -> Told {
        Told::Replay(stored, self.asked_at)
    }
}

/// Joins the requests with this key. Returns the outcome as an `Err` if another request has run.
pub(super) async fn join<K: Keys>(
    act: &Arc<Act<K>>,
    scope: &Scope,
    fingerprint: Fingerprint,
    deadline: Option<Instant>,
) -> Result<Joined, Told> {
    let end = until(Instant::now(), act.idempotency.settings().wait);
    let end = deadline.map_or(end, |deadline| deadline.min(end));
    let lead = loop {
        let arrived = Instant::now();
        match act.idempotency.flights().arrive(scope, fingerprint) {
            Arrival::Lead(lead) => break lead,
            Arrival::Mismatch => return Err(Told::Mismatch),
            Arrival::Follow(follow) => match wait(act, follow, end).await {
                Ok(lead) => break lead,
                Err(told) if may_be_purged(&told, arrived) => {}
                Err(told) => return Err(told),
            },
        }
    };
    let generation = act.idempotency.generation().await;
    let asked_at = Instant::now();
    // The previous leader may have finished between the first look at the cache and the join.
    match act.idempotency.remembered(&ScopeRef::of(scope)).await {
        None => Ok(Joined {
            lead,
            generation,
            asked_at,
        }),
        Some(stored) => {
            let told = if stored.fingerprint == fingerprint {
                Told::Replay(stored, asked_at)
            } else {
                Told::Mismatch
            };
            lead.finish(&told);
            Err(told)
        }
    }
}

/// Whether the response may belong to a key that was purged long before this request arrived.
///
/// A leader that started before the purge may have read the response, and it is not known when it
/// did.
fn may_be_purged(told: &Told, arrived: Instant) -> bool {
    match told {
        Told::Replay(_, since) => *since + PURGES_FRESH < arrived,
        Told::Mismatch | Told::InProgress | Told::Gone => false,
    }
}

async fn wait<K: Keys>(
    act: &Act<K>,
    follow: Follow<Told>,
    end: Instant,
) -> Result<Lead<Told>, Told> {
    let arrived = Instant::now();
    let turn = timeout_at(end, follow.turn()).await;
    act.counts.wait(arrived.elapsed());
    match turn {
        Ok(Turn::Lead(lead)) => Ok(lead),
        Ok(Turn::Told(told)) => Err(told),
        Ok(Turn::Mismatch) => Err(Told::Mismatch),
        Err(_) => Err(Told::InProgress),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hapax::{idempotency::Answer, key::IdempotencyKey};

    use super::*;
    use crate::settings::{Moment, Profile};

    #[test]
    fn an_answer_that_was_asked_for_long_before_somebody_came_is_looked_up_again() {
        let answer = Answer {
            status: 200,
            ..Answer::default()
        };
        let key = IdempotencyKey::new("k").unwrap();
        let (print, expires_at) = (Fingerprint::from_bytes([1; 32]), Moment::default());
        let stored = Stored::new(answer, &key, print, expires_at, Profile::Hapax).unwrap();
        let (asked_at, stored) = (Instant::now(), Arc::new(stored));
        let told = Told::Replay(stored, asked_at);
        assert!(!may_be_purged(&told, asked_at));
        assert!(!may_be_purged(&told, asked_at + PURGES_FRESH));
        let moment = Duration::from_millis(1);
        assert!(may_be_purged(&told, asked_at + PURGES_FRESH + moment));
        assert!(!may_be_purged(&Told::Gone, asked_at + 2 * PURGES_FRESH));
    }
}
