//! Conformance tests of unknown outcomes: keys in progress with the record of a gateway.
//!
//! The tests write the records as a gateway does, in a phase of the key. A retry takes the key and
//! gives it back.

use std::time::Duration;

use futures_util::future::join_all;
use hapax::{
    admin::{
        AdminError, KeyDecision, KeyFilter, KeyOutcome, UnknownFilter, UnknownOutcome,
        UnknownReason, decide_unknown, unknown_outcome, unknown_outcomes, waiting_unknown,
    },
    event::Headers,
    idempotency::Taken,
    phases::Ownership,
    store::{ClaimOutcome, Effect, Keys, Phases, StoreError, Transaction},
};

use super::{
    AdminUnderTest,
    checks::{Must, check_conflict, check_invalid, check_missing, check_one_done, pages},
    scene::{LEASE, OPERATION, Scene, line, of},
};
use crate::events::{claim, response};

const SENT: &str = "sent at=1764294000000 upstream=orders";
const CUT: &str = "unknown reason=cut at=1764294000000 noted=1764294000009 status=201 received=17 \
    upstream=http://10.0.0.7:8000";

/// Unknown outcomes are listed with the record of the gateway, and other keys are not.
pub async fn unknown_outcomes_are_listed_with_their_record<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    scene.complete("alice", "completed").await;
    noted(&scene, "charged", "charged").await;
    noted(&scene, "cut", CUT).await;
    scene.enter("entered").await;
    reach(&scene, &scene.enter("sent").await, SENT).await;
    let listed = list(&scene, &UnknownFilter::default()).await;
    assert_eq!(names(&listed), ["cut", "sent"]);
    let named = |key: &str| {
        let found = listed.iter().find(|it| it.key.key == key);
        found.expect("it is listed")
    };
    let (cut, sent) = (named("cut"), named("sent"));
    assert_eq!(sent.record.reason, UnknownReason::Stopped);
    assert!(!sent.is_waiting && cut.is_waiting);
    assert_eq!(cut.record.response_status, Some(201));
    assert_eq!(cut.record.upstream, "http://10.0.0.7:8000");
    // The gateway that had the key has died.
    scene.advance(LEASE + Duration::from_millis(1)).await;
    let listed = list(&scene, &UnknownFilter::default()).await;
    assert!(listed.iter().all(|it| it.is_waiting), "{listed:?}");
}

/// Every field of the filter selects unknown outcomes.
pub async fn every_field_of_the_filter_selects_unknown_outcomes<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    noted(&scene, "cut", CUT).await;
    reach(&scene, &scene.enter("sent").await, SENT).await;
    let check = async |filter: UnknownFilter, expected: &[&str]| {
        let listed = list(&scene, &filter).await;
        assert_eq!(names(&listed), expected, "{filter:?}");
    };
    let all = UnknownFilter::default;
    let reason = |reason| UnknownFilter {
        reason: Some(reason),
        ..all()
    };
    check(reason(UnknownReason::Cut), &["cut"]).await;
    check(reason(UnknownReason::Status), &[]).await;
    let upstream = |beginning: &str| UnknownFilter {
        upstream: Some(beginning.to_owned()),
        ..all()
    };
    check(upstream("http://10.0.0.7"), &["cut"]).await;
    check(upstream("orders"), &["sent"]).await;
    let waiting = |is| UnknownFilter {
        is_waiting: Some(is),
        ..all()
    };
    check(waiting(true), &["cut"]).await;
    check(waiting(false), &["sent"]).await;
    let keys = |key: Option<&str>, operation: Option<&str>| UnknownFilter {
        keys: KeyFilter {
            key: key.map(str::to_owned),
            operation: operation.map(str::to_owned),
            ..KeyFilter::default()
        },
        ..all()
    };
    check(keys(Some("cu"), None), &["cut"]).await;
    check(keys(None, Some(OPERATION)), &["cut", "sent"]).await;
    check(keys(None, Some("POST /refunds")), &[]).await;
}

/// One unknown outcome is read. A key without one is not found.
pub async fn a_single_unknown_outcome_is_read<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    noted(&scene, "cut", CUT).await;
    scene.complete("alice", "completed").await;
    let it = look(&scene, "cut").await;
    assert!(it.is_waiting);
    assert_eq!(it.record.reason, UnknownReason::Cut);
    for key in ["completed", "none"] {
        let found = unknown_outcome(&*scene.admin, &scene.ops, None, OPERATION, key);
        check_missing(&found.await);
    }
}

