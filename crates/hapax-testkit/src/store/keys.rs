//! Conformance tests of keys: one effect per key, and the same response to every retry.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use hapax::{
    idempotency::{KeyState, StoredResponse, Taken},
    limits::{PURGES_KEPT, RESPONSE_BYTES_MAX},
    purges::{PurgeMark, Purged},
    store::{Effect, KeyMaintenance, Keys, Transaction},
};

use super::{
    StoreUnderTest,
    fixture::{Fixture, run_or_replay},
};
use crate::events::{RETENTION, claim, claim_of, event, fingerprint, response, scope};

/// A stored response is replayed, with any bytes in it.
pub async fn a_completed_answer_replays_byte_for_byte<S: StoreUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    check_replay(&fixture, "plain", response("{\"id\":1}")).await;
    check_replay(&fixture, "empty", bare(204, Bytes::new())).await;
    check_replay(
        &fixture,
        "failure",
        bare(500, Bytes::from_static(b"it broke")),
    )
    .await;
    check_replay(&fixture, "binary", bare(200, (0..=255).collect())).await;
    check_replay(
        &fixture,
        "text",
        response("'; drop table \u{0} caf\u{e9} \u{1f980}"),
    )
    .await;
    let mut headed = response("{}");
    let raw: Vec<u8> = (0x20..=0x7e).chain(0x80..=0xff).collect();
    for value in [&b"a=1"[..], b"b=2", b"", b"a: b: c", &raw] {
        let cookie = ("set-cookie".to_owned(), Bytes::copy_from_slice(value));
        headed.headers.push(cookie);
    }
    check_replay(&fixture, "repeated headers", headed).await;
}

/// The longest permitted response is replayed completely.
pub async fn the_largest_answer_replays_byte_for_byte<S: StoreUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let body = (0..RESPONSE_BYTES_MAX).map(|place| u8::try_from(place % 251).unwrap_or_default());
    check_replay(&fixture, "large", bare(200, body.collect())).await;
}

/// A response and its row are there after a restart.
pub async fn an_answer_survives_a_restart<S: StoreUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let first = response("first");
    fixture.run(claim("k"), "row", &first).await;
    let fixture = fixture.reopen().await;
    assert_eq!(fixture.replay(claim("k")).await, first);
    assert_eq!(fixture.rows().await, ["row"]);
}

/// The remaining retention of a response counts from when it was stored.
pub async fn a_replay_says_how_long_the_answer_still_stands<S: StoreUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let tx = fixture.claim(claim("k")).await;
    let kept_for = tx.complete(&response("{}"), Effect::Keep).await;
    assert_eq!(kept_for.expect("a response is stored"), RETENTION);
    fixture.clock.advance(Duration::from_mins(10));
    match fixture.taken(claim("k")).await {
        Taken::Replay { fresh_for, .. } => assert_eq!(fresh_for, Duration::from_mins(50)),
        other => panic!("the response should be replayed, not {other:?}"),
    }
}

/// A key that was used for one request cannot be used for another one, and the first response is
/// kept.
pub async fn another_fingerprint_is_a_mismatch_and_runs_nothing<S: StoreUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let first = response("first");
    fixture.run(claim("k"), "row", &first).await;
    let mut other = claim("k");
    other.fingerprint = fingerprint(2);
    assert_eq!(fixture.taken(other).await, Taken::Mismatch);
    assert_eq!(fixture.replay(claim("k")).await, first);
}

/// A key is unique within a tenant and an operation only.
pub async fn a_key_is_free_in_another_tenant_and_for_another_operation<S: StoreUnderTest>() {
    check_apart::<S>(&[
        ("alice", "POST /orders", "k"),
        ("bob", "POST /orders", "k"),
        ("alice", "POST /refunds", "k"),
    ])
    .await;
}

/// The parts of a scope are compared separately, not as one concatenated text.
pub async fn scopes_whose_parts_join_alike_stay_apart<S: StoreUnderTest>() {
    check_apart::<S>(&[
        ("a", "b c", "d"),
        ("a b", "c", "d"),
        ("a", "b", "c d"),
        ("a/b", "c", "d"),
        ("a", "b/c", "d"),
        ("a:b", "c", "d"),
        ("a", "b:c", "d"),
    ])
    .await;
}

/// Keys are compared byte for byte: case and spaces matter.
pub async fn keys_that_differ_in_case_or_space_stay_apart<S: StoreUnderTest>() {
    let operation = "POST /orders";
    check_apart::<S>(&[
        ("alice", operation, "key"),
        ("alice", operation, "KEY"),
        ("alice", operation, "key "),
        ("alice", operation, " key"),
        ("Alice", operation, "key"),
        ("alice", "post /orders", "key"),
    ])
    .await;
}

