//! Conformance tests of keys that are entered at a recovery point, advanced and finished, each in one
//! commit without an open transaction.
//!
//! The recovery point of an entry is written by the commit that enters the key. It is that of the
//! request that enters a new key; a request that resumes the key continues at the recovery point of
//! its row.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use hapax::{
    idempotency::Taken,
    limits::RECOVERY_POINT_BYTES_MAX,
    phases::{Entry, Ownership},
    store::{ClaimOutcome, Effect, KeyMaintenance, Keys, Phases, StoreError},
};

use super::{
    PhasesUnderTest,
    fixture::{Fixture, check_error},
    phases::{LEASE, almost, check_fenced, enter, entry, finish, own, owned, phase, taken},
};
use crate::events::{RETENTION, claim, fingerprint, response};

/// A key that is entered at a recovery point is there, also after a crash.
pub async fn a_key_is_entered_at_a_recovery_point<S: PhasesUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let first = enter_at(&fixture, "k", "sent").await;
    assert_eq!(first.recovery_point.as_deref(), Some("sent"));
    assert!(!first.resumed);
    let fixture = fixture.reopen().await;
    fixture.clock.advance(LEASE);
    let second = own(&fixture, "k").await;
    assert!(second.resumed && second.epoch > first.epoch);
    assert_eq!(second.recovery_point.as_deref(), Some("sent"));
    check_fenced(&fixture, &first).await;
}

/// A request that resumes a key continues where the earlier owner stopped, not at its own recovery
/// point.
pub async fn a_resumed_key_keeps_its_recovery_point<S: PhasesUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let first = own(&fixture, "none").await;
    let given = fixture.store().give_back(&first).await;
    given.expect("a key is given back");
    let second = enter_at(&fixture, "none", "sent").await;
    assert_eq!((second.resumed, second.recovery_point), (true, None));
    let first = enter_at(&fixture, "k", "sent").await;
    phase(&fixture, &first, "charged").await.expect("it ends");
    let given = fixture.store().give_back(&first).await;
    given.expect("a key is given back");
    let second = enter_at(&fixture, "k", "sent").await;
    assert!(second.resumed);
    assert_eq!(second.recovery_point.as_deref(), Some("charged"));
}

/// A key that starts again after it has expired or was released is at the recovery point of its new
/// request.
pub async fn a_key_that_starts_again_is_at_its_new_recovery_point<S: PhasesUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let first = enter_at(&fixture, "k", "first").await;
    let kept = finish(&fixture, &first, "done", Effect::Keep).await;
    kept.expect("a response is stored");
    assert_eq!(fixture.replay(claim("k")).await, response("done"));
    fixture.clock.advance(RETENTION);
    let mut other = entry(claim("k"), None);
    other.claim.fingerprint = fingerprint(2);
    other.recovery_point = Some("second".to_owned());
    let entered = fixture.store().enter(other).await;
    let second = owned(entered.expect("an entry returns a result"));
    assert!(!second.resumed && second.epoch > first.epoch);
    assert_eq!(second.recovery_point.as_deref(), Some("second"));
    let released = fixture.store().release(&second).await;
    released.expect("a key is released");
    let third = own(&fixture, "k").await;
    assert_eq!((third.resumed, third.recovery_point), (false, None));
}

/// A recovery point that is not the name of a phase is refused, and the key stays free.
pub async fn a_recovery_point_that_is_no_name_of_a_phase_is_refused<S: PhasesUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let too_long = "x".repeat(RECOVERY_POINT_BYTES_MAX + 1);
    for name in ["", too_long.as_str()] {
        let entered = fixture.store().enter(entry_at("k", name)).await;
        let refused = |error: &StoreError| matches!(error, StoreError::Statement { .. });
        check_error(entered, "a refused statement", refused);
    }
    let row = fixture.store().look_up(&claim("k").scope).await;
    assert!(row.expect("a key is looked up").is_none());
    let longest = "x".repeat(RECOVERY_POINT_BYTES_MAX);
    let first = enter_at(&fixture, "k", &longest).await;
    assert_eq!(first.recovery_point, Some(longest));
    let forgot = fixture.store().forget(&first.scope).await;
    assert!(forgot.expect("a key is forgotten"));
}