/// Requests that wait for a decision are counted, and those of running gateways are not.
pub async fn waiting_unknown_outcomes_are_counted<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let count = async || {
        let waiting = waiting_unknown(&*scene.admin, &scene.ops, scene.now());
        waiting.await.must()
    };
    assert_eq!((count().await.number, count().await.oldest), (0, None));
    noted(&scene, "cut", CUT).await;
    reach(&scene, &scene.enter("sent").await, SENT).await;
    assert_eq!(count().await.number, 1);
    scene.advance(LEASE + Duration::from_millis(1)).await;
    let waiting = count().await;
    assert_eq!((waiting.number, waiting.is_complete), (2, true));
    assert_eq!(
        waiting.oldest,
        Some(look(&scene, "cut").await.record.sent_at)
    );
}

/// A decision is not prevented by a client that keeps retrying and is refused.
pub async fn retries_that_are_refused_do_not_prevent_a_decision<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    noted(&scene, "k", CUT).await;
    let seen = look(&scene, "k").await;
    for _ in 0..3 {
        let owned = scene.enter("k").await;
        scene.store().give_back(&owned).await.must();
    }
    let happened = KeyOutcome::Happened(response("{}"));
    decide(&scene, &seen, happened).await.must();
    let again = scene.store().claim(claim("k")).await.must();
    assert!(matches!(again, ClaimOutcome::Taken(Taken::Replay { .. })));
    assert_eq!(scene.acts().await, [line("decide", "done")]);
}

/// A request that was sent again since the operator looked is not decided.
pub async fn a_request_that_was_sent_again_is_not_decided<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    noted(&scene, "k", CUT).await;
    let seen = look(&scene, "k").await;
    let owned = scene.enter("k").await;
    let did_not_happen = KeyOutcome::DidNotHappen;
    // The retry has the key and has not sent anything yet.
    check_conflict(&decide(&scene, &seen, did_not_happen.clone()).await);
    reach(&scene, &owned, "sent at=1764294000010 upstream=orders").await;
    check_conflict(&decide(&scene, &seen, did_not_happen.clone()).await);
    scene.store().give_back(&owned).await.must();
    check_conflict(&decide(&scene, &seen, did_not_happen.clone()).await);
    let seen = look(&scene, "k").await;
    decide(&scene, &seen, did_not_happen).await.must();
    let phase = scene.store().phase(&owned, None, Headers::new()).await;
    let late = match phase {
        Err(error) => Err(error),
        Ok(tx) => tx.complete(&response("late"), Effect::Keep).await,
    };
    assert!(matches!(late, Err(StoreError::Fenced)), "{late:?}");
}

/// The same decision can be sent again, and changes nothing. Another one is refused.
pub async fn a_decision_that_is_sent_again_succeeds_and_changes_nothing<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    for (key, outcome, other) in [
        (
            "happened",
            KeyOutcome::Happened(response("{}")),
            KeyOutcome::DidNotHappen,
        ),
        (
            "did-not",
            KeyOutcome::DidNotHappen,
            KeyOutcome::Happened(response("{}")),
        ),
    ] {
        noted(&scene, key, CUT).await;
        let seen = look(&scene, key).await;
        for _ in 0..3 {
            decide(&scene, &seen, outcome.clone()).await.must();
        }
        assert!(decide(&scene, &seen, other).await.is_err(), "{key}");
    }
    noted(&scene, "odd", CUT).await;
    let seen = look(&scene, "odd").await;
    let happened = |text| KeyOutcome::Happened(response(text));
    decide(&scene, &seen, happened("{}")).await.must();
    check_conflict(&decide(&scene, &seen, happened("[]")).await);
    assert_eq!(scene.acts().await, vec![line("decide", "done"); 3]);
}

/// The retry that runs after its key was freed is not freed by the same decision, sent again.
pub async fn a_decision_that_is_sent_again_does_not_free_the_next_request<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    noted(&scene, "k", CUT).await;
    let seen = look(&scene, "k").await;
    let did_not_happen = KeyOutcome::DidNotHappen;
    decide(&scene, &seen, did_not_happen.clone()).await.must();
    scene.advance(Duration::from_secs(1)).await;
    noted(&scene, "k", CUT).await;
    decide(&scene, &seen, did_not_happen).await.must();
    let next = look(&scene, "k").await;
    assert!(next.version != seen.version && next.is_waiting);
    assert_eq!(scene.acts().await, [line("decide", "done")]);
}

/// A decision that was made about an earlier request with the key says nothing of this one.
pub async fn a_decision_about_an_earlier_request_with_the_key_does_not_count<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    noted(&scene, "k", CUT).await;
    let earlier = look(&scene, "k").await;
    decide(&scene, &earlier, KeyOutcome::DidNotHappen)
        .await
        .must();
    let log = scene.log().await;
    assert_eq!(log[0].detail["record"], earlier.version.as_str());
    assert!(log[0].detail["version"].is_string(), "{log:?}");
    scene.advance(Duration::from_secs(1)).await;
    let owned = scene.enter("k").await;
    reach(&scene, &owned, CUT).await;
    let seen = look(&scene, "k").await;
    scene.store().release(&owned).await.must();
    check_missing(&decide(&scene, &seen, KeyOutcome::DidNotHappen).await);
    decide(&scene, &earlier, KeyOutcome::DidNotHappen)
        .await
        .must();
}