/// Of many concurrent requests with one key, one is executed and all receive its response.
pub async fn of_many_claims_at_once_one_runs_and_the_others_replay<S: StoreUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let asked = (0..50).map(|number: u32| {
        let store = fixture.store().clone();
        tokio::spawn(
            async move { run_or_replay::<S>(&store, claim("k"), &number.to_string()).await },
        )
    });
    let outcome = join_all(asked).await;
    let outcome: Vec<StoredResponse> = outcome
        .into_iter()
        .map(|one| one.expect("no panic"))
        .collect();
    assert!(
        outcome.iter().all(|response| *response == outcome[0]),
        "{outcome:?}"
    );
    assert_eq!(fixture.rows().await, [text(&outcome[0])]);
    assert_eq!(fixture.events().await.len(), 1);
}

/// Unrelated claims are all executed, and each keeps its own response.
pub async fn claims_of_different_keys_at_once_all_run<S: StoreUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let asked = (0..50).map(|number: u32| {
        let store = fixture.store().clone();
        let claim = claim(&format!("k{number}"));
        tokio::spawn(async move { run_or_replay::<S>(&store, claim, &number.to_string()).await })
    });
    for (number, outcome) in join_all(asked).await.into_iter().enumerate() {
        assert_eq!(text(&outcome.expect("no panic")), number.to_string());
    }
    assert_eq!(fixture.rows().await.len(), 50);
    assert_eq!(fixture.events().await.len(), 50);
}

/// After a rollback the key is as if it had never been used.
pub async fn a_rolled_back_claim_lets_its_key_go<S: StoreUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let mut tx = fixture.claim(claim("k")).await;
    S::write_row(&mut tx, "rolled back").await;
    tx.emit(event("rolled back")).expect("an event is emitted");
    tx.rollback().await;
    check_free_again(&fixture).await;
}

/// A transaction that is dropped, for example by a panic or a timeout, is rolled back.
pub async fn a_dropped_claim_lets_its_key_go<S: StoreUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let mut tx = fixture.claim(claim("k")).await;
    S::write_row(&mut tx, "dropped").await;
    tx.emit(event("dropped")).expect("an event is emitted");
    drop(tx);
    check_free_again(&fixture).await;
}

/// A commit without a response keeps the effect, and the key can be used again.
pub async fn a_commit_without_an_answer_keeps_the_rows_and_releases_the_key<S: StoreUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let mut tx = fixture.claim(claim("k")).await;
    S::write_row(&mut tx, "first").await;
    tx.emit(event("first")).expect("an event is emitted");
    tx.commit().await.expect("the rows are committed");
    assert!(look_up(&fixture, "k").await.is_none());
    assert_eq!(fixture.events().await.len(), 1);
    fixture.run(claim("k"), "second", &response("{}")).await;
    assert_eq!(fixture.rows().await, ["first", "second"]);
}

/// A refusal is stored and has no effect.
pub async fn a_dropped_effect_keeps_the_answer_alone<S: StoreUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let refusal = bare(422, Bytes::from_static(b"no"));
    let mut tx = fixture.claim(claim("k")).await;
    S::write_row(&mut tx, "dropped").await;
    tx.emit(event("dropped")).expect("an event is emitted");
    let kept_for = tx.complete(&refusal, Effect::Drop).await;
    assert_eq!(kept_for.expect("a response is stored"), RETENTION);
    assert_eq!(fixture.replay(claim("k")).await, refusal);
    assert_eq!(fixture.rows().await, [""; 0]);
    assert_eq!(fixture.events().await.len(), 0);
}

/// Changes that were not committed when the service died do not exist after the restart.
pub async fn a_claim_cut_off_by_a_restart_leaves_nothing<S: StoreUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let mut tx = fixture.claim(claim("k")).await;
    S::write_row(&mut tx, "cut off").await;
    tx.emit(event("cut off")).expect("an event is emitted");
    drop(tx);
    let fixture = fixture.reopen().await;
    check_free_again(&fixture).await;
}

/// A key in progress is never committed, so none exists after a crash.
pub async fn nothing_is_stored_of_a_key_before_its_transaction_commits<S: StoreUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let mut tx = fixture.claim(claim("k")).await;
    S::write_row(&mut tx, "row").await;
    tx.emit(event("1")).expect("an event is emitted");
    assert!(look_up(&fixture, "k").await.is_none());
    assert_eq!(fixture.rows().await, [""; 0]);
    assert_eq!(fixture.events().await.len(), 0);
    tx.rollback().await;
}