/// A key is advanced without rows and events, also after a crash.
pub async fn a_key_is_advanced_without_a_transaction<S: PhasesUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let first = enter_at(&fixture, "k", "sent").await;
    for point in ["seen", "noted"] {
        let reached = fixture.store().reach(&first, point).await;
        reached.expect("a phase is reached");
    }
    let refused = |error: &StoreError| matches!(error, StoreError::Statement { .. });
    let unnamed = fixture.store().reach(&first, "").await;
    check_error(unnamed, "a refused statement", refused);
    assert_eq!(taken(&fixture, claim("k")).await, Taken::InProgress);
    let fixture = fixture.reopen().await;
    fixture.clock.advance(LEASE);
    let second = own(&fixture, "k").await;
    assert!(second.resumed);
    assert_eq!(second.recovery_point.as_deref(), Some("noted"));
    assert!(fixture.events().await.is_empty());
    check_fenced(&fixture, &first).await;
}

/// A response is stored without a last phase. It is replayed until its retention is over, and what
/// earlier phases have committed stays.
pub async fn a_response_is_stored_without_a_transaction<S: PhasesUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let request = Bytes::from_static(b"the request");
    let first = owned(enter(&fixture, claim("k"), Some(request)).await);
    phase(&fixture, &first, "charged").await.expect("it ends");
    fixture.clock.advance(Duration::from_secs(3));
    let kept_for = fixture.store().finish(&first, &response("done")).await;
    assert_eq!(kept_for.expect("a response is stored"), RETENTION);
    let fixture = fixture.reopen().await;
    assert_eq!(fixture.rows().await, ["charged"]);
    assert_eq!(fixture.events().await.len(), 1);
    assert_eq!(fixture.replay(claim("k")).await, response("done"));
    check_fenced(&fixture, &first).await;
    fixture.clock.advance(almost(RETENTION));
    assert_eq!(fixture.replay(claim("k")).await, response("done"));
    fixture.clock.advance(Duration::from_millis(1));
    let second = own(&fixture, "k").await;
    assert_eq!((second.resumed, second.recovery_point), (false, None));
}

/// Keys that are entered and finished at the same time do not affect one another: each gets its own
/// recovery point and response, and duplicates and late owners among them get neither.
pub async fn keys_are_entered_and_finished_at_once<S: PhasesUnderTest>() {
    const KEYS: usize = 64;
    let fixture = Fixture::<S>::fresh().await;
    let late = own(&fixture, "late").await;
    fixture.clock.advance(LEASE);
    own(&fixture, "late").await;
    let asked = (0..KEYS).map(|number| {
        let (store, late) = (fixture.store().clone(), late.clone());
        tokio::spawn(async move {
            // Two tasks enter each key.
            let (key, point) = (format!("k{}", number / 2), format!("sent {number}"));
            let fenced = store.finish(&late, &response("late")).await;
            assert!(matches!(fenced, Err(StoreError::Fenced)), "{fenced:?}");
            let entered = store.enter(entry_at(&key, &point)).await;
            let own = match entered.expect("an entry returns a result") {
                ClaimOutcome::Open(own) => own,
                ClaimOutcome::Taken(Taken::InProgress) => return None,
                ClaimOutcome::Taken(Taken::Replay { response: told, .. }) => {
                    assert_eq!(told, response(&key));
                    return None;
                }
                ClaimOutcome::Taken(other) => panic!("{key} should be in progress, not {other:?}"),
            };
            assert_eq!(own.scope, claim(&key).scope);
            assert_eq!(own.recovery_point, Some(point));
            let kept_for = store.finish(&own, &response(&key)).await;
            assert_eq!(kept_for.expect("a response is stored"), RETENTION);
            Some(key)
        })
    });
    let mut finished = Vec::new();
    for key in join_all(asked).await {
        finished.extend(key.expect("no panic"));
    }
    finished.sort();
    finished.dedup();
    assert_eq!(finished.len(), KEYS / 2);
    for key in finished {
        assert_eq!(fixture.replay(claim(&key)).await, response(&key));
    }
    assert_eq!(taken(&fixture, claim("late")).await, Taken::InProgress);
}

/// Enters a key at a recovery point, and must own it.
async fn enter_at<S: PhasesUnderTest>(fixture: &Fixture<S>, key: &str, point: &str) -> Ownership {
    let entered = fixture.store().enter(entry_at(key, point)).await;
    owned(entered.expect("an entry returns a result"))
}

fn entry_at(key: &str, point: &str) -> Entry {
    Entry {
        recovery_point: Some(point.to_owned()),
        ..entry(claim(key), None)
    }
}