/// Of different decisions at the same moment, one is done.
pub async fn of_many_decisions_about_an_outcome_at_once_one_is_done<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    noted(&scene, "k", CUT).await;
    let seen = look(&scene, "k").await;
    let handles = [scene.admin.clone(), scene.beside().await];
    let decisions = (0..10).map(async |number: usize| {
        let outcome = KeyOutcome::Happened(response(&format!("{{\"n\":{number}}}")));
        let decision = decision(&seen, outcome);
        decide_unknown(&*handles[number % 2], &scene.ops, &decision).await
    });
    let done = check_one_done(&join_all(decisions).await);
    let again = scene.store().claim(claim("k")).await.must();
    let ClaimOutcome::Taken(Taken::Replay { response: kept, .. }) = again else {
        panic!("a response is stored");
    };
    assert_eq!(kept, response(&format!("{{\"n\":{done}}}")));
}

/// An operator of a tenant decides about that tenant's requests.
pub async fn an_operator_of_a_tenant_decides_about_its_own_outcomes<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    noted(&scene, "k", CUT).await;
    let seen = look(&scene, "k").await;
    let stranger = of("stranger");
    let given = decision(&seen, KeyOutcome::DidNotHappen);
    check_missing(&decide_unknown(&*scene.admin, &stranger, &given).await);
    let page = (None, 10);
    let filter = UnknownFilter::default();
    let listed = unknown_outcomes(&*scene.admin, &stranger, &filter, page, scene.now());
    assert!(listed.await.must().items.is_empty());
    let own = of(&seen.key.tenant);
    decide_unknown(&*scene.admin, &own, &given).await.must();
}

/// The values of an operator are checked before anything is read.
pub async fn a_decision_about_an_outcome_is_checked<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    noted(&scene, "k", CUT).await;
    let valid = decision(&look(&scene, "k").await, KeyOutcome::DidNotHappen);
    let mut framed = response("{}");
    let length = ("content-length".to_owned(), "7".into());
    framed.headers.push(length);
    for (given, field) in [
        (
            KeyDecision {
                reason: String::new(),
                ..valid.clone()
            },
            "reason",
        ),
        (
            KeyDecision {
                version: "1".to_owned(),
                ..valid.clone()
            },
            "version",
        ),
        (
            KeyDecision {
                outcome: KeyOutcome::Happened(framed),
                ..valid.clone()
            },
            "headers",
        ),
    ] {
        let decided = decide_unknown(&*scene.admin, &scene.ops, &given).await;
        check_invalid(&decided, field);
    }
    assert!(scene.acts().await.is_empty());
}

/// Lets a gateway send a request, note the record, and give the key back.
async fn noted<S: AdminUnderTest>(scene: &Scene<S>, key: &str, record: &str) {
    let owned = scene.enter(key).await;
    reach(scene, &owned, record).await;
    scene.store().give_back(&owned).await.must();
}

async fn reach<S: AdminUnderTest>(scene: &Scene<S>, owned: &Ownership, record: &str) {
    let phase = scene.store().phase(owned, Some(record), Headers::new());
    phase.await.must().commit().await.must();
}

async fn list<S: AdminUnderTest>(scene: &Scene<S>, filter: &UnknownFilter) -> Vec<UnknownOutcome> {
    pages(1, async |before: Option<String>| {
        let page = (before.as_deref(), 1);
        unknown_outcomes(&*scene.admin, &scene.ops, filter, page, scene.now()).await
    })
    .await
}

/// The names of keys, sorted: keys that were claimed at the same time have no order.
fn names(listed: &[UnknownOutcome]) -> Vec<&str> {
    let mut names: Vec<&str> = listed.iter().map(|it| it.key.key.as_str()).collect();
    names.sort_unstable();
    names
}

async fn look<S: AdminUnderTest>(scene: &Scene<S>, key: &str) -> UnknownOutcome {
    let found = unknown_outcome(&*scene.admin, &scene.ops, None, OPERATION, key);
    found.await.must().0
}

async fn decide<S: AdminUnderTest>(
    scene: &Scene<S>,
    seen: &UnknownOutcome,
    outcome: KeyOutcome,
) -> Result<(), AdminError> {
    decide_unknown(&*scene.admin, &scene.ops, &decision(seen, outcome)).await
}

fn decision(seen: &UnknownOutcome, outcome: KeyOutcome) -> KeyDecision {
    KeyDecision {
        tenant: Some(seen.key.tenant.clone()),
        operation: seen.key.operation.clone(),
        key: seen.key.key.clone(),
        version: seen.version.clone(),
        outcome,
        reason: "found in the ledger".to_owned(),
    }
}