/// The row of a key contains the request's fingerprint, the response, and the expiry.
pub async fn a_stored_key_can_be_looked_up<S: StoreUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    assert!(look_up(&fixture, "k").await.is_none());
    let first = response("first");
    let began = fixture.clock.now();
    fixture.run(claim("k"), "row", &first).await;
    fixture.clock.advance(Duration::from_mins(1));
    let record = look_up(&fixture, "k").await.expect("the key is stored");
    assert_eq!(record.state, KeyState::Completed);
    assert_eq!(record.fingerprint, fingerprint(1));
    assert_eq!(record.response, Some(first));
    assert_eq!(record.created_at, began);
    assert_eq!(record.expires_at, began.after(RETENTION));
    assert!(look_up(&fixture, "another").await.is_none());
}

/// A deleted key counts as never used; the rows that were committed with it remain.
pub async fn a_forgotten_key_runs_again<S: StoreUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let forget = async |key: &str| {
        let scope = claim(key).scope;
        fixture
            .store()
            .forget(&scope)
            .await
            .expect("a key is forgotten")
    };
    fixture.run(claim("k"), "first", &response("first")).await;
    fixture
        .run(claim("other"), "other", &response("other"))
        .await;
    assert_eq!(fixture.replay(claim("k")).await, response("first"));
    assert!(forget("k").await);
    assert!(!forget("k").await);
    assert!(look_up(&fixture, "k").await.is_none());
    fixture.run(claim("k"), "second", &response("second")).await;
    assert_eq!(fixture.replay(claim("k")).await, response("second"));
    assert_eq!(fixture.replay(claim("other")).await, response("other"));
    assert_eq!(fixture.rows().await, ["first", "other", "second"]);
}

/// All processes that use a store derive keys with the same secret, also after a restart, and
/// another store has another secret.
pub async fn keys_are_derived_under_a_secret_of_the_store<S: StoreUnderTest>() {
    let secret = async |fixture: &Fixture<S>| {
        let secret = fixture.store().derivation_secret().await;
        secret.expect("a store has a secret")
    };
    let fixture = Fixture::<S>::fresh().await;
    let first = secret(&fixture).await;
    assert_eq!(secret(&fixture).await, first);
    let fixture = fixture.reopen().await;
    assert_eq!(secret(&fixture).await, first);
    let other = Fixture::<S>::fresh().await;
    assert_ne!(secret(&other).await, first);
    assert!(
        !format!("{first:?}").contains(char::is_numeric),
        "{first:?}"
    );
}

/// A cache can read which keys were deleted, each once, and no other ones.
pub async fn forgotten_keys_are_listed_after_a_mark<S: StoreUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    for key in ["a", "b", "c"] {
        fixture.run(claim(key), key, &response(key)).await;
    }
    forget(&fixture, "a").await;
    let first = purged(&fixture, None).await;
    assert_eq!(
        first.keys, None,
        "without a mark, the purges before it are unknown"
    );
    assert_eq!(
        purged(&fixture, Some(&first.until)).await,
        purged_since(&first, &[])
    );
    forget(&fixture, "b").await;
    let missing = claim("never used").scope;
    assert!(!fixture.store().forget(&missing).await.expect("it is asked"));
    let second = purged(&fixture, Some(&first.until)).await;
    assert_eq!(second.keys, Some(vec![claim("b").scope]));
    // A repeated read returns the same, also after a restart.
    let fixture = fixture.reopen().await;
    assert_eq!(purged(&fixture, Some(&first.until)).await, second);
    forget(&fixture, "c").await;
    let third = purged(&fixture, Some(&second.until)).await;
    assert_eq!(third.keys, Some(vec![claim("c").scope]));
}

/// The store remembers a limited number of deleted keys. A reader that has missed some of them is
/// informed.
pub async fn more_forgotten_keys_than_are_kept_are_said_to_be_unknown<S: StoreUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let before = purged(&fixture, None).await.until;
    for number in 0..=PURGES_KEPT {
        let key = format!("k{number}");
        let tx = fixture.claim(claim(&key)).await;
        tx.complete(&response("{}"), Effect::Keep)
            .await
            .expect("a response is stored");
        forget(&fixture, &key).await;
        if number + 1 == PURGES_KEPT {
            let all = purged(&fixture, Some(&before)).await.keys;
            assert_eq!(all.map(|keys| keys.len()), Some(PURGES_KEPT));
        }
    }
    assert_eq!(purged(&fixture, Some(&before)).await.keys, None);
    let after = purged(&fixture, None).await;
    assert_eq!(
        purged(&fixture, Some(&after.until)).await,
        purged_since(&after, &[])
    );
}

