//! Conformance tests of takeovers: a completer resumes requests that no client retries.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use hapax::{
    idempotency::Known,
    limits::{GRACE_DOUBLINGS, REQUEST_BYTES_MAX},
    phases::{Lapsed, Ownership, TakenOver},
    store::{Effect, Phases},
};

use super::{
    StoreUnderTest,
    bench::Bench,
    phases::{LEASE, almost, check_fenced, enter, finish, known, own, owned, phase},
};
use crate::events::{RETENTION, answer, claim, claim_of, scope};

const GRACE: Duration = Duration::from_secs(5);

/// A key with an expired lease is taken over after the grace period, with its request and its
/// recovery point.
pub async fn a_lapsed_key_is_taken_over_after_its_grace<S: StoreUnderTest>() {
    let bench = Bench::<S>::fresh().await;
    let late = keep(&bench, "k", "the request").await;
    phase(&bench, &late, "charged").await.expect("it ends");
    bench.clock.advance(almost(LEASE + GRACE));
    assert!(take_over(&bench, 10).await.is_empty());
    bench.clock.advance(Duration::from_millis(1));
    let [taken] = &take_over(&bench, 10).await[..] else {
        panic!("the key should be taken over");
    };
    assert_eq!(taken.request, "the request");
    let owner = &taken.ownership;
    assert!(owner.resumed && owner.epoch > late.epoch);
    assert_eq!(owner.recovery_point.as_deref(), Some("charged"));
    assert_eq!(owner.scope, late.scope);
    assert_eq!(owner.fingerprint, late.fingerprint);
    assert_eq!(owner.provider_key("charge"), late.provider_key("charge"));
    check_fenced(&bench, &late).await;
    assert_eq!(known(&bench, claim("k")).await, Known::InProgress);
    let stands = finish(&bench, owner, "done", Effect::Keep).await;
    assert_eq!(stands.expect("a response is stored"), RETENTION);
    assert_eq!(bench.replay(claim("k")).await, answer("done"));
    assert!(take_over(&bench, 10).await.is_empty());
}

/// Only keys with an expired lease, of the given operations and with a request, are taken over.
pub async fn a_take_over_leaves_what_it_cannot_resume<S: StoreUnderTest>() {
    let bench = Bench::<S>::fresh().await;
    own(&bench, "no request").await;
    let elsewhere = claim_of(scope("alice", "POST /elsewhere", "k"));
    owned(enter(&bench, elsewhere, Some(Bytes::from_static(b"r"))).await);
    let finished = keep(&bench, "finished", "r").await;
    let kept = finish(&bench, &finished, "done", Effect::Keep).await;
    kept.expect("a response is stored");
    bench.clock.advance((LEASE + GRACE) / 2);
    keep(&bench, "alive", "r").await;
    bench.clock.advance((LEASE + GRACE) / 2);
    assert!(take_over(&bench, 10).await.is_empty());
}

/// The longest expired one comes first, and no more than requested are returned.
pub async fn the_longest_lapsed_key_is_taken_over_first<S: StoreUnderTest>() {
    let bench = Bench::<S>::fresh().await;
    for key in ["a", "b", "c"] {
        keep(&bench, key, key).await;
        bench.clock.advance(Duration::from_secs(1));
    }
    bench.clock.advance(LEASE + GRACE);
    for expected in [&["a", "b"][..], &["c"]] {
        let taken = take_over(&bench, 2).await;
        let mut requests: Vec<_> = taken.into_iter().map(|it| it.request).collect();
        requests.sort();
        assert_eq!(requests, expected);
    }
}

/// Of concurrent takeovers, each key goes to one.
pub async fn each_lapsed_key_is_taken_over_once<S: StoreUnderTest>() {
    let bench = Bench::<S>::fresh().await;
    for number in 0..30 {
        keep(&bench, &number.to_string(), "r").await;
    }
    bench.clock.advance(LEASE + GRACE);
    let asked = (0..6).map(|_| {
        let store = bench.store().clone();
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
pub async fn each_owner_doubles_the_grace<S: StoreUnderTest>() {
    let bench = Bench::<S>::fresh().await;
    let mut owner = keep(&bench, "k", "r").await;
    for owners in 0..GRACE_DOUBLINGS + 3 {
        let given = bench.store().give_back(&owner).await;
        given.expect("a key is given back");
        let grace = GRACE * 2_u32.pow(owners.min(GRACE_DOUBLINGS));
        bench.clock.advance(almost(grace));
        assert!(take_over(&bench, 1).await.is_empty(), "owner {owners}");
        bench.clock.advance(Duration::from_millis(1));
        let taken = take_over(&bench, 1).await.pop();
        owner = taken.expect("it is taken over").ownership;
    }
}

/// A request is returned byte for byte, up to the maximum size.
pub async fn the_largest_request_is_kept_byte_for_byte<S: StoreUnderTest>() {
    let bench = Bench::<S>::fresh().await;
    let bytes = (0..REQUEST_BYTES_MAX).map(|place| u8::try_from(place % 251).unwrap_or_default());
    let request: Bytes = bytes.collect();
    owned(enter(&bench, claim("k"), Some(request.clone())).await);
    bench.clock.advance(LEASE);
    // The client's own retry does not replace it.
    own(&bench, "k").await;
    bench.clock.advance(LEASE + GRACE * 2);
    let taken = take_over(&bench, 1).await.pop();
    assert!(taken.expect("it is taken over").request == request);
}

/// Enters a key with a stored request.
async fn keep<S: StoreUnderTest>(bench: &Bench<S>, key: &str, request: &str) -> Ownership {
    let request = Bytes::copy_from_slice(request.as_bytes());
    owned(enter(bench, claim(key), Some(request)).await)
}

fn lapsed(limit: usize) -> Lapsed {
    Lapsed {
        lease: LEASE,
        grace: GRACE,
        limit,
    }
}

async fn take_over<S: StoreUnderTest>(bench: &Bench<S>, limit: usize) -> Vec<TakenOver> {
    let operations = [claim("k").scope.operation];
    let taken = bench.store().take_over(&operations, lapsed(limit)).await;
    taken.expect("keys are taken over")
}
