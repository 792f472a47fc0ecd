//! Conformance tests of purging a key.

use futures_util::future::join_all;
use hapax::{
    admin::REASON_BYTES_MAX,
    idempotency::Taken,
    saga::State,
    store::{ClaimOutcome, Effect, KeyMaintenance, Keys, SagaRows, Transaction},
};

use super::{
    AdminUnderTest,
    checks::{
        HOSTILE, Must, check_conflict, check_invalid, check_missing, check_one_done, hostile, long,
    },
    scene::{OPERATION, Scene, line, new_saga, of},
};
use crate::events::{RETENTION, claim, response};

/// A purged key is free, and the log says who purged it and why, without the key itself.
pub async fn a_purged_key_is_free_again<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    scene.complete("alice", "secret-k").await;
    let again = async || scene.store().claim(claim("secret-k")).await.must();
    assert!(matches!(
        again().await,
        ClaimOutcome::Taken(Taken::Replay { .. })
    ));
    let why = "charged by hand";
    scene.purge(&scene.ops, None, "secret-k", why).await.must();
    let ClaimOutcome::Open(tx) = again().await else {
        panic!("the key should be free");
    };
    tx.rollback().await;
    check_missing(&scene.purge(&scene.ops, None, "secret-k", "again").await);
    let [line] = scene.log().await.try_into().must();
    let hash = claim("secret-k").scope.key.short_hash();
    assert_eq!(
        (line.action.as_str(), line.outcome.as_str()),
        ("purge", "done")
    );
    assert_eq!(line.object, format!("key {OPERATION} #{hash}"));
    assert_eq!(
        (line.actor.as_str(), &line.detail["reason"]),
        ("ops", &why.into())
    );
    assert!(!line.detail.to_string().contains("secret-k"), "{line:?}");
}

/// A purge needs a reason of 1 to [`REASON_BYTES_MAX`] bytes, and the version of the key.
pub async fn a_purge_needs_a_reason_and_a_version<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    scene.complete("alice", "k").await;
    let over = "x".repeat(REASON_BYTES_MAX + 1);
    for reason in ["", " ", "\n", &over, &long()] {
        let purged = scene.purge(&scene.ops, None, "k", reason).await;
        check_invalid(&purged, "reason");
    }
    let mut versions = hostile();
    versions.extend(["", "1", "x"].map(str::to_owned));
    for version in versions {
        let purged = scene
            .admin
            .purge_key(&scene.ops, None, OPERATION, "k", &version, "why");
        check_invalid(&purged.await, "version");
    }
    assert!(scene.acts().await.is_empty());
    scene.purge(&scene.ops, None, "k", &over[1..]).await.must();
    for word in HOSTILE {
        scene.complete("alice", "k").await;
        scene.purge(&scene.ops, None, "k", word).await.must();
    }
}

/// A key of phased mode is not purged while it is in progress, even after its lease.
pub async fn a_key_in_progress_is_not_purged<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    scene.enter("k").await;
    for _ in 0..2 {
        check_conflict(&scene.purge(&scene.ops, None, "k", "why").await);
        scene.advance(2 * RETENTION).await;
    }
    assert_eq!(scene.acts().await, vec![line("purge", "refused"); 2]);
    let key = scene.admin.key(&scene.ops, None, OPERATION, "k").await;
    key.must();
}

/// A key that was used again since it was read is not purged.
pub async fn a_key_that_was_used_again_since_it_was_read_is_not_purged<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let look = async || {
        let key = scene.admin.key(&scene.ops, None, OPERATION, "k").await;
        key.must()
    };
    let purge = async |version: &str| {
        let purged = scene
            .admin
            .purge_key(&scene.ops, None, OPERATION, "k", version, "why");
        purged.await
    };
    scene.complete("alice", "k").await;
    let seen = look().await.version;
    assert_eq!(look().await.version, seen, "reading changes the version");
    // Another operator purges the key, and the client's retry runs, at the same moment.
    purge(&seen).await.must();
    scene.complete("alice", "k").await;
    check_conflict(&purge(&seen).await);
    let anew = look().await;
    assert_eq!(anew.summary.status, Some(201));
    // The key expires and is used once more.
    scene.advance(RETENTION).await;
    scene.complete("alice", "k").await;
    check_conflict(&purge(&anew.version).await);
    purge(&look().await.version).await.must();
    check_missing(&purge(&seen).await);
    let outcomes = scene.acts().await.into_iter().map(|act| act.1);
    let outcomes: Vec<String> = outcomes.collect();
    assert_eq!(outcomes, ["done", "refused", "refused", "done"]);
}

