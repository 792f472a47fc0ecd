//! Conformance tests of takeovers: a completer resumes requests that no client retries.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use hapax::{
    idempotency::Taken,
    limits::{GRACE_DOUBLINGS, REQUEST_BYTES_MAX},
    phases::{Lapsed, Ownership, TakenOver},
    store::{Effect, Phases},
};

use super::{
    PhasesUnderTest,
    fixture::Fixture,
    phases::{LEASE, almost, check_fenced, enter, finish, own, owned, phase, taken},
};
use crate::events::{RETENTION, claim, claim_of, response, scope};

const GRACE: Duration = Duration::from_secs(5);

/// A key with an expired lease is taken over after the grace period, with its request and its
/// recovery point.
pub async fn a_lapsed_key_is_taken_over_after_its_grace<S: PhasesUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let late = keep(&fixture, "k", "the request").await;
    phase(&fixture, &late, "charged").await.expect("it ends");
    fixture.clock.advance(almost(LEASE + GRACE));
    assert!(take_over(&fixture, 10).await.is_empty());
    fixture.clock.advance(Duration::from_millis(1));
    let [resumed] = &take_over(&fixture, 10).await[..] else {
        panic!("the key should be taken over");
    };
    assert_eq!(resumed.request, "the request");
    let owner = &resumed.ownership;
    assert!(owner.resumed && owner.epoch > late.epoch);
    assert_eq!(owner.recovery_point.as_deref(), Some("charged"));
    assert_eq!(owner.scope, late.scope);
    assert_eq!(owner.fingerprint, late.fingerprint);
    assert_eq!(owner.provider_key("charge"), late.provider_key("charge"));
    check_fenced(&fixture, &late).await;
    assert_eq!(taken(&fixture, claim("k")).await, Taken::InProgress);
    let kept_for = finish(&fixture, owner, "done", Effect::Keep).await;
    assert_eq!(kept_for.expect("a response is stored"), RETENTION);
    assert_eq!(fixture.replay(claim("k")).await, response("done"));
    assert!(take_over(&fixture, 10).await.is_empty());
}

/// Only keys with an expired lease, of the given operations and with a request, are taken over.
pub async fn a_take_over_leaves_what_it_cannot_resume<S: PhasesUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    own(&fixture, "no request").await;
    let elsewhere = claim_of(scope("alice", "POST /elsewhere", "k"));
    owned(enter(&fixture, elsewhere, Some(Bytes::from_static(b"r"))).await);
    let finished = keep(&fixture, "finished", "r").await;
    let kept = finish(&fixture, &finished, "done", Effect::Keep).await;
    kept.expect("a response is stored");
    fixture.clock.advance((LEASE + GRACE) / 2);
    keep(&fixture, "alive", "r").await;
    fixture.clock.advance((LEASE + GRACE) / 2);
    assert!(take_over(&fixture, 10).await.is_empty());
}

/// The longest expired one comes first, and no more than requested are returned.
pub async fn the_longest_lapsed_key_is_taken_over_first<S: PhasesUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    for key in ["a", "b", "c"] {
        keep(&fixture, key, key).await;
        fixture.clock.advance(Duration::from_secs(1));
    }
    fixture.clock.advance(LEASE + GRACE);
    for expected in [&["a", "b"][..], &["c"]] {
        let taken = take_over(&fixture, 2).await;
        let mut requests: Vec<_> = taken.into_iter().map(|it| it.request).collect();
        requests.sort();
        assert_eq!(requests, expected);
    }
}

/// Of concurrent takeovers, each key goes to one.
pub async fn each_lapsed_key_is_taken_over_once<S: PhasesUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    for number in 0..30 {
        keep(&fixture, &number.to_string(), "r").await;
    }
    fixture.clock.advance(LEASE + GRACE);
    let asked = (0..6).map(|_| {
        let store = fixture.store().clone();
        tokio::spawn(async move {
            let mut mine = Vec::new();
            loop {
                let taken = store
                    .take_over(&[claim("k").scope.operation], lapsed(4))
                    .await;
                let taken = taken.expect("keys are taken over");
                if taken.is_empty() {
                    return mine;
                }
                mine.extend(taken.into_iter().map(|it| it.ownership.scope));
            }
        })
    });
    let mut all = Vec::new();
    for mine in join_all(asked).await {
        let keys = mine.expect("no panic").into_iter();
        all.extend(keys.map(|scope| scope.key.as_str().to_owned()));
    }
    assert_eq!(all.len(), 30);
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 30);
}

/// A key that keeps failing is taken over at increasing intervals, and never given up.
pub async fn each_owner_doubles_the_grace<S: PhasesUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let mut owner = keep(&fixture, "k", "r").await;
    for owners in 0..GRACE_DOUBLINGS + 3 {
        let given = fixture.store().give_back(&owner).await;
        given.expect("a key is given back");
        let grace = GRACE * 2_u32.pow(owners.min(GRACE_DOUBLINGS));
        fixture.clock.advance(almost(grace));
        assert!(take_over(&fixture, 1).await.is_empty(), "owner {owners}");
        fixture.clock.advance(Duration::from_millis(1));
        let taken = take_over(&fixture, 1).await.pop();
        owner = taken.expect("it is taken over").ownership;
    }
}

/// A request is returned byte for byte, up to the maximum size.
pub async fn the_largest_request_is_kept_byte_for_byte<S: PhasesUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let bytes = (0..REQUEST_BYTES_MAX).map(|place| u8::try_from(place % 251).unwrap_or_default());
    let request: Bytes = bytes.collect();
    owned(enter(&fixture, claim("k"), Some(request.clone())).await);
    fixture.clock.advance(LEASE);
    // The client's own retry does not replace it.
    own(&fixture, "k").await;
    fixture.clock.advance(LEASE + GRACE * 2);
    let taken = take_over(&fixture, 1).await.pop();
    assert!(taken.expect("it is taken over").request == request);
}

/// Enters a key with a stored request.
async fn keep<S: PhasesUnderTest>(fixture: &Fixture<S>, key: &str, request: &str) -> Ownership {
    let request = Bytes::copy_from_slice(request.as_bytes());
    owned(enter(fixture, claim(key), Some(request)).await)
}

fn lapsed(limit: usize) -> Lapsed {
    Lapsed {
        lease: LEASE,
        grace: GRACE,
        limit,
    }
}

async fn take_over<S: PhasesUnderTest>(fixture: &Fixture<S>, limit: usize) -> Vec<TakenOver> {
    let operations = [claim("k").scope.operation];
    let taken = fixture.store().take_over(&operations, lapsed(limit)).await;
    taken.expect("keys are taken over")
}
