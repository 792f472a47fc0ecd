//! Conformance tests of expiry: how long a response is kept, and what is left of it.

use std::{collections::BTreeMap, time::Duration};

use futures_util::future::join_all;
use hapax::{
    idempotency::{Claim, KeyState, OnExpired, Taken},
    limits::{RETENTION_MAX, TOMBSTONE},
    store::{ClaimOutcome, Effect, KeyMaintenance, Keys, Transaction},
};

use super::{StoreUnderTest, fixture::Fixture};
use crate::{
    assert_matches,
    events::{RETENTION, claim, claim_of, fingerprint, response, scope, single_shot},
};

const MOMENT: Duration = Duration::from_millis(1);

/// After its retention a key is free, even for another request, whether it was purged or not.
pub async fn an_expired_key_runs_as_new<S: StoreUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    fixture.run(claim("k"), "first", &response("first")).await;
    assert_eq!(fixture.replay(claim("k")).await, response("first"));
    fixture.clock.advance(RETENTION);
    let mut other = claim("k");
    other.fingerprint = fingerprint(2);
    fixture
        .run(other.clone(), "second", &response("second"))
        .await;
    assert_eq!(fixture.replay(other).await, response("second"));
    assert_eq!(fixture.taken(claim("k")).await, Taken::Mismatch);
    assert_eq!(fixture.rows().await, ["first", "second"]);
}

/// If the caller asks for it, a late retry receives the result that its response is gone.
pub async fn an_expired_key_is_gone_where_that_is_asked<S: StoreUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    fixture.run(gone("k"), "row", &response("{}")).await;
    assert_eq!(fixture.replay(gone("k")).await, response("{}"));
    fixture.clock.advance(RETENTION);
    assert_eq!(fixture.taken(gone("k")).await, Taken::Gone);
    assert_eq!(fixture.taken(gone("k")).await, Taken::Gone);
    assert_eq!(fixture.rows().await, ["row"]);
}

/// The response is replayed up to the last millisecond, and not in the next one.
pub async fn an_answer_stands_up_to_its_last_moment<S: StoreUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    fixture.run(gone("k"), "row", &response("{}")).await;
    fixture.clock.advance(RETENTION.saturating_sub(MOMENT));
    match fixture.taken(gone("k")).await {
        Taken::Replay { fresh_for, .. } => assert_eq!(fresh_for, MOMENT),
        other => panic!("the response should be replayed, not {other:?}"),
    }
    fixture.clock.advance(MOMENT);
    assert_eq!(fixture.taken(gone("k")).await, Taken::Gone);
}

/// No response is kept longer than the maximum retention, even if more was requested.
pub async fn no_answer_is_kept_longer_than_the_bound<S: StoreUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    for retention in [RETENTION_MAX + MOMENT, Duration::MAX] {
        let mut greedy = claim(&format!("{retention:?}"));
        greedy.retention = retention;
        let tx = fixture.claim(greedy.clone()).await;
        let kept_for = tx.complete(&response("{}"), Effect::Keep).await;
        assert_eq!(kept_for.expect("a response is stored"), RETENTION_MAX);
        greedy.scope.key = claim("plan").scope.key;
        let plan = single_shot::<super::Statement<S>>(greedy.clone(), Vec::new(), "{}");
        let ran = fixture.store().execute_plan(plan).await;
        let fresh_for = RETENTION_MAX;
        assert_eq!(ran.expect("it runs"), ClaimOutcome::Open(fresh_for));
        assert!(
            fixture
                .store()
                .forget(&greedy.scope)
                .await
                .expect("forgotten")
        );
    }
}

/// Expired keys are deleted, and the result contains their number by operation.
pub async fn a_purge_deletes_expired_keys_and_counts_them_by_operation<S: StoreUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    for (operation, key) in [("POST /a", "1"), ("POST /a", "2"), ("POST /b", "1")] {
        let claim = claim_of(scope("alice", operation, key));
        fixture.run(claim, "row", &response("{}")).await;
    }
    fixture.clock.advance(RETENTION);
    assert_eq!(
        purge(&fixture).await,
        counts(&[("POST /a", 2), ("POST /b", 1)])
    );
    assert_eq!(purge(&fixture).await, counts(&[]));
    let scope = scope("alice", "POST /a", "1");
    let found = fixture.store().look_up(&scope).await.expect("looked up");
    assert!(found.is_none());
}

/// A key that has not expired is kept with its response.
pub async fn a_purge_never_touches_an_unexpired_key<S: StoreUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    fixture.run(claim("old"), "row", &response("old")).await;
    fixture.clock.advance(MOMENT);
    fixture.run(claim("young"), "row", &response("young")).await;
    fixture.clock.advance(RETENTION.saturating_sub(MOMENT));
    assert_eq!(purge(&fixture).await, counts(&[("POST /orders", 1)]));
    assert_eq!(fixture.replay(claim("young")).await, response("young"));
}

