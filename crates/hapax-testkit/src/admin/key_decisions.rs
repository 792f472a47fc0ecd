//! Decisions about keys in progress whose outcome is unknown.

use hapax::{
    admin::{Actor, AdminError, KeyDecision, KeyOutcome, KeyState},
    idempotency::Taken,
    store::{ClaimOutcome, Effect, Keys, Phases, StoreError, Transaction},
};

use super::{
    AdminUnderTest,
    checks::{Must, check_conflict, check_invalid},
    scene::{OPERATION, Scene},
};
use crate::events::{claim, response};

/// A response that an operator gives is replayed, and the log says who gave it and why.
pub async fn a_key_that_is_decided_to_have_happened_replays<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let owned = scene.enter("k").await;
    scene.store().give_back(&owned).await.must();
    let given = response("{\"id\":7}");
    let happened = KeyOutcome::Happened(given.clone());
    decide(&scene, &scene.ops, "k", happened).await.must();
    let again = scene.store().claim(claim("k")).await.must();
    let ClaimOutcome::Taken(Taken::Replay { response, .. }) = again else {
        panic!("the response should be replayed");
    };
    assert_eq!(response, given);
    let found = scene
        .admin
        .key(&scene.ops, None, OPERATION, "k")
        .await
        .must();
    assert_eq!(found.summary.state, KeyState::Completed);
    let [line] = scene.log().await.try_into().must();
    assert_eq!(
        (line.action.as_str(), line.outcome.as_str()),
        ("decide", "done")
    );
    assert_eq!(line.detail["reason"], "found in the ledger");
    assert_eq!(line.detail["outcome"], "happened");
    assert!(!line.detail.to_string().contains("\"id\""), "{line:?}");
}

/// A key whose request did not happen is free.
pub async fn a_key_that_is_decided_not_to_have_happened_is_free<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let owned = scene.enter("k").await;
    scene.store().give_back(&owned).await.must();
    decide(&scene, &scene.ops, "k", KeyOutcome::DidNotHappen)
        .await
        .must();
    let ClaimOutcome::Open(tx) = scene.store().claim(claim("k")).await.must() else {
        panic!("the key should be free");
    };
    tx.rollback().await;
}

/// A key with an owner is not decided, and neither is one that is completed.
pub async fn a_key_with_an_owner_or_a_response_is_not_decided<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let _owned = scene.enter("running").await;
    scene.complete("alice", "completed").await;
    for key in ["running", "completed"] {
        let decided = decide(&scene, &scene.ops, key, KeyOutcome::DidNotHappen).await;
        check_conflict(&decided);
    }
}

/// An owner that still runs after a decision is fenced.
pub async fn an_owner_is_fenced_by_a_decision<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let owned = scene.enter("k").await;
    scene.store().give_back(&owned).await.must();
    let happened = KeyOutcome::Happened(response("{\"id\":7}"));
    decide(&scene, &scene.ops, "k", happened).await.must();
    let opened = scene.store().phase(&owned, None, claim("k").context).await;
    let late = match opened {
        Err(error) => Err(error),
        Ok(tx) => tx.complete(&response("{\"id\":8}"), Effect::Keep).await,
    };
    assert!(matches!(late, Err(StoreError::Fenced)), "{late:?}");
}

/// A decision is made about the version that the operator has seen.
pub async fn a_key_that_was_resumed_since_it_was_read_is_not_decided<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let owned = scene.enter("k").await;
    scene.store().give_back(&owned).await.must();
    let found = scene
        .admin
        .key(&scene.ops, None, OPERATION, "k")
        .await
        .must();
    let owned = scene.enter("k").await;
    scene.store().give_back(&owned).await.must();
    let decision = decision("k", &found.version, KeyOutcome::DidNotHappen);
    let decided = scene.admin.decide_key(&scene.ops, &decision).await;
    check_conflict(&decided);
}

/// A decision needs a reason, a version, and a response that can be stored.
pub async fn a_decision_about_a_key_is_checked<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let owned = scene.enter("k").await;
    scene.store().give_back(&owned).await.must();
    let found = scene
        .admin
        .key(&scene.ops, None, OPERATION, "k")
        .await
        .must();
    let valid = decision("k", &found.version, KeyOutcome::DidNotHappen);
    let without_reason = KeyDecision {
        reason: " ".to_owned(),
        ..valid.clone()
    };
    let of_no_version = KeyDecision {
        version: "1".to_owned(),
        ..valid.clone()
    };
    let mut odd = response("{}");
    odd.status = 101;
    let of_no_status = KeyDecision {
        outcome: KeyOutcome::Happened(odd),
        ..valid
    };
    for (decision, field) in [
        (without_reason, "reason"),
        (of_no_version, "version"),
        (of_no_status, "status"),
    ] {
        let decided = scene.admin.decide_key(&scene.ops, &decision).await;
        check_invalid(&decided, field);
    }
}

/// Reads a key, and decides about the version that was read.
async fn decide<S: AdminUnderTest>(
    scene: &Scene<S>,
    actor: &Actor,
    key: &str,
    outcome: KeyOutcome,
) -> Result<(), AdminError> {
    let found = scene.admin.key(actor, None, OPERATION, key).await?;
    let decision = decision(key, &found.version, outcome);
    scene.admin.decide_key(actor, &decision).await
}

fn decision(key: &str, version: &str, outcome: KeyOutcome) -> KeyDecision {
    KeyDecision {
        tenant: None,
        operation: OPERATION.to_owned(),
        key: key.to_owned(),
        version: version.to_owned(),
        outcome,
        reason: "found in the ledger".to_owned(),
    }
}
