//! Where duplicates meet: one leads, the others wait for its word.

use std::sync::Arc;

use hapax::{
    key::{Fingerprint, Scope},
    single_flight::{Arrival, Follow, Lead, Turn},
    store::Keys,
};
use tokio::time::{Instant, timeout_at};

use crate::{
    cache::{Generation, ScopeRef},
    operation::Act,
    settings::until,
    told::Told,
};

/// The right to run, and when the cache was last asked.
pub(super) struct Joined {
    pub(super) lead: Lead<Told>,
    pub(super) generation: Generation,
}

/// Joins the requests with this key; `Err` is the word on it, when another has run.
pub(super) async fn join<K: Keys>(
    act: &Arc<Act<K>>,
    scope: &Scope,
    fingerprint: Fingerprint,
    deadline: Option<Instant>,
) -> Result<Joined, Told> {
    let lead = match act.idempotency.flights().arrive(scope, fingerprint) {
        Arrival::Lead(lead) => lead,
        Arrival::Mismatch => return Err(Told::Mismatch),
        Arrival::Follow(follow) => wait(act, follow, deadline).await?,
    };
    let generation = act.idempotency.replays().generation();
    // The one before may have finished between the first look and the arrival.
    let borrowed = ScopeRef {
        tenant: &scope.tenant,
        operation: &scope.operation,
        key: scope.key.as_str(),
    };
    let now = act.idempotency.settings().moment();
    match act.idempotency.replays().get(&borrowed, now) {
        None => Ok(Joined { lead, generation }),
        Some(stored) => {
            let told = if stored.fingerprint == fingerprint {
                Told::Replay(stored)
            } else {
                Told::Mismatch
            };
            lead.finish(&told);
            Err(told)
        }
    }
}

async fn wait<K: Keys>(
    act: &Act<K>,
    follow: Follow<Told>,
    deadline: Option<Instant>,
) -> Result<Lead<Told>, Told> {
    let arrived = Instant::now();
    let end = until(arrived, act.idempotency.settings().wait);
    let end = deadline.map_or(end, |deadline| deadline.min(end));
    let turn = timeout_at(end, follow.turn()).await;
    act.counts.wait(arrived.elapsed());
    match turn {
        Ok(Turn::Lead(lead)) => Ok(lead),
        Ok(Turn::Told(told)) => Err(told),
        Ok(Turn::Mismatch) => Err(Told::Mismatch),
        Err(_) => Err(Told::InProgress),
    }
}