/// The usage of every tenant can be computed. Expired keys do not count.
pub async fn usage_is_of_what_stands_tenant_by_tenant<S: StoreUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    assert_eq!(fixture.store().usage().await.expect("counted"), []);
    fixture.run(claim("old"), "row", &response("old")).await;
    fixture.clock.advance(MOMENT);
    for (tenant, key) in [("alice", "1"), ("alice", "2"), ("bob", "1")] {
        let claim = claim_of(scope(tenant, "POST /a", key));
        fixture.run(claim, "row", &response("{}")).await;
    }
    let count = async || {
        let mut usage = fixture.store().usage().await.expect("counted");
        usage.sort_by(|one, other| one.tenant.as_str().cmp(other.tenant.as_str()));
        usage
    };
    let all = count().await;
    let keys: Vec<_> = all.iter().map(|it| (it.tenant.as_str(), it.keys)).collect();
    assert_eq!(keys, [("alice", 3), ("bob", 1)]);
    let plain = response("{}");
    let least = (plain.header_block().len() + plain.body.len()) as u64;
    assert!(all[1].bytes >= least, "{all:?}");
    fixture.clock.advance(RETENTION.saturating_sub(MOMENT));
    let left = count().await;
    assert_eq!(left[0].keys, 2, "the old one has expired");
    fixture.clock.advance(MOMENT);
    assert_eq!(count().await, []);
}

/// A purge deletes a limited number of keys. Repeated purges delete all of them.
pub async fn a_purge_deletes_many_keys_batch_by_batch<S: StoreUnderTest>() {
    const KEYS: u64 = 1_200;
    let fixture = Fixture::<S>::fresh().await;
    let plans = (0..KEYS).map(|number| {
        let claim = claim(&number.to_string());
        let plan = single_shot(claim, vec![S::row_statement("row")], "{}");
        fixture.store().execute_plan(plan)
    });
    for ran in join_all(plans).await {
        assert_matches!(ran, Ok(ClaimOutcome::Open(_)));
    }
    fixture.clock.advance(RETENTION);
    let bite = fixture.store().purge_keys().await.expect("keys are purged");
    let bite: u64 = bite.iter().map(|(_, count)| count).sum();
    assert!((1..KEYS).contains(&bite), "one purge deleted {bite} keys");
    assert_eq!(
        purge(&fixture).await,
        counts(&[("POST /orders", KEYS - bite)])
    );
}

/// A tombstone says that the key was used, and no longer contains the response.
pub async fn a_purged_key_leaves_a_tombstone_where_that_is_asked<S: StoreUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    fixture.run(gone("k"), "row", &response("{}")).await;
    fixture.clock.advance(RETENTION);
    assert_eq!(purge(&fixture).await, counts(&[("POST /orders", 1)]));
    let found = fixture.store().look_up(&gone("k").scope).await;
    let record = found.expect("looked up").expect("a tombstone is left");
    assert_eq!((record.state, record.response), (KeyState::Tombstone, None));
    let mut other = gone("k");
    other.fingerprint = fingerprint(2);
    assert_eq!(fixture.taken(gone("k")).await, Taken::Gone);
    assert_eq!(fixture.taken(other).await, Taken::Gone);
    assert_eq!(purge(&fixture).await, counts(&[]));
    assert_eq!(fixture.rows().await, ["row"]);
}

/// A tombstone is deleted after its retention.
pub async fn a_tombstone_goes_after_its_time<S: StoreUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    fixture.run(gone("k"), "first", &response("first")).await;
    fixture.clock.advance(RETENTION);
    purge(&fixture).await;
    fixture.clock.advance(TOMBSTONE.saturating_sub(MOMENT));
    purge(&fixture).await;
    assert_eq!(fixture.taken(gone("k")).await, Taken::Gone);
    fixture.clock.advance(MOMENT);
    purge(&fixture).await;
    fixture.run(gone("k"), "second", &response("second")).await;
    assert_eq!(fixture.replay(gone("k")).await, response("second"));
}

/// A claim that treats expired keys as new also treats a tombstone as new.
pub async fn a_tombstone_does_not_stop_a_claim_that_takes_it_as_new<S: StoreUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    fixture.run(gone("k"), "first", &response("first")).await;
    fixture.clock.advance(RETENTION);
    purge(&fixture).await;
    fixture.run(claim("k"), "second", &response("second")).await;
    assert_eq!(fixture.replay(gone("k")).await, response("second"));
}

fn gone(key: &str) -> Claim {
    Claim {
        on_expired: OnExpired::Gone,
        ..claim(key)
    }
}

fn counts(counts: &[(&str, u64)]) -> BTreeMap<String, u64> {
    counts
        .iter()
        .map(|(operation, count)| ((*operation).to_owned(), *count))
        .collect()
}

/// Purges until there is nothing to purge. Returns the number of rows of each operation.
async fn purge<S: StoreUnderTest>(fixture: &Fixture<S>) -> BTreeMap<String, u64> {
    let mut purged = BTreeMap::new();
    loop {
        let bite = fixture.store().purge_keys().await.expect("keys are purged");
        if bite.is_empty() {
            return purged;
        }
        for (operation, count) in bite {
            assert!(count > 0, "{operation:?} is reported with nothing purged");
            *purged.entry(operation.as_str().to_owned()).or_default() += count;
        }
    }
}