/// A key that was completed since it was read in progress is not purged.
pub async fn a_key_that_was_completed_since_it_was_read_is_not_purged<S: AdminUnderTest>() {
    use hapax::{event::Headers, store::Phases};
    let scene = Scene::<S>::new().await;
    let owned = scene.enter("k").await;
    let key = scene.admin.key(&scene.ops, None, OPERATION, "k").await;
    let seen = key.must().version;
    let phase = scene.store().phase(&owned, None, Headers::new()).await;
    let stored = phase.must().complete(&response("{}"), Effect::Keep).await;
    stored.must();
    let purged = scene
        .admin
        .purge_key(&scene.ops, None, OPERATION, "k", &seen, "why");
    check_conflict(&purged.await);
    scene.purge(&scene.ops, None, "k", "why").await.must();
}

/// Of operators who purge one version at the same time, one succeeds, and the retry that follows is
/// not purged by the others.
pub async fn of_many_purges_of_one_version_at_once_one_is_done<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    scene.complete("alice", "k").await;
    let key = scene.admin.key(&scene.ops, None, OPERATION, "k").await;
    let seen = key.must().version;
    let handles = [scene.admin.clone(), scene.beside().await];
    let purges = (0..20).map(async |number: usize| {
        let admin = &handles[number % 2];
        let purged = admin.purge_key(&scene.ops, None, OPERATION, "k", &seen, "why");
        let purged = purged.await;
        // The client sends its request again.
        if purged.is_ok()
            && let ClaimOutcome::Open(tx) = scene.store().claim(claim("k")).await.must()
        {
            tx.complete(&response("again"), Effect::Keep).await.must();
        }
        purged
    });
    check_one_done(&join_all(purges).await);
    let left = scene.admin.key(&scene.ops, None, OPERATION, "k").await;
    assert_eq!(left.must().body.expect("it is completed").raw, "again");
    let announced = scene.store().purged(None).await.must();
    assert_eq!(announced.until.number, 1);
}

/// Services learn of a purge, and not of one that was refused.
pub async fn a_purge_is_announced_to_services<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    scene.complete("alice", "k").await;
    scene.enter("phased").await;
    let before = scene.store().purged(None).await.must().until;
    check_conflict(&scene.purge(&scene.ops, None, "phased", "why").await);
    let purged = scene.store().purged(Some(&before)).await.must();
    assert_eq!((purged.keys, &purged.until), (Some(Vec::new()), &before));
    scene.purge(&scene.ops, None, "k", "why").await.must();
    let purged = scene.store().purged(Some(&before)).await.must();
    assert_eq!(purged.keys, Some(vec![claim("k").scope]));
}

/// A key is kept until the saga that was started under it has ended.
pub async fn a_key_is_kept_until_its_saga_has_ended<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let mut tx = scene.fixture.claim(claim("k")).await;
    assert!(tx.start_saga(&new_saga("s1", None)).await.must());
    tx.complete(&response("{}"), Effect::Keep).await.must();
    for state in [State::Running, State::NeedsAttention] {
        scene.put_saga("s1", &[], state).await;
        let purged = scene.purge(&scene.ops, None, "k", "why").await;
        check_conflict(&purged);
        let said = purged.expect_err("it is refused").to_string();
        assert!(said.contains("s1"), "the saga is not named: {said}");
    }
    scene.put_saga("s1", &[], State::Failed).await;
    scene.purge(&scene.ops, None, "k", "why").await.must();
}

/// An operator of a tenant purges that tenant's keys.
pub async fn an_operator_of_a_tenant_purges_its_own_keys<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    for tenant in ["alice", "bob"] {
        scene.complete(tenant, "k").await;
    }
    let (admin, alice) = (&scene.admin, of("alice"));
    let bobs = admin.key(&scene.ops, Some("bob"), OPERATION, "k").await;
    let version = bobs.must().version;
    let stolen = admin.purge_key(&alice, Some("bob"), OPERATION, "k", &version, "why");
    check_missing(&stolen.await);
    scene.purge(&alice, None, "k", "why").await.must();
    check_missing(&admin.key(&alice, None, OPERATION, "k").await);
    let bobs = admin.key(&scene.ops, Some("bob"), OPERATION, "k").await;
    assert_eq!(bobs.must().version, version);
    let [line] = scene.log().await.try_into().must();
    assert_eq!(line.tenant.as_deref(), Some("alice"));
}