/// Concurrent deletions are numbered in the order in which they become visible, so that a
/// concurrent reader misses none.
pub async fn keys_that_are_forgotten_at_once_are_all_listed<S: StoreUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let keys: Vec<String> = (0..40).map(|number| format!("k{number}")).collect();
    for key in &keys {
        let tx = fixture.claim(claim(key)).await;
        tx.complete(&response("{}"), Effect::Keep)
            .await
            .expect("a response is stored");
    }
    let mut mark = purged(&fixture, None).await.until;
    let forgotten = keys.iter().map(|key| {
        let (store, scope) = (fixture.store().clone(), claim(key).scope);
        tokio::spawn(async move { store.forget(&scope).await })
    });
    let mut forgotten = std::pin::pin!(join_all(forgotten.collect::<Vec<_>>()));
    let (mut seen, mut over) = (Vec::new(), false);
    loop {
        let next = purged(&fixture, Some(&mark)).await;
        mark = next.until;
        seen.extend(next.keys.expect("none is missed"));
        if over {
            break;
        }
        tokio::select! {
            biased;
            done = &mut forgotten => {
                assert!(done.into_iter().all(|one| matches!(one, Ok(Ok(true)))));
                over = true;
            }
            () = tokio::task::yield_now() => {}
        }
    }
    seen.sort_by(|one, other| one.key.cmp(&other.key));
    let mut all: Vec<_> = keys.iter().map(|key| claim(key).scope).collect();
    all.sort_by(|one, other| one.key.cmp(&other.key));
    assert_eq!(seen, all);
}

async fn forget<S: StoreUnderTest>(fixture: &Fixture<S>, key: &str) {
    let forgotten = fixture.store().forget(&claim(key).scope).await;
    assert!(forgotten.expect("a key is forgotten"), "{key}");
}

async fn purged<S: StoreUnderTest>(fixture: &Fixture<S>, since: Option<&PurgeMark>) -> Purged {
    let purged = fixture.store().purged(since).await;
    purged.expect("purged keys are read")
}

/// The expected result if only `keys` were deleted after a mark.
fn purged_since(at: &Purged, keys: &[&str]) -> Purged {
    Purged {
        until: at.until.clone(),
        keys: Some(keys.iter().map(|key| claim(key).scope).collect()),
    }
}

fn bare(status: u16, body: Bytes) -> StoredResponse {
    StoredResponse {
        status,
        headers: Vec::new(),
        body,
    }
}

fn text(response: &StoredResponse) -> String {
    String::from_utf8_lossy(&response.body).into_owned()
}

async fn look_up<S: StoreUnderTest>(
    fixture: &Fixture<S>,
    key: &str,
) -> Option<hapax::idempotency::KeyRecord> {
    let found = fixture.store().look_up(&claim(key).scope).await;
    found.expect("a key is looked up")
}

/// Checks that the response is replayed twice: the second replay may come from another place than
/// the first.
async fn check_replay<S: StoreUnderTest>(
    fixture: &Fixture<S>,
    key: &str,
    response: StoredResponse,
) {
    fixture.run(claim(key), key, &response).await;
    assert_eq!(fixture.replay(claim(key)).await, response, "{key}");
    assert_eq!(fixture.replay(claim(key)).await, response, "{key}, again");
    let record = look_up(fixture, key).await.expect("the key is stored");
    assert_eq!(record.response, Some(response), "{key}, looked up");
}

/// Checks that each scope is executed and receives its own response.
async fn check_apart<S: StoreUnderTest>(scopes: &[(&str, &str, &str)]) {
    let fixture = Fixture::<S>::fresh().await;
    let of =
        |(tenant, operation, key): &(&str, &str, &str)| claim_of(scope(tenant, operation, key));
    for (number, parts) in scopes.iter().enumerate() {
        let body = number.to_string();
        fixture.run(of(parts), &body, &response(&body)).await;
    }
    for (number, parts) in scopes.iter().enumerate() {
        let outcome = fixture.replay(of(parts)).await;
        assert_eq!(outcome, response(&number.to_string()), "{parts:?}");
    }
}

/// Checks that nothing is left of key `k` and that it can be used.
async fn check_free_again<S: StoreUnderTest>(fixture: &Fixture<S>) {
    fixture.run(claim("k"), "after", &response("after")).await;
    assert_eq!(fixture.replay(claim("k")).await, response("after"));
    assert_eq!(fixture.rows().await, ["after"]);
    assert_eq!(fixture.events().await.len(), 0);
}
